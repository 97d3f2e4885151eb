"""The process that sends metrics to MLflow, so that training never waits for it. mlflow_tracker.py starts it.

It follows metrics.jsonl and sends new lines. So nothing is queued in memory, and nothing is lost during an outage.

Standard input has two lines: the settings as JSON, and the run's status at its end. If the trainer dies without a
status, the run is marked KILLED and this process ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.tracking.messages import describe_error, redact_uri

if TYPE_CHECKING:
    from rlvr.tracking.mlflow_run import MLflowRun

POLL_S = 1.0
MAX_BACKOFF_S = 60.0
DIED = ""  # the status of a trainer that ended without one


def wait_for_status(seconds: float, trainer_pid: int) -> str | None:
    """The status that the trainer has written, or DIED; None after some seconds."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if select.select([0], [], [], max(0.0, min(left, POLL_S)))[0]:
            return os.read(0, 100).decode().strip()
        if os.getppid() != trainer_pid:  # a process that the trainer forked may keep standard input open
            return DIED
        if left <= POLL_S:
            return None


def follow(run: MLflowRun, trainer_pid: int, report: Callable[[str], None]) -> None:
    """Keep the run up to date until the trainer has ended it, or has died."""
    where = f"MLflow at {redact_uri(run.uri)}"
    causes: set[str] = set()  # of an outage
    status: str | None = None
    pause_s = 0.0
    while True:
        if status is None:
            status = wait_for_status(pause_s, trainer_pid)
        else:
            time.sleep(pause_s)
        try:
            run.update("KILLED" if status == DIED else status)
        except Exception as error:
            if status == DIED or os.getppid() != trainer_pid:
                return
            cause = describe_error(error, run.uri)
            if cause not in causes and len(causes) < 3:
                advice = " Training goes on; metrics.jsonl has everything. Missing lines are sent after the outage."
                report(f"{where} {cause}.{'' if causes else advice}")
            causes.add(cause)
            pause_s = POLL_S if status is not None else min(max(2 * pause_s, POLL_S), MAX_BACKOFF_S)
            continue
        if causes:
            report(f"{where} works again.")
            causes.clear()
        if status is not None:
            return
        pause_s = POLL_S


def main() -> None:
    # The trainer handles Ctrl-C and a cluster's SIGTERM, and decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MLflow prints addresses of runs on standard output

    def report(text: str) -> None:
        below_bar = "\n" if output.isatty() else ""
        with contextlib.suppress(OSError):  # the trainer may have died
            print(f"{below_bar}{console.wrap(f'  {text}', console.columns(output))}", file=output, flush=True)

    settings = json.loads(io.FileIO(0, closefd=False).readline() or "{}")  # unbuffered: select sees the next line
    if settings:
        try:
            from rlvr.tracking.mlflow_run import MLflowRun  # takes seconds, and a broken installation raises
        except Exception as error:
            report(f"Not tracked in MLflow, which can't be imported: {type(error).__name__}: {error}")
            raise
        # Not os.getppid(): the trainer may have died while this process imported MLflow.
        follow(MLflowRun(settings, report), settings["trainer_pid"], report)
