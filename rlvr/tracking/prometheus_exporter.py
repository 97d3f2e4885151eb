"""Export the latest metrics of training runs to Prometheus.

    python -m rlvr.tracking.prometheus_exporter runs

Serves /metrics with the last values of one run directory, or of all run directories in a folder. It reads metrics.jsonl
when Prometheus scrapes it, so training never waits. Steps between two scrapes are in metrics.jsonl only. It listens on
loopback by default, and answers without a key. See docs/dashboards.md. Exit codes: 0 stopped; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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

HELP: Mapping[str, str] = {
    "grpo_training_runs": "Exported runs.",
    "grpo_training_status": "1 for the status in run.json: running, interrupted, failed, trained or done.",
    "grpo_training_step": "The step of the last log line.",
    "grpo_training_epoch": "Passes over the data, so far.",
    "grpo_training_last_log_timestamp_seconds": "Time of the last log line, in Unix time.",
    "grpo_training_tokens": "Tokens seen so far; falls back when a run is resumed from an earlier step.",
    "grpo_training_reward": "Weighted sum of the rewards over the completions of a step.",
    "grpo_training_reward_part": "One reward without its weight, over the completions of a step.",
    "grpo_training_unscored_ratio": "Share of the completions that a reward could not score, which are masked.",
    "grpo_training_groups_without_spread_ratio": "Share of the groups whose completions all got the same reward.",
    "grpo_training_advantage": "Advantages of the completions.",
    "grpo_training_completion_tokens": "Lengths of the completions.",
    "grpo_training_ended_completion_tokens": "Lengths of the completions that ended by themselves.",
    "grpo_training_prompt_tokens": "Lengths of the prompts.",
    "grpo_training_cut_off_ratio": "Share of the completions that hit the limit of their length.",
    "grpo_training_duplicates_ratio": "Share of the completions that repeat another one of their group.",
    "grpo_training_step_seconds": "Time of a step.",
    "grpo_training_phase_seconds": "Time of a part of a step; rewards: the slowest process's.",
    "grpo_training_loss": "The loss. In GRPO it only has to be finite.",
    "grpo_training_learning_rate": "Learning rate of the schedule.",
    "grpo_training_gradient_norm": "Norm of the gradient before clipping.",
    "grpo_training_entropy_nats": "Entropy of the policy, a token.",
    "grpo_training_kl_nats": "KL divergence from the reference, a token.",
    "grpo_training_clipped_tokens_ratio": "Share of the tokens whose update is clipped.",
    "grpo_training_verdict_ratio": "Share of all tests of programs, by reward and verdict.",
    "grpo_training_validation_accuracy_ratio": "Greedy accuracy on validation rows.",
    "grpo_training_validation_source_accuracy_ratio": "The same, by source of the rows.",
    "grpo_training_validation_reward": "The weighted sum of the rewards on validation rows.",
    "grpo_training_figure": "Any other metric, by its name in metrics.jsonl.",
}

# Name in metrics.jsonl -> Prometheus' name; groups become labels. The first match counts; without one the metric is
# grpo_training_figure.
_NAMES: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern, re.DOTALL), f"grpo_training_{name}")
    for pattern, name in (
        (r"step", "step"),
        (r"epoch", "epoch"),
        (r"time", "last_log_timestamp_seconds"),
        (r"num_tokens", "tokens"),
        (r"rewards/unscored_fraction", "unscored_ratio"),
        (r"rewards/(?P<reward>.+)/(?P<statistic>mean|std|min|max)", "reward_part"),
        (r"reward(?:[/_](?P<statistic>std|min|max))?", "reward"),
        (r"frac_reward_zero_std", "groups_without_spread_ratio"),
        (r"advantages/(?P<statistic>mean|std|min|max|abs_mean)", "advantage"),
        (r"completions/(?P<statistic>mean|min|max)_length", "completion_tokens"),
        (r"completions/(?P<statistic>mean|min|max)_terminated_length", "ended_completion_tokens"),
        (r"prompts/(?P<statistic>mean|min|max)_length", "prompt_tokens"),
        (r"completions/clipped_ratio", "cut_off_ratio"),
        (r"completions/duplicate_fraction", "duplicates_ratio"),
        (r"step_time", "step_seconds"),
        (r"time/(?P<phase>.+)", "phase_seconds"),
        (r"loss", "loss"),
        (r"learning_rate", "learning_rate"),
        (r"grad_norm", "gradient_norm"),
        (r"entropy", "entropy_nats"),
        (r"(?P<of>policy_)?kl", "kl_nats"),
        (r"clip_ratio/(?P<side>region|low|high)_(?P<statistic>mean|min|max)", "clipped_tokens_ratio"),
        (r"(?P<reward>.+)/verdict_(?P<verdict>[a-z]+)", "verdict_ratio"),
        (r"eval_accuracy", "validation_accuracy_ratio"),
        (r"eval_(?P<source>.+)/accuracy", "validation_source_accuracy_ratio"),
        (r"eval_reward", "validation_reward"),
    )
]
Labels = tuple[tuple[str, str], ...]


def metric_of(key: str) -> tuple[str, Labels]:
    """Prometheus' name and labels of a key of metrics.jsonl."""
    for pattern, name in _NAMES:
        match = pattern.fullmatch(key)
        if match is None:
            continue
        labels = match.groupdict()
        if name == "grpo_training_reward":
            labels["statistic"] = labels["statistic"] or "mean"
        if name == "grpo_training_kl_nats":
            labels = {"reference": "generating policy" if labels["of"] else "starting model"}
        if "verdict" in labels:
            labels["verdict"] = labels["verdict"].upper()
        return name, tuple(labels.items())
    return "grpo_training_figure", (("figure", key),)


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
        try:
            status = (directory.read_status(self.folder) or {}).get("status")
        except InputError:  # of a later version: its metrics are still valid
            status = None
        if status is not None:
            yield "grpo_training_status", (("status", str(status)),), 1.0


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
            families: dict[str, dict[Labels, float]] = {"grpo_training_runs": {(): len(self._runs)}}
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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), help="a run directory, or a folder of them; default: runs"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: loopback")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any free port")
    parser.add_argument(
        "--stale_after_s", type=float, default=STALE_AFTER_S, metavar="S",
        help=f"leave out runs that have written nothing for so long; default: {STALE_AFTER_S:g}",
    )  # fmt: skip
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(console.replace_former_flags(arguments, {"--forget-after-s": "--stale_after_s"}))
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
