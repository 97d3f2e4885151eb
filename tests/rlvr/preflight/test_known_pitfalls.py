"""Known pitfalls of GRPO in TRL, each provoked: `--check` reports it before a weight is loaded.

The numbers are those of a survey of the issue trackers of TRL and its neighbours; the threads stand beside each.
Pitfalls that a check can't know (a verifier that hangs in the tenth hour, a group without spread) have other tests.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import run_grpo

REPOSITORY = Path(__file__).resolve().parents[3]
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
TINY_MODEL = REPOSITORY / "models" / "tiny-arithmetic"

# The pitfalls of the survey that a check can find.
FINDABLE = {1, 3, 7, 8, 9, 12, 13, 15, 16, 17, 21, 22, 23, 24, 25}

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
    identity = Identity.of(recipe, load_task(recipe.task).train, 1, "python")
    checkpoint = folder / "run" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    RunStatus(folder / "run", identity, writes=True).update("interrupted")
    checkpoints.mark_complete(checkpoint, 3, identity)


def prompts(path: str, **options: Any) -> list[str]:
    """The words for a task of rows of one's own."""
    return ["--task", json.dumps({"name": "jsonl", "path": path, **options})]


@dataclass(frozen=True)
class Pitfall:
    """One pitfall.

    Attributes:
        number: in the survey.
        threads: where people met it.
        words: of the command line, which provoke it in a recipe that is right; FOLDER is the test's own folder.
        kind: of the problem that `--check` reports; "" for any.
        named: what its message must name: the thread, the fix, the value.
        level: "error" ends with exit 2, "warning" and "note" don't.
        why: what would happen without the check.
        prepare: makes what the words need.
    """

    number: int
    threads: str
    words: list[str]
    kind: str
    named: list[str]
    level: str
    why: str
    prepare: Prepare = nothing


