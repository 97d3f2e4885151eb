"""The trainer does what TRL's does, but for the departures that rlvr/training/grpo_trainer.py states, each shown on
real steps."""

from __future__ import annotations

import contextlib
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from benchmarks.algorithms import VARIANTS
from rlvr.artifacts import checkpoints
from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.modeling import loading as models
from rlvr.preflight.components import RunComponents
from rlvr.scoring.reward import Reward, RewardError
from rlvr.training import checkpoint_writer
from rlvr.training import train as training
from rlvr.training.callbacks import MetricsFile, read_metrics
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.interruption import StopRequest
from tests.support.input_errors import input_error
from tests.support.trainers import trainer_of, without_clock

TINY = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"
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
    "lora_dropout": 0.0,  # as in a recipe that is read; TRL has 0.05
    **{key: default for key, (_, default, _) in schema.OWN.items()},
}
QLORA = {"use_peft": True, "load_in_4bit": True, "use_bnb_nested_quant": True, "lora_target_modules": "all-linear"}


def longer_is_better(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [float(len(str(completion)) % 7) for completion in completions]


def by_chance(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [float(row % 3) for row in range(len(completions))]


def cannot_say_for_half(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [None if row % 2 else 1.0 for row in range(len(completions))]


def one(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [1.0] * len(completions)


def a_fifth(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [0.2] * len(completions)


def build(
    folder: Path,
    *functions: Any,
    settings: dict[str, Any] | None = None,
    text: bool = False,
    stop_strings: tuple[str, ...] = (),
    rows: int = 16,
    weights: tuple[float, ...] = (),
    validation: bool = False,
) -> tuple[RecipeTrainer, Recipe, Task]:
    questions = [f"What is {number} + {number + 3}?" for number in range(10, 10 + rows)]
    prompts = [f"{one}\nAnswer:" if text else [{"role": "user", "content": one}] for one in questions]
    sources = ["a" if row % 2 else "b" for row in range(rows)]
    data = Dataset.from_dict({"prompt": prompts, "source": sources})
    held_out = data.select(range(4 if validation else 0))
    task = Task(train=data, validation=held_out, test=data.select([]), stop_strings=stop_strings)
    recipe = Recipe(
        path=Path("r.yaml"),
        tasks=(TaskSpec("t"),),
        rewards=(RewardSpec("r"),),
        evaluation=None,
        settings={**BASE, "output_dir": str(folder), **(settings or {})},
    )
    rewards = [Reward(function.__name__, function) for function in functions or (longer_is_better,)]
    for reward, weight in zip(rewards, weights, strict=False):
        reward.weight = weight
    return trainer_of(recipe, task, rewards), recipe, task


def train(
    trainer: RecipeTrainer,
    recipe: Recipe,
    *more: TrainerCallback,
    stop: StopRequest | None = None,
    begin: Path | None = None,
) -> list[dict[str, Any]]:
    """Trains, and returns the lines of metrics.jsonl without what a clock says."""
    for callback in more:
        trainer.add_callback(callback)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    training.train(trainer, recipe, stop or StopRequest(), begin)
    return without_clock(read_metrics(recipe.output_dir / "metrics.jsonl"))


@pytest.mark.slow
def test_a_reward_gets_what_trl_passes_and_which_completions_ended(tmp_path: Path) -> None:
    told: list[bool] = []

    def count(
        prompts: list[Any],
        completions: list[Any],
        completion_ids: list[list[int]],
        completion_ended: list[bool],
        source: list[str],
        trainer_state: Any,
        log_metric: Any,
        log_extra: Any,
        **kwargs: Any,
    ) -> list[float]:
        if trainer_state.global_step >= 0:  # not the trial
            told.extend(completion_ended)
            assert {*map(len, (prompts, completions, completion_ids, source))} == {8} and set(source) <= {"a", "b"}
            assert all(0 < len(ids) <= 30 for ids in completion_ids) and trainer_state.max_steps == 1
            log_metric("own/metric", 7.0)
            log_extra("own_column", completions)
        return [float(row % 3) for row in range(len(completions))]

    trainer, recipe, _ = build(tmp_path, count, settings={"max_steps": 1, "max_completion_length": 30})
    (line,) = train(trainer, recipe)
    assert 0 < line["completions/clipped_ratio"] == told.count(False) / len(told) < 1 and line["own/metric"] == 7.0
    assert "own_column" in pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet").columns


def test_rewards_see_the_tag_that_the_template_opens(tmp_path: Path) -> None:
    def opens(completions: list[Any], **kwargs: Any) -> list[float]:
        return [row % 3 if one["content"].startswith("<think>\n") else 9.0 for row, (one,) in enumerate(completions)]

    shutil.copytree(TINY, tmp_path / "model")
    template = tmp_path / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\\n' }}", "assistant\\n<think>\\n' }}"))
    settings = {"max_steps": 1, "max_completion_length": 8, "model_name_or_path": str(tmp_path / "model")}
    trainer, recipe, _ = build(tmp_path / "run", opens, settings=settings)
    assert train(trainer, recipe)[0]["rewards/opens/mean"] == 0.875
    table = pd.read_parquet(tmp_path / "run" / "completions" / "completions_00001.parquet")
    assert table["think_opened"].all() and not table["completion"].str.contains("<think>").any()


def test_a_row_that_cannot_be_scored_is_left_out_whatever_the_others_say(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, longer_is_better, cannot_say_for_half, settings={"max_steps": 1})
    assert train(trainer, recipe)[0]["rewards/unscored_fraction"] == 0.5
    # Masked rows have no advantage: neither pushed up nor down.
    assert [advantage == 0 for advantage in trainer._logs["advantages"]][1::2] == [True] * 4


def test_rollouts_take_nothing_from_the_models_own_generation_settings(tmp_path: Path) -> None:
    """TRL would: what it leaves open, `generate` fills in from the model's file."""
    shutil.copytree(TINY, tmp_path / "model")
    file = tmp_path / "model" / "generation_config.json"
    vocabulary = AutoTokenizer.from_pretrained(TINY).get_vocab()
    digits = [token for text, token in vocabulary.items() if any(sign.isdigit() for sign in text)]
    file.write_text(json.dumps({**json.loads(file.read_text()), "suppress_tokens": digits}))
    settings = {"max_steps": 1, "max_completion_length": 24, "model_name_or_path": str(tmp_path / "model")}
    trainer, recipe, _ = build(tmp_path / "run", by_chance, settings=settings)
    train(trainer, recipe)
    texts = trainer._logs["completion"]
    assert sum(any(sign.isdigit() for sign in str(text)) for text in texts) > len(texts) / 2
    saved = trainer.accelerator.unwrap_model(trainer.model).generation_config
    assert saved.suppress_tokens == digits, "the model keeps them for its users"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
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
    plan = RunComponents(
        recipe, task=task, rewards=[reward], metrics={"": reward}, tokenizer=trainer.processing_class, config=config
    ).plan
    with contextlib.suppress(training.TrainingError):  # two tokens earn everybody the same
        train(trainer, recipe)
    assert plan is not None and trainer.state.global_step == plan.steps


def test_completions_end_at_a_stop_string_and_are_not_counted_as_cut_off(tmp_path: Path) -> None:
    settings = {"max_steps": 1, "max_completion_length": 40}
    plain, recipe, _ = build(tmp_path / "plain", by_chance, settings=settings, text=True)
    train(plain, recipe)
    stopped, recipe, _ = build(tmp_path / "stopped", by_chance, settings=settings, text=True, stop_strings=("\n",))
    lines = train(stopped, recipe)
    assert any("\n" in text[:-1] for text in plain._logs["completion"]), "the model writes several lines by itself"
    for text in stopped._logs["completion"]:
        assert "\n" not in text.rstrip("\n") or text.count("\n") == 1 and len(text) - text.index("\n") < 8
    assert lines[0]["completions/clipped_ratio"] < 1, "TRL would count every completion here"


@pytest.mark.parametrize(
    ("rows", "stop_strings", "sizes"),
    [(3, (), [3, 3, 2]), (3, ("\n",), [3, 3, 2]), (99, (), [8])],
    ids=str,
)
def test_a_generation_is_made_in_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int | None, stop_strings: tuple[str, ...], sizes: list[int]
) -> None:
    settings = {"max_steps": 1, "max_completion_length": 8, "per_device_generation_batch_size": rows}
    trainer, recipe, _ = build(tmp_path, by_chance, settings=settings, text=True, stop_strings=stop_strings)
    generated: list[int] = []
    model_type = type(trainer.accelerator.unwrap_model(trainer.model))
    generate = model_type.generate

    def counted(model: Any, **options: Any) -> Any:
        generated.append(len(options["input_ids"]))
        return generate(model, **options)

    monkeypatch.setattr(model_type, "generate", counted)
    train(trainer, recipe)
    assert generated == sizes and len(trainer._logs["completion"]) == 8


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
        trainer, recipe, _ = build(tmp_path / name, settings={**QLORA, "seed": seed})
        return train(trainer, recipe)

    first = run("a", 1)
    assert first == run("b", 1)
    assert first != run("c", 2)


@pytest.mark.slow
def test_a_saved_adapter_is_the_trained_one_in_plain_peft(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, settings={**QLORA, "load_in_4bit": False})
    train(trainer, recipe)
    folder = training.saved_folder(recipe)
    training.save(trainer, folder, StopRequest())
    assert folder == tmp_path / "adapter"
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32), folder).eval()
    trained = trainer.model.eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(loaded(ids).logits, trained(ids).logits, atol=1e-5)
        with loaded.disable_adapter():
            assert not torch.allclose(loaded(ids).logits, trained(ids).logits, atol=1e-3), "training changed nothing"


