"""The requests of one batch: each goes to the next free server, until all are answered or the batch times out."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http_connection import NO_SERVER, Rejected, ServerConnection, ServerSet, Unavailable
from rlvr.scoring.batch import Batch, RewardCall
from rlvr.scoring.call_result import CallResult, merge_shards
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import OUT_OF_TIME

SHARDS_PER_SERVER = 2  # if several servers share a batch: the faster one then takes more
BODY_OVERHEAD = 1 << 16  # bytes of a request beside its rows
BUSY = 429
GRACE_S = 2.0  # after the batch's end, for replies that are on their way
_STATUSES = ("done", "raised", "wrong length", "timeout", "crashed", "unavailable")


@dataclass
class RequestShard:
    """Rows of a batch in one request."""

    rows: list[int]  # numbers in the batch
    calls: list[int]  # indices: a call per reward for all rows, or with `one_by_one` a call per row of one reward
    one_by_one: bool = False
    results: list[CallResult] | None = None  # of `calls`
    rejected: str = ""  # why no server will serve the request


class BatchRequest:
    """Sends the shards of a batch, each in a thread of its own, but few per server at a time."""

    def __init__(self, servers: ServerSet, calls: Sequence[RewardCall], timeout_s: float, end: float) -> None:
        self.servers = servers
        self.calls = calls
        self.timeout_s = timeout_s
        self.end = end
        self.shards = split_calls(calls, servers)
        self._notice = servers.notice(end)
        self._unsent = iter(self.shards)  # shared by the threads
        self._lock = threading.Lock()
        self._bug: Exception | None = None

    def run(self) -> list[CallResult]:
        """Send all shards, and return the results of the calls."""
        count = min(len(self.shards), SHARDS_PER_SERVER * len(self.servers.servers))
        threads = [threading.Thread(target=self._send_shards, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self._is_over(GRACE_S):
                thread.join(0.5)
        if self._bug is not None:
            raise self._bug
        return self._results()

    def _send_shards(self) -> None:
        try:
            for shard in self._unsent:
                while shard.results is None and not shard.rejected and not self._is_over():
                    self._send(shard)
        except Exception as error:  # raised in `run`
            self._bug = error

    def _is_over(self, grace_s: float = 0.0) -> bool:
        return self.servers.closed or self._bug is not None or time.monotonic() >= self.end + grace_s

    def _send(self, shard: RequestShard) -> None:
        """Send a shard once, after the backoff of the next free server."""
        with self._lock:
            server = self.servers.next()
            server.requests += 1
        try:
            time.sleep(min(server.backoff_s(), max(self.end - time.monotonic(), 0.0)))
            if server.info is None:
                self.servers.handshake(server, self.end)
            left_s = self.end - time.monotonic()
            body = write_body(self.servers.rewards, self.calls, shard, self.timeout_s, left_s)
            reply = server.ask("/score", body, end=self.end + 1.0)
            shard.results = read_results(reply, shard)
        except Unavailable as error:
            server.mark_failed(error)
            if error.status != BUSY and self.servers.has_healthy_peer(server):
                outage_notices.server_failed(server.address, str(error))
            elif error.status != BUSY:
                self._notice.failed(self.servers.errors())
        except Rejected as error:
            self._reject(server, shard, error)
        else:
            server.mark_alive()
            if server.info is not None and server.info.instance != str(reply.get("instance")):
                server.info = None  # it has restarted, perhaps with other files
            outage_notices.server_answered(server.address)
            self._notice.recovered()
        finally:
            with self._lock:
                server.requests -= 1

    def _reject(self, server: ServerConnection, shard: RequestShard, error: Rejected) -> None:
        """Leave a shard to other servers, or give it up."""
        if server.info is None and len(self.servers.servers) > 1:
            server.mark_failed(error)
            if self.servers.has_healthy_peer(server):
                outage_notices.server_failed(server.address, str(error), for_good=True)
        else:
            shard.rejected = f"the reward server {error}"

    def _results(self) -> list[CallResult]:
        of_call: list[list[tuple[CallResult, list[int]]]] = [[] for _ in self.calls]
        errors = self.servers.errors()
        lost = errors if errors == OUT_OF_TIME else f"{NO_SERVER} ({errors})"
        for shard in self.shards:
            cause = CallResult(status="unavailable", why=shard.rejected or lost)
            results = shard.results or [cause] * len(shard.calls)
            for place, (number, result) in enumerate(zip(shard.calls, results, strict=True)):
                of_call[number].append((result, [shard.rows[place]] if shard.one_by_one else shard.rows))
        return [merge_shards(results) for results in of_call]


def split_calls(calls: Sequence[RewardCall], servers: ServerSet) -> list[RequestShard]:
    """Split calls of one batch into requests: calls for all rows, or calls of one reward for single rows."""
    if not calls:
        return []
    batch = calls[0].batch
    names = sorted({name for call in calls for name in call.names})
    if calls[0].row is None:
        every = list(range(len(calls)))
        return [RequestShard(rows, every) for rows in split_rows(batch, names, range(batch.rows), servers)]
    call_of_row = {call.row: number for number, call in enumerate(calls) if call.row is not None}
    shards = split_rows(batch, names, sorted(call_of_row), servers)
    return [RequestShard(rows, [call_of_row[row] for row in rows], one_by_one=True) for rows in shards]


def split_rows(batch: Batch, names: Sequence[str], rows: Sequence[int], servers: ServerSet) -> list[list[int]]:
    """Split rows into requests within the servers' limits, a few per server. Groups stay together where they fit."""
    count = len(servers.servers)
    target_rows = math.ceil(len(rows) / (SHARDS_PER_SERVER * count)) if count > 1 else len(rows)
    shards: list[list[int]] = []
    size = 0
    for place, row in enumerate(rows):
        row_size = batch.json_size(names, row)
        begins_group = not (place and batch.same_prompt(rows[place - 1], row))
        is_full = not shards or len(shards[-1]) >= servers.rows or size + row_size > servers.body_bytes - BODY_OVERHEAD
        if is_full or (begins_group and len(shards[-1]) >= target_rows):
            shards.append([])
            size = 0
        shards[-1].append(row)
        size += row_size
    return shards


def write_body(
    rewards: Sequence[Reward], calls: Sequence[RewardCall], shard: RequestShard, timeout_s: float, budget_s: float
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
        "budget_s": json.dumps(_seconds(budget_s)),
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
    status = outcome["status"]
    if status not in _STATUSES:
        raise ValueError(status)
    values = [value if value is None or isinstance(value, str) else float(value) for value in outcome["values"]]
    if status == "done" and len(values) != rows:
        raise ValueError(f"{len(values)} values for {rows} rows")
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise ValueError("a value is no finite number")
    notes = [(str(what), str(name), content) for what, name, content in outcome["notes"]]
    return CallResult(values, status, str(outcome["why"]), str(outcome["trace"]), notes)
