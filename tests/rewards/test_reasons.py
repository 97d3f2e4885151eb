"""Every reward says why through `log_extra`: one text for each completion, and the same values with and without."""

from __future__ import annotations

import inspect
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


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_reward_gives_one_reason_for_each_completion(name: str, tmp_path: Path) -> None:
    import sqlite3

    sqlite3.connect(tmp_path / "shop.db").execute("CREATE TABLE jars (grams INT)")
    options = {"folder": str(tmp_path)} if name == "sql_result" else OPTIONS.get(name, {})
    reward = load_reward(RewardSpec(name, options=options))
    known = inspect.signature(reward.function).parameters
    columns = {key: [value] * 3 for key, value in {**COLUMNS, "database": "shop.db"}.items() if key in known}
    said: dict[str, list[str]] = {}
    values = reward([""] * 3, COMPLETIONS, **columns, log_extra=said.__setitem__)
    assert values == reward([""] * 3, COMPLETIONS, **columns)
    assert said.keys() == {f"{name}/why"}
    assert [type(reason) for reason in said[f"{name}/why"]] == [str] * 3 and all(said[f"{name}/why"])
