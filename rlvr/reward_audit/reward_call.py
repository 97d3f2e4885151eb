"""Call a reward with rows of saved completions, as training would, and collect what it explains."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from rlvr.data.io import Row
from rlvr.data.task import ENDED, FROM_TRAINER, OPENED
from rlvr.environments.transcript import SECONDS, STOPPED, with_arguments
from rlvr.scoring.reward import WHY, Reward
from rlvr.verifiers.completion_text import prompt_opens_think, with_opened_think

# Columns that runs and evaluations write, in addition to the columns of the data (see also `recorded_names`).
WRITTEN_BY_RUNS = frozenset({"step", "advantage", "correct", "row", "tokens", "ended", OPENED, STOPPED, SECONDS})


def explanation(row: Row, reward: Reward, rewards: Sequence[Reward]) -> tuple[list[str], str]:
    """Call a reward with one completion, and collect what it passes to `log_extra`.

    A column that ends in "/why" is a text of its own; others, such as "extracted", are shown with their names.

    Returns:
        What the reward says, line by line, and its error; "" if it does not fail.
    """
    lines: list[str] = []
    if "log_extra" not in inspect.signature(reward.function).parameters:
        return lines, ""

    def log_extra(column: str, values: list[Any]) -> None:
        text = str(values[0]) if column.endswith(WHY) else f"{column}: {values[0]}"
        lines.extend(text.splitlines())

    try:
        reward(**reward_arguments([row], reward, rewards), log_extra=log_extra, log_metric=lambda name, value: None)
    except Exception as error:  # an error of the reward's author must not hide the other explanations
        return lines, str(error)
    return lines, ""


def reward_arguments(rows: Sequence[Row], reward: Reward, rewards: Sequence[Reward]) -> dict[str, list[Any]]:
    """The arguments of a reward: lists as long as `rows`, with None where a row lacks a column.

    The reward gets the columns that it gets in training. Columns that a run wrote, and the reward's own options, are
    left out.
    """
    recorded = {name for other in rewards for name in recorded_names(other)}
    left_out = recorded.union(WRITTEN_BY_RUNS, FROM_TRAINER, reward.options) - set(reward.columns)
    names = dict.fromkeys(name for row in rows for name in row if name not in left_out)
    # Copies: a reward that edits messages in place must not change what others score, as in training.
    return {
        "prompts": [deepcopy(row.get("prompt", "")) for row in rows],
        "completions": [_as_scored(row, reward) for row in rows],
        **{name: [row.get(name) for row in rows] for name in names if name not in ("prompt", "completion")},
        ENDED: [row.get("ended") is not False for row in rows],  # a file of training does not say
    }


def _as_scored(row: Row, reward: Reward) -> Any:
    completion = deepcopy(completion_argument(row))
    # As the scorer. A reward with the option `opened` sees the tag at the end of a prompt.
    by_prompt = prompt_opens_think(row.get("prompt"))
    sees = by_prompt and "opened" in inspect.signature(reward.function).parameters
    adds_think = (row.get(OPENED) or by_prompt) and not sees and reward.options.get("opened") is None
    return with_opened_think(completion) if adds_think else completion


def completion_argument(row: Row) -> Any:
    """The completion in the form that rewards receive (see `score`)."""
    completion = row["completion"]
    if isinstance(completion, str) and isinstance(row.get("prompt"), list):
        return [{"role": "assistant", "content": completion}]
    return with_arguments(completion)


def recorded_names(reward: Reward) -> tuple[str, str]:
    """The columns in which a run (TRL's name) and an evaluation record a reward, after gates and masks."""
    return reward.label, f"rewards/{reward.label}"
