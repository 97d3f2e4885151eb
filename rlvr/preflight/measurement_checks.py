"""Checks of what a measurement can show: repeated prompts, and the size of the held-out split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlvr.config.specs import SPLITS, EvaluationSpec
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.evaluation.statistics import wilson
from rlvr.preflight.components import RunComponents
from rlvr.preflight.data_checks import prompt_key

MAX_HALF_WIDTH = 0.1  # of an accuracy's 95 % interval; a wider one can't show what a short training gains
GOOD_HALF_WIDTH = 0.05


def check_repeated_prompts(components: RunComponents) -> Iterator[Problem]:
    """Prompts that occur more than once in a split."""
    pairs = ((name, task, split) for name, task in components.tasks for split in SPLITS)
    for name, task, split in pairs:
        keys = [prompt_key(prompt) for prompt in task.prompts(split)]
        counts = Counter(keys)
        repeated = len(keys) - len(counts)
        if not repeated:
            continue
        effect = (
            "they are trained on more often than the others"
            if split == "train"
            else "an accuracy counts them as independent, so its interval is too narrow"
        )
        row = next(row for row, key in enumerate(keys) if counts[key] > 1)
        yield Problem(
            f"task {name}, {split}: {repeated:,} of {len(keys):,} prompts repeat an earlier one "
            f"(row {row} occurs {counts[keys[row]]:,} times): {effect}. Remove the repeated rows.",
            "repeated-prompt",
            "prompt",
            row=row,
            level="warning",
        )


def check_held_out_size(components: RunComponents) -> Iterator[Problem]:
    """The held-out split must be large enough for an accuracy that says something."""
    evaluation = components.recipe.evaluation
    for name, task in components.tasks if evaluation is not None else ():
        assert evaluation is not None
        yield from _held_out_size(evaluation, task, f" of {name}" if components.recipe.is_mixture else "")


def _held_out_size(evaluation: EvaluationSpec, task: Task, of_task: str) -> Iterator[Problem]:
    available = len(task.split(evaluation.split))
    rows = min(available, evaluation.rows or available)
    if not rows or half_width(rows) <= MAX_HALF_WIDTH:
        return
    wanted = [
        f"{rows_needed(width):,} rows for {100 * width:.0f} points" for width in (MAX_HALF_WIDTH, GOOD_HALF_WIDTH)
    ]
    yield Problem(
        f"evaluation: the {rows:,} rows of the split {evaluation.split}{of_task} give an accuracy with a 95 % interval "
        f"of up to ±{100 * half_width(rows):.0f} points, which hides what training gains. Use {', or '.join(wanted)}.",
        "small-split",
        "evaluation.split",
        level="warning",
    )


def half_width(rows: int) -> float:
    """Half of the 95 % interval of an accuracy of 50 %, where it is widest."""
    interval = wilson(rows / 2, rows)
    return (interval.high - interval.low) / 2


def rows_needed(width: float) -> int:
    """The number of rows with which `half_width` is at most `width`."""
    rows = 1
    while half_width(rows) > width:
        rows += 1
    return rows
