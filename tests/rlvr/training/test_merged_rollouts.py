"""A merged copy samples what the adapter would, or is not used; and a run with one continues bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr.artifacts import checkpoints
from rlvr.training import merged_rollouts
from rlvr.training import train as training
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.interruption import StopRequest
from rlvr.training.merged_rollouts import MergedRollouts, TokenRecorder
from rlvr.training.rollout_check import RolloutError
from tests.rlvr.training.test_train import QLORA, StopAt, build, by_chance, train

LORA = {"use_peft": True, "lora_target_modules": "all-linear"}
PLAIN = {"rollout_check_steps": 1, "max_steps": 3}


def sampled(folder: Path, weights: str, **settings: Any) -> tuple[RecipeTrainer, list[dict[str, Any]]]:
    trainer, recipe, _ = build(folder / weights, by_chance, settings={**PLAIN, "rollout_weights": weights, **settings})
    return trainer, train(trainer, recipe)


def without_check(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "sampling/logit_difference"} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param(LORA, "float32", marks=pytest.mark.smoke),
        pytest.param(QLORA, "the copy has the numbers that 4-bit weights stand for", marks=pytest.mark.smoke),
        ({**LORA, "use_rslora": True, "lora_target_modules": ["q_proj", "down_proj"]}, "another scale, some layers"),
        ({**LORA, "temperature": 0.7, "top_p": 0.9}, "recorded before top_p, at the temperature"),
        ({**LORA, "per_device_generation_batch_size": 3}, "in rounds"),
        ({**LORA, "num_iterations": 2, "dynamic_sampling": 1}, "with old log probabilities and several rounds"),
    ],
)
def test_a_merged_copy_trains_as_the_adapter_does(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    trainer, merged = sampled(tmp_path, "auto", **settings)
    _, plain = sampled(tmp_path, "adapter", **settings)
    assert trainer.merged_rollouts.chosen == "float32"
    checked = [line["sampling/logit_difference"] for line in merged if "sampling/logit_difference" in line]
    assert len(checked) > 1 and max(checked) < 1e-4, "also after updates"
    lengths = [[line.get("completions/mean_length") for line in lines] for lines in (merged, plain)]
    losses = [[line["loss"] for line in lines] for lines in (merged, plain)]
    assert lengths[0] == lengths[1] and losses[0] == pytest.approx(losses[1], abs=1e-4), why


@pytest.mark.slow
def test_stop_strings_end_completions_of_a_copy(tmp_path: Path) -> None:
    def build_with(weights: str) -> list[dict[str, Any]]:
        settings = {**PLAIN, **LORA, "rollout_weights": weights, "max_completion_length": 30}
        trainer, recipe, _ = build(tmp_path / weights, by_chance, settings=settings, stop_strings=("=",), text=True)
        return train(trainer, recipe)

    merged, plain = build_with("auto"), build_with("adapter")
    assert [line["completions/mean_length"] for line in merged] == [line["completions/mean_length"] for line in plain]
    assert all(line["sampling/logit_difference"] < 1e-4 for line in merged)


@pytest.mark.slow
def test_a_copy_that_differs_is_not_used_and_draws_no_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(merged_rollouts, "LIMIT", 0.0)
    trainer, lines = sampled(tmp_path, "auto", **LORA)
    assert trainer.merged_rollouts.chosen == "adapter" and "the adapter generates" in capsys.readouterr().err
    assert lines == sampled(tmp_path, "adapter", **LORA)[1]


def half_precision(trainer: RecipeTrainer, *, only_precise: bool) -> MergedRollouts:
    """As on a GPU."""
    merged = MergedRollouts(trainer, only_precise=only_precise)
    merged.types = ("float16",) if only_precise else ("float16", "bfloat16")
    trainer.merged_rollouts = merged
    return merged


@pytest.mark.slow
@pytest.mark.parametrize(("only_precise", "chosen"), [(True, "adapter"), (False, "bfloat16")])
def test_weights_beyond_float16_are_merged_in_bfloat16_only_where_that_is_asked_for(
    tmp_path: Path, only_precise: bool, chosen: str
) -> None:
    settings = {**PLAIN, **LORA, "lora_target_modules": ["q_proj", "v_proj"], "max_steps": 1}
    trainer, recipe, _ = build(tmp_path, by_chance, settings=settings)
    layer = trainer.model.get_base_model().model.layers[0].mlp
    with torch.no_grad():  # the same function, with weights of some millions
        layer.up_proj.weight.mul_(2.0**24)
        layer.down_proj.weight.mul_(2.0**-24)
    merged = half_precision(trainer, only_precise=only_precise)
    train(trainer, recipe)
    assert merged.chosen == chosen


@pytest.mark.slow
def test_float16_keeps_the_adapter_of_a_first_update(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**PLAIN, **LORA, "learning_rate": 2e-4})
    merged = half_precision(trainer, only_precise=True)
    lines = train(trainer, recipe)
    assert merged.chosen == "float16"
    assert max(line["sampling/logit_difference"] for line in lines) < 0.02


@pytest.mark.slow
def test_a_copy_that_overflows_later_ends_the_run(tmp_path: Path) -> None:
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**PLAIN, **LORA})

    def overflow(inputs: Any) -> Any:
        if trainer.state.global_step == 1:
            with torch.no_grad():
                next(trainer.model.get_base_model().parameters()).fill_(float("inf"))
        return type(trainer).sample_round(trainer, inputs)

    trainer.sample_round = overflow  # type: ignore[method-assign]
    with pytest.raises(RolloutError) as caught:
        train(trainer, recipe)
    assert caught.value.kind == "overflow"


@pytest.mark.slow
@pytest.mark.smoke
def test_the_check_ends_a_run_whose_copy_has_no_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**PLAIN, **LORA})
    merge = MergedRollouts._merged
    monkeypatch.setattr(
        MergedRollouts, "_merged", lambda self, weight, state, layer, *rest: merge(self, weight, state, None, *rest)
    )
    with pytest.raises(RolloutError) as caught:
        train(trainer, recipe)
    assert (caught.value.kind, trainer.state.global_step) == ("no-adapter", 1)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.1, 0.0], ids=["merged", "fell back"])
def test_a_continued_run_samples_as_one_that_was_left_alone(
    tmp_path: Path, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_rollouts, "LIMIT", limit)
    settings = {"max_steps": 5, "save_strategy": "steps", "save_steps": 4, **QLORA}
    trainer, recipe, _ = build(tmp_path / "whole", settings=settings)
    whole = train(trainer, recipe)
    weights = training.fingerprint(trainer)
    stop = StopRequest()
    first, recipe, _ = build(tmp_path / "parts", settings=settings)
    train(first, recipe, StopAt(stop, 3), stop=stop)
    # A continuation does not decide anew: what it finds there would differ.
    monkeypatch.setattr(merged_rollouts, "LIMIT", 0.1 - limit)
    second, recipe, _ = build(tmp_path / "parts", settings=settings)
    parts = train(second, recipe, begin=checkpoints.newest_complete(recipe.output_dir))
    assert without_check(parts) == without_check(whole)
    assert second.merged_rollouts.chosen == trainer.merged_rollouts.chosen == ("float32" if limit else "adapter")
    assert torch.equal(weights, training.fingerprint(second))


def test_a_recorder_knows_the_probability_of_each_token_and_hides_what_is_not_finite() -> None:
    recorder = TokenRecorder(0.5)
    logits = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(0))
    tokens = [[1, 6, 2], [3, 0]]
    ids = torch.tensor([[5], [5]])
    for step, scores in enumerate(logits):
        assert torch.equal(recorder(ids, scores), scores)
        ids = torch.tensor([[row[step] if step < len(row) else 0] for row in tokens])
    found = recorder.log_probabilities(tokens, 0)
    wanted = (logits / 0.5).log_softmax(-1)
    assert found[0] == pytest.approx([wanted[step, 0, token].item() for step, token in enumerate(tokens[0])])
    assert found[1] == pytest.approx([wanted[step, 1, token].item() for step, token in enumerate(tokens[1])])
    assert not recorder.overflowed
    broken = TokenRecorder(1.0)
    scores = torch.tensor([[0.0, float("-inf"), 1.0], [0.0, float("inf"), 1.0], [float("nan"), 0.0, 1.0]])
    shown = broken(torch.zeros(3, 1, dtype=torch.long), scores)
    assert torch.equal(shown, torch.tensor([[0.0, float("-inf"), 1.0], [0.0] * 3, [0.0] * 3])) and broken.overflowed
