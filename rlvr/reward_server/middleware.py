"""Authenticate and rate-limit requests before parsing the body.

In this order: the key (without one, the Host header must name this machine), the server's state, the number of
requests, the size, the Idempotency-Key, and the memory that the body needs when it is parsed. There is no unbounded
queue: excess requests get 429 or 503 with Retry-After. Work is cancelled when its clients are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlvr.errors import InputError
from rlvr.reward_server.errors import RequestError, json_response
from rlvr.reward_server.idempotency import IdempotencyCache, PendingRequest
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.request_body import LARGE_BODY, parsed_size
from rlvr.scoring.reward_key import is_loopback
from rlvr.workers.pool import Caller

_log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz")  # health checks need no key
MAX_IDEMPOTENCY_KEY = MAX_CLIENT_ID = 200  # characters
WARN_S = 10.0  # between warnings of wrong keys
REPEAT_S = 30.0  # in which a client that hung up may repeat its request with the same Idempotency-Key
Work = Callable[[bytearray, Caller], Response]
_HELD = "grpo.held_bytes"  # of a request's scope


@dataclass
class _HeldBytes:
    """Bytes of one request, or of all in progress."""

    size: int = 0


class RequestGuard:
    """Guard of an application; see the top of this file.

    Args:
        key: the key that requests must send (`Authorization: Bearer …`); None: no key.

    Attributes:
        ready: whether the workers have started.
        draining: whether the server is shutting down: requests in progress are finished, new ones refused.
        in_flight: number of requests that are being read or answered.
    """

    def __init__(self, limits: ServerLimits, metrics: Metrics, key: str | None) -> None:
        self.limits = limits
        self.metrics = metrics
        self.responses = IdempotencyCache()
        self.threads = ThreadPoolExecutor(max_workers=limits.requests, thread_name_prefix="request")
        self.ready = False
        self.draining = False
        self.in_flight = 0
        self._by_client: Counter[str] = Counter()  # requests in progress
        self._held = _HeldBytes()
        self._arriving: set[asyncio.Timeout] = set()  # of requests whose bodies are being read
        self._wrong_keys = 0  # since the last warning
        self._warn_at = 0.0
        self._key = hashlib.sha256(key.encode()).digest() if key is not None else None
        metrics.set_gauge("grpo_requests_in_flight", lambda: self.in_flight)
        metrics.set_gauge("grpo_bytes_in_flight", lambda: self._held.size)
        metrics.set_gauge("grpo_ready", lambda: float(self.ready and not self.draining))

    def protect(self, app: ASGIApp) -> ASGIApp:
        """The application, behind this guard."""

        async def protected(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            try:
                # Only GET and HEAD are open: the server would read, and hold, the body of any other method.
                if scope["path"] not in OPEN_PATHS or scope["method"] not in ("GET", "HEAD"):
                    self._check_key(Headers(scope=scope), _address(scope))
                if scope["method"] == "POST":
                    self._check_capacity(client := _client_name(scope))
            except RequestError as error:
                await error.response()(scope, receive, send)
                return
            if scope["method"] != "POST":
                await app(scope, receive, send)
                return
            scope[_HELD] = held = _HeldBytes()
            self.in_flight += 1
            self._by_client[client] += 1
            try:
                # TimeoutError: a client that does not read its answer must not occupy the server.
                with contextlib.suppress(TimeoutError):
                    await app(scope, receive, functools.partial(self._send, send))
            finally:
                self.in_flight -= 1
                self._by_client -= Counter([client])  # drops clients without requests
                self._held.size -= held.size

        return protected

    async def answer(self, request: Request, work: Work) -> Response:
        """Read a request's body and pass it to `work`, in a thread; once for each Idempotency-Key."""
        try:
            body = await self._read_body(request)
            response = await self._respond(request, body, work)
        except ClientDisconnect:
            self.metrics.add("grpo_requests_refused_total", "hung up")
            return Response(status_code=499)  # as nginx has it; it is not sent
        except RequestError as error:
            return error.response()
        self._hold(request, len(response.body))
        return response

    def end_arriving(self) -> None:
        """Refuse requests that have not arrived completely. Call it in the event loop, once the server is draining."""
        for timeout in self._arriving:
            if not timeout.expired():
                timeout.reschedule(0.0)

    def _refuse(
        self, reason: str, status: int, message: str, *, kind: str, retry_after_s: float | None = None
    ) -> RequestError:
        """Count a refusal by its reason, and make its error."""
        self.metrics.add("grpo_requests_refused_total", reason)
        return RequestError(status, message, kind=kind, retry_after_s=retry_after_s)

    def _not_ready(self) -> RequestError:
        reason, state = ("ending", "is shutting down") if self.draining else ("starting", "has not started yet")
        message = f"The server {state}. Retry, or use another server."
        return self._refuse(reason, 503, message, kind="not-ready", retry_after_s=1.0)

    def _check_key(self, headers: Headers, address: str) -> None:
        if self._key is None:
            # A web page could reach this server by DNS rebinding; its Host header is then another name.
            host = headers.get("host", "").rpartition("@")[2]
            name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
            if not is_loopback(name):
                message = f"This server has no key, so it answers to localhost and 127.0.0.1, not to {name!r:.80}."
                raise self._refuse("host", 421, message, kind="wrong-host")
            return
        sent = headers.getlist("authorization")
        scheme, _, key = (sent[0] if len(sent) == 1 else "").partition(" ")
        digest = hashlib.sha256(key.strip().encode("latin-1")).digest()
        # Digests have one length, so that the comparison takes the same time for every wrong key.
        if scheme.lower() != "bearer" or not hmac.compare_digest(digest, self._key):
            self._wrong_keys += 1
            if time.monotonic() >= self._warn_at:
                _log.warning(
                    "Refused: %d with a missing or wrong key, the last one from %s.", self._wrong_keys, address
                )
                self._wrong_keys, self._warn_at = 0, time.monotonic() + WARN_S
            message = "The key is missing or wrong. Send it as `Authorization: Bearer KEY`."
            raise self._refuse("key", 401, message, kind="wrong-key")

    def _check_capacity(self, client: str) -> None:
        if self.draining or not self.ready:
            raise self._not_ready()
        kept_for_others = self.limits.requests // 8
        if max(self.in_flight, self._by_client[client] + kept_for_others) >= self.limits.requests:
            message = f"The server is busy with {self.in_flight} requests. Retry later."
            raise self._refuse("too many", 429, message, kind="busy", retry_after_s=1.0)

    async def _read_body(self, request: Request) -> bytearray:
        """Read the body, whose Content-Length the connection enforces.

        Raises:
            RequestError: it is too large, the server's memory limit is reached, it arrives too slowly, or the server
                shuts down before it has arrived.
            ClientDisconnect: the client is gone.
        """
        length, limit = request.headers.get("content-length", ""), self.limits.body_bytes
        if length.isdigit() and int(length[:20]) > limit:
            message = f"The body exceeds {limit:,} bytes. Send fewer rows at a time, or refer to stored tests by id."
            raise self._refuse("too large", 413, message, kind="too-large")
        body, silence_s = bytearray(), self.limits.silence_s
        arrival = asyncio.timeout(self.limits.read_timeout_s)
        try:
            async with arrival, asyncio.timeout(silence_s) as silence:
                self._arriving.add(arrival)
                async for part in request.stream():
                    silence.reschedule(asyncio.get_running_loop().time() + silence_s)
                    self._check_memory(len(part))
                    self._hold(request, len(part))
                    body += part
        except TimeoutError:
            if self.draining:
                raise self._not_ready() from None
            message = (
                f"The request did not arrive within {self.limits.read_timeout_s:g} s, or stopped for {silence_s:g} s."
            )
            raise self._refuse("slow", 408, message, kind="slow-request") from None
        finally:
            self._arriving.discard(arrival)
        return body

    def _check_memory(self, size: int) -> None:
        if self._held.size + size > self.limits.total_bytes:
            message = "The server's memory limit for requests is reached. Retry later."
            raise self._refuse("memory", 429, message, kind="busy", retry_after_s=2.0)

    def _hold(self, request: Request, size: int) -> None:
        """Count bytes of a request, or of its answer, until it is sent."""
        for held in (self._held, request.scope[_HELD]):
            held.size += size

    async def _respond(self, request: Request, body: bytearray, work: Work) -> Response:
        """The response of the work; of the first request with the same Idempotency-Key, if it was sent before.

        Raises:
            ClientDisconnect: the client is gone. The work is cancelled, with a key only if no client repeats it soon.
        """
        key = request.headers.get("idempotency-key", "")
        if len(key) > MAX_IDEMPOTENCY_KEY:
            message = f"The Idempotency-Key is longer than {MAX_IDEMPOTENCY_KEY} characters."
            raise RequestError(400, message, kind="idempotency-key")

        def start() -> PendingRequest:
            caller = Caller(_client_name(request.scope))
            task = asyncio.create_task(self._run(request.scope["path"], body, work, caller))
            return PendingRequest(task, caller, REPEAT_S if key else 0.0)

        if key:
            digest = hashlib.sha256(request.scope["path"].encode() + b"\0" + body).digest()
            pending, is_new = self.responses.begin(key, digest, start)
            if not is_new:
                self.metrics.add("grpo_requests_repeated_total")
        else:
            pending = start()
        disconnect = asyncio.create_task(_disconnected(request))
        pending.waiting += 1
        try:
            await asyncio.wait([pending.response, disconnect], return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            pending.leave()
        if not pending.response.done():
            raise ClientDisconnect
        return pending.response.result()

    async def _run(self, path: str, body: bytearray, work: Work, caller: Caller) -> Response:
        started = time.perf_counter()
        in_thread = functools.partial(asyncio.get_running_loop().run_in_executor, self.threads)
        size = 0
        try:
            needed = parsed_size(body) if len(body) < LARGE_BODY else await in_thread(parsed_size, body)
            if needed > self.limits.parsed_bytes:
                limit = f"{self.limits.parsed_bytes >> 20:,} MB"
                message = f"The body needs {needed >> 20:,} MB when it is parsed, more than {limit}. Send fewer rows."
                raise self._refuse("too large", 413, message, kind="too-large")
            self._check_memory(needed)
            size = needed
            self._held.size += size
            # In a thread: megabytes of a body, or of an answer, would block the event loop.
            response = await in_thread(work, body, caller)
        except RequestError as error:
            response = error.response()
        except InputError as error:
            response = RequestError(422, str(error), kind=error.kind).response()
        except Exception:
            _log.exception("A request to %r failed.", path)
            content = {"detail": "The server failed; its log has the traceback.", "kind": "internal"}
            response = json_response(content, 500)
        finally:
            self._held.size -= size
        self.metrics.add("grpo_requests_total", path, str(response.status_code))
        self.metrics.observe_request(path, time.perf_counter() - started)
        return response

    async def _send(self, send: Send, message: Message) -> None:
        """Send a part of a response, and wait until the client has read the body."""
        async with asyncio.timeout(self.limits.read_timeout_s):
            if message["type"] == "http.response.body":
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}  # sending it waits for the previous one
            await send(message)


def _address(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _client_name(scope: Scope) -> str:
    """Clients of one name get workers in the order of their requests; different ones in turn."""
    return f"{_address(scope)} {Headers(scope=scope).get('client-id', '')[:MAX_CLIENT_ID]}"


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
