"""The shortest possible training runs, for tests of their surroundings."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.sagemaker_emulator import storage
from tests.support.sagemaker_emulator.service import TrainingService

# Short answers, of which REWARD makes a gradient in every step; a checkpoint only after a signal.
DRAWN = (
    *("--max_completion_length", "8", "--mask_truncated_completions", "false", "--temperature", "2.0"),
    *("--save_strategy", "steps", "--save_steps", "1000", "--disable_tqdm", "true"),
)
# Two prompts per step, four completions each, no evaluation. Few rows: every process makes and checks all of them.
QUICK = (
    *("--num_generations", "4", "--per_device_train_batch_size", "8", "--evaluation", "null", *DRAWN),
    *("--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--task.train_rows", "64", "--task.test_rows", "8"),
)
# A reward that depends on the text alone. From the second step on it is slow until there is a checkpoint, so that the
# run can be stopped.
REWARD = """
import pathlib, time, zlib

def drawn(prompts, completions, trainer_state, **kwargs):
    if trainer_state.global_step > 0 and not any(pathlib.Path("/opt/ml/checkpoints/run").glob("checkpoint-*")):
        time.sleep(2)
    return [zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""


def reward_words(folder: Path, **more: str) -> tuple[str, ...]:
    """Words that make REWARD the only reward.

    Args:
        more: keys of the reward in the recipe.
    """
    (folder / "drawn.py").write_text(REWARD)
    return ("--rewards", json.dumps([{"name": str(folder / "drawn.py"), **more}]))


def logged_steps(metrics: Path) -> list[int]:
    """The steps of a run that metrics.jsonl has."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["step"] for line in lines if "loss" in line or "reward" in line]


def saved_steps(service: TrainingService, uri: str) -> list[int]:
    """The steps of the complete checkpoints in a bucket."""
    keys = [key.split("/") for key in storage.keys(service.client("s3"), uri)]
    return sorted(int(parts[-2].removeprefix("checkpoint-")) for parts in keys if parts[-1] == "complete.json")
