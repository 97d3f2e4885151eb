"""OpenRLHF's protocol: completions, labels, and errors for rows without a value, since it has no null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rlvr.reward_server.openrlhf import LabelColumns, extract_completion, missing_reward_error
from rlvr.reward_server.request_limits import RequestError
from rlvr.scoring.reward import Reward

INPUT = "raised InputError: Reward r, row 1 of the batch: the column tests is 3, but should be a list of tests."


@pytest.mark.parametrize(
    ("query", "prompt", "completion", "why"),
    [
        ("ask answer", "ask ", "answer", "as it is"),
        ("<s>ask answer</s>", "ask ", "answer", "special tokens on both sides"),
        ("ask answer<|im_end|>\n<|endoftext|>", "ask ", "answer", "more than one at the end"),
        ("ask answer</s> so", "ask ", "answer</s> so", "inside, it is the model's own text"),
        ("ask ask ", "ask ", "ask ", "the first match counts"),
    ],
)
def test_the_completion_follows_the_prompt(query: str, prompt: str, completion: str, why: str) -> None:
    assert extract_completion(query, prompt, 0) == completion, why


def test_a_label_is_the_only_column_or_the_configured_one() -> None:
    rewards = [Reward("a", len, columns=("gold",)), Reward("b", len, columns=())]
    assert LabelColumns(rewards).columns(["x", '{"gold": 1}', "{no JSON"], 3) == {"gold": ["x", 1, "{no JSON"]}
    assert LabelColumns([Reward("b", len)]).columns([], 2) == {}
    two = [*rewards, Reward("c", len, columns=("tests",))]
    with pytest.raises(RequestError):
        LabelColumns(two).columns(["x"], 1)
    assert LabelColumns(two, "tests").columns(["x"], 1) == {"tests": ["x"]}


def result(values: list[Any], *, status: str = "done", kind: str = "", said: str = "", why: str = "") -> dict[str, Any]:
    value = {"values": values, "kind": kind, "said": said} if status == "done" else None
    return {"reward": "r", "values": values, "outcomes": [{"status": status, "value": value, "why": why}]}


@pytest.mark.parametrize(
    ("found", "status", "named", "why"),
    [
        (result([None] * 3, kind="raised", said=INPUT), 422, "the column tests is 3", "no retry mends the data"),
        (result([None] * 3, kind="raised", said="raised OSError: no route"), 503, "no route", "it asks somebody else"),
        (result([None] * 3, status="late", why="not done after 2 s"), 503, "not done after 2 s", "a busy machine"),
        (result([1.0, None, None]), 503, "Row 1", "a sandbox without room"),
    ],
)
def test_a_row_without_a_value_is_an_error_with_its_cause(
    found: Mapping[str, Any], status: int, named: str, why: str
) -> None:
    fine = {"reward": "fine", "values": [1.0] * 3, "outcomes": []}
    error = missing_reward_error(found["values"].index(None), [fine, found])
    assert error.status == status and named in str(error), (why, str(error))
    assert ("retry-after" in error.response().headers) == (status == 503), why
