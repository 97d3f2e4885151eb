"""Start a reward server, serve until a signal, and shut down: finish requests in progress, refuse new ones."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from rlvr import console
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.reward_server.app import make_app
from rlvr.reward_server.http_connection import HttpConnection
from rlvr.reward_server.judge_service import JudgeService
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard
from rlvr.reward_server.openrlhf import LabelColumns
from rlvr.reward_server.served_rewards import ServedRewards
from rlvr.reward_server.server_key import server_key, take_variable
from rlvr.reward_server.service import RewardService
from rlvr.reward_server.stored_tests import StoredTests
from rlvr.scoring.reward_key import is_loopback
from rlvr.verifiers.code import detect_capabilities, executor_count
from rlvr.workers.pool import WorkerError

SHUTDOWN_TIMEOUT_S = 120.0
CLOSE_S = 1.0  # in which requests end whose workers were closed


@dataclass(frozen=True)
class ServerConfig:
    """Settings of a server.

    Attributes:
        rewards: the rewards that it serves.
        host, port: address; port 0: any free port.
        key_file: file of the key that requests must send; None: see `rlvr.reward_server.server_key`.
        no_key: answer without a key; only on a loopback address.
        tests: JSONL file of stored tests.
        workers: processes for each group of rewards; None: the default.
        label_column: column of OpenRLHF's labels.
        shutdown_timeout_s: time for requests in progress at shutdown.
    """

    rewards: Sequence[RewardSpec]
    host: str = "127.0.0.1"
    port: int = 8000
    key_file: Path | None = None
    no_key: bool = False
    tests: Path | None = None
    workers: int | None = None
    label_column: str | None = None
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S
    limits: ServerLimits = field(default_factory=ServerLimits)


def serve(config: ServerConfig) -> int:
    """Run a server until SIGTERM or Ctrl-C (twice: stop at once); return the exit code.

    Raises:
        InputError: a setting is wrong, or the server can't listen.
    """
    if config.no_key and not is_loopback(config.host):
        message = f"--no_key: {config.host} can be reached from other machines. Leave it out, or listen on 127.0.0.1."
        raise InputError(message, kind="missing-key", key="no_key")
    key, key_file = (None, None) if config.no_key else server_key(config.key_file)
    take_variable()  # also without a key: workers would inherit it
    executor_count()  # reports a wrong GRPO_JUDGE_SLOTS now, not at the first request
    metrics = Metrics()
    stored_tests = StoredTests(config.tests)
    rewards = ServedRewards(config.rewards, config.limits, config.workers)
    labels = LabelColumns(rewards.rewards, config.label_column)
    judge = JudgeService(config.limits, stored_tests, metrics, rewards.workers)
    service = RewardService(rewards, judge, stored_tests, labels, metrics)
    guard = RequestGuard(config.limits, metrics, key)
    listener = _listen(config.host, config.port)
    server = _GracefulServer(service, guard, config.shutdown_timeout_s)
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
        guard.ready = True
        console.info(f"  ready after {time.monotonic() - started:.1f} s")

    host, port = listener.getsockname()[:2]
    console.info(f"Serving on http://{f'[{host}]' if ':' in host else host}:{port}")
    for reward in rewards.describe():
        console.info(f"  /score    {reward['name']}")
    if key_file is not None:
        console.info(f"  key       in {key_file}")
    stored = f", {len(stored_tests):,} sets of tests by id" if config.tests is not None else ""
    console.info(f"  /judge    {detect_capabilities().describe()}{stored}")
    threading.Thread(target=start, daemon=True).start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listener]))
    finally:
        guard.draining = True
        service.close()
        guard.threads.shutdown(wait=False, cancel_futures=True)
    if failures:
        if not isinstance(failures[0], WorkerError):
            raise failures[0]
        raise InputError(f"The rewards do not start:\n{failures[0]}", kind="rewards-do-not-start")
    console.info("Ended.")
    return 0


class _GracefulServer(uvicorn.Server):
    """Uvicorn that keeps answering during shutdown, so that clients get a 503 and not a refused connection."""

    def __init__(self, service: RewardService, guard: RequestGuard, shutdown_timeout_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                guard.protect(make_app(service, guard)),
                log_level="error",  # any client could flood the log with warnings
                access_log=False,
                loop="asyncio",  # not uvloop where another package has installed it
                http=HttpConnection,
                ws="none",
                lifespan="off",
                server_header=False,
                proxy_headers=False,  # nothing depends on the client's address
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,  # for clients that do not read their answers
                backlog=1024,
            )
        )
        self.service = service
        self.guard = guard
        self.shutdown_timeout_s = shutdown_timeout_s
        self._deadline: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down at the first signal; end the requests in progress at the second."""
        if self._deadline is not None:
            self._deadline = 0.0
            return
        self.guard.draining = True
        self._deadline = time.monotonic() + self.shutdown_timeout_s
        console.info(f"Ending: {self.guard.in_flight} requests are being answered.")

    async def on_tick(self, counter: int) -> bool:
        is_done = self._deadline is not None and (self.guard.in_flight == 0 or time.monotonic() >= self._deadline)
        return is_done or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the workers, so that requests that are still in progress get their answer (503), and close."""
        self.guard.end_arriving()
        await asyncio.to_thread(self.service.close)
        end = time.monotonic() + CLOSE_S
        while self.guard.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With IPPROTO_TCP, asyncio sets TCP_NODELAY; otherwise each answer would wait 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)  # from now on clients wait and are not refused
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Can't listen on {host}, port {port}: {str(error).rstrip('.')}. Choose another --host or --port.",
            kind="cannot-listen",
        ) from error
    return listener
