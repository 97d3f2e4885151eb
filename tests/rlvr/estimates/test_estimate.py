"""The complete estimate: its output, its proposed changes, and its speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, LlamaConfig, MixtralConfig

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.estimates import Estimate, estimate, find_machine
from rlvr.estimates.memory import GIB, LOADING
from rlvr.preflight.rollout_weights import as_merged
from tests.support.model_families import real_config

REPOSITORY = Path(__file__).resolve().parents[3]
HALF = real_config("Qwen/Qwen2.5-0.5B-Instruct")
SEVEN = real_config("Qwen/Qwen2.5-7B-Instruct")
LORA = {"use_peft": True, "lora_target_modules": "all-linear"}


def of(
    machine: str,
    config: Any = SEVEN,
    processes: int = 1,
    launcher: str = "python",
    steps: int = 100,
    **settings: Any,
) -> Estimate:
    settings = {"dtype": "bfloat16", "ddp_timeout": 1800, **settings}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    return estimate(recipe, config, processes, launcher, find_machine(machine), prompt_tokens=300, steps=steps)


@pytest.mark.parametrize(
    ("estimated", "fits", "why"),
    [
        (lambda: of("A10G", HALF, **LORA), True, "half a billion, LoRA: 24 GB are plenty"),
        (lambda: of("A10G", load_in_4bit=True, **LORA), True, "seven billion in 4 bits"),
        (lambda: of("A10G", **LORA), True, "in 16 bits they are 14 GiB: 8 completions fit beside them …"),
        (lambda: of("A10G", per_device_train_batch_size=64, **LORA), False, "… and 64 don't"),
        (lambda: of("A100-80GB", dtype="float32"), False, "full fine-tuning in float32: 16 bytes a parameter"),
        (lambda: of("A100-80GB", processes=8, launcher="zero3"), True, "the same among eight"),
        (lambda: of("A100-80GB", processes=8, launcher="ddp", dtype="float32"), False, "DDP shares nothing"),
        (lambda: of("ml.p4d.24xlarge", processes=8, launcher="zero2_offload"), True, "Adam in the machine's memory"),
        (lambda: of("ml.g6e.xlarge", launcher="zero2_offload"), False, "the machine has 32 GiB for the 113 of Adam"),
    ],
)
def test_whether_it_fits(estimated: Callable[[], Estimate], fits: bool, why: str) -> None:
    assert estimated().fits is fits, why


@pytest.mark.parametrize(
    ("machine", "processes", "launcher", "settings", "why"),
    [
        ("A10G", 1, "python", {**LORA, "per_device_train_batch_size": 32}, "LoRA"),
        ("A10G", 1, "python", {**LORA, "activation_checkpointing": False}, "a LoRA that keeps everything"),
        ("A100-80GB", 1, "python", {"dtype": "float32", "beta": 0.04}, "full fine-tuning with a reference"),
        ("ml.g6e.12xlarge", 4, "ddp", {}, "full fine-tuning that could be shared"),
        ("L40S-48GB", 1, "python", {"use_vllm": True, "vllm_gpu_memory_utilization": 0.6}, "vLLM"),
        (
            "L4-24GB",
            1,
            "python",
            {"per_device_train_batch_size": 64, "generation_batch_size": 512, "load_in_4bit": True, **LORA},
            "a generation of stated size: a smaller micro-batch",
        ),
    ],
)
def test_proposed_changes_save_the_stated_memory(
    machine: str, processes: int, launcher: str, settings: dict[str, Any], why: str
) -> None:
    estimated = of(machine, processes=processes, launcher=launcher, **settings)
    assert estimated.fits is False and estimated.changes, why
    changed: dict[str, Any] = dict(settings)
    saved = 0.0
    for change in estimated.changes:
        changed |= change.keys
        launcher = change.launcher
        saved += change.saves
    after = of(machine, processes=processes, launcher=launcher, **changed)
    assert after.memory.peak == pytest.approx(estimated.needed_after), why
    assert estimated.memory.peak - saved == pytest.approx(after.memory.peak), why
    assert after.fits == (estimated.needed_after <= estimated.machine.gpu.memory * GIB), why


def test_if_checkpointing_suffices_nothing_else_is_proposed() -> None:
    estimated = of("A10G", load_in_4bit=True, activation_checkpointing=False, per_device_train_batch_size=16, **LORA)
    assert [change.words for change in estimated.changes] == ["activation_checkpointing: true"]


@pytest.mark.parametrize(
    ("estimated", "phrases", "why"),
    [
        (lambda: of("ml.g6e.xlarge", HALF, **LORA), ["fits on ml.g6e.xlarge (45 GiB", "dollars"], "all is well"),
        (lambda: of("ml.g6e.xlarge", HALF, processes=8, **LORA), ["fits on 8 x ml.g6e", "dollars"], "one GPU each"),
        (lambda: of("ml.p5en.48xlarge", HALF, **LORA), ["for 100 updates, "], "no price, no dollars"),
        (lambda: of("A10G", dtype="float32"), ["does NOT fit on A10G-24GB", "  change ", "saves", "  then "], "large"),
        (
            lambda: of("ml.g6e.xlarge", HALF, steps=1, max_completion_length=16, **LORA),
            ["less than a minute for 1 u"],
            "small",
        ),
        (
            lambda: of("L40S-48GB", use_vllm=True, load_in_4bit=True, **LORA),
            ["0.3 is 13.5 GiB", "0.37 or more"],
            "a small share",
        ),
        (
            lambda: of("L4", use_vllm=True, load_in_4bit=True, **LORA),
            ["does NOT fit", "change rollouts: transformers"],
            "7B in 16 bits for vLLM, beside its training",
        ),
        (lambda: of("ml.g6e.xlarge", launcher="zero2_offload"), ["takes 113 of 32 GiB"], "the machine's own memory"),
    ],
)
def test_the_output_is_aligned(estimated: Callable[[], Estimate], phrases: list[str], why: str) -> None:
    lines = estimated().lines()
    assert all(line == line.rstrip() for line in lines), why
    for words in phrases:
        assert any(words in line for line in lines), (why, lines)
    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("total")) + 1]
    assert len({len(line) for line in table}) == 1, why
    assert (" dollars, " in "\n".join(lines)) == ("dollars" in phrases), why


def test_the_columns_add_up() -> None:
    lines = of("A10G", HALF, generation_batch_size=512, **LORA).lines()
    rows = [line.split()[-3:] for line in lines if line[-1].isdigit() or line[-1] == "-"]
    table = [[0.0 if cell == "-" else float(cell) for cell in row] for row in rows]
    *parts, totals = table
    for column, whole in enumerate(totals):
        assert sum(row[column] for row in parts) == pytest.approx(whole, abs=0.05)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_can_be_estimated_under_every_launcher(path: Path) -> None:
    recipe, machine = load_recipe(path), find_machine("L4")
    for launcher in ("python", "ddp", "zero2", "zero2_offload", "zero3", "fsdp2"):
        processes = 1 if launcher == "python" else 4
        estimated = estimate(recipe, HALF, processes, launcher, machine, prompt_tokens=200, steps=10)
        assert 1 < estimated.memory.peak / GIB < 500, launcher
        assert estimated.lines(), launcher


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (AutoConfig.from_pretrained(REPOSITORY / "models" / "tiny-arithmetic"), "the model that ships here"),
        (LlamaConfig(num_hidden_layers=2), "another family"),
        (MixtralConfig(num_hidden_layers=1, hidden_size=256, intermediate_size=512), "a mixture of experts"),
    ],
)
def test_other_models_can_be_estimated(config: Any, why: str) -> None:
    lines = of("H100", config, **LORA).lines()
    assert any(line.startswith("fits") for line in lines), why
    assert ("as if it were dense" in "\n".join(lines)) == (config.model_type == "mixtral"), why


def test_a_generation_is_made_in_as_few_equal_rounds_as_fit() -> None:
    estimated = of("A10G", HALF, gradient_accumulation_steps=64, **LORA)
    setup = estimated.setup
    assert estimated.fits and setup.generated == 512 and setup.rounds > 1
    assert setup.at_once == -(-512 // setup.rounds), "equal rounds"
    fewer = of("A10G", HALF, gradient_accumulation_steps=64, per_device_generation_batch_size=setup.at_once + 1, **LORA)
    free = estimated.memory.at("generating") / (22.5 * GIB)
    assert free <= 0.9 and fewer.setup.at_once == setup.at_once + 1
    assert any("in 2 rounds of at most 256" in line for line in estimated.lines())
    assert of("A10G", HALF, use_vllm=True, gradient_accumulation_steps=64, **LORA).setup.rounds == 1


def test_an_estimate_with_proposed_changes_takes_less_than_two_seconds() -> None:
    """Without the imports of torch and transformers."""
    counted = real_config("Qwen/Qwen2.5-7B-Instruct")
    counted.vocab_size = 150_000  # counted by no other test
    started = time.process_time()
    assert of("L4", counted, per_device_train_batch_size=64).changes
    assert time.process_time() - started < 2


def test_the_page_shows_the_output() -> None:
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    path = REPOSITORY / "recipes" / "gsm8k-qwen2.5-7b-instruct-qlora.yaml"
    sized = as_merged(load_recipe(path, ["--gradient_accumulation_steps", "1"]))
    shown = estimate(sized, SEVEN, 4, "zero3", find_machine("ml.g6e.12xlarge"), prompt_tokens=300, steps=416)
    assert "\n".join(["```text", *shown.lines(), "```"]) in page
    larger = load_recipe(path, ["--load_in_4bit", "false", "--activation_checkpointing", "false"])
    advised = estimate(larger, SEVEN, 1, "python", find_machine("A10G"), prompt_tokens=300, steps=416)
    assert "\n".join(["```text", *advised.lines()[-3:], "```"]) in page
    small = ["--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "8"]
    for words, gpu in ((["--rollouts", "vllm"], "L40S"), (["--rollouts", "transformers", *small], "A10G")):
        needed = estimate(
            load_recipe(path, words), SEVEN, 1, "python", find_machine(gpu), prompt_tokens=300, steps=1
        ).memory
        assert f"{needed.peak / GIB:.0f} GiB" in page and f"{needed.at(LOADING) / GIB:.0f} GiB" in page
