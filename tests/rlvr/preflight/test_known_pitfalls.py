"""Known pitfalls of GRPO in TRL, each provoked: `--check` reports it before a weight is loaded.

The threads of the issue trackers of TRL and its neighbours stand beside each.
Pitfalls that a check can't know (a verifier that hangs in the tenth hour, a group without spread) have other tests.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from tests.conftest import REPOSITORY, TINY_MODEL

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"

Prepare = Callable[[Path, pytest.MonkeyPatch], None]


def nothing(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The words of the command line are enough."""


def installed(package: str, version: str) -> Prepare:
    """Another version of a package, as far as what pip leaves behind of it says."""

    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        information = folder / "site" / f"{package}-{version}.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        patch.syspath_prepend(folder / "site")

    return prepare


def model(change: Callable[[Path], None]) -> Prepare:
    """A copy of the tiny model in `FOLDER/model`, with something about it changed."""

    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        shutil.copytree(TINY_MODEL, folder / "model")
        change(folder / "model")

    return prepare


def content(file: str, **changes: Any) -> Callable[[Path], None]:
    """Changes keys of one of the model's JSON files."""

    def change(folder: Path) -> None:
        known = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**known, **changes}))

    return change


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def unending(folder: Path) -> None:
    content("tokenizer_config.json", eos_token="!")(folder)
    content("generation_config.json", eos_token_id=0)(folder)


