"""Refuse requests before their body is parsed, and cancel the work of clients that hang up.

In this order: the key (without one, the Host header must name this machine), whether the workers have started, the
number of requests in progress, the size of the body, and the time in which it arrives. There is no queue: excess
requests get 429 with Retry-After.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import threading
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.reward_server.request_limits import RequestError
from rlvr.reward_server.service import RewardService
from rlvr.scoring.reward_key import is_loopback

_log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz")  # health checks need no key
WARN_S = 10.0  # between warnings of wrong keys


class RequestGuard:
    """ASGI middleware; see the top of this file.

    The application finds in `scope["cancelled"]` an event, which is set if the client hangs up.

    Args:
        key: the key that requests must send (`Authorization: Bearer …`); None: no key.
    """

    def __init__(self, app: ASGIApp, service: RewardService, key: str | None) -> None:
        self.app = app
        self.service = service
        self.limits = service.limits
        self.metrics = service.metrics
        self._in_flight = 0
        self._wrong_keys = 0  # since the last warning
        self._warn_at = 0.0
        self._key = hashlib.sha256(key.encode()).digest() if key is not None else None
        self.metrics.set_gauge("grpo_requests_in_flight", lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        try:
            # The server would read, and hold, the body of another method.
            if scope["path"] not in OPEN_PATHS or scope["method"] != "GET":
                self._check_key(headers, scope["client"])
            if scope["method"] != "POST":
                return await self.app(scope, receive, send)
            self._check_capacity(headers)
            self._in_flight += 1
            try:
                messages = await self._read_body(receive)
                if messages[-1]["type"] != "http.disconnect":
                    await self._answer(scope, messages, receive, send)
            finally:
                self._in_flight -= 1
        except RequestError as error:
            await error.response()(scope, receive, send)

    def _refuse(self, reason: str, status: int, message: str, kind: str) -> RequestError:
        """Count a refusal by its reason, and make its error."""
        self.metrics.add("grpo_requests_refused_total", reason)
        return RequestError(status, message, kind=kind)

    def _check_key(self, headers: Headers, client: tuple[str, int] | None) -> None:
        if self._key is None:
            # A web page could reach this server by DNS rebinding; its Host header is then another name.
            host = headers.get("host", "").rpartition("@")[2]
            name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
            if not is_loopback(name):
                message = f"This server has no key, so it answers to localhost and 127.0.0.1, not to {name!r:.80}."
                raise self._refuse("host", 421, message, "wrong-host")
            return
        sent = headers.getlist("authorization")
        scheme, _, key = (sent[0] if len(sent) == 1 else "").partition(" ")
        digest = hashlib.sha256(key.strip().encode("latin-1")).digest()
        # Digests have one length, so that the comparison takes the same time for every wrong key.
        if scheme.lower() != "bearer" or not hmac.compare_digest(digest, self._key):
            self._wrong_keys += 1
            if time.monotonic() >= self._warn_at:
                place = client[0] if client else "?"
                _log.warning("Refused: %d with a missing or wrong key, the last one from %s.", self._wrong_keys, place)
                self._wrong_keys, self._warn_at = 0, time.monotonic() + WARN_S
            message = "The key is missing or wrong. Send it as `Authorization: Bearer KEY`."
            raise self._refuse("key", 401, message, "wrong-key")

    def _check_capacity(self, headers: Headers) -> None:
        if not self.service.ready:
            message = "The server has not started yet. Retry, or use another server."
            raise self._refuse("starting", 503, message, "not-ready")
        if self._in_flight >= self.limits.max_requests:
            message = f"The server is busy with {self._in_flight} requests. Retry later."
            raise self._refuse("too many", 429, message, "busy")
        if int(headers.get("content-length", 0)) > self.limits.body_bytes:  # h11 has checked that it is a number
            limit = f"{self.limits.max_body_mb} MB"
            message = f"The body exceeds {limit}. Send fewer rows at a time."
            raise self._refuse("too large", 413, message, "too-large")

    async def _read_body(self, receive: Receive) -> list[Message]:
        """Receive the whole body. If the client hangs up, the last message is its disconnect."""
        messages: list[Message] = []
        try:
            async with asyncio.timeout(self.limits.read_timeout_s):
                while not messages or messages[-1].get("more_body"):
                    messages.append(await receive())
        except TimeoutError:
            message = f"The request did not arrive within {self.limits.read_timeout_s:g} s."
            raise self._refuse("slow", 408, message, "slow-request") from None
        return messages

    async def _answer(self, scope: Scope, messages: list[Message], receive: Receive, send: Send) -> None:
        cancelled = scope["cancelled"] = threading.Event()
        hang_up = asyncio.ensure_future(receive())
        hang_up.add_done_callback(lambda _: cancelled.set())
        started = time.perf_counter()

        async def replay() -> Message:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start" and "endpoint" in scope:  # clients must not create labels
                self.metrics.add("grpo_requests_total", scope["path"], str(message["status"]))
                self.metrics.observe_request(scope["path"], time.perf_counter() - started)
            await send(message)

        try:
            await self.app(scope, replay, counted)
        finally:
            hang_up.cancel()
