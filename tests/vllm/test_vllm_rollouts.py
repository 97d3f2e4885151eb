"""Training with vLLM in the same process: it samples from the policy, at every step, whatever is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr.artifacts.metrics import read_metrics

FULL = ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--use_peft", "false", "--learning_rate", "5e-4"]
LORA = ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--learning_rate", "5e-3"]
STEPS = ["--max_steps", "4", "--warmup_steps", "0", "--evaluation.rows", "100"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["--learning_rate", "5e-3"], "QLoRA: 4-bit weights are sent once as what they stand for, then adapters"),
        (LORA, "LoRA: adapters"),
        ([*LORA, "--vllm_weight_sync", "merged"], "LoRA merged into the weights, all of which are sent"),
        (FULL, "full fine-tuning: all weights"),
    ],
)
def test_vllm_samples_from_the_policy(train: Callable[..., Path], overrides: list[str], why: str) -> None:
    folder = train(*STEPS, *overrides)
    lines = read_metrics(folder / "metrics.jsonl")
    differences = [line["sampling/sampling_logp_difference/max"] for line in lines]
    assert len(differences) == 4 and max(differences) < 1e-4, why
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    base, trained = (evaluation[name]["accuracy"] for name in ("base", "trained"))
    assert trained > base + 0.1, why