class StopAt(TrainerCallback):
    """Tells the process to stop while a step is made, as a signal would."""

    def __init__(self, stop: StopRequest, step: int) -> None:
        self.stop, self.step = stop, step

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step - 1:
            self.stop.reason = "SIGTERM"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"beta": 0.1, **QLORA}, "a generation a step, a reference model, and QLoRA"),
        (
            {"steps_per_generation": 8, "num_iterations": 2, "logging_steps": 2},
            "stopped between two generations and two log lines: completions, their place and figures are kept",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_was_stopped_and_continued_equals_one_that_was_left_alone(
    tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    settings = {"max_steps": 6, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 4, **settings}

    trainer, recipe, _ = build(tmp_path / "whole", settings=settings)
    whole = train(trainer, recipe)
    weights = training.fingerprint(trainer)

    stop = StopRequest()
    first, recipe, _ = build(tmp_path / "parts", settings=settings)
    train(first, recipe, StopAt(stop, 3), stop=stop)
    assert first.state.global_step == 3
    assert [folder.name for folder in checkpoints.list_checkpoints(recipe.output_dir)] == ["checkpoint-3"]

    second, recipe, _ = build(tmp_path / "parts", settings=settings)
    parts = train(second, recipe, begin=checkpoints.newest_complete(recipe.output_dir))
    assert parts == whole, why
    assert torch.equal(weights, training.fingerprint(second))


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 6], ids=["at the end of an epoch", "in the second epoch"])
def test_a_run_that_continues_in_a_later_epoch_has_its_order_of_prompts(tmp_path: Path, step: int) -> None:
    settings = {"max_steps": 8, "save_strategy": "steps", "save_steps": 2}
    trainer, recipe, _ = build(tmp_path, settings=settings, rows=8)  # four steps an epoch
    whole, weights = train(trainer, recipe), training.fingerprint(trainer)
    again, recipe, _ = build(tmp_path, settings=settings, rows=8)
    assert train(again, recipe, begin=tmp_path / f"checkpoint-{step}") == whole
    assert torch.equal(training.fingerprint(again), weights)
    tables = [pd.read_parquet(file) for file in sorted((tmp_path / "completions").glob("completions_*.parquet"))]
    order = [[prompt[-1]["content"] for prompt in table["prompt"]] for table in tables]
    assert len(order) == 8 and order[:4] != order[4:], "each epoch has an order of its own"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "fails_after"),
    [
        pytest.param({"logging_steps": 2}, 3, marks=pytest.mark.smoke),  # within an epoch, between two log lines
        ({"logging_steps": 2}, 4),  # at the first step of an epoch, whose order is drawn before
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, 4),  # at the second microbatch of its step
    ],
    ids=["within an epoch", "at the begin of an epoch", "between two generations"],
)
def test_a_run_that_its_reward_ended_continues_after_the_last_finished_step(
    tmp_path: Path, settings: dict[str, Any], fails_after: int
) -> None:
    def fails(completions: list[Any], trainer_state: Any, **kwargs: Any) -> list[float | None]:
        if trainer_state.global_step == fails_after:
            raise ValueError("a rare answer")
        return longer_is_better(completions)

    fails.__name__ = longer_is_better.__name__
    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 50, **settings}
    rows = 24 if "steps_per_generation" in settings else 8
    trainer, recipe, _ = build(tmp_path / "whole", settings=settings, rows=rows)
    whole = train(trainer, recipe)

    failed, recipe, _ = build(tmp_path / "parts", fails, settings=settings, rows=rows)
    with pytest.raises(RewardError, match="a rare answer"):
        train(failed, recipe)
    saved = checkpoints.newest_complete(recipe.output_dir)
    assert saved is not None and saved.name == f"checkpoint-{fails_after}"

    continued, recipe, _ = build(tmp_path / "parts", settings=settings, rows=rows)
    assert train(continued, recipe, begin=saved) == whole
    assert torch.equal(training.fingerprint(trainer), training.fingerprint(continued))


