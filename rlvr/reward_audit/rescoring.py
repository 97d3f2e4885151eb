"""Score existing completions with the rewards of a recipe, as training would. No model is loaded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr.data.io import Row
from rlvr.data.mixture import COLUMN as TASK
from rlvr.errors import InputError
from rlvr.formatting import is_number
from rlvr.reward_audit.reward_call import reward_arguments
from rlvr.scoring.environment_reward import ENVIRONMENT
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total

# Rows per call of a reward. A batch never holds rows of two steps.
BATCH = 256


@dataclass(frozen=True)
class Scores:
    """The scores of some rows.

    Attributes:
        rewards: in the order of the recipe.
        values: by row and reward, as the functions returned them; None if unscored, or if the function raised.
        effective: the same after gates and masks (`rlvr.scoring.reward.apply_gates_and_mask`).
        totals: the weighted sum of the effective values of each row; None if the row is masked.
        seconds: by reward, for all rows.
        raised: by reward, the rows on which it raised or returned no number, with the error.
        tasks: the label of each row's task, where the rows have the column `task`.
    """

    rewards: Sequence[Reward]
    values: list[list[float | None]]
    effective: list[list[float | None]]
    totals: list[float | None]
    seconds: list[float]
    raised: list[dict[int, str]]
    tasks: Sequence[str | None]

    def of(self, index: int) -> list[float | None]:
        """The values of a reward for the rows that it applies to."""
        reward, pairs = self.rewards[index], zip(self.values, self.tasks, strict=True)
        return [row[index] for row, task in pairs if reward.applies(task)]


def score(
    rows: Sequence[Row],
    rewards: Sequence[Reward],
    progress: Callable[[int], object] = lambda done: None,
    file: str = "the rows",
) -> Scores:
    """Score every row with every reward, in batches, with gates and masks.

    With a prompt of messages, a text completion becomes an assistant's message, as in GRPOTrainer. If a reward raises,
    its batch is scored row by row, to find the failing rows.

    Args:
        rows: with `completion`, the columns that rewards ask for, and optionally `prompt`.
        progress: called after each batch with the number of its rows.
        file: what messages call the source of the rows.

    Raises:
        InputError: raised by a reward: one of its options, or an entry of a column, is wrong.
    """
    values: list[list[float | None]] = [[None] * len(rewards) for _ in rows]
    tasks = [row.get(TASK) for row in rows]
    seconds, raised = [0.0 for _ in rewards], [dict[int, str]() for _ in rewards]
    for batch in batches(rows):
        for index, reward in enumerate(rewards):
            applying = [number for number in batch if reward.applies(tasks[number])]
            if not applying:
                continue
            arguments = reward_arguments([rows[number] for number in applying], reward, rewards)
            start = time.perf_counter()
            try:
                scored = _score_batch(reward, arguments, applying, raised[index])
            except InputError as error:
                message = f"{file}, row {error.row}, reward {reward.name}: {error}"
                raise InputError(message, kind=error.kind, key=error.key, row=error.row) from error
            seconds[index] += time.perf_counter() - start
            for number, value in zip(applying, scored, strict=True):
                values[number][index] = value
        progress(len(batch))
    effective = apply_gates_and_mask(values, rewards, tasks)
    return Scores(rewards, values, effective, [total(row, rewards) for row in effective], seconds, raised, tasks)


def with_recorded_environment(rewards: Sequence[Reward], rows: Sequence[Row]) -> tuple[list[Reward], str | None]:
    """Take the reward `environment` from the rows, and say so: only the environment of a rollout can compute it.

    Without such a column the rewards stay as they are (`rlvr.reward_audit.missing_columns.fill_columns` refuses them).
    """
    names = (ENVIRONMENT, f"rewards/{ENVIRONMENT}")
    name = next((name for name in names if any(is_number(row.get(name)) for row in rows)), None)
    if name is None or not any(reward.name == ENVIRONMENT for reward in rewards):
        return list(rewards), None

    def recorded(completions: list[Any], **columns: Any) -> list[float | None]:
        return [value if is_number(value) else None for value in columns[name]]

    replaced = [
        replace(reward, function=recorded, columns=(name,)) if reward.name == ENVIRONMENT else reward
        for reward in rewards
    ]
    return replaced, f"Read from the file: {ENVIRONMENT}, which can't be computed again without the environments."


def batches(rows: Sequence[Row]) -> Iterator[range]:
    """Yield the numbers of the rows that are scored together."""
    start = 0
    for number in range(1, len(rows) + 1):
        ends = number == len(rows) or number - start == BATCH
        if ends or rows[number].get("step") != rows[start].get("step"):
            yield range(start, number)
            start = number


def _score_batch(
    reward: Reward, arguments: dict[str, list[Any]], batch: Sequence[int], raised: dict[int, str]
) -> list[float | None]:
    try:
        return reward(**arguments, log_extra=lambda column, values: None, log_metric=lambda name, value: None)
    except Exception as caught:
        error = caught
    # Outside the handler, so that a row's error does not get the error of its batch as its context.
    if len(batch) > 1:
        values: list[float | None] = []
        for index, number in enumerate(batch):
            one_row = {name: column[index : index + 1] for name, column in arguments.items()}
            values += _score_batch(reward, one_row, [number], raised)
        return values
    cause = error.__cause__ or error.__context__
    if isinstance(cause, InputError):
        # A message that names a row counts in the batch, which has this one alone.
        message = re.sub(r"[,:]? row 0\b( of the batch)?", "", str(cause))
        raise InputError(message, kind=cause.kind, key=cause.key, row=batch[0]) from error
    text = str(error).replace("row 0 of the batch", "this row")
    raised[batch[0]] = f"{type(cause).__name__}: {cause}" if cause else text
    return [None]
