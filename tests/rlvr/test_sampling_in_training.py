"""Dynamic sampling, a curriculum and continuous batching in real runs of the demonstration, replayed by hand.

The demonstration's base is right in a quarter of its answers, so many groups are all wrong. Beside its own reward a
second one is given that is different for nearly every text: it notes what it was called with, round by round, so that a
test can work out which groups should have been trained on, and compare.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import run_grpo
from rewards.math_correctness import math_correctness
from rlvr import checkpoints
from rlvr.metrics import read_metrics
from rlvr.plugins import load_task
from rlvr.recipe import TaskSpec
from rlvr.trainer import RecipeTrainer
from tests.conftest import REPOSITORY
from tests.launchers.conftest import start  # noqa: F401  A fixture.
from tests.launchers.launching import Start, accelerated

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
GROUP, GROUPS, EXTRA = 4, 4, 2
STEPS, GENERATIONS = 8, 4
NOTED = """
import json, os, pathlib, signal, zlib

def noted(prompts, completions, final_answer, trainer_state, *, folder="", **kwargs):
    questions = [prompt[-1]["content"] for prompt in prompts]
    texts = [completion[-1]["content"] for completion in completions]
    call = {"step": trainer_state.global_step, "questions": questions, "texts": texts, "golds": final_answer}
    file = pathlib.Path(folder) / f"noted.{os.environ.get('RANK', '0')}.jsonl"
    with file.open("a") as opened:
        opened.write(json.dumps(call) + "\\n")
    ends = pathlib.Path(folder) / "end"      # "SIGKILL 5": at this call
    if ends.is_file():
        name, number = ends.read_text().split()
        if file.read_text().count("\\n") == int(number):
            os.kill(os.getpid(), getattr(signal, name))
    return [zlib.crc32(text.encode()) % 100 / 100 for text in texts]
"""
WORDS = (
    *("--config", str(DEMO), "--evaluation", "null", "--report_to", "none"),
    *("--num_generations", str(GROUP), "--per_device_train_batch_size", "8", "--steps_per_generation", "2"),
    *("--max_steps", str(STEPS), "--logging_steps", "1", "--log_completions", "true"),
    *("--num_completions_to_print", "0", "--save_strategy", "steps", "--save_steps", "3"),
)
DYNAMIC = ("--dynamic_sampling", str(EXTRA))


def reward_words(folder: Path) -> list[str]:
    """The demonstration's reward and `noted`, which is a part of the sum but never says what is right."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noted.py").write_text(NOTED)
    noted = {"name": f"{folder}/noted.py", "where": "trainer", "weight": 0.2, "options": {"folder": str(folder)}}
    return ["--rewards", json.dumps([{"name": "math_correctness", "weight": 1.0}, noted])]


def shaped(text: str) -> float:
    return zlib.crc32(text.encode()) % 100 / 100


@dataclass
class Ran:
    """A run: its folder, what the rewards were called with, and what each generation gave to the trainer."""

    folder: Path
    calls: list[dict[str, Any]]
    batches: list[dict[str, torch.Tensor]]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder / "metrics.jsonl")

    def table(self, step: int) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "completions" / f"completions_{step:05d}.parquet")


def run(folder: Path, *words: str) -> Ran:
    """A run by run_grpo.main in this process; each of its batches is kept as the trainer gets it."""
    batches = []
    inner = RecipeTrainer._generate_and_score_completions

    def keep(self: RecipeTrainer, inputs: Any) -> dict[str, Any]:
        batches.append(inner(self, inputs))
        return batches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecipeTrainer, "_generate_and_score_completions", keep)
        code = run_grpo.main([*WORDS, *reward_words(folder / "notes"), "--output_dir", str(folder / "run"), *words])
    assert code == 0
    return Ran(folder / "run", noted(folder / "notes"), batches)


def noted(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"noted.{rank}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Eight steps with dynamic sampling, a generation every two of them; left alone."""
    return run(tmp_path_factory.mktemp("whole"), *DYNAMIC)