@pytest.mark.slow
def test_a_run_that_its_reward_ended_while_validating_continues_after_that_step(tmp_path: Path) -> None:
    def fails(completions: list[Any], **kwargs: Any) -> list[float | None]:
        if len(completions) == 4:  # the rows of validation; a generation has 8
            raise ValueError("a rare answer")
        return longer_is_better(completions)

    settings = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 3}
    failed, recipe, _ = build(tmp_path, fails, settings=settings, validation=True)
    with pytest.raises(RewardError, match="a rare answer"):
        train(failed, recipe)
    saved = checkpoints.newest_complete(tmp_path)
    assert saved is not None and saved.name == "checkpoint-2"
    plain, recipe, _ = build(tmp_path, settings={"max_steps": 4})
    assert [line["step"] for line in train(plain, recipe, begin=saved)] == [1, 2, 3, 4]


def test_a_run_whose_reward_fails_in_the_first_step_saves_nothing(tmp_path: Path) -> None:
    def fails(completions: list[Any], **kwargs: Any) -> list[float | None]:
        raise ValueError("at once")

    trainer, recipe, _ = build(tmp_path, fails)
    with pytest.raises(RewardError, match="at once"):
        train(trainer, recipe)
    assert not list(tmp_path.glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.parametrize("logging_steps", [1, 2], ids=["every step is logged", "the last step is not logged"])
def test_a_run_that_was_killed_after_its_last_checkpoint_makes_no_further_step(
    tmp_path: Path, logging_steps: int
) -> None:
    settings = {"max_steps": 3, "logging_steps": logging_steps, "save_strategy": "steps", "save_steps": 1}
    trainer, recipe, _ = build(tmp_path, settings=settings)
    whole, weights = train(trainer, recipe), training.fingerprint(trainer)
    table = tmp_path / "completions" / "completions_00003.parquet"
    texts = table.read_bytes()
    if logging_steps == 2:
        table.unlink()  # written with the last words of a run, which came after the checkpoint
    again, recipe, _ = build(tmp_path, settings=settings)
    assert train(again, recipe, begin=tmp_path / "checkpoint-3") == whole
    assert again.state.global_step == 3 and torch.equal(training.fingerprint(again), weights)
    assert table.read_bytes() == texts


@pytest.mark.slow
def test_a_limit_of_time_ends_training_with_a_checkpoint(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, settings={"max_steps": 1000})
    assert training.train(trainer, recipe, StopRequest(max_runtime_s=3.0), None) is not None
    assert checkpoints.newest_complete(tmp_path) is not None


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_longer_run_continues_a_finished_one_at_the_rate_of_its_own_schedule(tmp_path: Path, schedule: str) -> None:
    """A linear schedule ends at 0, and transformers would make one more step at this rate."""
    settings = {"lr_scheduler_type": schedule, "save_strategy": "steps", "save_steps": 2}
    trainer, recipe, _ = build(tmp_path / "whole", settings={**settings, "max_steps": 4})
    whole = train(trainer, recipe)
    first, recipe, _ = build(tmp_path / "parts", settings={**settings, "max_steps": 2})
    train(first, recipe)
    second, recipe, _ = build(tmp_path / "parts", settings={**settings, "max_steps": 4})
    parts = train(second, recipe, begin=tmp_path / "parts" / "checkpoint-2")
    assert [line["learning_rate"] for line in parts[2:]] == [line["learning_rate"] for line in whole[2:]]
    if schedule == "constant":
        assert parts == whole and torch.equal(training.fingerprint(second), training.fingerprint(trainer))
    else:
        assert parts[2]["grad_norm"] != 0 and second.optimizer.param_groups[0]["lr"] == 0


class Generations(TrainerCallback):
    """Counts the generations of each step, and records which steps were expected to have one."""

    def __init__(self, trainer: RecipeTrainer) -> None:
        self.trainer, self.expected, self.happened = trainer, [], []  # type: ignore[var-annotated]
        sample = trainer._generate_and_score_completions

        def counted(inputs: Any) -> dict[str, Any]:
            self.happened[-1] = True
            return sample(inputs)

        trainer._generate_and_score_completions = counted  # type: ignore[method-assign]

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.expected.append(self.trainer.next_step_generates)
        self.happened.append(False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"steps_per_generation": 2, "num_iterations": 2}, [True, False, True, False, True]),
        ({"steps_per_generation": 3}, [True, True, False, True, True]),  # the second one begins in the middle
        ({"steps_per_generation": 1}, [True] * 5),
    ],
    ids=["every second step", "between two steps", "twice a step"],
)
def test_the_trainer_knows_which_step_generates(tmp_path: Path, settings: dict[str, Any], pattern: list[bool]) -> None:
    trainer, recipe, _ = build(tmp_path, settings={"max_steps": 5, "gradient_accumulation_steps": 2, **settings})
    generations = Generations(trainer)
    train(trainer, recipe, generations)
    assert generations.expected == generations.happened == pattern


