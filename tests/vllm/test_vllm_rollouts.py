"""Training with vLLM in the same process: it samples from the policy, at every step, whatever is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlvr.artifacts.metrics import read_metrics
from rlvr.evaluation.results import MODELS

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
def test_vllm_samples_from_the_policy(
    command: Callable[..., None], tmp_path: Path, overrides: list[str], why: str
) -> None:
    folder = tmp_path / "run"
    command("run_grpo.py", "--use_vllm", "true", "--output_dir", str(folder), *STEPS, *overrides)
    lines = read_metrics(folder / "metrics.jsonl")
    differences = [line["sampling/sampling_logp_difference/max"] for line in lines]
    assert len(differences) == 4 and max(differences) < 1e-4, why
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    base, trained = (evaluation[name]["accuracy"] for name in ("base", "trained"))
    assert trained > base + 0.1, why


@pytest.mark.slow
def test_an_evaluation_by_vllm_gives_the_answers_of_transformers(command: Callable[..., None], tmp_path: Path) -> None:
    """Two engines after each other, and an adapter of a rank that vLLM has no kernels for."""
    command("run_grpo.py", "--output_dir", str(tmp_path / "run"), *STEPS, *LORA, "--lora_r", "12")
    answers = []
    for engine in ("transformers", "vllm"):
        folder = tmp_path / engine
        words = ["--adapter", str(tmp_path / "run" / "adapter"), "--compare", "base", "--output", str(folder)]
        command("scripts/evaluate.py", *words, "--limit", "100", "--engine", engine, *LORA, "--use_peft", "true")
        answers.append([pq.read_table(folder / "completions" / f"evaluation_{name}.parquet") for name in MODELS])
    for transformers, vllm in zip(*answers, strict=True):
        assert transformers["completion"].to_pylist() == vllm["completion"].to_pylist()
