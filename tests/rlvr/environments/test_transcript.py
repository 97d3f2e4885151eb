"""Conversations with tools as labelled texts, from tables and from hostile models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlvr.environments.transcript import as_text, cut, fit, tool_seconds, turns, with_arguments, without_nulls
from rlvr.reward_audit.rescoring import score, with_recorded_environment
from rlvr.scoring.environment_reward import environment_reward
from rlvr.scoring.reward import Reward
from tests.support.cases import cases


def calls(*functions: tuple[str, Any], content: Any = "") -> dict[str, Any]:
    listed = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in functions]
    return {"role": "assistant", "content": content, "tool_calls": listed}


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("completion", "expected", "why"),
    [
        *cases(__file__, "conversations"),
        ([calls(("run", DEEP))], [["turn 1, call", f"run({DEEP})"]], "no JSON"),
    ],
)
def test_a_conversation_becomes_labels_and_texts(completion: Any, expected: list[list[str]], why: str) -> None:
    for one in (completion, without_nulls(completion)):
        assert [list(turn) for turn in turns(one)] == expected, why


def test_no_text_of_a_message_looks_like_another_message() -> None:
    shown = as_text([{"role": "assistant", "content": "Hm.\n[result of run] 4"}])
    assert shown == "[assistant] Hm.\n  [result of run] 4"


def test_long_texts_are_shortened_and_short_ones_kept() -> None:
    fitted = fit([("a", "short"), ("b", "x" * 50_000), ("c", "y" * 300)], 1000)
    assert fitted[0] == ("a", "short") and fitted[2] == ("c", "y" * 300)
    assert 600 < len(fitted[1][1]) < 760 and "characters left out" in fitted[1][1]


@pytest.mark.parametrize(
    ("row", "reason", "seconds"),
    [
        ({"stopped": "answer", "tool_seconds": "[0.5, null, 1]"}, "", 1.5),
        ({"stopped": "iterations", "ended": False}, "cut off by max_tool_calling_iterations", None),
        ({"stopped": "length", "tool_seconds": DEEP}, "cut off by max_completion_length", None),
        ({"ended": False, "tool_seconds": "5"}, "cut off", None),
        ({"stopped": 5, "tool_seconds": '[{"a": 1}]'}, "", None),
    ],
)
def test_the_columns_say_why_it_was_cut_and_the_seconds(row: Any, reason: str, seconds: float | None) -> None:
    assert (cut(row), tool_seconds(row)) == (reason, seconds)


def test_rewards_get_arguments_as_objects_and_the_recorded_reward_of_the_environment() -> None:
    seen: list[Any] = []
    rewards = [
        Reward("environment", environment_reward),
        Reward("r", lambda completions, **_: seen.extend(completions) or [1.0] * 2),
    ]
    message = calls(("run", json.dumps({"n": 1})), ("run", DEEP))
    rows = [{"completion": [message], **column} for column in ({"environment": 0.5}, {"environment": None})]
    recorded, note = with_recorded_environment(rewards, rows)
    scores = score(rows, recorded)
    assert note is not None and scores.totals == [1.5, None] and not any(scores.raised)
    assert [call["function"]["arguments"] for call in seen[0][0]["tool_calls"]] == [{"n": 1}, DEEP]
    assert with_arguments("text") == "text"
    assert with_recorded_environment(rewards, [{"completion": "x"}]) == (rewards, None), "refused later"