def test_a_run_that_continues_knows_how_long_a_save_takes(tmp_path: Path) -> None:
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    trainer, recipe, _ = build(tmp_path, settings=settings)
    weights = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
    assert trainer.checkpoints.expected_save_s == pytest.approx(
        1 + 12 * weights / checkpoint_writer.ASSUMED_BYTES_PER_S
    )
    train(trainer, recipe)
    saved = tmp_path / "checkpoint-1"
    again, recipe, _ = build(tmp_path, settings=settings)
    again.checkpoints.load(saved)
    assert again.checkpoints.expected_save_s == checkpoints.read_marker(saved)["save_s"] > 0


def never_says(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [None for _ in completions]


@pytest.mark.slow
def test_a_run_in_which_no_weight_changed_is_an_error(tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 1}
    trainer, recipe, _ = build(tmp_path, one, settings=settings)
    with pytest.raises(training.TrainingError) as error:
        train(trainer, recipe)
    assert error.value.kind == "equal-rewards" and "--resume_from_checkpoint" in str(error.value)
    for step in (1, 2):
        again, recipe, _ = build(tmp_path, one, settings=settings)
        with pytest.raises(training.TrainingError):
            train(again, recipe, begin=tmp_path / f"checkpoint-{step}")


def test_a_learning_rate_of_zero_is_named_as_what_changed_no_weight(tmp_path: Path) -> None:
    warm_up = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 1}
    trainer, recipe, _ = build(tmp_path, settings={"max_steps": 1, **warm_up})
    with pytest.raises(training.TrainingError) as error:
        train(trainer, recipe)
    assert error.value.kind == "zero-learning-rate"
    assert "--resume_from_checkpoint" not in str(error.value), "it has no checkpoint"


