"""Starts a reward server, and ends it: what is being done is done, what is new is told to go elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from rlvr import console
from rlvr.config.recipe import RewardSpec
from rlvr.errors import InputError
from rlvr.reward_server.app import Service, make_app
from rlvr.reward_server.connections import Connection
from rlvr.reward_server.judge_endpoint import Programs
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard, is_loopback
from rlvr.reward_server.openrlhf import Labels
from rlvr.reward_server.reward_endpoint import ServedRewards
from rlvr.reward_server.stored_tests import References
from rlvr.verifiers.code import slots
from rlvr.workers.pool import WorkerError

GRACE_S = 120.0  # for requests that are being answered, once the server is told to end
SHORTEST_KEY = 16


@dataclass(frozen=True)
class ServerConfig:
    """What a server is started with.

    Attributes:
        rewards: that it serves.
        host, port: where it listens; port 0 is any that is free.
        key: that requests must hold; None only on the machine's own loopback.
        tests: a JSONL file of tests that requests may refer to.
        workers: processes a group of rewards; None for the default.
        label_column: what OpenRLHF's labels are.
    """

    rewards: Sequence[RewardSpec]
    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = None
    tests: Path | None = None
    workers: int | None = None
    label_column: str | None = None
    grace_s: float = GRACE_S
    allowance: ServerLimits = field(default_factory=ServerLimits)


def serve(plan: ServerConfig) -> int:
    """Runs a server until it is told to end (SIGTERM, Ctrl-C; twice: at once); returns the exit code.

    Raises:
        InputError: what it was started with is wrong, or it can't listen.
    """
    if plan.key is None and not is_loopback(plan.host):
        raise InputError(
            f"--host {plan.host} can be reached from other machines, so requests must hold a key: set "
            "GRPO_REWARDS_KEY or give --key-file. Without one a server listens on 127.0.0.1 only."
        )
    slots()  # what the environment says of them is looked at now, and not by the first request
    metrics = Metrics()
    references = References(plan.tests)
    rewards = ServedRewards(plan.rewards, plan.allowance, plan.workers)
    labels = Labels(rewards.rewards, plan.label_column)
    programs = Programs(plan.allowance, metrics, rewards.workers)
    service = Service(rewards, programs, references, labels, metrics)
    app = make_app(service, lambda: gate, "grpo-recipes reward server")
    gate = RequestGuard(app, plan.allowance, metrics, plan.key)
    listening = _listen(plan.host, plan.port)
    server = _Server(gate, plan.grace_s)
    failed: list[Exception] = []

    def start() -> None:
        begun = time.monotonic()
        try:
            programs.pool.launch()
            rewards.start()
            programs.pool.start()
        except Exception as error:  # raised below, in the thread that somebody waits for
            failed.append(error)
            server.should_exit = True
            return
        # What has been imported stays; Python's collector would stop all requests for 50 ms to walk through it.
        gc.collect()
        gc.freeze()
        gate.ready = True
        console.info(f"  ready after {time.monotonic() - begun:.1f} s")

    host, port = listening.getsockname()[:2]
    console.info(f"Serving on http://{f'[{host}]' if ':' in host else host}:{port}")
    for one in rewards.described():
        console.info(f"  /score    {one['name']}")
    held = f", {len(references):,} sets of tests by id" if plan.tests is not None else ""
    console.info(f"  /judge    {programs.sandbox()}{held}")
    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listening]))
    finally:
        gate.draining = True
        rewards.close()
        service.close()
        programs.pool.close()
    if failed:
        if not isinstance(failed[0], WorkerError):
            raise failed[0]
        raise InputError(f"The rewards do not start:\n{failed[0]}")
    console.info("Ended.")
    return 0


class _Server(uvicorn.Server):
    """Uvicorn, which goes on answering while it ends, so that clients are told and do not find a closed door."""

    def __init__(self, gate: RequestGuard, grace_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                gate,
                log_level="error",  # of its warnings, whoever can connect could make as many as he likes
                access_log=False,
                http=Connection,
                ws="none",
                lifespan="off",
                server_header=False,
                proxy_headers=False,  # nothing depends on who a proxy says that it speaks for
                timeout_keep_alive=75,
                timeout_graceful_shutdown=10,
                backlog=1024,
            )
        )
        self.gate = gate
        self.grace_s = grace_s
        self._until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end, a second one ends at once."""
        if self._until is not None:
            self._until = 0.0
            return
        self.gate.draining = True
        self._until = time.monotonic() + self.grace_s
        console.info(f"Ending: {self.gate.in_flight} requests are being answered.")

    async def on_tick(self, counter: int) -> bool:
        ended = self._until is not None and (self.gate.in_flight == 0 or time.monotonic() >= self._until)
        return ended or await super().on_tick(counter)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # By this protocol asyncio knows that answers are to be sent at once; else each would wait 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)  # from now on clients wait and are not turned away
    except (OSError, OverflowError) as error:
        raise InputError(f"Can't listen on {host}, port {port}: {error}. Choose another --host or --port.") from error
    return listening


def read_key(path: Path | None) -> str | None:
    """The key of a file, or else of the environment, out of which it is taken; None where there is none.

    Raises:
        InputError: the file can't be read, is empty, or may be read by others; or the key is too short to be one.
    """
    key = os.environ.pop("GRPO_REWARDS_KEY", "").strip() or None
    where = "GRPO_REWARDS_KEY"
    if path is not None:
        where = f"--key-file {path}"
        try:
            key = path.read_text(encoding="utf-8").strip()
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{where} can't be read: {error}.") from error
        if mode & 0o077:
            raise InputError(f"{where} can be read by others: chmod 600 {path}.")
    if key is None:
        return None
    if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            f"{where}: a key has {SHORTEST_KEY} or more characters, no spaces: python -c "
            "'import secrets; print(secrets.token_urlsafe(32))' makes one."
        )
    return key