def as_adapter(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen2.5-0.5B"}))


def sums(*, long: int = 0, rows: int = 40) -> Prepare:
    """Sums as plain text in `FOLDER/sums.jsonl`, the first `long` of them after 5,000 other words."""

    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        texts = [("word " * 5000 if number < long else "") + f"{number} + 1 =" for number in range(rows)]
        lines = [json.dumps({"prompt": text, "final_answer": str(n + 1)}) for n, text in enumerate(texts)]
        (folder / "sums.jsonl").write_text("\n".join(lines))

    return prepare


def interrupted(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A run of the same recipe with another learning rate, which left a complete checkpoint."""
    from rlvr.artifacts import checkpoints
    from rlvr.artifacts.identity import Identity
    from rlvr.artifacts.resumption import RunStatus
    from rlvr.config.recipe import load_recipe
    from rlvr.scoring.registry import load_task

    recipe = load_recipe(DEMO, ["--output_dir", str(folder / "run"), "--report_to", "none", "--learning_rate", "0.01"])
    identity = Identity.of(recipe, load_task(recipe.tasks[0]).train, 1, "python")
    checkpoint = folder / "run" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    RunStatus(folder / "run", identity, writes=True).update("interrupted")
    checkpoints.mark_complete(checkpoint, 3, identity)


def task_of(path: str, **options: Any) -> list[str]:
    """The words for a task of rows of one's own."""
    return ["--task", json.dumps({"name": "jsonl", "path": path, **options})]


VLLM = ["--use_vllm", "true", "--vllm_weight_sync", "merged"]
OWN_MODEL = ["--model_name_or_path", "FOLDER/model"]
SUMS, SUMS_THAT_END = task_of("FOLDER/sums.jsonl"), task_of("FOLDER/sums.jsonl", stop_strings=["\n"])
# Words that provoke it in a recipe that is right (FOLDER is the test's own); the kind of the problem, or words of a
# note; the threads, and what would happen without the check; and what the words need.
PITFALLS = [
    (
        ["--world_size", "2", "--ddp_timeout", "600", "--reward_batch_timeout_s", "500"],
        "timeout-too-long",
        "trl#2923, open-r1#620: NCCL aborts while one process still scores",
        nothing,
    ),
    (["--ds3_gather_for_generation", "false"], "slow-generation", "trl#3858: a run that seems to hang", nothing),
    (
        [],
        "unsupported-version",
        "trl#4899, #4535: an IndexError under ZeRO-3 after the first generation",
        installed("transformers", "5.5.0"),
    ),
    (
        [],
        "unsupported-version",
        "trl#6089, DeepSpeed#8072: types that don't match in the first forward pass",
        installed("deepspeed", "0.18.5"),
    ),
    (
        [*VLLM, "--load_in_4bit", "true"],
        "conflicting-keys",
        "trl#3466, #4973, #5975: rollouts of another policy than the one that is trained",
        nothing,
    ),
    (
        [*VLLM, "--load_in_4bit", "false"],
        "vllm-drift",
        "trl#3671, #6688: a hang, or a drift; without vLLM an error says so, too",
        nothing,
    ),
    ([], "checkpoint-mismatch", "trl#3247, #3185: an optimizer and a schedule of another run", interrupted),
    (
        ["--resume_from_checkpoint", "FOLDER/run/checkpoint-4"],
        "checkpoint-incomplete",
        "trl#3247: it would begin anew without a message",
        interrupted,
    ),
    (OWN_MODEL, "adapter-as-model", "trl#6700, #3031: 0 weights are trained, and the run ends well", model(as_adapter)),
    (
        ["--lora_target_modules", "[q_proj]"],
        "refused-by-trl",
        "trl#6700: PEFT finds no module, after the weights were loaded and the base was measured",
        nothing,
    ),
    (
        ["--lora_target_modules", "[q_proj, lm_head]"],
        "lora-on-head",
        "trl#4612, PR #5977: weights that are saved and never used",
        nothing,
    ),
    (
        OWN_MODEL,
        "missing-chat-template",
        "trl#2820, open-r1#271: an exception at the first batch",
        model(without_template),
    ),
    (
        OWN_MODEL,
        "missing-eos-token",
        "trl#2820: every completion is cut off",
        model(content("tokenizer_config.json", eos_token=None)),
    ),
    (OWN_MODEL, "unended-completion", "trl PR #7039: an answer is followed by invented turns", model(unending)),
    (SUMS, "unended-completion", "open-r1#271: a base model goes on until it is cut off", sums()),
    (
        SUMS_THAT_END,
        "prompt-too-long",
        "trl#4358, #3569: text beyond the model's positions, or an exception, whenever such a row comes",
        sums(long=20),
    ),
    (
        ["--max_prompt_length", "512"],
        "removed-key",
        "trl PR #5964: TRL ignores the key without a message when it comes from a file",
        nothing,
    ),
    (["--task.train_rows", "4"], "too-few-rows", "trl#3675, #3477: a run of 0 steps that ends well", nothing),
    (
        [],
        "60 optimizer steps over 1500 training rows (4 of them fill no batch and are left",
        "trl#4271: rows that are never seen",
        nothing,
    ),
    (
        ["--world_size", "3", "--per_device_train_batch_size", "20"],
        "incomplete-group",
        "trl#2961, PR #3493: an exception on the machine that was booked",
        nothing,
    ),
    (
        ["--world_size", "8"],
        "64 prompts x 8 completions per generation over 8 processes",
        "trl#2961: eight times the intended batch",
        nothing,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "expected", "why", "prepare"), PITFALLS)
def test_a_pitfall_is_found_before_a_weight_is_loaded(
    words: list[str],
    expected: str,
    why: str,
    prepare: Prepare,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(tmp_path, monkeypatch)
    words = ["--report_to", "none", *(word.replace("FOLDER", str(tmp_path)) for word in words)]
    words = ["--config", str(DEMO), "--output_dir", str(tmp_path / "run"), *words]
    code = run_grpo.main([*words, "--check", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == (2 if result["problems"] else 0), result
    kinds = [problem["kind"] for problem in [*result["problems"], *result["warnings"]]]
    assert expected in kinds or any(expected in note for note in result["notes"]), (result, why)


def test_a_right_recipe_brings_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    others = [line for line in captured.err.splitlines() if " …" not in line]  # than those of a slow step
    assert "warning" not in captured.out and captured.err.startswith(str(DEMO)) and others == []
