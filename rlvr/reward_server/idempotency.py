"""Requests that come twice: a client whose connection broke asks again, and what it asked for is not done again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Answer:
    """A whole answer of the application."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass
class PendingRequest:
    """A request under its key.

    Attributes:
        digest: of what was asked.
        answer: done when there is one.
        until: when it is forgotten.
    """

    digest: bytes
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    until: float = 0.0


class IdempotencyCache:
    """Answers that were given lately, and requests that are at work; all calls from the thread of the event loop.

    Args:
        most_bytes: of answers that are kept; the oldest are forgotten first.
        most: answers that are kept.
        keep_s: how long an answer is kept.
    """

    def __init__(self, most_bytes: int = 128 << 20, most: int = 20_000, keep_s: float = 900.0) -> None:
        self.most_bytes = most_bytes
        self.most = most
        self.keep_s = keep_s
        self.bytes = 0
        self._known: dict[str, PendingRequest] = {}
        self._kept: deque[str] = deque()  # those of them that are answered, in the order in which they are forgotten

    def begin(self, key: str, digest: bytes) -> tuple[PendingRequest, bool]:
        """The request under a key, and whether it is a new one.

        Raises:
            ValueError: the key was used for something else.
        """
        self._forget()
        once = self._known.get(key)
        if once is None:
            once = self._known[key] = PendingRequest(digest)
            return once, True
        if once.digest != digest:
            raise ValueError(key)
        return once, False

    def end(self, key: str, answer: Answer) -> None:
        """Hands an answer to all who wait for it, and keeps it if the work was done."""
        once = self._known[key]
        if not once.answer.done():
            once.answer.set_result(answer)
        if answer.status != 200 or len(answer.body) > self.most_bytes:
            del self._known[key]  # to be tried again
            return
        once.until = time.monotonic() + self.keep_s
        self.bytes += len(answer.body)
        self._kept.append(key)
        self._forget()

    def fail(self, key: str) -> None:
        """The request came to no answer: whoever waits for it may ask again."""
        once = self._known.pop(key, None)
        if once is not None and not once.answer.done():
            once.answer.cancel()

    def _forget(self) -> None:
        now = time.monotonic()
        while self._kept:
            once = self._known[self._kept[0]]
            if once.until > now and self.bytes <= self.most_bytes and len(self._kept) <= self.most:
                break
            self.bytes -= len(once.answer.result().body)
            del self._known[self._kept.popleft()]
