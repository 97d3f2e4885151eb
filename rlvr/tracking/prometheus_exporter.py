"""The figures of training runs for Prometheus: python -m rlvr.tracking.prometheus_exporter runs

Serves /metrics with the latest figures of every run directory in a folder, or of one run directory. It is a process of
its own that reads metrics.jsonl when it is asked: so no step of a training waits for it, a run need not know that it is
watched, and one exporter does for all runs of a machine. What falls between two questions is in metrics.jsonl alone. It
listens on this machine's own loopback unless told otherwise, and answers whoever can connect. docs/dashboards.md says
the rest. Exit codes: 0 ended as told; 2 what it was started with is wrong.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rlvr import console
from rlvr.artifacts import directory
from rlvr.errors import InputError
from rlvr.tracking import prometheus_format
from rlvr.tracking.mlflow_ledger import Tail

PORT = 9460
FORGET_AFTER_S = 2 * 3600.0
_CLIENT_S = 10.0  # for a client to say what it wants

HELP: Mapping[str, str] = {
    "grpo_training_runs": "Runs whose figures are served.",
    "grpo_training_status": "1 for what run.json says of the run: running, interrupted, failed, trained or done.",
    "grpo_training_step": "The step of the last log line.",
    "grpo_training_epoch": "Passes over the data, so far.",
    "grpo_training_last_log_timestamp_seconds": "When the last log line was written, in Unix time.",
    "grpo_training_tokens": "Tokens seen so far; falls back when a run is resumed from an earlier step.",
    "grpo_training_reward": "Weighted sum of the rewards over the completions of a step.",
    "grpo_training_reward_part": "One reward without its weight, over the completions of a step.",
    "grpo_training_unscored_ratio": "Share of the completions that a reward could not score, which are masked.",
    "grpo_training_groups_without_spread_ratio": "Share of the groups whose completions all got the same reward.",
    "grpo_training_advantage": "What the completions are pushed by.",
    "grpo_training_completion_tokens": "Lengths of the completions.",
    "grpo_training_ended_completion_tokens": "Lengths of the completions that ended by themselves.",
    "grpo_training_prompt_tokens": "Lengths of the prompts.",
    "grpo_training_cut_off_ratio": "Share of the completions that hit the limit of their length.",
    "grpo_training_duplicates_ratio": "Share of the completions that repeat another one of their group.",
    "grpo_training_step_seconds": "Time of a step.",
    "grpo_training_phase_seconds": "Time of a part of a step; rewards: the slowest process's.",
    "grpo_training_loss": "The loss, which says nothing in GRPO as long as it is finite.",
    "grpo_training_learning_rate": "As scheduled.",
    "grpo_training_gradient_norm": "The gradient before clipping.",
    "grpo_training_entropy_nats": "How undecided the model is about a token.",
    "grpo_training_kl_nats": "Distance of the model, a token, from the one that is named.",
    "grpo_training_clipped_tokens_ratio": "Share of the tokens whose update is clipped.",
    "grpo_training_verdict_ratio": "Share of all tests of programs, by reward and verdict.",
    "grpo_training_validation_accuracy_ratio": "Greedy accuracy on validation rows.",
    "grpo_training_validation_source_accuracy_ratio": "The same, by source of the rows.",
    "grpo_training_validation_reward": "The weighted sum of the rewards on validation rows.",
    "grpo_training_figure": "Every other figure, by its name in metrics.jsonl.",
}

# A figure's name in metrics.jsonl -> a metric's; groups of the pattern become labels. The first that fits counts;
# what fits none is grpo_training_figure.
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


def metric_of(figure: str) -> tuple[str, Labels]:
    """The metric that a figure of metrics.jsonl becomes, and its labels."""
    for pattern, name in _NAMES:
        found = pattern.fullmatch(figure)
        if found is None:
            continue
        labels = found.groupdict()
        if name == "grpo_training_reward":
            labels["statistic"] = labels["statistic"] or "mean"
        if name == "grpo_training_kl_nats":
            labels = {"reference": "generating policy" if labels["of"] else "starting model"}
        if "verdict" in labels:
            labels["verdict"] = labels["verdict"].upper()
        return name, tuple(labels.items())
    return "grpo_training_figure", (("figure", figure),)


class ExportedRun:
    """The latest figures of a run directory."""

    def __init__(self, folder: Path, inode: int) -> None:
        self.folder = folder
        self.inode = inode
        self.tail = Tail(folder / "metrics.jsonl")
        self.figures: dict[str, float] = {}

    def is_still(self, found: os.stat_result) -> bool:
        """Whether the file is the one that was read, and not cut by a resumption or of a new run."""
        return found.st_ino == self.inode and found.st_size >= self.tail.done

    def read(self) -> None:
        """Takes in what was written since; null, which stands for a figure that could not be computed, is NaN."""
        before = -1
        while before != self.tail.done:
            before = self.tail.done
            for end, line in self.tail.lines():
                self.tail.done = end
                for figure, value in line.items():
                    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                        self.figures[figure] = math.nan if value is None else float(value)

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        for figure, value in self.figures.items():
            yield *metric_of(figure), value
        try:
            status = (directory.read_status(self.folder) or {}).get("status")
        except InputError:  # of a later version: its figures are still figures
            status = None
        if status is not None:
            yield "grpo_training_status", (("status", str(status)),), 1.0


class Exporter:
    """The page of all runs; usable from any thread.

    Args:
        folder: a run directory, or a folder of run directories.
        forget_after_s: a run that has written nothing for so long is left out, so that its curves end.
    """

    def __init__(self, folder: Path, forget_after_s: float = FORGET_AFTER_S) -> None:
        self.folder = folder
        self.forget_after_s = forget_after_s
        self._runs: dict[Path, ExportedRun] = {}
        self._lock = threading.Lock()

    def page(self) -> str:
        """In the text format of Prometheus."""
        with self._lock:
            self._find_runs()
            # Of figures that become one and the same, the first counts: Prometheus refuses two.
            families: dict[str, dict[Labels, float]] = {"grpo_training_runs": {(): len(self._runs)}}
            for folder, run in sorted(self._runs.items()):
                run.read()
                # A folder's own name where it is the run itself, whatever it was called by: ".", say.
                name = folder.resolve().name
                for metric, labels, value in run.samples():
                    families.setdefault(metric, {}).setdefault((("run", name), *labels), value)
        lines: list[str] = []
        for metric, help_text in HELP.items():
            if metric in families:
                lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge"]
                lines += [prometheus_format.sample(metric, labels, value) for labels, value in families[metric].items()]
        return "\n".join(lines) + "\n"

    def _find_runs(self) -> None:
        now = time.time()
        found = {}
        for path in (self.folder / "metrics.jsonl", *self.folder.glob("*/metrics.jsonl")):
            try:
                file = path.stat()
            except OSError:  # not there, or gone meanwhile
                continue
            if now - file.st_mtime > self.forget_after_s:
                continue
            run = self._runs.get(path.parent)
            found[path.parent] = (
                run if run is not None and run.is_still(file) else ExportedRun(path.parent, file.st_ino)
            )
        self._runs = found


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], exporter: Exporter) -> None:
        self.exporter = exporter
        super().__init__(address, _Answering)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a client that is gone, as one is that waited too long for a first page."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Answering(BaseHTTPRequestHandler):
    timeout = _CLIENT_S
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            self._answer(200, self.server.exporter.page(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._answer(404, "The figures are at /metrics.\n", "text/plain; charset=utf-8")

    def _answer(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing of what works: it is asked every few seconds."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rlvr.tracking.prometheus_exporter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), help="of a run, or of runs; default: runs"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; default: this machine alone")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any that is free")
    parser.add_argument(
        "--forget-after-s", type=float, default=FORGET_AFTER_S, metavar="S",
        help=f"leave out runs that have written nothing for so long; default: {FORGET_AFTER_S:g}",
    )  # fmt: skip
    options = parser.parse_args(words)
    try:
        return _serve(options.folder, options.host, options.port, options.forget_after_s)
    except InputError as error:
        console.error(str(error))
        return 2


def _serve(folder: Path, host: str, port: int, forget_after_s: float) -> int:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give the folder of a run, or the one that has the run directories.")
    try:
        server = _Server((host, port), Exporter(folder, forget_after_s))
    except (OSError, OverflowError) as error:
        raise InputError(f"Can't listen on {host}, port {port}: {error}. Choose another --host or --port.") from error
    for name in (signal.SIGTERM, signal.SIGINT):
        # Not from the handler's own thread, which is the one that serves: it would wait for itself.
        signal.signal(name, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        console.info(f"Serving the figures of {folder} on http://{host}:{server.server_address[1]}/metrics")
        if not folder.exists():
            console.info(f"  {folder} isn't there yet: there will be figures as soon as a run writes into it.")
        server.serve_forever(poll_interval=0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
