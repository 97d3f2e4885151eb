"""Known pitfalls of GRPO in TRL, each provoked: `--check` reports it before a weight is loaded.

The numbers are those of a survey of the issue trackers of TRL and its neighbours; the threads stand beside each.
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
# The number of each in the survey, and its threads; words that provoke it in a recipe that is right (FOLDER is the
# test's own); where the check reports it, and as which kind (a note has none: its words); what would happen without the
# check; and what the words need.
PITFALLS = [
    (
        3,
        "trl#2923, open-r1#620",
        ["--world_size", "2", "--ddp_timeout", "600", "--reward_batch_timeout_s", "500"],
        "problems",
        "timeout-too-long",
        "NCCL aborts while one process still scores",
        nothing,
    ),
    (
        7,
        "trl#3858",
        ["--ds3_gather_for_generation", "false"],
        "warnings",
        "slow-generation",
        "a run that seems to hang",
        nothing,
    ),
    (
        8,
        "trl#4899, #4535",
        [],
        "problems",
        "unsupported-version",
        "an IndexError under ZeRO-3 after the first generation",
        installed("transformers", "5.5.0"),
    ),
    (
        9,
        "trl#6089, DeepSpeed#8072",
        [],
        "problems",
        "unsupported-version",
        "types that don't match in the first forward pass",
        installed("deepspeed", "0.18.5"),
    ),
    (
        12,
        "trl#3466, #4973, #5975",
        [*VLLM, "--load_in_4bit", "true"],
        "problems",
        "conflicting-keys",
        "rollouts of another policy than the one that is trained",
        nothing,
    ),
    (
        13,
        "trl#3671, #6688",
        [*VLLM, "--load_in_4bit", "false"],
        "warnings",
        "vllm-drift",
        "a hang, or a drift; without vLLM an error says so, too",
        nothing,
    ),
    (
        15,
        "trl#3247, #3185",
        [],
        "problems",
        "checkpoint-mismatch",
        "an optimizer and a schedule of another run",
        interrupted,
    ),
    (
        15,
        "trl#3247",
        ["--resume_from_checkpoint", "FOLDER/run/checkpoint-4"],
        "problems",
        "checkpoint-incomplete",
        "it would begin anew without a message",
        interrupted,
    ),
    (
        16,
        "trl#6700, #3031",
        OWN_MODEL,
        "problems",
        "adapter-as-model",
        "0 weights are trained, and the run ends well",
        model(as_adapter),
    ),
    (
        16,
        "trl#6700",
        ["--lora_target_modules", "[q_proj]"],
        "problems",
        "unknown-module",
        "PEFT finds no module, after the weights were loaded and the base was measured",
        nothing,
    ),
    (
        17,
        "trl#4612, PR #5977",
        ["--lora_target_modules", "[q_proj, lm_head]"],
        "problems",
        "lora-on-head",
        "weights that are saved and never used",
        nothing,
    ),
    (
        21,
        "trl#2820, open-r1#271",
        OWN_MODEL,
        "problems",
        "missing-chat-template",
        "an exception at the first batch",
        model(without_template),
    ),
    (
        21,
        "trl#2820",
        OWN_MODEL,
        "problems",
        "missing-eos-token",
        "every completion is cut off",
        model(content("tokenizer_config.json", eos_token=None)),
    ),
    (
        21,
        "trl PR #7039",
        OWN_MODEL,
        "warnings",
        "unended-completion",
        "an answer is followed by invented turns",
        model(unending),
    ),
    (21, "open-r1#271", SUMS, "warnings", "unended-completion", "a base model goes on until it is cut off", sums()),
    (
        23,
        "trl#4358, #3569",
        SUMS_THAT_END,
        "problems",
        "prompt-too-long",
        "text beyond the model's positions, or an exception, whenever such a row comes",
        sums(long=20),
    ),
    (
        23,
        "trl PR #5964",
        ["--max_prompt_length", "512"],
        "problems",
        "removed-key",
        "TRL ignores the key without a message when it comes from a file",
        nothing,
    ),
    (
        24,
        "trl#3675, #3477",
        ["--task.train_rows", "4"],
        "problems",
        "too-few-rows",
        "a run of 0 steps that ends well",
        nothing,
    ),
    (
        24,
        "trl#4271",
        [],
        "notes",
        "60 optimizer steps over 1500 training rows (4 of them fill no batch and are left",
        "rows that are never seen",
        nothing,
    ),
    (
        25,
        "trl#2961, PR #3493",
        ["--world_size", "3", "--per_device_train_batch_size", "20"],
        "problems",
        "incomplete-group",
        "an exception on the machine that was booked",
        nothing,
    ),
    (
        25,
        "trl#2961",
        ["--world_size", "8"],
        "notes",
        "64 prompts x 8 completions per generation over 8 processes",
        "eight times the intended batch",
        nothing,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "threads", "words", "where", "expected", "why", "prepare"), PITFALLS)
def test_a_pitfall_is_found_before_a_weight_is_loaded(
    number: int,
    threads: str,
    words: list[str],
    where: str,
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
    if where == "notes":
        assert any(expected in note for note in result["notes"]), (result, why)
    else:
        assert expected in [problem["kind"] for problem in result[where]], (result, why)


def test_a_right_recipe_brings_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    others = [line for line in captured.err.splitlines() if " …" not in line]  # than those of a slow step
    assert "warning" not in captured.out and captured.err.startswith(str(DEMO)) and others == []
