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
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector

from rlvr import console
from rlvr.artifacts import directory
from rlvr.errors import InputError
from rlvr.tracking.metrics_tail import MetricsTail

PORT = 9460
STALE_AFTER_S = 2 * 3600.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

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


class Exporter(Collector):
    """The metrics of all runs. Usable from any thread.

    Args:
        folder: a run directory, or a folder of run directories.
        stale_after_s: runs that have written nothing for so long are left out, so that their curves end.
    """

    def __init__(self, folder: Path, stale_after_s: float = STALE_AFTER_S) -> None:
        self.folder = folder
        self.stale_after_s = stale_after_s
        # Of each run: its file, and the latest value of each key.
        self._runs: dict[Path, tuple[MetricsTail, dict[str, float]]] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            self._runs = dict(self._active_runs())
            # Of keys with equal names and labels, the first counts: Prometheus rejects duplicates.
            families: dict[str, dict[Labels, float]] = {RUNS: {(): len(self._runs)}}
            for folder in sorted(self._runs):
                # The real name of the folder, which may be given as ".".
                name = folder.resolve().name
                for metric, labels, value in self._samples(folder):
                    # A model may write a lone surrogate, which can't be encoded.
                    texts = ((label, text.encode(errors="replace").decode()) for label, text in labels)
                    families.setdefault(metric, {}).setdefault((("run", name), *texts), value)
        for metric, help_text in HELP.items():
            family = Metric(metric, help_text, "gauge")
            for labels, value in families.get(metric, {}).items():
                family.add_sample(metric, dict(labels), value)
            if family.samples:
                yield family

    def _active_runs(self) -> Iterator[tuple[Path, tuple[MetricsTail, dict[str, float]]]]:
        for path in (self.folder / "metrics.jsonl", *self.folder.glob("*/metrics.jsonl")):
            try:
                status = path.stat()
            except OSError:  # missing, or removed meanwhile
                continue
            if time.time() - status.st_mtime <= self.stale_after_s:
                run = self._runs.get(path.parent)
                # A resumed run, or a new one, replaces the file.
                yield path.parent, run if run and run[0].is_same_file(status) else (MetricsTail(path), {})

    def _samples(self, folder: Path) -> Iterator[tuple[str, Labels, float]]:
        """Read the new lines of a run. null (a value that could not be computed) becomes NaN."""
        tail, latest = self._runs[folder]
        for line in tail.lines():
            for key, value in line.items():
                if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                    latest[key] = math.nan if value is None else float(value)
        for key, value in latest.items():
            yield *metric_of(key), value
        with contextlib.suppress(InputError):  # of a later version: its metrics are still valid
            if status := directory.read_status(folder):
                yield STATUS, (("status", str(status["status"])),), 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    program = "python -m rlvr.tracking.prometheus_exporter"
    parser = argparse.ArgumentParser(program, description=__doc__, formatter_class=console.HelpFormatter)
    folders = "a run directory, or a folder of them; default: runs"
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help=folders)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: loopback")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any free port")
    stale = f"leave out runs that have written nothing for so long; default: {STALE_AFTER_S:g}"
    parser.add_argument("--stale_after_s", type=float, default=STALE_AFTER_S, metavar="S", help=stale)
    options = parser.parse_args(arguments)
    folder, host, port = options.folder, options.host, options.port
    if folder.exists() and not folder.is_dir():
        console.error(f"{folder} is a file. Give a run directory, or a folder of run directories.")
        return 2
    registry = CollectorRegistry()
    registry.register(Exporter(folder, options.stale_after_s))
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # for sigwait; before threads inherit the mask
    try:
        server, _ = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        console.error(f"Can't listen on {host}, port {port}: {error}. Choose another --host or --port.")
        return 2
    console.info(f"Serving the metrics of {folder} on http://{host}:{server.server_address[1]}/metrics")
    if not folder.exists():
        console.info(f"  {folder} does not exist yet. Metrics appear when a run writes into it.")
    signal.sigwait(STOP_SIGNALS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