STOPS = {"stop_strings": ["\n"]}
OWN_MODEL = ["--model_name_or_path", "FOLDER/model"]
PITFALLS = [
    Pitfall(
        1, "trl#5697, #6263", ["--max_completion_length", "12"],
        "gold-too-long", ["max_completion_length = 12", "max_completion_length to 64"],
        "warning", "every completion is cut off before its answer, every reward is 0, and no error says so",
    ),
    Pitfall(
        1, "trl#5697, #6263", ["--max_completion_length", "12", "--mask_truncated_completions", "true"],
        "gold-too-long", ["mask_truncated_completions", "loss 0"],
        "warning", "and then the loss is 0 as well",
    ),
    Pitfall(
        3, "trl#2923, open-r1#620", ["--world_size", "2", "--ddp_timeout", "600", "--reward_batch_timeout_s", "500"],
        "timeout-too-long", ["reward_batch_timeout_s is 500", "ddp_timeout to 750"],
        "error", "NCCL aborts while one process still scores",
    ),
    Pitfall(
        7, "trl#3858", ["--ds3_gather_for_generation", "false"],
        "slow-generation", ["huggingface/trl#3858", "Set it to true"],
        "warning", "a run that seems to hang",
    ),
    Pitfall(
        8, "trl#4899, #4535", [],
        "unsupported-version", ["transformers 5.5.0", "pop from an empty deque", "pip install"],
        "error", "an IndexError under ZeRO-3 after the first generation", installed("transformers", "5.5.0"),
    ),
    Pitfall(
        9, "trl#6089, DeepSpeed#8072", [], "unsupported-version", ["deepspeed 0.18.5", "huggingface/trl#6089"],
        "error", "types that don't match in the first forward pass", installed("deepspeed", "0.18.5"),
    ),
    Pitfall(
        12, "trl#3466, #4973, #5975", ["--use_vllm", "true", "--load_in_4bit", "true"],
        "conflicting-keys", ["load_in_4bit with use_vllm", "4973", "use_vllm: false"],
        "error", "rollouts of another policy than the one that is trained",
    ),
    Pitfall(
        13, "trl#3671, #6688", ["--use_vllm", "true", "--load_in_4bit", "false"],
        "vllm-drift", ["trl#3671", "trl#6688", "sampling/importance_sampling_ratio/mean"],
        "warning", "a hang, or a drift; without vLLM an error says so, too",
    ),
    Pitfall(
        15, "trl#3247, #3185", [],
        "checkpoint-mismatch", ["learning_rate was 0.01, now", "--resume_from_checkpoint never"],
        "error", "an optimizer and a schedule of another run", interrupted,
    ),
    Pitfall(
        15, "trl#3247", ["--resume_from_checkpoint", "FOLDER/run/checkpoint-4"],
        "checkpoint-incomplete", ["checkpoint-4", "there is no such folder"],
        "error", "it would begin anew without a message", interrupted,
    ),
    Pitfall(
        16, "trl#6700, #3031", OWN_MODEL, "adapter-as-model", ["model_name_or_path: Qwen/Qwen2.5-0.5B"],
        "error", "0 weights are trained, and the run ends well", model(as_adapter),
    ),
    Pitfall(
        16, "trl#6700", ["--lora_target_modules", "[q_proj]"],
        "unknown-module", ["'.*q_proj'", "has down_proj, gate_proj"],
        "error", "PEFT finds no module, after the weights were loaded and the base was measured",
    ),
    Pitfall(
        16, "trl#6700", ["--lora_target_modules", "[q_proj, v_prj]"], "unknown-module", ["v_prj", "v_proj?"],
        "error", "half of the adapter is missing, and nothing says so",
    ),
    Pitfall(
        17, "trl#4612, PR #5977", ["--lora_target_modules", "[q_proj, lm_head]"], "lora-on-head", ["Remove lm_head"],
        "error", "weights that are saved and never used",
    ),
    Pitfall(
        21, "trl#2820, open-r1#271", OWN_MODEL, "missing-chat-template", ["style: text"],
        "error", "an exception at the first batch", model(without_template),
    ),
    Pitfall(
        21, "trl#2820", OWN_MODEL, "missing-eos-token", ["tokenizer_config.json"],
        "error", "every completion is cut off", model(content("tokenizer_config.json", eos_token=None)),
    ),
    Pitfall(
        21, "trl PR #7039", OWN_MODEL, "unended-completion", ["closes a turn with '<|im_end|>'", "Set eos_token_id"],
        "warning", "an answer is followed by invented turns", model(unending),
    ),
    Pitfall(
        21, "open-r1#271", prompts("FOLDER/sums.jsonl"), "unended-completion", ["stop_strings", "<|im_end|>"],
        "warning", "a base model goes on until it is cut off", sums(),
    ),
    Pitfall(
        22, "trl#5783, transformers#42762", OWN_MODEL,
        "", ["min_p 0.5, no_repeat_ngram_size 3", "min_p 0.0"],
        "note", "groups without spread, since all completions are nearly the same",
        model(content("generation_config.json", min_p=0.5, no_repeat_ngram_size=3)),
    ),
    Pitfall(
        22, "trl#5783", OWN_MODEL,
        "", ["temperature 0.6, top_k 20", "temperature 1.0, top_k 0"],
        "note", "transformers 4 used them, and users may rely on that",
        model(content("generation_config.json", do_sample=True, temperature=0.6, top_k=20)),
    ),
    Pitfall(
        23, "trl#4358, #3569", prompts("FOLDER/sums.jsonl", **STOPS),
        "prompt-too-long", ["of 36 train prompts", "4096 positions", "max_prompt_characters"],
        "error", "text beyond the model's positions, or an exception, whenever such a row comes", sums(long=20),
    ),
    Pitfall(
        23, "trl PR #5964", ["--max_prompt_length", "512"], "removed-key", ["max_prompt_length", "never truncated"],
        "error", "TRL ignores the key without a message when it comes from a file",
    ),
    Pitfall(
        24, "trl#3675, #3477", ["--task.train_rows", "4"], "too-few-rows", ["takes 8 prompts", "has 4 rows"],
        "error", "a run of 0 steps that ends well",
    ),
    Pitfall(
        24, "trl#4271", [],
        "", ["60 optimizer steps over 1500 training rows (4 of them fill no batch and are left out"],
        "note", "rows that are never seen",
    ),
    Pitfall(
        25, "trl#2961, PR #3493", ["--world_size", "3", "--per_device_train_batch_size", "20"],
        "incomplete-group", ["num_generations = 8", "x 3 processes", "per_device_train_batch_size: 24"],
        "error", "an exception on the machine that was booked",
    ),
    Pitfall(
        25, "trl#2961", ["--world_size", "8"], "", ["64 prompts x 8 completions per generation over 8 processes"],
        "note", "eight times the intended batch",
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda pitfall: f"{pitfall.number}: {pitfall.why[:40]}")
def test_a_pitfall_is_found_before_a_weight_is_loaded(
    pitfall: Pitfall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pitfall.prepare(tmp_path, monkeypatch)
    words = ["--report_to", "none", *(word.replace("FOLDER", str(tmp_path)) for word in pitfall.words)]
    words = ["--config", str(DEMO), "--output_dir", str(tmp_path / "run"), *words]
    code = run_grpo.main([*words, "--check", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == (2 if result["problems"] else 0), result
    if pitfall.level == "note":
        messages = result["notes"]
    else:
        problems = result[{"error": "problems", "warning": "warnings"}[pitfall.level]]
        messages = [problem["message"] for problem in problems if problem["kind"] == (pitfall.kind or problem["kind"])]
    assert any(all(words in message for words in pitfall.named) for message in messages), (result, pitfall.why)


def test_every_pitfall_that_a_check_can_find_is_in_the_table() -> None:
    assert {pitfall.number for pitfall in PITFALLS} == FINDABLE


def test_a_right_recipe_brings_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "warning" not in captured.out and captured.err.startswith(str(DEMO)) and captured.err.count("\n") == 1
