"""Play the environments of rollouts in worker processes that can be killed.

    with EnvironmentWorkers(specs, timeout_s=30, budget_s=120, max_output=4000) as workers:
        rollout = workers.begin(0, row, seed=(42, 7))
        rollout.observation()
        rollout.call("run", {"code": "print(1)"}).text()
        rollout.reward(timeout_s=30).result()

A worker holds the objects of many rollouts and runs one step at a time. Steps of different workers run at the same
time; the steps of one rollout run in their order. A step that takes longer than its timeout, or that ends its process
twice, is undone: the worker is replaced, and each rollout that it held is restored when it is next used, by repeating
its earlier steps. Therefore an environment must do the same when it is given the same row, calls and random numbers.
An environment may count a call that was killed (`count_killed_call`).
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import pickle
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing import connection
from typing import Any

from rlvr.config.specs import EnvironmentSpec
from rlvr.workers.fork_server import ForkServer, WorkerError, WorkerSpec, describe_status
from rlvr.workers.messages import receive, send

Step = dict[str, Any]
LEAST_WORKERS = 4  # tools may wait for something other than a processor
REFERENCE_CALLS = 4  # timeouts of a call that a whole reference solution may take
RESTORE_FACTOR = 3.0  # how much longer than at first earlier steps may take when they are repeated
CLOSED = "the run is ending"


class EnvironmentFailure(Exception):
    """An environment itself failed, and not a call of the model: its rollout can't be scored."""


class _StepKilled(Exception):
    """A step was ended from outside: it took too long, or its process died."""


class _Refused(Exception):
    """A call that is not made."""


class EnvironmentWorkers:
    """Worker processes that hold the environments of rollouts.

    Args:
        specs: the environments.
        timeout_s: of a tool call, and of a reset.
        budget_s: seconds that all tool calls of a rollout may take together.
        max_output: characters of a tool's output; the rest is cut.
        processes: number of workers; by default one per processor of this rank, and at least LEAST_WORKERS.
    """

    def __init__(
        self,
        specs: Sequence[EnvironmentSpec],
        *,
        timeout_s: float,
        budget_s: float,
        max_output: int,
        processes: int | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.budget_s = budget_s
        self._spec = WorkerSpec(
            "rlvr.environments.worker:prepare", pickle.dumps((list(specs), max_output)), None, True, os.getcwd()
        )
        cores = len(os.sched_getaffinity(0)) // max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), 1)
        self._hosts = [_Host(self, number) for number in range(processes or max(LEAST_WORKERS, cores))]
        self._next_host = itertools.cycle(self._hosts)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self.closed = False
        _all_workers.append(self)

    def __enter__(self) -> EnvironmentWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, environment: int, row: Mapping[str, Any], seed: tuple[Any, ...]) -> Rollout:
        """Start a rollout: build the environment of this index and reset it with a row. Does not wait.

        Args:
            seed: of its random numbers; the first entry is the run's.
        """
        # The rollouts of a group have the same row, and must begin in the same state.
        same = ("reset", seed[:1], json.dumps(row, default=repr, sort_keys=True))
        reset = {"action": "reset", "environment": environment, "row": dict(row), "seed": same}
        return Rollout(self, next(self._next_host), next(self._numbers), seed, reset)

    def server(self) -> ForkServer:
        """The fork server; started if there is none or it has ended.

        Raises:
            WorkerError: it does not start.
        """
        with self._lock:
            if self.closed:
                raise WorkerError(CLOSED, "pool-closed")
            if self._server is None or not self._server.is_alive():
                if self._server is not None:
                    self._server.close()
                self._server = ForkServer(self._spec)
            self._server.wait(120.0)
            return self._server

    def close(self) -> None:
        """End all processes. Steps that have not run fail."""
        self.closed = True
        if self._server is not None:
            self._server.close()
        for host in self._hosts:
            host.jobs.put(None)

    def close_after_fork(self) -> None:
        """In a forked child: close the parent's descriptors."""
        self.closed = True
        if self._server is not None:
            self._server.close_after_fork()