def test_advantages_of_a_group_that_is_equal_but_for_rounding_are_exactly_zero(tmp_path: Path) -> None:
    """And it counts as one without spread; TRL says 0 of them here, and gives each an advantage of about 1e-3."""
    trainer, recipe, _ = build(tmp_path, one, a_fifth, weights=(1.0, 1.0), settings={"max_steps": 1})
    with pytest.raises(training.TrainingError):
        train(trainer, recipe)
    line = read_metrics(tmp_path / "metrics.jsonl")[0]
    assert line["frac_reward_zero_std"] == 1 and line["advantages/abs_mean"] == 0 and line["grad_norm"] == 0
    assert set(trainer._logs["advantages"]) == {0.0}


def test_a_run_in_which_no_row_was_scored_is_an_error(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, longer_is_better, never_says)
    with pytest.raises(training.TrainingError, match="never_says") as caught:
        train(trainer, recipe)
    assert caught.value.kind == "nothing-scored" and "longer_is_better" not in str(caught.value)


@pytest.mark.slow
def test_a_long_run_in_which_no_row_is_scored_is_ended_early(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, never_says, settings={"max_steps": 50, "max_completion_length": 2})
    with pytest.raises(RewardError, match="10 generations.*never_says"):
        train(trainer, recipe)


def test_a_model_with_nothing_to_train_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "keep_adapter_in_float32", lambda model: model.requires_grad_(False))
    with input_error("nothing-to-train"):
        build(tmp_path, settings=QLORA)


