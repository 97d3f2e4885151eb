"""Split a batch into requests to reward servers, and write the requests."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr.scoring.backends.http.connection import ServerInfo
from rlvr.scoring.batch import Batch, RewardCall
from rlvr.scoring.results import CallResult
from rlvr.scoring.reward import Reward

SHARDS_PER_SERVER = 2  # if several servers share a batch: the faster one then takes more
BODY_OVERHEAD = 1 << 16  # bytes of a request beside its rows
DEFAULT_MAX_ROWS, DEFAULT_MAX_BYTES = 1024, 16 << 20


@dataclass
class RequestShard:
    """Rows of a batch in one request.

    Attributes:
        rows: numbers in the batch.
        calls: indices of the calls that the request makes: one per reward for all rows, or one per row of one reward.
        one_by_one: whether it makes calls for single rows.
        key: idempotency key.
        body: written when the request is first sent.
        results: of `calls`.
        rejected: why no server will serve the request.
    """

    rows: list[int]
    calls: list[int]
    one_by_one: bool = False
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    body: bytes | None = None
    results: list[CallResult] | None = None
    rejected: str = ""

    def halves(self) -> list[RequestShard]:
        """The same rows in two requests."""
        half = len(self.rows) // 2
        return [
            RequestShard(self.rows[part], self.calls[part] if self.one_by_one else self.calls, self.one_by_one)
            for part in (slice(half), slice(half, None))
        ]


def split_calls(calls: Sequence[RewardCall], infos: Sequence[ServerInfo | None]) -> list[RequestShard]:
    """Split calls into requests.

    Args:
        calls: of one batch; either calls for all rows, or calls of one reward for single rows.
        infos: of each server, as far as known.
    """
    if not calls:
        return []
    batch = calls[0].batch
    names = sorted({name for call in calls for name in call.names})
    if calls[0].row is None:
        return [RequestShard(rows, list(range(len(calls))))
                for rows in split_rows(batch, names, range(batch.rows), infos)]  # fmt: skip
    call_of_row = {call.row: number for number, call in enumerate(calls) if call.row is not None}
    shards = split_rows(batch, names, sorted(call_of_row), infos)
    return [RequestShard(rows, [call_of_row[row] for row in rows], one_by_one=True) for rows in shards]


def split_rows(
    batch: Batch,
    names: Sequence[str],
    rows: Sequence[int],
    infos: Sequence[ServerInfo | None],
    *,
    keep_groups: bool = True,
) -> list[list[int]]:
    """Split rows into requests within the servers' limits: a few per server, or with `keep_groups=False` few at all.

    Groups stay together where they fit.
    """
    max_rows = min((info.rows for info in infos if info is not None), default=DEFAULT_MAX_ROWS)
    max_bytes = min((info.body_bytes for info in infos if info is not None), default=DEFAULT_MAX_BYTES) - BODY_OVERHEAD
    several = len(infos) > 1 and keep_groups
    target_rows = math.ceil(len(rows) / (SHARDS_PER_SERVER * len(infos))) if several else len(rows)
    shards: list[list[int]] = []
    size = 0
    for place, row in enumerate(rows):
        row_size = batch.json_size(names, row)
        begins_group = not (keep_groups and place and batch.same_prompt(rows[place - 1], row))
        full = not shards or len(shards[-1]) >= max_rows or size + row_size > max_bytes
        if full or (begins_group and len(shards[-1]) >= target_rows):
            shards.append([])
            size = 0
        shards[-1].append(row)
        size += row_size
    return shards


def write_body(
    rewards: Sequence[Reward],
    calls: Sequence[RewardCall],
    shard: RequestShard,
    timeout_s: float,
    batch_timeout_s: float,
) -> bytes:
    """Write a request to `/score`."""
    batch = calls[0].batch
    described = []
    for call in [calls[number] for number in shard.calls][: 1 if shard.one_by_one else None]:
        spec = rewards[call.reward].spec
        assert spec is not None
        # Another shard than the first draws other random numbers.
        seed = call.seed if shard.one_by_one or shard.rows[0] == 0 else (*call.seed, shard.rows[0])
        reads = [name for name in call.names if name not in ("prompts", "completions")]
        described.append({"name": spec.name, "options": dict(spec.options), "reads": reads, "seed": seed})
    names = sorted({name for reward in described for name in reward["reads"]})
    fields = {
        "rewards": json.dumps(described),
        "prompts": batch.json_column("prompts", shard.rows),
        "completions": batch.json_column("completions", shard.rows),
        "columns": batch.json_columns(names, shard.rows),
        "trainer_state": json.dumps(batch.state),
        "one_by_one": json.dumps(shard.one_by_one),
        "rows": json.dumps(shard.rows),
        "deadline_s": json.dumps(_seconds(timeout_s)),
        "budget_s": json.dumps(_seconds(batch_timeout_s)),
    }
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in fields.items())}}}".encode()


def _seconds(value: float) -> float:
    return min(max(value, 0.001), 86400.0)
