"""The requests of one batch: each goes to the next free server, until all are answered or the batch times out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http.connection import Rejected, ServerConnection, Unavailable
from rlvr.scoring.backends.http.responses import read_results
from rlvr.scoring.backends.http.servers import NO_SERVER, ServerSet
from rlvr.scoring.backends.http.sharding import SHARDS_PER_SERVER, RequestShard, split_calls, write_body
from rlvr.scoring.batch import RewardCall
from rlvr.scoring.results import CallResult, merge_shards
from rlvr.workers.pool import OUT_OF_TIME

REJECTED_BACKOFF_S = 60.0  # of a server with another key or other rewards, while others may answer
GRACE_S = 2.0  # after the batch's end, for threads that notice it themselves


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
        self._rejected: dict[str, str] = {}  # why, by the shard's key
        self._bug: Exception | None = None

    def run(self) -> list[CallResult]:
        """Send all shards, and return the results of the calls."""
        started = time.monotonic()
        slots = [server for server in self.servers.servers for _ in range(min(SHARDS_PER_SERVER, len(self.shards)))]
        self._threads = len(slots)
        for server in slots:
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        with self._changed:
            while self._open and self._threads and (left := self.end + GRACE_S - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
        if self._bug is not None:
            raise self._bug
        if any(shard.results is None and shard.key not in self._rejected for shard in self.shards):
            self.servers.mark_outage(started)
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
            reply = server.ask("/score", shard.body, key=shard.key, end=self.end + 1.0)
            results = read_results(reply, shard, self.calls)
        except Unavailable as error:
            server.mark_failed(error)
            self._report(server, error)
            self._requeue(shard)
        except Rejected as error:
            self._reject(server, shard, error)
        else:
            self.servers.mark_alive(server)
            outage_notices.server_answered(server.address)
            self._notice.recovered()
            shard.results = results
            self._finish()

    def _report(self, server: ServerConnection, error: Unavailable) -> None:
        """Print that a server does not answer. A busy server, which says when to retry, is no outage."""
        if error.retry_after_s is not None:
            return
        if self.servers.has_healthy_peer(server):
            outage_notices.server_failed(server.address, str(error))
        else:
            self._notice.failed(self.servers.errors())

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

    def _requeue(self, *shards: RequestShard) -> None:
        with self._changed:
            self._queue.extendleft(reversed(shards))
            self._changed.notify_all()

    def _finish(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _reject(self, server: ServerConnection, shard: RequestShard, error: Rejected) -> None:
        """Leave a shard to other servers, split it if it is too large, or give it up."""
        if server.info is None and len(self.servers.servers) > 1:
            server.mark_failed(Unavailable(str(error), retry_after_s=REJECTED_BACKOFF_S))
            if self.servers.has_healthy_peer(server):
                outage_notices.server_failed(server.address, str(error), for_good=True)
            self._requeue(shard)
        elif error.status == 413 and len(shard.rows) > 1:
            half = len(shard.rows) // 2
            one_by_one = self.calls[shard.calls[0]].row is not None
            halves = [
                RequestShard(shard.rows[rows], shard.calls[rows] if one_by_one else shard.calls)
                for rows in (slice(half), slice(half, None))
            ]
            with self._changed:
                self.shards = [other for other in self.shards if other is not shard] + halves
                self._open += 1
            self._requeue(*halves)
        else:
            self._rejected[shard.key] = f"the reward server {error}"
            self._finish()

    def _results(self) -> list[CallResult]:
        of_call: list[list[tuple[CallResult, list[int]]]] = [[] for _ in self.calls]
        for shard in self.shards:
            for place, number in enumerate(shard.calls):
                if shard.results is None:
                    of_call[number].append((CallResult(kind="unavailable", message=self._cause(shard)), shard.rows))
                elif self.calls[number].row is None:
                    of_call[number].append((shard.results[place][0], shard.rows))
                else:
                    of_call[number].append((shard.results[0][place], [shard.rows[place]]))
        return [merge_shards(results) for results in of_call]

    def _cause(self, shard: RequestShard) -> str:
        """Why a shard has no results."""
        if shard.key in self._rejected:
            return self._rejected[shard.key]
        errors = self.servers.errors()
        return errors if errors == OUT_OF_TIME else f"{NO_SERVER} ({errors})"