@pytest.mark.parametrize("policy", ["raise", "mask"])
def test_a_failing_reward_ends_the_run_or_masks_its_rows_as_the_recipe_says(
    tmp_path: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_bad(completion: Any) -> bool:
        return zlib.crc32(str(completion).encode()) % 3 == 0

    def raises_for_one(completions: list[Any], **kwargs: Any) -> list[float | None]:
        if len(completions) > 1 or is_bad(completions[0]):
            raise ZeroDivisionError("on purpose")
        return longer_is_better(completions)

    settings = {"max_steps": 1, "on_reward_error": policy}
    trainer, recipe, _ = build(tmp_path, by_chance, raises_for_one, settings=settings)
    if policy == "raise":
        with pytest.raises(RewardError, match="on purpose"):
            train(trainer, recipe)
        return
    (line,) = train(trainer, recipe)
    masked = [is_bad(completion) for completion in trainer._logs["completion"]]
    assert 0 < sum(masked) < 8, "some rows and not all, or this test shows nothing"
    assert line["rewards/unscored_fraction"] == sum(masked) / 8
    assert "raises_for_one" in capsys.readouterr().err


def test_masked_rows_leave_the_update_with_their_tokens_too(tmp_path: Path) -> None:
    """Without an advantage they would still count in the loss's denominator, and in the KL term."""
    trainer, recipe, _ = build(tmp_path, cannot_say_for_half, settings={"max_steps": 1})
    kept: list[dict[str, Any]] = []
    inner = trainer.sample_round
    trainer.sample_round = lambda inputs: kept.append(inner(inputs)) or kept[-1]  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(training.TrainingError):
        train(trainer, recipe)
    mask = kept[0]["completion_mask"]
    assert mask[1::2].sum() == 0 and (mask[::2].sum(dim=1) > 0).all()
    assert kept[0]["num_items_in_batch"] == mask.sum()


def test_adaptive_advantages_are_what_the_loss_sees_and_the_table_shows(tmp_path: Path) -> None:
    def nearly_equal(completions: list[Any], **kwargs: Any) -> list[float | None]:
        return [1.0 + 0.001 * (row % 4 == 1) for row in range(len(completions))]

    seen: list[torch.Tensor] = []
    settings = {"max_steps": 1, "scale_rewards": "adaptive"}
    trainer, recipe, _ = build(tmp_path, nearly_equal, settings=settings)
    inner = trainer.sample_round
    trainer.sample_round = lambda inputs: seen.append((output := inner(inputs))["advantages"]) or output  # type: ignore[method-assign,func-returns-value]
    (line,) = train(trainer, recipe)
    by_hand = torch.tensor([-0.00025, 0.00075, -0.00025, -0.00025] * 2)
    assert torch.allclose(seen[0], by_hand, atol=1e-6), "TRL's own would be [-0.42, 1.25, -0.42, -0.42]"
    assert torch.allclose(torch.tensor(list(trainer._logs["advantages"])), by_hand, atol=1e-6)
    assert line["advantages/max"] == pytest.approx(0.00075, abs=1e-6)


@pytest.mark.parametrize(("rows", "unfilled"), [(12, 0), (5, 2)])
def test_dynamic_sampling_trains_on_groups_with_signal_and_logs_what_it_trained_on(
    tmp_path: Path, rows: int, unfilled: int
) -> None:
    """Five rows have two prompts with signal for a batch of four."""

    def half_right_on_a(completions: list[Any], source: list[str], **kwargs: Any) -> list[float | None]:
        calls.append(source)
        return [float(name == "a" and place % 2 == 0) for place, name in enumerate(source)]

    calls: list[list[str]] = []
    batches: list[dict[str, Any]] = []
    settings = {"dynamic_sampling": 8, "num_generations": 2, "max_steps": 1, "max_completion_length": 6}
    trainer, recipe, _ = build(tmp_path, half_right_on_a, settings=settings, rows=rows, text=True)
    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: batches.append(inner(inputs)) or batches[-1]  # type: ignore[method-assign,func-returns-value]
    (line,) = train(trainer, recipe)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert (line["dynamic_sampling/unfilled_groups"], table["prompt"].nunique()) == (unfilled, 4)
    assert table["half_right_on_a"].sum() == 4 - unfilled, "every group that is trained on has signal, if any is left"
    # The batch in memory is the table: TRL has shuffled nothing yet, and says which tokens count.
    (batch,) = batches
    texts = trainer.processing_class.batch_decode(batch["completion_ids"], skip_special_tokens=True)
    assert texts == table["completion"].tolist()
    assert batch["advantages"].tolist() == pytest.approx(table["advantage"].tolist())
    assert batch["num_items_in_batch"].item() == batch["completion_mask"].sum().item()
    first, *further = calls
    assert len(first) == 8 > max(map(len, further))
    assert line["reward"] == pytest.approx(first.count("a") / 16), "that of the sampler's own prompts"


def test_the_figures_that_trl_lacks_are_there_and_right(tmp_path: Path) -> None:
    settings = {"max_steps": 2, "num_iterations": 2}
    trainer, recipe, _ = build(tmp_path, longer_is_better, one, settings=settings, weights=(2.0, 0.5))
    lines = train(trainer, recipe)
    values = [longer_is_better([text])[0] for text in trainer._logs["completion"]]
    first = lines[0]
    assert first["reward/max"] == 2.0 * max(map(float, values)) + 0.5  # type: ignore[arg-type]
    assert first["rewards/longer_is_better/min"] == min(map(float, values))  # type: ignore[arg-type]
    assert first["prompts/min_length"] <= first["prompts/mean_length"] <= first["prompts/max_length"]
    assert 0 <= first["completions/duplicate_fraction"] < 1
    assert first["policy_kl"] == 0, "the policy is still the one that sampled"
    assert lines[1]["policy_kl"] != 0, "one update later it isn't"
    timed = read_metrics(tmp_path / "metrics.jsonl")
    for line in timed:
        parts = [line[f"time/{name}"] for name in ("generation", "old_log_probabilities", "rewards", "update")]
        assert all(part >= 0 for part in parts) and sum(parts) == pytest.approx(line["step_time"], rel=0.1, abs=0.05)
    assert timed[0]["time/old_log_probabilities"] > 0, "the second step needs them"
    assert timed[1]["time/generation"] == timed[1]["time/old_log_probabilities"] == 0, "it used the first one's"


@pytest.mark.slow
def test_validation_is_greedy_per_source_and_changes_nothing_else(tmp_path: Path) -> None:
    settings = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 3}
    trainer, recipe, _ = build(tmp_path / "with", settings=settings, validation=True)
    lines = train(trainer, recipe)
    validated = [line for line in lines if "eval_reward" in line]
    assert [line["step"] for line in validated] == [2, 3], "every eval_steps, and at the end"
    assert {"eval_accuracy", "eval_a/accuracy", "eval_b/accuracy", "eval_longer_is_better"} <= validated[0].keys()
    plain, recipe, _ = build(tmp_path / "without", settings={"max_steps": 3})
    assert train(plain, recipe) == [line for line in lines if line not in validated]


