"""The trainer does what TRL's does, but for the departures that rlvr/training.py states, each shown on real steps."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from rlvr import model as models
from rlvr import preflight, training
from rlvr.callbacks import read_metrics
from rlvr.recipe import Recipe, RewardSpec, TaskSpec
from rlvr.rewarding import Reward
from rlvr.task import Task

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny-arithmetic"
BASE: dict[str, Any] = {
    "model_name_or_path": str(TINY),
    "use_cpu": True,
    "dtype": "float32",
    "bf16": False,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 12,
    "max_steps": 2,
    "logging_steps": 1,
    "log_completions": True,
    "num_completions_to_print": 0,
    "activation_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
}
QLORA = {"use_peft": True, "load_in_4bit": True, "use_bnb_nested_quant": True, "lora_target_modules": "all-linear"}


def longer_is_better(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [float(len(str(completion)) % 7) for completion in completions]


def cannot_say_for_half(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [None if row % 2 else 1.0 for row in range(len(completions))]


def build(
    folder: Path,
    *functions: Any,
    settings: dict[str, Any] | None = None,
    text: bool = False,
    stop_strings: tuple[str, ...] = (),
    rows: int = 16,
) -> tuple[training.RecipeTrainer, Recipe, Task]:
    questions = [f"What is {number} + {number + 3}?" for number in range(10, 10 + rows)]
    prompts = questions if text else [[{"role": "user", "content": question}] for question in questions]
    data = Dataset.from_dict({"prompt": prompts})
    task = Task(train=data, validation=data.select([]), test=data.select([]), stop_strings=stop_strings)
    recipe = Recipe(
        path=Path("r.yaml"),
        task=TaskSpec("t"),
        rewards=(RewardSpec("r"),),
        evaluation=None,
        settings={**BASE, "output_dir": str(folder), **(settings or {})},
    )
    rewards = [Reward(function.__name__, function) for function in functions or (longer_is_better,)]
    tokenizer = models.load_tokenizer(recipe, chat=not text)
    return training.build_trainer(recipe, task, rewards, tokenizer), recipe, task


def test_a_row_that_cannot_be_scored_is_left_out_whatever_the_others_say(tmp_path: Path) -> None:
    trainer, *_ = build(tmp_path, longer_is_better, cannot_say_for_half, settings={"max_steps": 1})
    trainer.train()
    assert read_metrics(tmp_path / "metrics.jsonl")[0]["rewards/unscored_fraction"] == 0.5
    # Masked rows have no advantage: neither pushed up nor down.
    assert [advantage == 0 for advantage in trainer._logs["advantages"]][1::2] == [True] * 4


def test_in_plain_trl_the_same_row_would_be_punished(tmp_path: Path) -> None:
    """Why the mask is needed: beside another reward's number, TRL counts the missing one as 0."""
    from trl import GRPOTrainer

    def always_right(completions: list[Any], **kwargs: Any) -> list[float | None]:
        return [1.0 for _ in completions]

    trainer, *_ = build(tmp_path, always_right, cannot_say_for_half, settings={"max_steps": 1})
    trainer._calculate_rewards = types.MethodType(GRPOTrainer._calculate_rewards, trainer)
    trainer.train()
    assert all(advantage < -0.5 for advantage in list(trainer._logs["advantages"])[1::2])


@pytest.mark.parametrize(
    "settings",
    [
        {"max_steps": -1, "num_train_epochs": 1},
        {"max_steps": -1, "num_train_epochs": 2, "gradient_accumulation_steps": 2},
        {"max_steps": -1, "num_train_epochs": 1, "steps_per_generation": 2},
        {"max_steps": -1, "num_train_epochs": 1, "num_iterations": 2},
        {"max_steps": -1, "num_train_epochs": 1, "gradient_accumulation_steps": 3},
    ],
    ids=str,
)
def test_the_plan_of_the_preflight_is_what_happens(tmp_path: Path, settings: dict[str, Any]) -> None:
    trainer, recipe, task = build(tmp_path, settings={**settings, "max_completion_length": 2}, rows=10)
    config = models.load_config(recipe)
    reward = trainer._rewards[0]
    plan = preflight.check(recipe, task, [reward], reward, trainer.processing_class, config, 1)
    trainer.train()
    assert trainer.state.global_step == plan.steps


def test_completions_end_at_a_stop_string_and_are_not_counted_as_cut_off(tmp_path: Path) -> None:
    settings = {"max_steps": 1, "max_completion_length": 40}
    plain, *_ = build(tmp_path / "plain", settings=settings, text=True)
    plain.train()
    stopped, *_ = build(tmp_path / "stopped", settings=settings, text=True, stop_strings=("\n",))
    stopped.train()
    assert any("\n" in text[:-1] for text in plain._logs["completion"]), "the model writes several lines by itself"
    for text in stopped._logs["completion"]:
        assert "\n" not in text.rstrip("\n") or text.count("\n") == 1 and len(text) - text.index("\n") < 8
    ratio = read_metrics(tmp_path / "stopped" / "metrics.jsonl")[0]["completions/clipped_ratio"]
    assert ratio < 1, "TRL alone would call every completion without an end-of-sequence token cut off"


def changed_elements(trainer: training.RecipeTrainer) -> float:
    """Fraction of the elements of lora_A (whose values are not zero at the start) that training changed."""
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if "lora_A" in name}
    trainer.train()
    after = dict(trainer.model.named_parameters())
    changed = sum((after[name] != old).sum().item() for name, old in before.items())
    return changed / sum(old.numel() for old in before.values())


@pytest.mark.slow
def test_a_small_learning_rate_moves_a_qlora_adapter_only_in_float32(tmp_path: Path) -> None:
    settings = {**QLORA, "learning_rate": 1e-6, "max_steps": 4}
    ours, *_ = build(tmp_path / "ours", settings=settings)
    assert changed_elements(ours) > 0.95
    as_trl, *_ = build(tmp_path / "trl", settings=settings)
    for parameter in as_trl.model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
    assert changed_elements(as_trl) < 0.10


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    def run(name: str, seed: int) -> list[dict[str, Any]]:
        trainer, *_ = build(tmp_path / name, settings={**QLORA, "seed": seed})
        trainer.train()
        lines = read_metrics(tmp_path / name / "metrics.jsonl")
        return [{key: line[key] for key in ("step", "loss", "reward", "grad_norm") if key in line} for line in lines]

    first = run("a", 1)
    assert first == run("b", 1)
    assert first != run("c", 2)


@pytest.mark.slow
def test_a_saved_adapter_is_the_trained_one_in_plain_peft(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trainer, recipe, _ = build(tmp_path, settings={**QLORA, "load_in_4bit": False})
    trainer.train()
    folder = training.save(trainer, recipe)
    assert folder == tmp_path / "adapter"
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32), folder).eval()
    trained = trainer.model.eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(loaded(ids).logits, trained(ids).logits, atol=1e-5)
        with loaded.disable_adapter():
            assert not torch.allclose(loaded(ids).logits, trained(ids).logits, atol=1e-3), "training changed nothing"


def test_a_resumed_metrics_file_has_neither_holes_nor_repeats(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from rlvr.callbacks import MetricsFile

    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps({"step": step, "reward": step}) + "\n" for step in (1, 2, 3)) + '{"step": 4, "rew'
    )
    file = MetricsFile(path)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=2)
    file.on_train_begin(None, state, None)  # type: ignore[arg-type]
    state.global_step = 3
    file.on_log(None, state, None, logs={"reward": float("nan")})  # type: ignore[arg-type]
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 2, 3] and lines[-1]["reward"] is None
