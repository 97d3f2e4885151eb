"""Answers of a foreign server are no scores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlvr.scoring.backends.http_connection import Unavailable
from rlvr.scoring.backends.http_request import RequestShard, read_results


def _reply(values: Any, **more: Any) -> Any:
    return {"status": "done", "values": values, "why": "", "trace": "", "notes": [], **more}


@pytest.mark.parametrize(
    ("value", "told", "why"),
    [
        (_reply([1.0]), "1 values for 2 rows", "the second row would get the value of another"),
        (_reply([1.0, 0.0, 1.0]), "3 values for 2 rows", "one too many"),
        (_reply([1.0, float("nan")]), "no finite number", "it would spoil the whole update"),
        (_reply([1.0, float("inf")]), "no finite number", "the same"),
        (_reply([1.0, [0.0]]), "TypeError", "a list is no value"),
        (_reply([1.0, 0.0], status="fine"), "ValueError", "a word that isn't known"),
        ("no reply", "TypeError", "text"),
    ],
)
def test_an_invalid_answer_is_rejected(value: Any, told: str, why: str) -> None:
    said = json.loads(json.dumps({"results": [{"outcomes": [value]}]}))
    with pytest.raises(Unavailable, match=told):
        read_results(said, RequestShard([0, 1], [0]))
    said["results"][0]["outcomes"] = [_reply([1.0, None])]
    assert read_results(said, RequestShard([0, 1], [0]))[0].values == [1.0, None], why