class Rollout:
    """The environment of one rollout.

    Attributes:
        failed: why the environment itself failed; empty if it did not.
        seconds: of each tool call, in their order.
        failures: tool calls that raised, were killed, or were refused.
        killed: those of them that were killed.
    """

    def __init__(
        self, workers: EnvironmentWorkers, host: _Host, number: int, seed: tuple[Any, ...], reset: Step
    ) -> None:
        self.failed = ""
        self.seconds: list[float] = []
        self.failures = self.killed = 0
        self.number = number
        self._workers = workers
        self._host = host
        self._seed = seed
        self._steps = 0
        self.history: list[tuple[Step, float]] = []  # steps that took effect, with their seconds
        self._reset = self._question(reset, workers.timeout_s)

    def observation(self) -> str | None:
        """What `reset` returned; None if the environment failed."""
        observation: str | None = self._reset.result()
        return observation

    def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Does not wait."""
        return ToolResult(self._submit(lambda: self._call(tool, dict(arguments))))

    def reward(self, timeout_s: float) -> Future[Any]:
        """Ask for the environment's reward; None if the environment failed. Does not wait."""
        return self._question({"action": "reward"}, timeout_s)

    def attribute(self, name: str) -> Any:
        """A public attribute of the environment's object; None if the environment failed.

        Raises:
            AttributeError: there is none, or JSON can't represent it.
        """
        answer = self._question({"action": "attribute", "name": name}, self._workers.timeout_s).result()
        if answer is not None and not answer["found"]:
            raise AttributeError(answer["why"])
        return None if answer is None else answer["content"]

    def play_reference(self, row: Mapping[str, Any]) -> Future[Any]:
        """Play the reference solution, if the environment has one for the row: the result says whether."""
        timeout_s = min(self._workers.budget_s, REFERENCE_CALLS * self._workers.timeout_s)
        return self._question({"action": "reference", "row": dict(row)}, timeout_s)

    def end(self) -> None:
        """Drop the environment's object. Does not wait."""
        self._submit(self._host_end)

    # ------------------------------------------------------------------------------------------------------------------
    # In the thread of the host

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if self._workers.closed:
            raise WorkerError(CLOSED, "pool-closed")
        self._host.jobs.put((job, future))
        return future

    def _question(self, step: Step, timeout_s: float) -> Future[Any]:
        return self._submit(lambda: self._own_step(step, timeout_s))

    def _own_step(self, step: Step, timeout_s: float) -> Any:
        """A step that the model has not asked for: if it fails, the environment has failed."""
        try:
            return self._perform(step, timeout_s)["value"]
        except (EnvironmentFailure, _StepKilled) as error:
            self.failed = self.failed or f"{step['action']}: {error}"
            return None

    def _call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, float]:
        left = self._workers.budget_s - sum(self.seconds)
        started = time.monotonic()
        try:
            if self.failed:
                raise _Refused("the environment has failed")
            if left <= 0:
                raise _Refused(f"no time left: the calls took {self._workers.budget_s:g} s (tool_budget_s)")
            step = {"action": "call", "tool": tool, "arguments": arguments}
            reply = self._perform(step, min(self._workers.timeout_s, left))
            text, failed = str(reply["value"]), reply["failed"]
            seconds = self.history[-1][1]  # without the wait for the worker, and without repeated steps
        except (EnvironmentFailure, _StepKilled, _Refused) as error:
            text, failed, seconds = str({"error": str(error)}), True, time.monotonic() - started
            if isinstance(error, _StepKilled):
                self.killed += 1
                self._own_step({"action": "killed", "tool": tool}, self._workers.timeout_s)
            elif isinstance(error, EnvironmentFailure):
                self.failed = self.failed or f"{tool}: {error}"
        self.seconds.append(seconds)
        self.failures += failed
        return text, seconds

    def _perform(self, step: Step, timeout_s: float) -> dict[str, Any]:
        """Run a step in the worker, after the earlier ones if the worker does not hold this rollout."""
        if self.failed:
            raise EnvironmentFailure(self.failed)
        step.setdefault("seed", (*self._seed, self._steps))
        self._steps += 1
        try:
            for attempt in (1, 2):
                self._restore()
                started = time.monotonic()
                try:
                    reply = self._host.exchange(self.number, [step], timeout_s)
                except _Died as error:
                    if attempt == 2:
                        raise _StepKilled(f"it ended its process ({error})") from error
                else:
                    break
        except WorkerError as error:
            raise EnvironmentFailure(f"its worker failed: {error}") from error
        if reply["status"] != "done":
            raise EnvironmentFailure(reply["why"])
        self._host.held.add(self.number)
        self.history.append((step, time.monotonic() - started))
        result: dict[str, Any] = reply["value"]
        return result

    def _restore(self) -> None:
        """Repeat the steps so far in a worker that does not hold this rollout."""
        self._host.connect()
        if not self.history or self.number in self._host.held:
            return
        steps = [step for step, _ in self.history]
        timeout_s = self._workers.timeout_s + RESTORE_FACTOR * sum(seconds for _, seconds in self.history)
        try:
            reply = self._host.exchange(self.number, steps, timeout_s)
        except (_Died, _StepKilled) as error:
            raise EnvironmentFailure(f"its earlier steps can't be repeated ({error})") from error
        if reply["status"] != "done":
            raise EnvironmentFailure(f"its earlier steps can't be repeated ({reply['why']})")
        self._host.held.add(self.number)

    def _host_end(self) -> None:
        if self.number in self._host.held:
            self._host.held.discard(self.number)
            self._host.exchange(self.number, [{"action": "end", "seed": ()}], self._workers.timeout_s)


