"""What people lost days to with GRPO in TRL, provoked here; `--check` has to say it before a weight is loaded.

The numbers are those of a survey of TRL's and its neighbours' issue trackers; the threads stand beside each. Pains that
a check can't know (a verifier that hangs in the tenth hour, a group without spread) are other tests' business.
"""

from __future__ import annotations

import importlib.util
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

# The pains of the survey that a check can catch.
CAUGHT = {1, 3, 7, 8, 9, 12, 13, 15, 16, 17, 21, 22, 23, 24, 25}

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
class Pain:
    """One pain.

    Attributes:
        number: in the survey.
        threads: where people met it.
        words: of the command line, which bring it about in a recipe that is right; FOLDER is the test's own folder.
        said: what `--check` has to say, each of them.
        refused: whether it ends with exit 2; else it is a warning.
        prepare: what has to be there for it.
        why: what would happen without.
    """

    number: int
    threads: str
    words: list[str]
    said: list[str]
    refused: bool
    why: str
    prepare: Prepare = nothing


VLLM = importlib.util.find_spec("vllm") is not None
STOPS = {"stop_strings": ["\n"]}
PAINS = [
    Pain(
        1, "trl#5697, #6263", ["--max_completion_length", "12"],
        ["golds of the task are longer than max_completion_length = 12", "earns nothing", "completion_length to 64"],
        False, "every completion is cut off before its answer, every reward is 0, and no error says so",
    ),
    Pain(
        1, "trl#5697, #6263", ["--max_completion_length", "12", "--mask_truncated_completions", "true"],
        ["mask_truncated_completions leaves it out altogether: steps of loss 0"],
        False, "and then the loss is 0 as well",
    ),
    Pain(
        3, "trl#2923, open-r1#620", ["--world_size", "2", "--ddp_timeout", "600", "--reward_batch_timeout_s", "500"],
        ["reward_batch_timeout_s is 500", "wait for at most ddp_timeout = 600 s", "ddp_timeout to 750"],
        True, "NCCL aborts while one process still scores",
    ),
    Pain(
        7, "trl#3858", ["--ds3_gather_for_generation", "false"],
        ["gathered from all GPUs again for every token", "looks like a hang (huggingface/trl#3858)", "Set it to true"],
        False, "a run that seems to hang",
    ),
    Pain(
        8, "trl#4899, #4535", [], ["transformers 5.5.0 is installed", "pop from an empty deque", "pip install"],
        True, "an IndexError under ZeRO-3 after the first generation", installed("transformers", "5.5.0"),
    ),
    Pain(
        9, "trl#6089, DeepSpeed#8072", [], ["deepspeed 0.18.5 is installed", "huggingface/trl#6089", "pip install"],
        True, "types that don't match in the first forward pass", installed("deepspeed", "0.18.5"),
    ),
    Pain(
        12, "trl#3466, #4973, #5975", ["--use_vllm", "true", "--load_in_4bit", "true"],
        ["load_in_4bit with use_vllm", "issues 4973", "Set use_vllm: false, or load_in_4bit: false"],
        True, "rollouts of another policy than the one that is trained",
    ),
    Pain(
        13, "trl#3671, #6688", ["--use_vllm", "true", "--load_in_4bit", "false"],
        ["vllm_mode: colocate and use_peft", "trl#3671", "trl#6688", "sampling/importance_sampling_ratio/mean"],
        not VLLM, "a hang, or a drift; where vLLM itself is missing, that is refused and this said with it",
    ),
    Pain(
        15, "trl#3247, #3185", [],
        ["belongs to a different run", "learning_rate was 0.01, now", "--resume_from_checkpoint never"],
        True, "an optimizer and a schedule of another run", interrupted,
    ),
    Pain(
        15, "trl#3247", ["--resume_from_checkpoint", "FOLDER/run/checkpoint-4"],
        ["checkpoint-4 can't be continued: there is no such folder"],
        True, "it would begin anew without a word", interrupted,
    ),
    Pain(
        16, "trl#6700, #3031", ["--model_name_or_path", "FOLDER/model"],
        ["is an adapter, not a whole model", "nothing of it would be trained", "model_name_or_path: Qwen/Qwen2.5-0.5B"],
        True, "0 weights are trained, and the run ends well", model(as_adapter),
    ),
    Pain(
        16, "trl#6700", ["--lora_target_modules", "[q_proj]"],
        ["'q_proj' alone is a pattern of whole names", "'.*q_proj'", "has down_proj, gate_proj"],
        True, "PEFT finds no module, after the weights were loaded and the base was measured",
    ),
    Pain(
        16, "trl#6700", ["--lora_target_modules", "[q_proj, v_prj]"],
        ["no module v_prj (did you mean v_proj?)", "without a word"],
        True, "half of the adapter isn't there, and nothing says so",
    ),
    Pain(
        17, "trl#4612, PR #5977", ["--lora_target_modules", "[q_proj, lm_head]"],
        ["a LoRA on lm_head would never be applied", "Remove lm_head"],
        True, "weights that are saved and never used",
    ),
    Pain(
        21, "trl#2820, open-r1#271", ["--model_name_or_path", "FOLDER/model"],
        ["has no chat template, but the task's prompts are chat messages", "style: text"],
        True, "an exception at the first batch", model(without_template),
    ),
    Pain(
        21, "trl#2820", ["--model_name_or_path", "FOLDER/model"],
        ["has no end-of-sequence token, so no completion would ever end", "Set eos_token in its tokenizer_config.json"],
        True, "every completion is cut off", model(content("tokenizer_config.json", eos_token=None)),
    ),
    Pain(
        21, "trl PR #7039", ["--model_name_or_path", "FOLDER/model"],
        ["chat template closes a turn with '<|im_end|>', but a completion ends only at", "Set eos_token_id"],
        False, "an answer is followed by invented turns",
        model(unending),
    ),
    Pain(
        21, "open-r1#271", prompts("FOLDER/sums.jsonl"),
        ["the prompts are plain text and the task names no stop_strings", "<|im_end|>, which base models seldom do"],
        False, "a base model goes on until it is cut off", sums(),
    ),
    Pain(
        22, "trl#5783, transformers#42762", ["--model_name_or_path", "FOLDER/model"],
        ["the model's own min_p 0.5, no_repeat_ngram_size 3 (generation_config.json) is not used", "min_p 0.0"],
        False, "groups without spread, since all completions are nearly the same",
        model(content("generation_config.json", min_p=0.5, no_repeat_ngram_size=3)),
    ),
    Pain(
        22, "trl#5783", ["--model_name_or_path", "FOLDER/model"],
        ["the model's own temperature 0.6, top_k 20 (generation_config.json) is not used", "temperature 1.0, top_k 0"],
        False, "transformers 4 took them; who relies on that should know",
        model(content("generation_config.json", do_sample=True, temperature=0.6, top_k=20)),
    ),
    Pain(
        23, "trl#4358, #3569", prompts("FOLDER/sums.jsonl", **STOPS),
        ["of 36 train prompts are too long", "more than the 4096 positions", "never cut", "filter the rows"],
        True, "text beyond the model's positions, or an exception, whenever such a row comes", sums(long=20),
    ),
    Pain(
        23, "trl PR #5964", ["--max_prompt_length", "512"],
        ["max_prompt_length is not a key any more", "prompts are never cut"],
        True, "TRL drops the key in silence when it comes from a file",
    ),
    Pain(
        24, "trl#3675, #3477", ["--task.train_rows", "4"],
        ["takes 8 prompts, but the training split has 4 rows: not one step would be made"],
        True, "a run of 0 steps that ends well",
    ),
    Pain(
        24, "trl#4271", [], ["60 optimizer steps over 1500 training rows (4 of them fill no batch and are left out"],
        False, "rows that are never seen",
    ),
    Pain(
        25, "trl#2961, PR #3493", ["--world_size", "3", "--per_device_train_batch_size", "20"],
        ["does not divide into groups of num_generations = 8", "x 3 processes", "per_device_train_batch_size: 8"],
        True, "an exception on the machine that was booked",
    ),
    Pain(
        25, "trl#2961", ["--world_size", "8"], ["64 prompts x 8 completions per generation over 8 processes"],
        False, "eight times the batch that was meant",
    ),
]  # fmt: skip


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: f"{pain.number}: {pain.why[:40]}")
def test_a_pain_is_caught_before_a_weight_is_loaded(
    pain: Pain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pain.prepare(tmp_path, monkeypatch)
    words = ["--report_to", "none", *(word.replace("FOLDER", str(tmp_path)) for word in pain.words)]
    code = run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "run"), *words])
    captured = capsys.readouterr()
    told = captured.err if pain.refused else captured.out
    assert code == (2 if pain.refused else 0), captured
    assert [words for words in pain.said if words not in told] == [], (told, pain.why)


def test_every_pain_that_a_check_can_catch_is_in_the_table() -> None:
    assert {pain.number for pain in PAINS} == CAUGHT


def test_a_recipe_that_is_right_brings_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "warning" not in captured.out and captured.err == ""
