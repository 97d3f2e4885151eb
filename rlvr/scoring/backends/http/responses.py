"""Decode and validate replies of a reward server: nothing proves that the server is one of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.scoring.backends.http.connection import Unavailable
from rlvr.scoring.backends.http.sharding import RequestShard
from rlvr.scoring.batch import RewardCall
from rlvr.scoring.results import CallResult
from rlvr.scoring.reward_worker import WIRE_STATUS
from rlvr.workers.pool import TaskResult

_STATUS_OF = {wire: status for status, wire in WIRE_STATUS.items()}


def read_results(reply: Any, shard: RequestShard, calls: Sequence[RewardCall]) -> list[list[CallResult]]:
    """Decode the reply to a shard's request.

    Raises:
        Unavailable: the reply does not answer the request.
    """
    one_by_one = calls[shard.calls[0]].row is not None
    rows = 1 if one_by_one else len(shard.rows)
    try:
        results = [[_read_result(outcome, rows) for outcome in result["outcomes"]] for result in reply["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"the reply can't be read ({type(error).__name__}: {error})"[:300]) from error
    if [len(of_call) for of_call in results] != ([len(shard.rows)] if one_by_one else [1] * len(shard.calls)):
        raise Unavailable("the reply has not as many results as the request has calls")
    return results


def _read_result(outcome: Mapping[str, Any], rows: int) -> CallResult:
    status = _STATUS_OF[outcome["status"]]
    if status != "done":
        return CallResult.from_task(TaskResult(status, why=str(outcome["why"])))
    data = outcome["value"]
    kind = data["kind"]
    if kind not in ("", "raised", "wrong length"):
        raise ValueError(kind)
    values = [value if value is None or isinstance(value, str) else float(value) for value in data["values"]]
    if not kind and len(values) != rows:
        raise ValueError(f"{len(values)} values for {rows} rows")
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise ValueError("a value is no finite number")
    notes = [(str(what), str(name), content) for what, name, content in data["notes"]]
    return CallResult(values, kind, str(data["said"]), str(data["trace"]), notes)
