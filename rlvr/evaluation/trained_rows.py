"""Find held-out rows that a run was trained on.

The split of a task may have moved since the run: rows were added to its file, or another seed or fraction divides it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError
from rlvr.rescoring.completions import prompt_key

if TYPE_CHECKING:
    from datasets import Dataset


def check_not_trained_on(run_dir: Path, held_out: Dataset, train: Dataset, split: str) -> None:
    """Refuse to measure a run's model on rows that it was trained on, unless the task itself has them in both splits.

    The prompts that a run was trained on are those of its `completions/`; a run without them is not checked.

    Args:
        held_out: the rows to measure on.
        train: the training rows of the task as it is now. `--check` warns of rows that are in both.

    Raises:
        InputError: of kind "trained-rows".
    """
    trained = _trained_prompts(run_dir)
    in_both = {_key(prompt) for prompt in train["prompt"]} if len(train) else set()
    rows = [row for row, prompt in enumerate(held_out["prompt"]) if _key(prompt) in trained - in_both]
    if rows:
        raise InputError(
            f"{len(rows)} of the {len(held_out)} rows of the split {split} are not held out: {run_dir} was trained on "
            f"them (the first is row {rows[0]}). The task's data or its options have changed since. Measure with "
            f"{run_dir / 'recipe.yaml'} and the data as it was, or give new rows in a file of their own (test_path).",
            kind="trained-rows",
            path=run_dir,
            row=rows[0],
        )


def _trained_prompts(run_dir: Path) -> set[str]:
    import pyarrow.parquet as pq

    keys: set[str] = set()
    for file in sorted((run_dir / "completions").glob("completions_*.parquet")):
        if "prompt" in pq.read_schema(file).names:
            keys |= {_key(prompt) for prompt in pq.read_table(file, columns=["prompt"])["prompt"].to_pylist()}
    return keys


def _key(prompt: Any) -> str:
    return prompt_key({"prompt": prompt})
