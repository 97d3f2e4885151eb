"""Export the latest metrics of training runs to Prometheus.

    python -m rlvr.tracking.prometheus_exporter runs

Serves /metrics with the last values of one run directory, or of all run directories in a folder. It reads metrics.jsonl
when Prometheus scrapes it, so training never waits. Steps between two scrapes are in metrics.jsonl only. It listens on
loopback by default, and answers without a key. See docs/dashboards.md. Exit codes: 0 stopped; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, MetricsHandler
from prometheus_client.registry import Collector

from rlvr import console
from rlvr.artifacts import directory
from rlvr.errors import InputError
from rlvr.tracking.metrics_tail import MetricsTail

PORT = 9460
STALE_AFTER_S = 2 * 3600.0
_REQUEST_TIMEOUT_S = 10.0

RUNS, STATUS = "grpo_training_runs", "grpo_training_status"
_ANY = "(?P<statistic>mean|std|min|max)"
# Prometheus' name after grpo_training_, the keys in metrics.jsonl, and the help text. Groups become labels. The first
# match counts.
_METRICS = (
    ("step", "step", "The step of the last log line."),
    ("epoch", "epoch", "Passes over the data, so far."),
    ("last_log_timestamp_seconds", "time", "Time of the last log line, in Unix time."),
    ("tokens", "num_tokens", "Tokens seen so far; falls back when a run is resumed from an earlier step."),
    ("reward", f"reward(?:[/_]{_ANY})?", "Weighted sum of the rewards over the completions of a step."),
    ("reward_part", f"rewards/(?P<reward>.+)/{_ANY}", "One reward without its weight, over the completions of a step."),
    ("unscored_ratio", "rewards/unscored_fraction", "Share of the completions without a score, which are masked."),
    ("groups_without_spread_ratio", "frac_reward_zero_std", "Share of the groups whose rewards are all equal."),
    ("advantage", "advantages/(?P<statistic>mean|std|min|max|abs_mean)", "Advantages of the completions."),
    ("completion_tokens", f"completions/{_ANY}_length", "Lengths of the completions."),
    (
        "ended_completion_tokens",
        f"completions/{_ANY}_terminated_length",
        "Lengths of completions that ended themselves.",
    ),
    ("prompt_tokens", f"prompts/{_ANY}_length", "Lengths of the prompts."),
    ("cut_off_ratio", "completions/clipped_ratio", "Share of the completions that hit the limit of their length."),
    ("duplicates_ratio", "completions/duplicate_fraction", "Share of completions that repeat another of their group."),
    ("step_seconds", "step_time", "Time of a step."),
    ("phase_seconds", "time/(?P<phase>.+)", "Time of a part of a step; rewards: the slowest process's."),
    ("loss", "loss", "The loss. In GRPO it only has to be finite."),
    ("learning_rate", "learning_rate", "Learning rate of the schedule."),
    ("gradient_norm", "grad_norm", "Norm of the gradient before clipping."),
    ("entropy_nats", "entropy", "Entropy of the policy, a token."),
    ("kl_nats", "(?P<reference>policy_)?kl", "KL divergence from the reference, a token."),
    ("clipped_tokens_ratio", f"clip_ratio/(?P<side>region|low|high)_{_ANY}", "Share of the tokens that are clipped."),
    ("verdict_ratio", "(?P<reward>.+)/verdict_(?P<verdict>[a-z]+)", "Share of all tests, by reward and verdict."),
    ("validation_accuracy_ratio", "eval_accuracy", "Greedy accuracy on validation rows."),
    ("validation_source_accuracy_ratio", "eval_(?P<source>.+)/accuracy", "The same, by source of the rows."),
    ("validation_reward", "eval_reward", "The weighted sum of the rewards on validation rows."),
    ("figure", "(?P<figure>.*)", "Any other metric, by its name in metrics.jsonl."),
)
_PATTERNS = [(f"grpo_training_{name}", re.compile(pattern, re.DOTALL)) for name, pattern, _ in _METRICS]
HELP = {
    RUNS: "Exported runs.",
    STATUS: "1 for the status in run.json: running, interrupted, failed, trained or done.",
    **{f"grpo_training_{name}": text for name, _, text in _METRICS},
}
Labels = tuple[tuple[str, str], ...]


def metric_of(key: str) -> tuple[str, Labels]:
    """Prometheus' name and labels of a key of metrics.jsonl."""
    name, match = next((name, match) for name, pattern in _PATTERNS if (match := pattern.fullmatch(key)))
    labels = match.groupdict()
    if "reference" in labels:
        labels["reference"] = "generating policy" if labels["reference"] else "starting model"
    if "verdict" in labels:
        labels["verdict"] = labels["verdict"].upper()
    return name, tuple((label, "mean" if value is None else value) for label, value in labels.items())


