"""What a trainer that speaks OpenRLHF's protocol is told of rows that have no value, since it knows no `null`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rlvr.reward_server.limits import Refused
from rlvr.reward_server.openrlhf import refusal

INPUT = "raised InputError: Reward r, row 1 of the batch: the column tests is 3, but should be a list of tests."


def result(values: list[Any], *, status: str = "done", kind: str = "", said: str = "", why: str = "") -> dict[str, Any]:
    value = {"values": values, "kind": kind, "said": said} if status == "done" else None
    return {"reward": "r", "values": values, "outcomes": [{"status": status, "value": value, "why": why}]}


@pytest.mark.parametrize(
    ("found", "faults", "status", "told", "why"),
    [
        (result([1.0, None, 1.0]), [None, "there is no test", None], 422, "Row 1: r can't score it: there is no test.",
         "a label of null has no value, and the reward's own file says why"),
        (result([None] * 3, kind="raised", said=INPUT), [None, "tests is 3.", "it is empty."], 422,
         "Row 1: r can't score it: tests is 3. And so 1 more of the rows.", "one that is wrong fails the call for all"),
        (result([None] * 3, kind="raised", said=INPUT), Refused(503, "It has come to no end."), 422,
         "Reward r, row 1 of the batch: the column tests is 3, but should be a list of tests.", "the call said it"),
        (result([None] * 3, kind="raised", said="raised OSError: no route to host"), [None] * 3, 503,
         "The reward r raised OSError: no route to host.", "a reward that asks somebody else may be better off later"),
        (result([None] * 3, status="late", why="not done after 2 s"), [None] * 3, 503,
         "The reward r was stopped: not done after 2 s.", "a machine that is too busy"),
        (result([1.0, None, None]), [None] * 3, 503,
         "Row 1 has no value from r, which does not say why. And so 1 more of the rows.", "a sandbox without room"),
    ],
)  # fmt: skip
def test_faults_of_the_data_are_told_with_their_reason_and_are_not_to_be_asked_again(
    found: Mapping[str, Any], faults: Any, status: int, told: str, why: str
) -> None:
    def check(name: str) -> list[str | None]:
        assert name == "r"
        if isinstance(faults, Refused):
            raise faults
        return list(faults)

    failed = [row for row, value in enumerate(found["values"]) if value is None]
    fine = {"reward": "fine", "values": [1.0] * 3, "outcomes": []}
    refused = refusal(failed, [fine, found], check)
    assert (refused.status, str(refused)) == (status, told), why
    assert (refused.retry_after_s is None) == (status == 422), why
