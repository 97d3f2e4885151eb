"""What a reward server answered, as outcomes of calls: checked, and put together where rows were shared out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlvr.scoring.backends.http.connection import Unavailable
from rlvr.scoring.backends.http.sharding import RequestShard
from rlvr.scoring.batch_encoding import RewardCall
from rlvr.scoring.call import WIRE_STATUS, CallResult
from rlvr.workers.pool import TaskResult


def outcomes_of(said: Any, part: RequestShard, items: Sequence[RewardCall]) -> list[list[TaskResult]]:
    """The outcomes of an answer; checked, since nothing says that it comes from a server of ours.

    Raises:
        Unavailable: it is no answer to what was asked.
    """
    single = items[part.errands[0]].row is not None
    rows = 1 if single else len(part.rows)
    try:
        found = [[_outcome(one, rows) for one in result["outcomes"]] for result in said["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"its answer is none ({type(error).__name__}: {error})"[:300]) from error
    if [len(one) for one in found] != ([len(part.rows)] if single else [1] * len(part.errands)):
        raise Unavailable("its answer has not as many outcomes as it was asked for")
    return found


_STATUS_OF = {wire: status for status, wire in WIRE_STATUS.items()}


def _outcome(said: Mapping[str, Any], rows: int) -> TaskResult:
    status = _STATUS_OF[said["status"]]
    if status != "done":
        return TaskResult(status, why=str(said["why"]))
    value = said["value"]
    kind = value["kind"]
    if kind not in ("", "raised", "wrong length"):
        raise ValueError(kind)
    values = [one if one is None or isinstance(one, str) else float(one) for one in value["values"]]
    if not kind and len(values) != rows:
        raise ValueError(f"{len(values)} values for {rows} rows")
    if not all(math.isfinite(one) for one in values if isinstance(one, float)):
        raise ValueError("a value that is no finite number")
    notes = [(str(what), str(name), content) for what, name, content in value["notes"]]
    return TaskResult("done", asdict(CallResult(values, kind, str(value["said"]), str(value["trace"]), notes)))
