"""Authenticate and rate-limit requests before parsing the body.

In this order: the key (without one, the Host header must name this machine), the server's state, the number of
requests, the size (while the body arrives, so that an oversized one is never held), and the Idempotency-Key. There is
no unbounded queue: excess requests get 429 or 503 with Retry-After.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rlvr.reward_server.errors import RequestError
from rlvr.reward_server.idempotency import IdempotencyCache, StoredResponse
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics

_log = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]
_Headers = MutableMapping[bytes, bytes]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

OPEN_PATHS = ("/healthz", "/readyz")  # health checks need no key
COUNTED_PATHS = ("/score", "/check", "/judge", "/get_reward")  # labels of metrics
MAX_IDEMPOTENCY_KEY = 200  # characters


class RequestGuard:
    """ASGI middleware; see the top of this file.

    Args:
        key: the key that requests must send (`Authorization: Bearer …`); None: no key.

    Attributes:
        ready: whether the workers have started.
        draining: whether the server is shutting down: requests in progress are finished, new ones refused.
        in_flight: number of requests that are being read or answered.
    """

    def __init__(self, app: _App, limits: ServerLimits, metrics: Metrics, key: str | None) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.responses = IdempotencyCache()
        self.ready = False
        self.draining = False
        self.in_flight = 0
        self._held_bytes = 0
        self._key = hashlib.sha256(key.encode()).digest() if key is not None else None
        metrics.set_gauge("grpo_requests_in_flight", lambda: self.in_flight)
        metrics.set_gauge("grpo_bytes_in_flight", lambda: self._held_bytes)
        metrics.set_gauge("grpo_ready", lambda: float(self.ready and not self.draining))

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            # Only GET and HEAD are open: the server would read, and hold, the body of any other method.
            if scope["path"] not in OPEN_PATHS or scope["method"] not in ("GET", "HEAD"):
                self._check_key(headers)
                self._check_host(headers)
            if scope["method"] != "POST":
                await self.app(scope, receive, send)
                return
            self._check_capacity()
            self.in_flight += 1
            memory = _HeldMemory(self)
            try:
                body = await self._read_body(headers, receive, memory)
                response = await self._respond(scope, headers, body)
                await self._send(response, send, memory)
            finally:
                self.in_flight -= 1
                memory.release()
        except RequestError as error:
            await _send_error(error, send)
        except _Disconnected:
            self.metrics.add("grpo_requests_refused_total", "hung up")

    def _refuse(
        self, reason: str, status: int, message: str, *, kind: str, retry_after_s: float | None = None
    ) -> RequestError:
        """Count a refusal by its reason, and make its error."""
        self.metrics.add("grpo_requests_refused_total", reason)
        return RequestError(status, message, kind=kind, retry_after_s=retry_after_s)

    def _check_key(self, headers: _Headers) -> None:
        if self._key is None:
            return
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        # Digests have one length, so that the comparison takes the same time for every wrong key.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(hashlib.sha256(key.strip()).digest(), self._key):
            message = "The key is missing or wrong. Send it as `Authorization: Bearer KEY`."
            raise self._refuse("key", 401, message, kind="wrong-key")

    def _check_host(self, headers: _Headers) -> None:
        """Without a key, refuse other Host headers: a web page could reach this server by DNS rebinding."""
        if self._key is not None:
            return
        host = headers.get(b"host", b"").decode("latin-1").rpartition("@")[2]
        name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        if not is_loopback(name):
            message = f"This server has no key, so it answers to localhost and 127.0.0.1, not to {name!r:.80}."
            raise self._refuse("host", 421, message, kind="wrong-host")

    def _check_capacity(self) -> None:
        if self.draining or not self.ready:
            reason = "ending" if self.draining else "starting"
            state = "is shutting down" if self.draining else "has not started yet"
            message = f"The server {state}. Retry, or use another server."
            raise self._refuse(reason, 503, message, kind="not-ready", retry_after_s=1.0)
        if self.in_flight >= self.limits.requests:
            message = f"The server is busy with {self.in_flight} requests. Retry later."
            raise self._refuse("too many", 429, message, kind="busy", retry_after_s=1.0)

    async def _read_body(self, headers: _Headers, receive: _Receive, memory: _HeldMemory) -> bytes:
        """Read the body; refuse it as soon as its size is known to be too large.

        Raises:
            RequestError: it is too large, the server's memory limit is reached, or it arrives too slowly.
            _Disconnected: the client is gone.
        """
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            self._check_size(int(length[:20]))
        parts: list[bytes] = []
        size, end = 0, time.monotonic() + self.limits.read_timeout_s
        while True:
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                text = f"The request did not arrive within {self.limits.read_timeout_s:g} s."
                raise self._refuse("slow", 408, text, kind="slow-request") from None
            if message["type"] == "http.disconnect":
                raise _Disconnected
            part = message.get("body", b"")
            size += len(part)
            self._check_size(size)
            memory.reserve(len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _check_size(self, size: int) -> None:
        limit = self.limits.body_bytes
        if size > limit:
            message = f"The body exceeds {limit:,} bytes. Send fewer rows at a time, or refer to stored tests by id."
            raise self._refuse("too large", 413, message, kind="too-large")

    async def _respond(self, scope: _Message, headers: _Headers, body: bytes) -> StoredResponse:
        key = headers.get(b"idempotency-key", b"").decode("latin-1")
        if len(key) > MAX_IDEMPOTENCY_KEY:
            message = f"The Idempotency-Key is longer than {MAX_IDEMPOTENCY_KEY} characters."
            raise RequestError(400, message, kind="idempotency-key")
        if not key:
            return await self._run(scope, body)
        digest = hashlib.sha256(scope["path"].encode() + b"\0" + body).digest()
        try:
            request, is_new = self.responses.begin(key, digest)
        except ValueError:
            message = "This Idempotency-Key was used for another request. Use a new key for each request."
            raise RequestError(422, message, kind="idempotency-key") from None
        if is_new:
            try:
                self.responses.complete(key, await self._run(scope, body))
            except BaseException:
                self.responses.fail(key)
                raise
        else:
            self.metrics.add("grpo_requests_repeated_total")
        try:
            return await asyncio.shield(request.response)
        except asyncio.CancelledError:
            if not request.response.cancelled():
                raise
            message = "The request that this one repeats has failed. Retry."
            raise RequestError(503, message, kind="repeat-failed", retry_after_s=0.1) from None

    async def _send(self, response: StoredResponse, send: _Send, memory: _HeldMemory) -> None:
        """Send the response; a client that does not read it must not occupy the server."""
        memory.add(len(response.body))
        try:
            async with asyncio.timeout(self.limits.read_timeout_s):
                await _send_response(response, send)
        except TimeoutError:
            raise _Disconnected from None

    async def _run(self, scope: _Message, body: bytes) -> StoredResponse:
        """Call the application and collect its response."""
        started = time.perf_counter()
        messages: list[_Message] = []
        body_sent = False

        async def receive() -> _Message:
            nonlocal body_sent
            if body_sent:
                await asyncio.Event().wait()  # forever
            body_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: _Message) -> None:
            messages.append(message)

        status, headers, content = 500, [(b"content-type", b"application/json")], b""
        try:
            await self.app(scope, receive, send)
        except Exception:  # the application re-raises after its own response
            _log.exception("A request to %r failed.", scope["path"])
            content = b'{"detail": "The server failed; its log has the traceback.", "kind": "internal"}'
        else:
            start = next(message for message in messages if message["type"] == "http.response.start")
            status, headers = start["status"], list(start.get("headers", ()))
            content = b"".join(message.get("body", b"") for message in messages if "body" in message)
        path = scope["path"] if scope["path"] in COUNTED_PATHS else "other"
        self.metrics.add("grpo_requests_total", path, str(status))
        self.metrics.observe("grpo_request_seconds", path, value=time.perf_counter() - started)
        return StoredResponse(status, tuple((name, value) for name, value in headers), content)


@functools.lru_cache(maxsize=64)  # called for every request
def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Disconnected(Exception):
    """The client closed the connection, or does not read."""


class _HeldMemory:
    """Bytes of one request that count towards the limit of all requests."""

    def __init__(self, guard: RequestGuard) -> None:
        self.guard = guard
        self.size = 0

    def reserve(self, size: int) -> None:
        if self.guard._held_bytes + size > self.guard.limits.total_bytes:
            message = "The server's memory limit for requests is reached. Retry later."
            raise self.guard._refuse("memory", 429, message, kind="busy", retry_after_s=2.0)
        self.add(size)

    def add(self, size: int) -> None:
        """Count bytes that exist already, such as a response."""
        self.guard._held_bytes += size
        self.size += size

    def release(self) -> None:
        self.guard._held_bytes -= self.size
        self.size = 0


async def _send_response(response: StoredResponse, send: _Send) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.headers)})
    # The end is a message of its own: sending it waits until the client has read the body.
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send_error(error: RequestError, send: _Send) -> None:
    body = json.dumps(error.content()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers()}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status in (401, 408, 413, 421, 429, 503):
        headers["connection"] = "close"  # the rest of the body is not read
    encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
    await _send_response(StoredResponse(error.status, encoded, body), send)