class ExportedRun:
    """The latest metrics of a run directory."""

    def __init__(self, folder: Path, inode: int) -> None:
        self.folder = folder
        self.inode = inode
        self.tail = MetricsTail(folder / "metrics.jsonl")
        self.latest: dict[str, float] = {}

    def is_same_file(self, status: os.stat_result) -> bool:
        """Whether the file was only appended to, and not truncated by a resumption or replaced by a new run."""
        return status.st_ino == self.inode and status.st_size >= self.tail.offset

    def read(self) -> None:
        """Read the new lines. null (a value that could not be computed) becomes NaN."""
        former = -1
        while former != self.tail.offset:
            former = self.tail.offset
            for end, line in self.tail.lines():
                self.tail.offset = end
                for key, value in line.items():
                    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                        self.latest[key] = math.nan if value is None else float(value)

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        for key, value in self.latest.items():
            yield *metric_of(key), value
        with contextlib.suppress(InputError):  # of a later version: its metrics are still valid
            if status := directory.read_status(self.folder):
                yield STATUS, (("status", str(status["status"])),), 1.0


class Exporter(Collector):
    """The metrics of all runs. Usable from any thread.

    Args:
        folder: a run directory, or a folder of run directories.
        stale_after_s: runs that have written nothing for so long are left out, so that their curves end.
    """

    def __init__(self, folder: Path, stale_after_s: float = STALE_AFTER_S) -> None:
        self.folder = folder
        self.stale_after_s = stale_after_s
        self._runs: dict[Path, ExportedRun] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            self._find_runs()
            # Of keys with equal names and labels, the first counts: Prometheus rejects duplicates.
            families: dict[str, dict[Labels, float]] = {RUNS: {(): len(self._runs)}}
            for folder, run in sorted(self._runs.items()):
                run.read()
                # The real name of the folder, which may be given as ".".
                name = folder.resolve().name
                for metric, labels, value in run.samples():
                    # A model may write a lone surrogate, which can't be encoded.
                    texts = ((label, text.encode(errors="replace").decode()) for label, text in labels)
                    families.setdefault(metric, {}).setdefault((("run", name), *texts), value)
        for metric, help_text in HELP.items():
            family = Metric(metric, help_text, "gauge")
            for labels, value in families.get(metric, {}).items():
                family.add_sample(metric, dict(labels), value)
            if family.samples:
                yield family

    def _find_runs(self) -> None:
        now = time.time()
        runs = {}
        for path in (self.folder / "metrics.jsonl", *self.folder.glob("*/metrics.jsonl")):
            try:
                status = path.stat()
            except OSError:  # missing, or removed meanwhile
                continue
            if now - status.st_mtime > self.stale_after_s:
                continue
            run = self._runs.get(path.parent)
            keep = run is not None and run.is_same_file(status)
            runs[path.parent] = run if run is not None and keep else ExportedRun(path.parent, status.st_ino)
        self._runs = runs


class _ExporterServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect, such as after a scrape timeout."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _RequestHandler(MetricsHandler):
    timeout = _REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            super().do_GET()
        else:
            self.send_error(404, "The metrics are at /metrics")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rlvr.tracking.prometheus_exporter",
        description=__doc__,
        formatter_class=console.HelpFormatter,
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), help="a run directory, or a folder of them; default: runs"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: loopback")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any free port")
    parser.add_argument(
        "--stale_after_s",
        type=float,
        default=STALE_AFTER_S,
        metavar="S",
        help=f"leave out runs that have written nothing for so long; default: {STALE_AFTER_S:g}",
    )
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(arguments)
    try:
        return _serve(options.folder, options.host, options.port, options.stale_after_s)
    except InputError as error:
        console.error(str(error))
        return 2


def _serve(folder: Path, host: str, port: int, stale_after_s: float) -> int:
    if folder.exists() and not folder.is_dir():
        message = f"{folder} is a file. Give a run directory, or a folder of run directories."
        raise InputError(message, kind="not-a-folder", path=folder)
    registry = CollectorRegistry()
    registry.register(Exporter(folder, stale_after_s))
    try:
        server = _ExporterServer((host, port), _RequestHandler.factory(registry))
    except (OSError, OverflowError) as error:
        message = f"Can't listen on {host}, port {port}: {error}. Choose another --host or --port."
        raise InputError(message, kind="cannot-listen") from error
    for name in (signal.SIGTERM, signal.SIGINT):
        # In another thread: the signal handler runs in the serving thread, which shutdown() waits for.
        signal.signal(name, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        console.info(f"Serving the metrics of {folder} on http://{host}:{server.server_address[1]}/metrics")
        if not folder.exists():
            console.info(f"  {folder} does not exist yet. Metrics appear when a run writes into it.")
        server.serve_forever(poll_interval=0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
