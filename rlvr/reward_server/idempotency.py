"""Answer a repeated request from the first one's answer.

A client whose connection broke repeats its request with the same Idempotency-Key; the work is not done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from starlette.responses import Response

from rlvr.reward_server.errors import RequestError


@dataclass
class PendingRequest:
    """A request in progress, or its response.

    Attributes:
        digest: of path and body.
        response: future of the response.
        expires: when the response is removed (time.monotonic()).
    """

    digest: bytes
    response: asyncio.Future[Response] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    expires: float = 0.0


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

    def begin(self, key: str, digest: bytes) -> tuple[PendingRequest, bool]:
        """The request with a key, and whether it is new.

        Raises:
            RequestError: the key belongs to a request with another digest.
        """
        self._expire()
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = PendingRequest(digest)
            return request, True
        if request.digest != digest:
            message = "This Idempotency-Key was used for another request. Use a new key for each request."
            raise RequestError(422, message, kind="idempotency-key")
        return request, False

    def complete(self, key: str, response: Response) -> None:
        """Pass a response to all that wait for it; keep it if its status is 200, so that failures are retried."""
        request = self._requests[key]
        if not request.response.done():
            request.response.set_result(response)
        if response.status_code != 200 or len(response.body) > self.max_bytes:
            del self._requests[key]
            return
        request.expires = time.monotonic() + self.keep_s
        self.bytes += len(response.body)
        self._answered.append(key)
        self._expire()

    def fail(self, key: str) -> None:
        """Remove a request that got no response; waiting repeats are cancelled."""
        request = self._requests.pop(key, None)
        if request is not None and not request.response.done():
            request.response.cancel()

    def _expire(self) -> None:
        now = time.monotonic()
        while self._answered:
            request = self._requests[self._answered[0]]
            fits = self.bytes <= self.max_bytes and len(self._answered) <= self.max_responses
            if request.expires > now and fits:
                break
            self.bytes -= len(request.response.result().body)
            del self._requests[self._answered.popleft()]
