"""The requests of one batch: each goes to the next free server, until all are answered or the batch times out."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http.connection import (
    NO_SERVER,
    Rejected,
    ServerConnection,
    ServerInfo,
    ServerSet,
    Unavailable,
)
from rlvr.scoring.batch import Batch, RewardCall
from rlvr.scoring.results import CallResult, merge_shards
from rlvr.scoring.reward import Reward
from rlvr.scoring.reward_worker import WIRE_STATUS
from rlvr.workers.pool import OUT_OF_TIME, TaskResult

SHARDS_PER_SERVER = 2  # if several servers share a batch: the faster one then takes more
BODY_OVERHEAD = 1 << 16  # bytes of a request beside its rows
DEFAULT_MAX_ROWS, DEFAULT_MAX_BYTES = 1024, 16 << 20
REJECTED_BACKOFF_S = 60.0  # of a server with another key or other rewards, while others may answer
_STATUS_OF = {wire: status for status, wire in WIRE_STATUS.items()}
GRACE_S = 2.0  # after the batch's end, for threads that notice it themselves


@dataclass
class RequestShard:
    """Rows of a batch in one request.

    Attributes:
        rows: numbers in the batch.
        calls: indices of the calls that the request makes: one per reward for all rows, or one per row of one reward.
        one_by_one: whether it makes calls for single rows.
        body: written when the request is first sent.
        results: of `calls`.
        rejected: why no server will serve the request.
    """

    rows: list[int]
    calls: list[int]
    one_by_one: bool = False
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


class BatchRequest:
    """Sends the shards of a batch from one thread per request at a time."""

    def __init__(self, servers: ServerSet, calls: Sequence[RewardCall], timeout_s: float, end: float) -> None:
        self.servers = servers
        self.calls = calls
        self.timeout_s = timeout_s
        self.end = end
        self.shards = split_calls(calls, [server.info for server in servers.servers])
        self._notice = servers.notice(end)
        self._changed = threading.Condition()
        self._queue = deque(self.shards)
        self._open = len(self.shards)
        self._threads = 0
        self._bug: Exception | None = None

    def run(self) -> list[CallResult]:
        """Send all shards, and return the results of the calls."""
        slots = [server for server in self.servers.servers for _ in range(min(SHARDS_PER_SERVER, len(self.shards)))]
        self._threads = len(slots)
        for server in slots:
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        with self._changed:
            while self._open and self._threads and time.monotonic() < self.end + GRACE_S and not self.servers.closed:
                self._changed.wait(1.0)
        if self._bug is not None:
            raise self._bug
        return self._results()

    def _serve(self, server: ServerConnection) -> None:
        try:
            while (shard := self._next(server)) is not None:
                self._send(server, shard)
        except Exception as error:  # raised in `run`
            with self._changed:
                self._bug, self._open = error, 0
        finally:
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _send(self, server: ServerConnection, shard: RequestShard) -> None:
        try:
            if server.info is None:
                self.servers.handshake(server, self.end)
            if shard.body is None:
                left_s = self.end - time.monotonic()
                shard.body = write_body(self.servers.rewards, self.calls, shard, self.timeout_s, left_s)
            reply = server.ask("/score", shard.body, end=self.end + 1.0)
            results = read_results(reply, shard)
        except Unavailable as error:
            server.mark_failed(error)
            is_outage = error.retry_after_s is None  # a busy server says when to retry
            if is_outage and self.servers.has_healthy_peer(server):
                outage_notices.server_failed(server.address, str(error))
            elif is_outage:
                self._notice.failed(self.servers.errors())
            self._update(shard)
        except Rejected as error:
            self._reject(server, shard, error)
        else:
            server.mark_alive()
            if server.info is not None and server.info.instance != str(reply.get("instance")):
                server.info = None  # it has restarted, perhaps with other files
            outage_notices.server_answered(server.address)
            self._notice.recovered()
            shard.results = results
            self._update(more=-1)

    def _next(self, server: ServerConnection) -> RequestShard | None:
        """The next shard for a server, after its backoff; None: nothing is left."""
        with self._changed:
            while True:
                left_s = self.end - time.monotonic()
                if not self._open or left_s <= 0 or self.servers.closed:
                    return None
                backoff_s = server.backoff_s()
                if self._queue and not backoff_s:
                    return self._queue.popleft()
                # Another server may fail, and then its shard is in the queue again.
                self._changed.wait(min(left_s, max(backoff_s, 0.01) if self._queue else 1.0))

    def _update(self, *requeued: RequestShard, more: int = 0) -> None:
        """Put shards in front of the queue, and change the number of those without results."""
        with self._changed:
            self._queue.extendleft(reversed(requeued))
            self._open += more
            self._changed.notify_all()

    def _reject(self, server: ServerConnection, shard: RequestShard, error: Rejected) -> None:
        """Leave a shard to other servers, split it if it is too large, or give it up."""
        if server.info is None and len(self.servers.servers) > 1:
            server.mark_failed(Unavailable(str(error), retry_after_s=REJECTED_BACKOFF_S))
            if self.servers.has_healthy_peer(server):
                outage_notices.server_failed(server.address, str(error), for_good=True)
            self._update(shard)
        elif error.status == 413 and len(shard.rows) > 1:
            halves = shard.halves()
            with self._changed:
                self.shards = [other for other in self.shards if other is not shard] + halves
            self._update(*halves, more=1)
        else:
            shard.rejected = f"the reward server {error}"
            self._update(more=-1)

    def _results(self) -> list[CallResult]:
        of_call: list[list[tuple[CallResult, list[int]]]] = [[] for _ in self.calls]
        for shard in self.shards:
            results = shard.results
            if results is None:
                results = [CallResult(kind="unavailable", message=self._cause(shard))] * len(shard.calls)
            for place, (number, result) in enumerate(zip(shard.calls, results, strict=True)):
                of_call[number].append((result, [shard.rows[place]] if shard.one_by_one else shard.rows))
        return [merge_shards(results) for results in of_call]

    def _cause(self, shard: RequestShard) -> str:
        """Why a shard has no results."""
        errors = self.servers.errors()
        return shard.rejected or (errors if errors == OUT_OF_TIME else f"{NO_SERVER} ({errors})")


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
        return [
            RequestShard(rows, list(range(len(calls)))) for rows in split_rows(batch, names, range(batch.rows), infos)
        ]
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


def read_results(reply: Any, shard: RequestShard) -> list[CallResult]:
    """Decode and validate the reply to a shard's request: nothing proves that the server is one of ours.

    Raises:
        Unavailable: the reply does not answer the request.
    """
    rows = 1 if shard.one_by_one else len(shard.rows)
    try:
        results = [[_read_result(outcome, rows) for outcome in result["outcomes"]] for result in reply["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"the reply can't be read ({type(error).__name__}: {error})"[:300]) from error
    if [len(of_call) for of_call in results] != ([len(shard.rows)] if shard.one_by_one else [1] * len(shard.calls)):
        raise Unavailable("the reply has not as many results as the request has calls")
    return [result for of_call in results for result in of_call]


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
