"""The requests of one batch on their way: each is taken by whichever server is free, until all are answered."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr.elsewhere.answers import merged, outcomes_of
from rlvr.elsewhere.portions import Errand, Part, body_of
from rlvr.elsewhere.server import Rejected, Server, Unavailable
from rlvr.workers import OUT_OF_TIME, Outcome

if TYPE_CHECKING:
    from rlvr.elsewhere.pool import ElsewherePool

NO_SERVER = "no reward server answers"


class Work:
    """The requests of one batch, and the threads that have them answered, each by one server."""

    def __init__(
        self, pool: ElsewherePool, items: Sequence[Errand], parts: list[Part], deadline_s: float, end: float
    ) -> None:
        self.pool = pool
        self.items = items
        self.parts = parts
        self.deadline_s = deadline_s
        self.end = end
        self.changed = threading.Condition()
        self.waiting = deque(parts)
        self.open = len(parts)
        self.rejected: dict[str, str] = {}
        self.broken: Exception | None = None  # a defect of ours

    def why(self, part: Part) -> str:
        """Why a part has no outcomes."""
        if part.key in self.rejected:
            return self.rejected[part.key]
        faults = "; ".join(server.fault for server in self.pool.servers if server.fault)
        return f"{NO_SERVER} ({faults})" if faults else OUT_OF_TIME

    def of(self, server: Server) -> None:
        """Takes parts and has them answered, until there is none left, or no time."""
        while (part := self._next(server)) is not None:
            try:
                if server.told is None:
                    self.pool.meet(server, self.end)
                if part.body is None:
                    part.body = body_of(
                        self.pool.rewards, self.items, part, self.deadline_s, self.end - time.monotonic()
                    )
                said = server.ask("/score", part.body, key=part.key, end=self.end + 1.0)
                outcomes = outcomes_of(said, part, self.items)
            except Unavailable as error:
                server.failed(error)
                self._put_back(part)
            except Rejected as error:
                self._reject(server, part, error)
            except Exception as error:  # raised where somebody waits for it
                with self.changed:
                    self.broken, self.open = error, 0
                    self.changed.notify_all()
            else:
                server.succeeded()
                self.pool.heard()
                with self.changed:
                    part.outcomes = outcomes
                    self.open -= 1
                    self.changed.notify_all()

    def _next(self, server: Server) -> Part | None:
        with self.changed:
            while True:
                left = self.end - time.monotonic()
                if not self.open or left <= 0 or self.pool.closed:
                    return None
                rests_s = server.rests_s()
                if self.waiting and not rests_s:
                    return self.waiting.popleft()
                # Others may fail, and then there is something to be done here.
                self.changed.wait(min(left, max(rests_s, 0.01)) if self.waiting else min(left, 1.0))

    def _put_back(self, part: Part) -> None:
        with self.changed:
            self.waiting.appendleft(part)
            self.changed.notify_all()

    def _reject(self, server: Server, part: Part, error: Rejected) -> None:
        """What this server won't do is asked in smaller portions, or of others, or is known to have no answer."""
        with self.changed:
            if error.status == 413 and len(part.rows) > 1:
                half = len(part.rows) // 2
                single = self.items[part.errands[0]].row is not None
                halves = [
                    Part(part.rows[rows], part.errands[rows] if single else part.errands)
                    for rows in (slice(half), slice(half, None))
                ]
                self.parts[:] = [one for one in self.parts if one is not part] + halves
                self.waiting.extendleft(reversed(halves))
                self.open += 1
            elif server.told is None and len(self.pool.servers) > 1:
                # It has not even these rewards, or another key: the others may.
                server.failed(Unavailable(str(error), after_s=60.0))
                self.waiting.appendleft(part)
            else:
                self.rejected[part.key] = f"the reward server {error}"
                self.open -= 1
            self.changed.notify_all()

    def outcomes(self) -> list[Outcome]:
        """What became of the calls, in their order."""
        outcomes: list[list[tuple[Outcome, int]]] = [[] for _ in self.items]
        for part in sorted(self.parts, key=lambda part: part.rows):
            for place, number in enumerate(part.errands):
                if part.outcomes is None:
                    outcomes[number].append((Outcome("unserved", why=self.why(part)), len(part.rows)))
                elif self.items[number].row is None:
                    outcomes[number].append((part.outcomes[place][0], len(part.rows)))
                else:
                    outcomes[number].append((part.outcomes[0][place], 1))
        return [merged(found) for found in outcomes]
