"""The check of rollouts stops a run whose engine has other weights than the trainer, and no honest run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr.training.rollout_check import FIRST_SYNCS, RolloutCheck, RolloutError
from tests.rlvr.training.test_train import BASE, QLORA, build, by_chance, train
from tests.support.emulated_engine import EmulatedEngine, State

LORA = {"use_peft": True, "lora_target_modules": "all-linear"}
STEPS: dict[str, Any] = {"max_steps": 3, "learning_rate": 1e-3}


def keep(number: Callable[[int], int]) -> Callable[[State, int], State]:
    """Use the weights of an earlier synchronisation."""
    sent: list[State] = []

    def receive(state: State, syncs: int) -> State:
        sent.append(state)
        return {name: tensor.clone() for name, tensor in sent[number(syncs)].items()}

    return receive


def scaled(factor: float, *names: str) -> Callable[[State, int], State]:
    """Scale the effect of an adapter, or of a part of it."""

    def receive(state: State, syncs: int) -> State:
        chosen = [name for name in state if "lora_B" in name and all(part in name for part in names)]
        assert chosen
        return state | {name: factor * state[name] for name in chosen}

    return receive


def another_adapter(state: State, syncs: int) -> State:
    order = torch.Generator().manual_seed(0)
    return {name: 0.1 * torch.randn(tensor.shape, generator=order) for name, tensor in state.items()}


def without_turn(prompt: list[int]) -> list[int]:
    """A chat template that does not open the assistant's turn."""
    return prompt[:-3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "settings", "kind", "step"),
    [
        pytest.param(
            {"receive": keep(lambda syncs: 0)},
            LORA,
            "no-adapter",
            1,
            id="an adapter never arrives",
            marks=pytest.mark.smoke,
        ),
        pytest.param({"receive": keep(lambda syncs: max(syncs - 1, 0))}, LORA, "no-adapter", 1, id="one step old"),
        pytest.param(
            {"receive": keep(lambda syncs: syncs - syncs // 2)}, LORA, "wrong-policy", 2, id="one step old later"
        ),
        pytest.param({"receive": scaled(0.5)}, LORA, "wrong-policy", 1, id="half the scale", marks=pytest.mark.smoke),
        pytest.param({"receive": scaled(2.0)}, LORA, "wrong-policy", 1, id="twice the scale"),
        pytest.param({"receive": scaled(0.0, ".layers.1.")}, LORA, "wrong-policy", 1, id="a layer is dropped"),
        pytest.param({"receive": another_adapter}, LORA, "wrong-base", 0, id="the id of another adapter"),
        pytest.param({"prompt": without_turn}, LORA, "wrong-base", 0, id="another chat template"),
        pytest.param({"receive": keep(lambda syncs: 0)}, {}, "wrong-policy", 1, id="no weight of a full run arrives"),
        pytest.param(
            {"receive": keep(lambda syncs: 0)},
            {**LORA, "vllm_importance_sampling_correction": False},
            "no-adapter",
            1,
            id="without TRL's log probabilities",
        ),
        pytest.param(
            {"receive": scaled(0.5)}, {**LORA, "lora_dropout": 0.2}, "wrong-policy", 1, id="dropout in the trainer"
        ),
    ],
)
def test_a_fault_is_caught_at_its_first_step(
    tmp_path: Path, engine: dict[str, Any], settings: dict[str, Any], kind: str, step: int
) -> None:
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**STEPS, **settings})
    trainer.generate_with(EmulatedEngine(trainer, **engine))
    with pytest.raises(RolloutError) as caught:
        train(trainer, recipe)
    assert (caught.value.kind, trainer.state.global_step) == (kind, step), caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param({"num_iterations": 2}, "a generation is used for two updates", marks=pytest.mark.smoke),
        ({"steps_per_generation": 2}, "and here, for two batches"),
        ({"gradient_accumulation_steps": 3, "steps_per_generation": 2}, "weights are not sent before each generation"),
        ({"lora_dropout": 0.2}, "TRL's log probabilities vary"),
        ({"vllm_importance_sampling_correction": False}, "TRL computes none"),
        ({"temperature": 0.7, "top_p": 0.8}, "vLLM's are those of a part of the vocabulary"),
    ],
)
def test_an_honest_run_is_not_stopped(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    trainer, recipe, _ = build(tmp_path, by_chance, settings={**STEPS, **QLORA, "rollout_check_steps": 1, **settings})
    trainer.generate_with(EmulatedEngine(trainer))
    lines = train(trainer, recipe)
    assert any("sampling/logit_difference" in line for line in lines), why


@pytest.mark.slow
def test_a_resumed_run_knows_what_was_expected(tmp_path: Path) -> None:
    settings = {**STEPS, **LORA, "save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    trainer, recipe, _ = build(tmp_path, by_chance, settings=settings)
    trainer.generate_with(EmulatedEngine(trainer))
    train(trainer, recipe)
    resumed, recipe, _ = build(tmp_path, by_chance, settings={**settings, "max_steps": 3, "rollout_check_steps": 1})
    assert not any(
        "rollout_check_steps" in phrase
        for phrase in resumed.checkpoints.identity.differences(trainer.checkpoints.identity)
    )
    resumed.generate_with(EmulatedEngine(resumed, receive=scaled(0.0)))
    with pytest.raises(RolloutError):
        train(resumed, recipe, begin=tmp_path / "checkpoint-2")
    assert resumed.state.global_step == 2


def test_steps_that_are_checked() -> None:
    check = RolloutCheck(10)
    due = []
    for step in [0, 0, *range(2, 40, 2)]:
        if check.is_due(step):
            due.append(step)
            check.checked.append(step)
    assert due == [0, 2, 4, 14, 24, 34] and due.index(4) == FIRST_SYNCS - 1
    assert not RolloutCheck(0).is_due(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "settings", "runs", "why"),
    [
        ({"dtype": torch.bfloat16}, {"dtype": "bfloat16", "bf16": True}, 8, "bfloat16"),  # three times as slow
        ({"quantised": False}, {}, 25, "a 16-bit base against its 4-bit numbers"),
    ],
)
def test_honest_runs_raise_no_alarm(
    tmp_path: Path, engine: dict[str, Any], settings: dict[str, Any], runs: int, why: str
) -> None:
    """Adapters that move as far as Adam moves them; each check has samples of its own."""
    trainer, _, task = build(tmp_path, by_chance, settings={**QLORA, "max_completion_length": 8, **settings})
    trainer.generate_with(EmulatedEngine(trainer, **engine))
    rows = [{"prompt": row["prompt"]} for row in task.train for _ in range(BASE["num_generations"])][:16]
    weights = [tensor for name, tensor in trainer.model.named_parameters() if "lora_B" in name]
    differences = []
    for seed in range(runs):
        torch.manual_seed(seed)
        trainer._rollout_check = RolloutCheck(1)
        directions = [torch.randn_like(tensor) for tensor in weights]
        for step in range(3):
            trainer.state.global_step = 10 * seed + step
            for tensor, direction in zip(weights, directions, strict=True):
                tensor.data = (1e-3 * step) * (direction + torch.randn_like(tensor)).sign()
            trainer.sample_round(rows)  # raises
            differences.append(trainer._metrics["train"]["sampling/logit_difference"][-1])
    assert len(set(differences)) == 3 * runs, why
