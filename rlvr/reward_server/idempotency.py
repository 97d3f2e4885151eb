"""Answer a repeated request from the first one's answer.

A client whose connection broke repeats its request with the same Idempotency-Key; the work is not done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from rlvr.reward_server.errors import RequestError
from rlvr.workers.pool import Caller


@dataclass
class PendingRequest:
    """A request in progress, or its response.

    Attributes:
        response: the task that makes the response. It does not raise.
        caller: cancels the work of the request.
        patience_s: how long the work goes on while no client waits for the response.
        waiting: number of clients that wait.
        digest: of path and body.
        expires: when the response is removed (time.monotonic()).
    """

    response: asyncio.Task[Response]
    caller: Caller
    patience_s: float = 0.0
    waiting: int = 0
    digest: bytes = b""
    expires: float = 0.0

    def leave(self) -> None:
        """Have one client less; cancel the work if no other one comes back in time."""
        self.waiting -= 1
        if not self.waiting:
            asyncio.get_running_loop().call_later(self.patience_s, self._cancel_if_abandoned)

    def _cancel_if_abandoned(self) -> None:
        if not self.waiting:
            self.caller.cancelled.set()


class IdempotencyCache:
    """Recent responses and requests in progress, by key. Call it from the event loop's thread only.

    Args:
        max_bytes: bodies that are kept; the oldest are removed first.
        max_responses: responses that are kept.
        keep_s: how long a response is kept.
    """

    def __init__(self, max_bytes: int = 128 << 20, max_responses: int = 20_000, keep_s: float = 900.0) -> None:
        self.max_bytes = max_bytes
        self.max_responses = max_responses
        self.keep_s = keep_s
        self.bytes = 0
        self._requests: dict[str, PendingRequest] = {}
        self._answered: deque[str] = deque()  # keys with a response, oldest first

    def begin(self, key: str, digest: bytes, start: Callable[[], PendingRequest]) -> tuple[PendingRequest, bool]:
        """The request with a key, and whether it is new; `start` starts a new one.

        Raises:
            RequestError: the key belongs to a request with another digest.
        """
        self._expire()
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = start()
            request.digest = digest
            request.response.add_done_callback(lambda _: self._complete(key))
            return request, True
        if request.digest != digest:
            message = "This Idempotency-Key was used for another request. Use a new key for each request."
            raise RequestError(422, message, kind="idempotency-key")
        return request, False

    def _complete(self, key: str) -> None:
        """Keep a response if its status is 200, so that failures are retried."""
        request = self._requests[key]
        if request.response.cancelled() or (response := request.response.result()).status_code != 200:
            del self._requests[key]
            return
        request.expires = time.monotonic() + self.keep_s
        self.bytes += len(response.body)
        self._answered.append(key)
        self._expire()

    def _expire(self) -> None:
        now = time.monotonic()
        while self._answered:
            request = self._requests[self._answered[0]]
            fits = self.bytes <= self.max_bytes and len(self._answered) <= self.max_responses
            if request.expires > now and fits:
                break
            self.bytes -= len(request.response.result().body)
            del self._requests[self._answered.popleft()]
