"""The trainer logs the text columns that rewards read, so that its completions can be scored again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlvr.scoring.logged_columns import MOST_LOGGED
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer

Columns = dict[str, list[Any]]


def zeros(completions: list[Any], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


def reads(*columns: str, name: str = "r") -> Reward:
    return Reward(name, zeros, columns=columns)


def logged(rewards: Sequence[Reward], *batches: Columns) -> Columns:
    """The columns of the table of completions after some batches: GRPOTrainer appends."""
    table: Columns = {}
    with Scorer(rewards) as scorer:
        for columns in batches:
            rows = len(next(iter(columns.values())))
            scorer.score(
                ["p"] * rows,
                ["c"] * rows,
                columns,
                log_extra=lambda column, values: table.setdefault(column, []).extend(values),
            )
    return table


@pytest.mark.parametrize(
    ("values", "expected", "why"),
    [
        (["1", "2"], ["1", "2"], "text"),
        (["1", None], ["1", None], "an empty entry"),
        (["1", "x" * (MOST_LOGGED + 1)], ["1", None], "too long to be repeated a completion"),
        (["1", "\ud800"], ["1", None], "what parquet could not hold"),
        ([["a"], ["b"]], None, "lists"),
        ([1, 2], None, "numbers: the report would take them for rewards"),
        (["1", 2], None, "mixed: parquet could not hold it"),
    ],
)
def test_columns_of_text_are_logged(values: list[Any], expected: list[Any] | None, why: str) -> None:
    table = logged([reads("gold")], {"gold": values, "other": ["o", "o"]})
    assert table == ({} if expected is None else {"gold": expected}), why


def test_a_column_that_several_rewards_read_is_logged_once_a_batch() -> None:
    rewards = [reads("gold", name="a"), reads("gold", name="b")]
    assert logged(rewards, {"gold": ["a", "b"]}, {"gold": ["c", "d"]}) == {"gold": ["a", "b", "c", "d"]}


def test_a_column_once_logged_is_logged_in_every_batch() -> None:
    """TRL keeps a column's old values where a batch brings none, and they would stand beside other completions."""
    batches: list[Columns] = [{"gold": ["a"]}, {"gold": [None]}, {"gold": [["list"]]}]
    assert logged([reads("gold")], *batches) == {"gold": ["a", None, None]}


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_column_that_a_reward_logs_itself_is_not_doubled(ours_first: bool) -> None:
    def logs(completions: list[Any], *, log_extra: Any, **kwargs: Any) -> list[float]:
        log_extra("gold", ["x" for _ in completions])
        log_extra("own", ["y"])
        log_extra("own", ["z"])
        return [0.0 for _ in completions]

    rewards = [reads("gold"), Reward("logs", logs)]
    table = logged(rewards if ours_first else rewards[::-1], {"gold": ["a", "b"]})
    assert table == {"gold": ["a", "b"] if ours_first else ["x", "x"], "own": ["y", "z"]}


def test_a_column_never_replaces_one_of_trl() -> None:
    assert logged([reads("step", "r", "advantage")], {"step": ["1"], "r": ["1"], "advantage": ["1"]}) == {}


def test_reasons_stay_out_of_the_table() -> None:
    def logs(completions: list[Any], *, log_extra: Any = None, **kwargs: Any) -> list[float]:
        log_extra("logs/why", ["because" for _ in completions])
        log_extra("extracted", ["4" for _ in completions])
        return [0.0 for _ in completions]

    assert logged([Reward("logs", logs)], {"gold": ["a", "b"]}) == {"extracted": ["4", "4"]}
