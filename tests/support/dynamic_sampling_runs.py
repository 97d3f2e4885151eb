"""Whole runs with dynamic sampling, and what they should have trained on.

The base model of the demo is right in a quarter of its answers, so many groups are all wrong. A second reward differs
from text to text and says nothing about what is right. It records its calls, from which the batches are worked out.
"""

from __future__ import annotations

import json
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import run_grpo
from rewards.math_correctness import math_correctness
from rlvr.artifacts.metrics import read_metrics
from tests.conftest import REPOSITORY
from tests.support.trainers import without_clock

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from rlvr.training.grpo_trainer import RecipeTrainer

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
GROUP, EXTRA, WEIGHT = 4, 2, 0.2
RECORDED = """
import json, os, pathlib, signal, zlib

def recorded(prompts, completions, final_answer, trainer_state, *, folder="", **kwargs):
    if trainer_state.global_step < 0:
        return [0.0] * len(completions)  # tried before training
    questions = [prompt[-1]["content"] for prompt in prompts]
    texts = [completion[-1]["content"] for completion in completions]
    call = {"step": trainer_state.global_step, "questions": questions, "golds": final_answer, "texts": texts}
    file = pathlib.Path(folder) / f"recorded.{os.environ.get('RANK', '0')}.jsonl"
    with file.open("a") as opened:
        opened.write(json.dumps(call) + "\\n")
    end = pathlib.Path(folder) / "end"  # "SIGKILL 5": at the fifth call
    if end.is_file():
        name, number = end.read_text().split()
        if file.read_text().count("\\n") == int(number):
            end.unlink()
            os.kill(os.getpid(), getattr(signal, name))
    return [zlib.crc32(text.encode()) % 100 / 100 for text in texts]
"""
# A generation every two steps, and a checkpoint in between. The temperature is low, so that many groups agree. Without
# 4-bit weights, which cost a CPU time.
WORDS = (
    *("--config", str(DEMO), "--evaluation", "null", "--report_to", "none", "--temperature", "0.5"),
    *("--learning_rate", "3e-4", "--load_in_4bit", "false", "--use_bnb_nested_quant", "false"),
    *("--num_generations", str(GROUP), "--per_device_train_batch_size", "8", "--steps_per_generation", "2"),
    *("--max_steps", "6", "--logging_steps", "1", "--log_completions", "true", "--num_completions_to_print", "0"),
    *("--save_strategy", "steps", "--save_steps", "3"),
)
DYNAMIC = ("--dynamic_sampling", str(EXTRA))

Call = dict[str, Any]


def words_for(folder: Path, *words: str) -> list[str]:
    """A run into `folder`, with the demonstration's reward and `recorded`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recorded.py").write_text(RECORDED)
    recorded = {
        "name": f"{folder}/recorded.py",
        "where": "trainer",
        "weight": WEIGHT,
        "options": {"folder": str(folder)},
    }
    rewards = json.dumps([{"name": "math_correctness", "weight": 1.0}, recorded])
    return [*WORDS, "--rewards", rewards, *words]


@dataclass
class FinishedRun:
    """What a run left, and the batches that the trainer got, where it finished in this process."""

    folder: Path
    batches: list[dict[str, torch.Tensor]] = field(default_factory=list)
    code: int = 0

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder / "run" / "metrics.jsonl")

    @property
    def without_clock(self) -> list[dict[str, Any]]:
        return without_clock(self.lines)

    def ranks(self) -> list[list[Call]]:
        """The calls of each rank."""
        files = sorted(self.folder.glob("recorded.*.jsonl"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def table(self, step: int) -> pd.DataFrame:
        import pandas as pd

        return pd.read_parquet(self.folder / "run" / "completions" / f"completions_{step:05d}.parquet")

    def tables(self) -> list[dict[str, Any]]:
        import pandas as pd

        files = sorted((self.folder / "run" / "completions").glob("completions_*.parquet"))
        return [json.loads(pd.read_parquet(file).to_json()) for file in files]

    def adapter(self) -> bytes:
        return (self.folder / "run" / "adapter" / "adapter_model.safetensors").read_bytes()


def run(folder: Path, *words: str) -> FinishedRun:
    """A run by run_grpo.main in this process."""
    from rlvr.training.grpo_trainer import RecipeTrainer

    batches = []
    inner = RecipeTrainer._generate_and_score_completions

    def keep(self: RecipeTrainer, inputs: Any) -> dict[str, Any]:
        batches.append(inner(self, inputs))
        return batches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecipeTrainer, "_generate_and_score_completions", keep)
        patch.setattr("rlvr.run.write_report", lambda folder: folder / "report.html")
        code = run_grpo.main([*words_for(folder, *words), "--output_dir", str(folder / "run")])
    return FinishedRun(folder, batches, code)


# ── What should have been trained on, worked out from what the rewards were called with ──────────────────────────────


@dataclass(frozen=True)
class Group:
    """The completions of one question."""

    question: str
    gold: str
    texts: tuple[str, ...]

    @property
    def outcomes(self) -> list[float]:
        completions = [[{"role": "assistant", "content": text}] for text in self.texts]
        values = math_correctness([], completions, final_answer=[self.gold] * len(self.texts))
        return [float(value) for value in values if value is not None]

    @property
    def shaped(self) -> list[float]:
        return [zlib.crc32(text.encode()) % 100 / 100 for text in self.texts]

    @property
    def rewards(self) -> list[float]:
        return [right + WEIGHT * shaped for right, shaped in zip(self.outcomes, self.shaped, strict=True)]

    @property
    def has_signal(self) -> bool:
        return 0 < sum(self.outcomes) < len(self.outcomes)

    @property
    def advantages(self) -> list[float]:
        mean, spread = statistics.mean(self.rewards), statistics.stdev(self.rewards)
        return [(reward - mean) / (spread + 1e-4) if spread > 1e-6 else 0.0 for reward in self.rewards]


def groups_of(call: Call) -> list[Group]:
    groups = []
    for start_of in range(0, len(call["texts"]), GROUP):
        rows = slice(start_of, start_of + GROUP)
        (question,), (gold,) = set(call["questions"][rows]), set(call["golds"][rows])
        groups.append(Group(question, gold, tuple(call["texts"][rows])))
    return groups


def generations(finished: FinishedRun) -> dict[int, list[list[list[Group]]]]:
    """By the step after which they were made: the rounds, in each the ranks, in each the groups."""
    by_step: dict[int, list[list[list[Group]]]] = {}
    for calls in zip(*finished.ranks(), strict=True):  # every rank was called equally often
        (step,) = {call["step"] for call in calls}
        by_step.setdefault(step, []).append([groups_of(call) for call in calls])
    return by_step


def expected_batch(rounds: Sequence[Sequence[Sequence[Group]]]) -> list[list[Group]]:
    """Each rank's batch: its first groups, those without signal replaced by its fresh ones with signal, in order."""
    batch = []
    for rank, first in enumerate(rounds[0]):
        fresh = [group for later in rounds[1:] for group in later[rank] if group.has_signal]
        batch.append([group if group.has_signal or not fresh else fresh.pop(0) for group in first])
    return batch


def count_without_signal(batch: Sequence[Sequence[Group]]) -> list[int]:
    """For each rank, how many of its groups have no signal."""
    return [sum(not group.has_signal for group in groups) for groups in batch]
