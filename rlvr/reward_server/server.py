"""Start a reward server, serve until a signal, and finish requests in progress."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlvr import console
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.reward_server.app import make_app
from rlvr.reward_server.guard import RequestGuard
from rlvr.reward_server.request_limits import ServerLimits
from rlvr.reward_server.server_key import server_key, take_variable
from rlvr.reward_server.service import RewardService
from rlvr.scoring.reward_key import is_loopback
from rlvr.verifiers.code import detect_capabilities, executor_count
from rlvr.workers.pool import WorkerError

HEAD_TIMEOUT_S = 20  # of a connection, until the head of its first or next request has arrived
UNREAD_TIMEOUT_S = 20  # of an answer that its client does not read
MAX_HEAD_BYTES = 1 << 16
CLOSE_S = 2  # in which requests end whose workers were closed


def serve(
    rewards: Sequence[RewardSpec],
    limits: Mapping[str, Any],
    *,
    workers: int | None,
    host: str,
    port: int,
    key_file: Path | None,
    no_key: bool,
    shutdown_timeout_s: float,
) -> int:
    """Run a server until SIGTERM or Ctrl-C (twice: end requests in progress); return the exit code.

    The arguments are those of the command (`python -m rlvr.reward_server --help`).

    Raises:
        InputError: a setting is wrong, the server can't listen, or the rewards do not start.
    """
    service = RewardService(rewards, ServerLimits(**limits), workers)
    if no_key and not is_loopback(host):
        message = f"--no_key: {host} can be reached from other machines. Leave it out, or listen on 127.0.0.1."
        raise InputError(message, kind="missing-key", key="no_key")
    key, used_file = (None, None) if no_key else server_key(key_file)
    take_variable()  # also without a key: workers would inherit it
    executor_count()  # reports a wrong GRPO_JUDGE_SLOTS now, not at the first request
    listener = _listen(host, port)
    server = _Server(service, key, shutdown_timeout_s)
    failures: list[Exception] = []

    def start() -> None:
        started = time.monotonic()
        try:
            service.start()
        except Exception as error:  # raised below, in the main thread
            failures.append(error)
            server.should_exit = True
            return
        # A garbage collection that scans all imported modules would stop every request for 50 ms.
        gc.collect()
        gc.freeze()
        service.ready = True
        console.info(f"  ready after {time.monotonic() - started:.1f} s")

    host, port = listener.getsockname()[:2]
    console.info(f"Serving on http://{f'[{host}]' if ':' in host else host}:{port}")
    for reward in service.rewards.rewards:
        console.info(f"  /score    {reward.name}")
    if used_file is not None:
        console.info(f"  key       in {used_file}")
    console.info(f"  /judge    {detect_capabilities().describe()}")
    threading.Thread(target=start, daemon=True).start()
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        service.close()
    if failures:
        if not isinstance(failures[0], WorkerError):
            raise failures[0]
        raise InputError(f"The rewards do not start:\n{failures[0]}", kind="rewards-do-not-start")
    console.info("Ended.")
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        dualstack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=dualstack)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Can't listen on {host}, port {port}: {str(error).rstrip('.')}. Choose another --host or --port.",
            kind="cannot-listen",
        ) from error
    # Connections inherit these. Without the first one, answers would wait 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_TIMEOUT_S)
    return listener


def _connection_limit() -> int:
    """The number of connections that leaves file descriptors for files, workers and programs."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 4096 if descriptors < 0 or descriptors > 4608 else max(descriptors - 512, descriptors // 2)


class _Server(uvicorn.Server):
    """Uvicorn that ends the work of requests in progress after a time, so that they are answered with 503."""

    def __init__(self, service: RewardService, key: str | None, shutdown_timeout_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                RequestGuard(make_app(service), service, key),
                log_level="error",  # any client could flood the log with warnings
                access_log=False,
                loop="asyncio",  # not uvloop where another package has installed it
                http=_Connection,
                ws="none",
                server_header=False,
                proxy_headers=False,  # nothing depends on the client's address
                limit_concurrency=_connection_limit(),
                timeout_keep_alive=HEAD_TIMEOUT_S,
                timeout_graceful_shutdown=int(shutdown_timeout_s) + CLOSE_S,
            )
        )
        self.service = service
        self.shutdown_timeout_s = shutdown_timeout_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish the requests in progress, for some time; end them at the second signal."""
        timer = threading.Timer(0.0 if self.should_exit else self.shutdown_timeout_s, self.service.close)
        timer.daemon = True
        timer.start()
        self.should_exit = True


class _Parser(h11.Connection):
    """h11's parser, which refuses chunks: one of a byte costs as much time as a large one, and no key is needed."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError("chunks")
        return event


class _Connection(H11Protocol):
    """Uvicorn's connection. A client without the key can't hold it for long, or keep others from connecting."""

    idle: ClassVar[dict[_Connection, None]] = {}  # those without a complete head of a request, the oldest first

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: _Parser = _Parser(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer(self.loop.time() + self.timeout_keep_alive)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and self.idle:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            self.connections.discard(oldest)  # now, and not in the loop's next turn: uvicorn counts them
            oldest.transport.abort()
        self._note_idle()

    def data_received(self, data: bytes) -> None:
        timer = self.timeout_keep_alive_task
        super().data_received(data)  # stops the timer, also for a part of a head
        self._note_idle()
        if timer is not None and self in self.idle and self.timeout_keep_alive_task is None:
            self._set_timer(timer.when())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.idle.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(f"{msg} Send the body, if any, with a Content-Length and not in chunks.")

    def _note_idle(self) -> None:
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self.idle.pop(self, None)
        else:
            self.idle.setdefault(self)

    def _set_timer(self, end: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_at(end, self.timeout_keep_alive_handler)
