"""Which rows travel in which request to a reward server, and the requests themselves."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr.scoring.backends.http.connection import Server
from rlvr.scoring.batch_encoding import EncodedBatch, RewardCall
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import TaskResult

PARTS = 2  # a server, where several share a batch: the slower one then takes less
SPARE_BYTES = 1 << 16  # of a request, for what is not rows


@dataclass
class RequestShard:
    """Rows of a batch that are asked for in one request, and what came of it.

    Attributes:
        rows, errands: errands of all rows are one a reward; of single rows one a row, all of one reward.
        outcomes: one list an errand's reward.
    """

    rows: list[int]
    errands: list[int]
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    body: bytes | None = None
    outcomes: list[list[TaskResult]] | None = None


def parts_of(items: Sequence[RewardCall], servers: Sequence[Server]) -> list[RequestShard]:
    """The requests in which calls travel.

    Args:
        items: of one batch; either calls for all rows, or calls of one reward for single ones.
    """
    if not items:
        return []
    carried = items[0].carried
    names = sorted({name for errand in items for name in errand.names})
    carried.check(names)
    if items[0].row is None:
        everything = list(range(len(items)))
        return [RequestShard(rows, everything) for rows in shared_out(carried, names, range(carried.rows), servers)]
    of_row = {errand.row: number for number, errand in enumerate(items) if errand.row is not None}
    shares = shared_out(carried, names, sorted(of_row), servers)
    return [RequestShard(rows, [of_row[row] for row in rows]) for rows in shares]


def shared_out(
    carried: EncodedBatch, names: Sequence[str], rows: Sequence[int], servers: Sequence[Server], *, whole: bool = False
) -> list[list[int]]:
    """Rows in portions: a few for each server, or as large ones as can be; whole groups where they fit."""
    told = [server.told for server in servers if server.told is not None]
    most_rows = min((one.rows for one in told), default=1024)
    most_bytes = max(min((one.body_bytes for one in told), default=16 << 20) - SPARE_BYTES, 1)
    groups: list[list[int]] = []
    for row in rows:
        if not whole and groups and carried.same(groups[-1][-1], row):
            groups[-1].append(row)
        else:
            groups.append([row])
    shared = len(servers) > 1 and not whole
    wanted = math.ceil(len(rows) / (PARTS * len(servers))) if shared else len(rows)
    portions: list[list[int]] = []
    size = 0
    for group in groups:
        begins = True
        for row in group:
            own = carried.size(names, row)
            full = not portions or len(portions[-1]) >= most_rows or size + own > most_bytes
            if full or (begins and len(portions[-1]) >= wanted):
                portions.append([])
                size = 0
            portions[-1].append(row)
            size += own
            begins = False
    return portions


def body_of(
    rewards: Sequence[Reward], items: Sequence[RewardCall], part: RequestShard, deadline_s: float, budget_s: float
) -> bytes:
    """A request for scores."""
    first = items[part.errands[0]]
    one_by_one = first.row is not None
    asked = [first] if one_by_one else [items[number] for number in part.errands]
    told = []
    for errand in asked:
        spec = rewards[errand.place].spec
        assert spec is not None
        # A part that is not the first draws other numbers than the first.
        seed = errand.seed if one_by_one or part.rows[0] == 0 else (*errand.seed, part.rows[0])
        reads = [name for name in errand.names if name not in ("prompts", "completions")]
        told.append({"name": spec.name, "options": dict(spec.options), "reads": reads, "seed": seed})
    columns = sorted({name for reward in told for name in reward["reads"]})
    carried = first.carried
    texts = {
        "rewards": json.dumps(told),
        "prompts": carried.column("prompts", part.rows),
        "completions": carried.column("completions", part.rows),
        "columns": f"{{{','.join(f'{json.dumps(name)}:{carried.column(name, part.rows)}' for name in columns)}}}",
        "trainer_state": json.dumps(dict(first.state)),
        "one_by_one": json.dumps(one_by_one),
        "rows": json.dumps(part.rows),
        "deadline_s": json.dumps(_seconds(deadline_s)),
        "budget_s": json.dumps(None if budget_s == math.inf else _seconds(budget_s)),
    }
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in texts.items())}}}".encode()


def _seconds(value: float) -> float:
    return min(max(value, 0.001), 86400.0)
