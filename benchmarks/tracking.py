"""Measure what tracking costs a training step: our tracker, and transformers' MLflowCallback with TRL's calls.

    python -m benchmarks.tracking            # about five minutes on two cores

A step is one log event of 40 metrics and, for TRL, the six profiling calls of a step without gradient accumulation
(3 x accumulation steps + 3). Stores: SQLite on the local disk, and a local server with 200 ms latency. The time is that
of the training thread. The start of the run has a column of its own. Each tracker runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

METRICS = 40
STEPS = 20
LATENCY_S = 0.2


def arguments(folder: Path) -> tuple[Any, Any]:
    """The trainer's arguments and state, as far as callbacks read them."""
    config = SimpleNamespace(run_name="benchmark", output_dir=str(folder), to_dict=lambda: {"learning_rate": 1e-6})
    return config, SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=STEPS, log_history=[])


def ours(folder: Path, uri: str) -> tuple[Callable[[dict[str, Any]], None], Callable[[], None], Any]:
    from rlvr.tracking.mlflow_tracker import MLflowTracker
    from rlvr.training.callbacks import MetricsFile

    config, state = arguments(folder)
    tracker = MLflowTracker(folder, uri, params={}, tags={})
    writer = MetricsFile(folder / "metrics.jsonl")

    def step(logs: dict[str, Any]) -> None:
        writer.on_log(config, state, None, logs=logs)

    writer.on_train_begin(config, state, None)
    tracker.start()
    return step, lambda: tracker.close("FINISHED", timeout_s=120), state


def theirs(folder: Path, uri: str) -> tuple[Callable[[dict[str, Any]], None], Callable[[], None], Any]:
    os.environ.update(MLFLOW_TRACKING_URI=uri, MLFLOW_EXPERIMENT_NAME="b")
    from transformers.integrations import MLflowCallback
    from trl.extras.profiling import ProfilingContext

    config, state = arguments(folder)
    callback = MLflowCallback()
    callback.on_train_begin(config, state, None)

    def step(logs: dict[str, Any]) -> None:
        for number in range(6):
            with ProfilingContext(f"GRPOTrainer.part{number}", ["mlflow"], step=state.global_step):
                pass
        callback.on_log(config, state, None, logs)

    def end() -> None:
        callback.on_train_end(config, state, None)

    return step, end, state


def one_tracker(name: str, uri: str) -> dict[str, float]:
    """Measure one tracker: seconds of the start, and of a step (median)."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "theirs, asynchronous":
            os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "true"
        for module in ("rlvr.training.callbacks", "rlvr.tracking.mlflow_tracker", "trl.extras.profiling"):
            importlib.import_module(module)  # a training process has imported these
        start = time.perf_counter()
        step, end, state = (ours if name == "ours" else theirs)(Path(folder), uri)
        begin = time.perf_counter() - start
        times = []
        for number in range(STEPS):
            state.global_step = number + 1
            logs = {f"rewards/part{metric}/mean": number + metric / 100 for metric in range(METRICS)}
            start = time.perf_counter()
            step(logs)
            times.append(time.perf_counter() - start)
            time.sleep(0.05)  # the rest of the step
        end()
        return {"begin": begin, "step": median(times)}


def run_in_process(*words: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tracking", "--one", *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "ERROR"},
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_tracker(*options.one)))
        return

    from rlvr import console
    from tests.support.mlflow_server import Server

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run_in_process("ours", f"sqlite:///{folder}/mlflow.db")  # creates the store, and warms the disk cache
        server = Server(Path(folder))
        server.delay_s = LATENCY_S
        for store, uri in (("SQLite", f"sqlite:///{folder}/mlflow.db"), ("200 ms server", server.uri)):
            for name in ("ours", "theirs", "theirs, asynchronous"):
                result = run_in_process(name, uri)
                rows.append([f"{store}, {name}", f"{1000 * result['step']:,.2f} ms", f"{result['begin']:.2f} s"])
        server.stop()
    print(console.table(["", "a step (median)", "start"], rows))


if __name__ == "__main__":
    main()
