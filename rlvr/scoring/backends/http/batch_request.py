"""The requests of one batch on their way: each is taken by whichever server is free, until all are answered."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http.connection import Rejected, Server, Unavailable
from rlvr.scoring.backends.http.responses import outcomes_of
from rlvr.scoring.backends.http.sharding import RequestShard, body_of
from rlvr.scoring.batch_encoding import RewardCall
from rlvr.scoring.failures import merged
from rlvr.workers.pool import OUT_OF_TIME, TaskResult

if TYPE_CHECKING:
    from rlvr.scoring.backends.http.pool import HttpRewardBackend

NO_SERVER = "no reward server answers"


class BatchRequest:
    """The requests of one batch, and the threads that have them answered, each by one server."""

    def __init__(
        self,
        pool: HttpRewardBackend,
        items: Sequence[RewardCall],
        parts: list[RequestShard],
        deadline_s: float,
        end: float,
    ) -> None:
        self.pool = pool
        self.items = items
        self.parts = parts
        self.deadline_s = deadline_s
        self.end = end
        self.changed = threading.Condition()
        self.waiting = deque(parts)
        self.open = len(parts)
        self.hands = 0
        self.rejected: dict[str, str] = {}
        self.broken: Exception | None = None  # a defect of ours
        self.waited = pool.waiting(end)

    def why(self, part: RequestShard) -> str:
        """Why a part has no outcomes."""
        if part.key in self.rejected:
            return self.rejected[part.key]
        faults = "; ".join(server.fault for server in self.pool.servers if server.fault)
        return f"{NO_SERVER} ({faults})" if faults else OUT_OF_TIME

    def run(self, servers: Sequence[Server]) -> None:
        """Has all parts answered, with one thread for each of these; returns when they are, or the time is over."""
        self.hands = len(servers)
        for server in servers:
            threading.Thread(target=self._of, args=(server,), daemon=True).start()
        with self.changed:
            # A little more than the budget, so that who waits for an answer finds out by himself.
            while self.open and self.hands and (left := self.end + 2.0 - time.monotonic()) > 0:
                self.changed.wait(min(left, threading.TIMEOUT_MAX))

    def _of(self, server: Server) -> None:
        try:
            while (part := self._next(server)) is not None:
                self._ask(server, part)
        except Exception as error:  # raised where somebody waits for it
            with self.changed:
                self.broken, self.open = error, 0
        finally:
            with self.changed:
                self.hands -= 1
                self.changed.notify_all()

    def _ask(self, server: Server, part: RequestShard) -> None:
        try:
            if server.told is None:
                self.pool.meet(server, self.end)
            if part.body is None:
                part.body = body_of(self.pool.rewards, self.items, part, self.deadline_s, self.end - time.monotonic())
            said = server.ask("/score", part.body, key=part.key, end=self.end + 1.0)
            outcomes = outcomes_of(said, part, self.items)
        except Unavailable as error:
            server.failed(error)
            self._tell(server, error)
            self._requeue(part)
        except Rejected as error:
            self._reject(server, part, error)
        else:
            server.succeeded()
            self.pool.heard()
            outage_notices.answers(server.address)
            self.waited.over()
            with self.changed:
                part.outcomes = outcomes
                self._settle()

    def _tell(self, server: Server, error: Unavailable) -> None:
        """Tells a person that a server is not there; one that only has too much to do says when to come again."""
        if error.after_s is not None:
            return
        if self.pool.others_answer(server):
            outage_notices.fails(server.address, str(error))
        else:
            self.waited.in_vain(self.pool.faults())

    def _next(self, server: Server) -> RequestShard | None:
        """The next shard for this server, as soon as the server is out of its backoff; None: nothing is left."""
        with self.changed:
            while True:
                left = self.end - time.monotonic()
                if not self.open or left <= 0 or self.pool.closed:
                    return None
                rests_s = server.rests_s()
                if self.waiting and not rests_s:
                    return self.waiting.popleft()
                # Another server may fail, and then its shard is free again.
                self.changed.wait(min(left, max(rests_s, 0.01) if self.waiting else 1.0))

    def _settle(self) -> None:
        """A shard has its outcomes, or never will. The lock is held."""
        self.open -= 1
        self.changed.notify_all()

    def _requeue(self, *parts: RequestShard) -> None:
        with self.changed:
            self.waiting.extendleft(reversed(parts))
            self.changed.notify_all()

    def _reject(self, server: Server, part: RequestShard, error: Rejected) -> None:
        """What this server won't do is asked in smaller portions, or of others, or is known to have no answer."""
        with self.changed:
            if server.told is None and len(self.pool.servers) > 1:
                # It has not even these rewards, or another key: the others may.
                server.failed(Unavailable(str(error), after_s=60.0))
                if self.pool.others_answer(server):
                    outage_notices.fails(server.address, str(error), for_good=True)
                self._requeue(part)
            elif error.status == 413 and len(part.rows) > 1:
                half = len(part.rows) // 2
                single = self.items[part.errands[0]].row is not None
                halves = [
                    RequestShard(part.rows[rows], part.errands[rows] if single else part.errands)
                    for rows in (slice(half), slice(half, None))
                ]
                self.parts[:] = [one for one in self.parts if one is not part] + halves
                self.open += 1
                self._requeue(*halves)
            else:
                self.rejected[part.key] = f"the reward server {error}"
                self._settle()

    def outcomes(self) -> list[TaskResult]:
        """What became of the calls, in their order."""
        outcomes: list[list[tuple[TaskResult, int]]] = [[] for _ in self.items]
        for part in sorted(self.parts, key=lambda part: part.rows):
            for place, number in enumerate(part.errands):
                if part.outcomes is None:
                    outcomes[number].append((TaskResult("unavailable", why=self.why(part)), len(part.rows)))
                elif self.items[number].row is None:
                    outcomes[number].append((part.outcomes[place][0], len(part.rows)))
                else:
                    outcomes[number].append((part.outcomes[0][place], 1))
        return [merged(found) for found in outcomes]
