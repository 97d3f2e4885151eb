"""Lets a request in or refuses it, before anything of it is understood.

In this order: whether it holds the key, or without one comes from this machine; whether the server takes requests, and
how many there are already; how large it is (while it is being read: what is too large is never held); and whether it
was asked before. There is no queue without an end: what does not fit is told to come back (429 or 503, with
Retry-After).
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

from rlvr.reward_server.idempotency import Answer, IdempotencyCache
from rlvr.reward_server.limits import Refused, ServerLimits
from rlvr.reward_server.metrics import Metrics

_log = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz")  # for whoever looks after the machine: they say nothing, so they need no key
PATHS = ("/score", "/check", "/judge", "/get_reward")  # that figures are kept of
LONGEST_KEY = 200  # characters of an Idempotency-Key


class RequestGuard:
    """ASGI middleware; see the head of this file.

    Args:
        key: that requests must hold (`Authorization: Bearer …`); None: all may come.

    Attributes:
        ready: whether the workers have started.
        draining: whether the server is about to end: what is being done is done, nothing new is begun.
        in_flight: how many requests are being read or answered.
    """

    def __init__(self, app: _App, allowance: ServerLimits, metrics: Metrics, key: str | None) -> None:
        self.app = app
        self.allowance = allowance
        self.metrics = metrics
        self.repeats = IdempotencyCache()
        self.ready = False
        self.draining = False
        self.in_flight = 0
        self._held_bytes = 0
        self._key = hashlib.sha256(key.encode()).digest() if key is not None else None
        metrics.watch("grpo_requests_in_flight", lambda: self.in_flight)
        metrics.watch("grpo_bytes_in_flight", lambda: self._held_bytes)
        metrics.watch("grpo_ready", lambda: float(self.ready and not self.draining))

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            # Nothing but the question itself is open: what comes with a body is read, and takes up room.
            if scope["path"] not in OPEN or scope["method"] not in ("GET", "HEAD"):
                self._check_key(headers)
                self._check_host(headers)
            if scope["method"] != "POST":
                await self.app(scope, receive, send)
                return
            if self.draining or not self.ready:
                self.metrics.add("grpo_requests_refused_total", "ending" if self.draining else "starting")
                what = "is ending" if self.draining else "has not started yet"
                raise Refused(503, f"The server {what}. Ask another one, or again.", 1.0)
            if self.in_flight >= self.allowance.requests:
                self.metrics.add("grpo_requests_refused_total", "too many")
                raise Refused(429, f"The server is busy with {self.in_flight} requests. Ask again.", 1.0)
            self.in_flight += 1
            held = _Held(self)
            try:
                body = await self._read(headers, receive, held)
                await self._answer(scope, headers, body, send, held)
            finally:
                self.in_flight -= 1
                held.release()
        except Refused as refusal:
            await _say(refusal, send)
        except _HungUp:
            self.metrics.add("grpo_requests_refused_total", "hung up")

    def _check_key(self, headers: MutableMapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # Digests have one length, so that the comparison takes the same time for every wrong key.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(hashlib.sha256(given.strip()).digest(), self._key):
            self.metrics.add("grpo_requests_refused_total", "key")
            raise Refused(401, "The key is missing or wrong: send it as `Authorization: Bearer KEY`.")

    def _check_host(self, headers: MutableMapping[bytes, bytes]) -> None:
        """Without a key, a web page in a browser on this machine must not get in under a name of its own."""
        if self._key is not None:
            return
        host = headers.get(b"host", b"").decode("latin-1").rpartition("@")[2]
        name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        if not is_loopback(name):
            self.metrics.add("grpo_requests_refused_total", "host")
            raise Refused(
                421, f"This server has no key, so it answers to localhost and 127.0.0.1, not to {name!r:.80}."
            )

    async def _read(self, headers: MutableMapping[bytes, bytes], receive: _Receive, held: _Held) -> bytes:
        """The body, refused as soon as it is known to be too large.

        Raises:
            Refused: it is too large, there is no room for it now, or it takes too long to arrive.
            _HungUp: the client is gone.
        """
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            self._check_size(int(length[:20]))
        parts: list[bytes] = []
        size, end = 0, time.monotonic() + self.allowance.reading_s
        while True:
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                self.metrics.add("grpo_requests_refused_total", "slow")
                raise Refused(408, f"The request did not arrive within {self.allowance.reading_s:g} s.") from None
            if message["type"] == "http.disconnect":
                raise _HungUp
            part = message.get("body", b"")
            size += len(part)
            self._check_size(size)
            held.hold(len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _check_size(self, size: int) -> None:
        most = self.allowance.body_bytes
        if size > most:
            self.metrics.add("grpo_requests_refused_total", "too large")
            raise Refused(
                413, f"A request may have {most:,} bytes. Send fewer rows at a time, or tests by reference (`id`)."
            )

    async def _answer(
        self, scope: _Message, headers: MutableMapping[bytes, bytes], body: bytes, send: _Send, held: _Held
    ) -> None:
        key = headers.get(b"idempotency-key", b"").decode("latin-1")
        if len(key) > LONGEST_KEY:
            raise Refused(400, f"The Idempotency-Key is longer than {LONGEST_KEY} characters.")
        if not key:
            await self._hand_over(await self._done(scope, body), send, held)
            return
        digest = hashlib.sha256(scope["path"].encode() + b"\0" + body).digest()
        try:
            once, new = self.repeats.begin(key, digest)
        except ValueError:
            raise Refused(422, "This Idempotency-Key was used for another request. Make a new one for each.") from None
        if new:
            try:
                self.repeats.end(key, await self._done(scope, body))
            except BaseException:
                self.repeats.fail(key)
                raise
        else:
            self.metrics.add("grpo_requests_repeated_total")
        try:
            answer = await asyncio.shield(once.answer)
        except asyncio.CancelledError:
            if not once.answer.cancelled():
                raise
            raise Refused(503, "The request that this one repeats has failed. Ask again.", 0.1) from None
        await self._hand_over(answer, send, held)

    async def _hand_over(self, answer: Answer, send: _Send, held: _Held) -> None:
        """Tells a client, who may not keep others out by not listening."""
        held.add(len(answer.body))
        try:
            async with asyncio.timeout(self.allowance.reading_s):
                await _tell(answer, send)
        except TimeoutError:
            raise _HungUp from None

    async def _done(self, scope: _Message, body: bytes) -> Answer:
        """What the application answers."""
        begun = time.perf_counter()
        said: list[_Message] = []
        given = False

        async def receive() -> _Message:
            nonlocal given
            if given:
                await asyncio.Event().wait()  # nothing more will come
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: _Message) -> None:
            said.append(message)

        try:
            await self.app(scope, receive, send)
        except Exception:  # the application has logged nothing and answered in a form of its own
            _log.exception("A request to %r failed.", scope["path"])
            said = [{"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"application/json")]}]
            said.append({"type": "http.response.body", "body": b'{"detail": "The server failed; its log says why."}'})
        start = next(message for message in said if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in said if message["type"] == "http.response.body")
        path = scope["path"] if scope["path"] in PATHS else "other"
        self.metrics.add("grpo_requests_total", path, str(start["status"]))
        self.metrics.observe("grpo_request_seconds", path, value=time.perf_counter() - begun)
        return Answer(start["status"], tuple((name, value) for name, value in start.get("headers", ())), content)


@functools.lru_cache(maxsize=64)  # it is asked for every request
def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _HungUp(Exception):
    """The client was gone before its request was whole."""


class _Held:
    """Bytes of one request that count towards what all may hold."""

    def __init__(self, gate: RequestGuard) -> None:
        self.gate = gate
        self.size = 0

    def hold(self, size: int) -> None:
        if self.gate._held_bytes + size > self.gate.allowance.held_bytes:
            self.gate.metrics.add("grpo_requests_refused_total", "memory")
            raise Refused(429, "The server holds as much as it may. Ask again.", 2.0)
        self.add(size)

    def add(self, size: int) -> None:
        """Counts what is there already, such as an answer."""
        self.gate._held_bytes += size
        self.size += size

    def release(self) -> None:
        self.gate._held_bytes -= self.size
        self.size = 0


async def _tell(answer: Answer, send: _Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    # The end is told apart: it waits until all before it was taken, and so does whoever counts what is held.
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _say(refusal: Refused, send: _Send) -> None:
    body = json.dumps({"detail": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, round(refusal.retry_after_s))).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (401, 408, 413, 421, 429, 503):
        headers.append((b"connection", b"close"))  # what is still on its way is not read
    await _tell(Answer(refusal.status, tuple(headers), body), send)
