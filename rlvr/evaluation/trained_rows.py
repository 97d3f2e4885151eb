"""Find held-out rows that are among the training rows of a run.

The split of a task may have moved since the run: rows were added to its file, or another seed or fraction divides it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.dataset_columns import column_values
from rlvr.errors import InputError
from rlvr.reward_audit.completions import prompt_key

if TYPE_CHECKING:
    from datasets import Dataset

FILE = "training_rows.json"  # of a run directory


def record_training_rows(run_dir: Path, train: Dataset) -> None:
    """Write digests of the prompts of the training split."""
    (run_dir / FILE).write_text(json.dumps(sorted(set(_keys(train)))) + "\n", encoding="utf-8")


def check_not_trained_on(run_dir: Path, held_out: Dataset, train: Dataset, split: str) -> None:
    """Refuse to measure a run's model on its training rows, unless the task itself has them in both splits.

    Args:
        run_dir: that of the model; a folder without the run's file is not checked.
        held_out: the rows to measure on.
        train: the training rows of the task as it is now. `--check` warns of rows that are in both.

    Raises:
        InputError: of kind "trained-rows".
    """
    try:
        trained = set(json.loads((run_dir / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):  # a model alone, or a run that was killed at its start
        return
    trained -= set(_keys(train))
    rows = [row for row, key in enumerate(_keys(held_out)) if key in trained]
    if rows:
        raise InputError(
            f"{len(rows)} of the {len(held_out)} rows of the split {split} are not held out: they are training rows of "
            f"{run_dir} (the first is row {rows[0]}). The task's data or its options have changed since. Measure with "
            f"{run_dir / 'recipe.yaml'} and the data as it was, or give new rows in a file of their own (test_path).",
            kind="trained-rows",
            path=run_dir,
            row=rows[0],
        )


def _keys(rows: Dataset) -> list[str]:
    prompts = column_values(rows, "prompt") if len(rows) else []
    return [hashlib.sha256(prompt_key({"prompt": prompt}).encode()).hexdigest()[:16] for prompt in prompts]