@pytest.mark.slow
def test_the_best_checkpoint_outlives_newer_ones_and_is_loaded_at_the_end(tmp_path: Path) -> None:
    settings = {
        **QLORA,
        "load_in_4bit": False,
        "max_steps": 3,
        "save_strategy": "steps",
        "save_steps": 1,
        "save_total_limit": 1,
        "eval_strategy": "steps",
        "eval_steps": 1,
    }
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_rows"}  # equal: the first is the best
    trainer, recipe, _ = build(tmp_path, settings=settings, validation=True)
    train(trainer, recipe)
    assert [folder.name for folder in checkpoints.list_checkpoints(tmp_path)] == ["checkpoint-3", "checkpoint-1"]
    saved = load_file(tmp_path / "checkpoint-1" / "adapter_model.safetensors")
    held = get_peft_model_state_dict(trainer.model)
    assert all(torch.equal(held[name].cpu(), tensor) for name, tensor in saved.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (torch, "save", "can't be written"),
        (checkpoints, "digests_of", "can't be read back"),
        (checkpoints, "mark_complete", "can't be marked as complete"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_costs_no_step(
    module: Any,
    name: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    trainer, recipe, _ = build(tmp_path, settings=settings)
    works = getattr(module, name)

    def full(*args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 2:
            raise OSError(28, "No space left on device")
        return works(*args, **kwargs)

    monkeypatch.setattr(module, name, full)
    assert [line["step"] for line in train(trainer, recipe)] == [1, 2, 3]
    errors = capsys.readouterr().err
    assert "step 2" in errors and said in errors and "No space left" in errors and "checkpoint-1" in errors
    assert [folder.name for folder in checkpoints.list_checkpoints(tmp_path)] == ["checkpoint-3", "checkpoint-1"]


def test_a_disk_without_room_is_seen_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    trainer, recipe, _ = build(tmp_path, settings={"max_steps": 2, "save_strategy": "steps", "save_steps": 1})
    assert len(train(trainer, recipe)) == 2
    assert "GB more are needed" in capsys.readouterr().err
    assert checkpoints.list_checkpoints(tmp_path) == []


def test_trained_weights_wait_for_room_on_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _, _ = build(tmp_path, settings={"max_steps": 1})
    monkeypatch.setattr(checkpoint_writer, "WAIT_STEP_S", 0.01)
    usage = shutil.disk_usage(tmp_path)
    for makes_room, stopped, longest_s, why in (
        (True, False, 60.0, "the weights wait for room"),
        (False, True, 60.0, "a signal ends the waiting"),
        (False, False, 0.0, "a machine is not kept for ever"),
    ):
        free = iter([10, 10, 10**9 if makes_room else 10, 10])
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=next(free)))
        monkeypatch.setattr(checkpoint_writer, "MAX_WAIT_S", longest_s)
        trainer.checkpoints.wait_for_room(tmp_path / "adapter", lambda stopped=stopped: stopped)
        assert len(list(free)) == (1 if makes_room else 3), why
        assert capsys.readouterr().err.count("no room for the trained weights") == makes_room


def test_metrics_that_cannot_be_written_are_kept_until_they_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(TrainerCallback):
        """The folder's files become one that no byte can be written to, and are put back a step later."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            for path in (recipe.output_dir / "metrics.jsonl", recipe.output_dir / "completions"):
                if state.global_step == 1:
                    path.rename(path.with_name(f"kept {path.name}"))
                    path.symlink_to("/dev/full")
                if state.global_step == 2:
                    path.unlink()
                    path.with_name(f"kept {path.name}").rename(path)

    trainer, recipe, _ = build(tmp_path, settings={"max_steps": 3})
    assert [line["step"] for line in train(trainer, recipe, Gone())] == [1, 2, 3]
    errors = capsys.readouterr().err
    assert "Its lines are kept until it can" in errors and "completions of step 2" in errors


@pytest.mark.parametrize(
    ("damage", "kept", "lost"),
    [
        (lambda text: text + '{"step": 4, "rew', [1, 2, 2], ""),
        (lambda text: text[:45], [1], "2"),
        (lambda text: text.replace('{"step": 1,', '{"step": 1.'), [2, 2], "1"),
        (lambda text: text.replace('"eval', '"\x00eval'), [1, 2], "2"),
        (lambda text: "", [], "1, 2"),
        (lambda text: None, [], ""),
    ],
    ids=["killed while it wrote", "cut off", "damaged", "damaged validation", "empty", "of another run: no file"],
)
def test_a_resumed_metrics_file_has_no_repeats_and_lost_steps_are_named(
    damage: Callable[[str], str | None], kept: list[int], lost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"step": 1, "reward": 1},
        {"step": 2, "reward": 2},
        {"step": 2, "eval_reward": 2},
        {"step": 3, "reward": 3},
    ]
    path = tmp_path / "metrics.jsonl"
    text = damage("".join(json.dumps(line) + "\n" for line in lines))
    if text is not None:
        path.write_text(text)
    file = MetricsFile(path)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=2)
    state.log_history = lines[:3]  # of the checkpoint
    file.on_train_begin(None, state, None)  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert f"no metrics of step {lost}:" in said if lost else not said
    state.global_step = 3
    file.on_log(None, state, None, logs={"reward": float("nan")})  # type: ignore[arg-type]
    steps = [line["step"] for line in read_metrics(path)]
    assert steps == [*kept, 3] and read_metrics(path)[-1]["reward"] is None


@pytest.mark.slow
def test_losses_differ_only_by_how_they_average_until_the_policy_has_changed(tmp_path: Path) -> None:
    """docs/algorithms.md says so. At the second update of a generation each has a gradient of its own."""

    def gradient(model: torch.nn.Module, inputs: dict[str, Any], variant: str) -> torch.Tensor:
        keys = {"importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": 0.2, **VARIANTS[variant]}
        trainer.loss_type, trainer.importance_sampling_level = keys["loss_type"], keys["importance_sampling_level"]
        trainer.epsilon_low, trainer.epsilon_high = keys["epsilon"], keys["epsilon_high"]
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.cat([part.flatten() for part in torch.autograd.grad(inner(model, inputs), weights)])

    def measured(model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        updates.append({name: gradient(model, inputs, name) for name in (*by_sequence, *by_token)})
        trainer.loss_type, trainer.importance_sampling_level = "grpo", "token"
        return inner(model, inputs)

    def direction(update: dict[str, torch.Tensor], one: str, other: str) -> float:
        return float(torch.nn.functional.cosine_similarity(update[one].double(), update[other].double(), dim=0))

    by_sequence, by_token = ("GRPO", "GSPO", "SAPO"), ("DAPO", "BNPO", "CISPO", "VESPO", "Dr. GRPO", "LUSPO")
    updates: list[dict[str, torch.Tensor]] = []
    settings = {"steps_per_generation": 2, "learning_rate": 0.01, "max_completion_length": 40, "temperature": 1.5}
    trainer, recipe, _ = build(tmp_path, settings=settings)
    inner, trainer._compute_loss = trainer._compute_loss, measured  # type: ignore[method-assign]
    train(trainer, recipe)
    first, second = updates
    for names in (by_sequence, by_token):
        for name in names:
            assert direction(first, names[0], name) == pytest.approx(1, abs=1e-6), name
            size = float(first[name].norm() / first[names[0]].norm())
            # BNPO divides by the tokens of this update, DAPO by the mean over the updates of the generation.
            assert name in ("BNPO", "Dr. GRPO", "LUSPO") or size == pytest.approx(1, abs=1e-4), name
    assert direction(first, "GRPO", "DAPO") < 0.9999, "completions of different lengths"
    for name in (*by_sequence, *by_token):
        assert second[name].isfinite().all() and second[name].any(), name
    assert direction(second, "GRPO", "SAPO") < 0.9999 and direction(second, "DAPO", "CISPO") < 0.9999
