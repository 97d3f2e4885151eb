"""What holds for every reward: reasons through `log_extra`, and no error or delay whatever a completion is."""

from __future__ import annotations

import inspect
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_reward

SILENT = {"email_address", "reasoning_gym"}  # an example of a few lines, and the package's own verifiers
NAMES = {file.stem for file in (Path(__file__).resolve().parents[2] / "rewards").glob("*.py")} - SILENT
TESTS = [{"input": "1", "output": "1"}]
COLUMNS: dict[str, Any] = {
    "final_answer": "42",
    "choices": ["41", "42"],
    "keywords": ["refund"],
    "schema": "{}",
    "reference": "42",
    "calls": '{"name": "f"}',
    "tests": TESTS,
    "numbers": [6, 7],
    "target": 42,
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{}],
    "gold_query": "SELECT 42",
}
OPTIONS: dict[str, dict[str, Any]] = {"reasoning_length": {"longest": 9}, "multiple_choice": {}}
COMPLETIONS = ["", "<think>6 * 7</think>\n<answer>6 * 7</answer>", "```python\nprint(1)\n```"]


MALFORMED = [
    *(None, "", [], {}, 7, b"x", float("nan"), "\x00", "\ud800\x00", [None], ["x"], [{"role": "assistant"}]),
    *([{"role": "assistant", key: value}] for key in ("content", "reasoning_content") for value in (None, {}, [7], 7)),
]
# Signs that the rewards look for, and signs that are slow to normalise or to split.
PIECES = [
    *("<think>", "</think>", "<think>x</think>", "<", "< think", "<answer>", "<code>", "</code>", "<code>x</code>"),
    *("```", "```python", "```\n", "\n", "x ", "x.", "1,", "!", "-‐", "14,", "refund.", "no refund, ", "a1", "_", "字"),
    *("\u0301", "\u0301\u0316", "\ufdfa", "\ud800", "12345678901234567890."),
]


@pytest.fixture
def reward(name: str, tmp_path: Path) -> Callable[..., list[float | None]]:
    """The reward with columns for as many completions as it is given."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE jars (grams INT)")
    loaded = load_reward(
        RewardSpec(name, options={"folder": str(tmp_path)} if name == "sql_result" else OPTIONS.get(name, {}))
    )
    known = inspect.signature(loaded.function).parameters

    def score(completions: list[Any], **more: Any) -> list[float | None]:
        count = len(completions)
        columns = {key: [value] * count for key, value in {**COLUMNS, "database": "shop.db"}.items() if key in known}
        return loaded([""] * count, completions, **columns, **more)

    return score


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_reward_gives_one_reason_for_each_completion(name: str, reward: Callable[..., list[float | None]]) -> None:
    said: dict[str, list[str]] = {}
    values = reward(COMPLETIONS, log_extra=said.__setitem__)
    assert values == reward(COMPLETIONS)
    assert said.keys() == {f"{name}/why"}
    assert [type(reason) for reason in said[f"{name}/why"]] == [str] * 3 and all(said[f"{name}/why"])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_malformed_completion_earns_nothing_and_raises_nothing(reward: Callable[..., list[float | None]]) -> None:
    assert all(value is not None and value <= 0 for value in reward(MALFORMED))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_twenty_thousand_characters_take_no_time(reward: Callable[..., list[float | None]]) -> None:
    for piece in PIECES:
        started = time.process_time()
        reward([piece * (20_000 // len(piece)), f"<think>x</think>{piece * (20_000 // len(piece))}"])
        assert time.process_time() - started < 5, piece  # measured: 0.2 s, and the garbage collector's time
