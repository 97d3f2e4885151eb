"""The bundled tiny models, and the script that makes them."""

from __future__ import annotations

import hashlib
import random
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.data.number_pairs import number_pairs, split_of
from tests.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("tiny-arithmetic", "tiny-programs", "tiny-tools")
SCRIPT = ROOT / "scripts" / "make_tiny_model.py"


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str) -> Path:
    return ROOT / "models" / name


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def lesson(name: str) -> Any:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from make_tiny_model import LESSONS  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return LESSONS[name]


def checksums(folder: Path) -> Iterator[tuple[str, str]]:
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, file = line.split("  ")
        yield file, digest


def test_every_file_matches_its_checksum(folder: Path) -> None:
    listed = dict(checksums(folder))
    assert set(listed) | {"README.md", "SHA256SUMS"} == {path.name for path in folder.iterdir()}
    for file, digest in listed.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file


def test_the_model_has_the_form_that_libraries_need(model: Any, tokenizer: Any) -> None:
    for name, parameter in model.named_parameters():
        assert all(width % 64 == 0 for width in parameter.shape), (name, parameter.shape)
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}
    assert model.config.vocab_size == len(tokenizer), "a token without a text could be sampled, but not decoded"
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 4096
    assert all(len(tokenizer(mark)["input_ids"]) == 1 for mark in ("<|im_start|>", "<|im_end|>", "<|endoftext|>"))
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    for holder in (model.config, model.generation_config):
        assert holder.eos_token_id == tokenizer.eos_token_id
        assert holder.pad_token_id == tokenizer.pad_token_id


def test_the_teacher_uses_only_training_pairs(lesson: Any) -> None:
    rng, pairs = random.Random(0), number_pairs("train")
    for _ in range(2000):
        question, *_ = lesson.demonstration(rng, pairs)
        first, second = map(int, re.findall(r"\d+", question))
        assert split_of(first, second) == "train"


@pytest.mark.parametrize("name", ["tiny-tools"], indirect=True)
def test_a_call_of_the_teacher_is_rendered_and_read_as_trl_does(tokenizer: Any, lesson: Any) -> None:
    """The tokens of training are those of a rollout, whose calls transformers reads."""
    from make_tiny_model import call, closing_line  # type: ignore[import-not-found]
    from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response, supports_tool_calling

    from rlvr.modeling.tiny_model import encode

    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)
    function = {"name": "calculate", "arguments": {"expression": "47*38"}}
    messages = [
        {"role": "user", "content": "47 times 38?"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": "calculate", "content": "1786"},
        {"role": "assistant", "content": closing_line(1786)},
    ]
    rendered = tokenizer.apply_chat_template(messages, tools=list(lesson.tools), tokenize=False)
    tokens, labels = encode(tokenizer, ("47 times 38?", call("47*38"), "1786", closing_line(1786)), lesson.tools)
    assert tokenizer.decode(tokens) + "\n" == rendered
    written = tokenizer.decode([token for token in labels if token >= 0])
    assert written == f"{call('47*38')}<|im_end|>{closing_line(1786)}<|im_end|>"
    answer = tokenizer(call("47*38") + "<|im_end|>")["input_ids"]
    read = parse_response(tokenizer, answer, prefix=tokens[: labels.index(answer[0])])
    assert read["tool_calls"] == [{"type": "function", "function": function}]


def test_zero_steps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        make("tiny-arithmetic", tmp_path / "model", "0", steps="0")
    assert refused.value.code == 2 and "--steps" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def make(name: str, output: Path, seed: str, steps: str = "2") -> dict[str, str]:
    """Run the script in this process; return the checksum of each file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), *words(name, output, seed, steps)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return dict(checksums(output))


def words(name: str, output: Path, seed: str, steps: str = "2") -> list[str]:
    return [name, "--steps", steps, "--seed", seed, "--output", str(output)]


@pytest.fixture(scope="module")
def made(name: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make(name, tmp_path_factory.mktemp("made") / name, "0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-programs"], indirect=True)
def test_the_seed_determines_the_model_bit_for_bit(
    name: str, made: dict[str, str], command: Command, tmp_path: Path
) -> None:
    """The second time in another process, with another hash seed and random state."""
    again = command(SCRIPT, *words(name, tmp_path / "again", "0"))
    done = subprocess.run(again, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "held-out problems" in done.stdout.splitlines()[-1]
    assert made == dict(checksums(tmp_path / "again"))
    other = make(name, tmp_path / "other", "4")
    assert {file for file in made if made[file] != other[file]} == {"model.safetensors"}


@pytest.mark.slow
def test_the_shipped_tokenizer_is_reproducible(folder: Path, made: dict[str, str]) -> None:
    """The configs also name the version of transformers, and the weights take minutes."""
    shipped = dict(checksums(folder))
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert shipped[file] == made[file], file