class ToolResult(list[Any]):
    """The result of a tool call that may still be running.

    An empty list to TRL, which passes a list on as the content of the tool's message instead of asking for its text.
    So the calls of a batch run at the same time, until the trainer needs the text
    (`TrlSeam._get_tool_suffix_ids`).
    """

    def __init__(self, future: Future[tuple[str, float]]) -> None:
        super().__init__()
        self._future = future

    def text(self) -> str:
        return self._future.result()[0]

    def seconds(self) -> float:
        return self._future.result()[1]


class _Died(Exception):
    """A worker ended during a step."""


class _Host:
    """One worker process, and the thread that talks to it."""

    def __init__(self, workers: EnvironmentWorkers, number: int) -> None:
        self.jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self.held: set[int] = set()  # rollouts whose objects the process has
        self._workers = workers
        self._number = number
        self._server: ForkServer | None = None
        self._channel: socket.socket | None = None
        threading.Thread(target=self._serve, name=f"environments-{number}", daemon=True).start()

    def _serve(self) -> None:
        while (job := self.jobs.get()) is not None:
            function, future = job
            try:
                future.set_result(function())
            except BaseException as error:  # a bug of ours, raised in the thread that waits
                future.set_exception(error)

    def connect(self) -> None:
        """Start the process if there is none.

        Raises:
            WorkerError: it does not start.
        """
        server = self._workers.server()
        if self._channel is None or self._server is not server:
            self._replace(server)

    def _replace(self, server: ForkServer) -> int | None:
        self.held.clear()
        if self._channel is not None:
            self._channel.close()
        self._channel, self._server = None, server
        self._channel, status = server.replace_worker(self._number)
        return status

    def exchange(self, rollout: int, steps: Sequence[Step], timeout_s: float) -> dict[str, Any]:
        """Send steps and wait for the result of the last one: `status` and `value` or `why`, as a worker replies.

        Raises:
            _Died: the worker ended.
            _StepKilled: the timeout passed.
            WorkerError: the worker can't be replaced.
        """
        assert self._channel is not None and self._server is not None
        try:
            send(self._channel, pickle.dumps({"rollout": rollout, "steps": steps}, protocol=5))
        except OSError:
            reply = None
        else:
            if not connection.wait([self._channel], timeout_s):
                self._replace(self._server)
                raise _StepKilled(f"not done after {timeout_s:g} s")
            reply = receive(self._channel)
        if reply is None:
            raise _Died(describe_status(self._replace(self._workers.server())))
        return dict(zip(("status", "value", "why"), reply, strict=True))


# ----------------------------------------------------------------------------------------------------------------------

_all_workers: list[EnvironmentWorkers] = []


def _after_fork() -> None:
    for workers in _all_workers:
        workers.close_after_fork()
    _all_workers.clear()


def _at_exit() -> None:
    for workers in _all_workers:
        workers.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
