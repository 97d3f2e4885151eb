"""Export the latest metrics of training runs to Prometheus.

    python -m rlvr.tracking.prometheus_exporter runs

Serves /metrics with the last values of one run directory, or of all run directories in a folder. It reads metrics.jsonl
when Prometheus scrapes it, so training never waits. Steps between two scrapes are in metrics.jsonl only. It listens on
loopback by default, and answers without a key. See docs/monitoring.md. Exit codes: 0 stopped; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rlvr import console
from rlvr.artifacts import directory
from rlvr.errors import InputError
from rlvr.tracking.metrics_tail import MetricsTail

PORT = 9460
STALE_AFTER_S = 2 * 3600.0  # runs that have written nothing for so long are left out, so that their curves end
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Exporter(Collector):
    """The metrics of all runs in a folder, or of one run directory. Usable from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "1 for the status in run.json: running, interrupted, failed, trained or done."
        status = GaugeMetricFamily("grpo_training_status", text, labels=("run", "status"))
        text = "The last value of a metric, by its name in metrics.jsonl (docs/monitoring.md)."
        metric = GaugeMetricFamily("grpo_training_metric", text, labels=("run", "name"))
        # The real name of the folder, which may be given as ".". Prometheus rejects a name that comes twice.
        runs = {folder.resolve().name: folder for folder in self._active_runs()}
        for name, folder in runs.items():
            for key, value in latest_metrics(folder).items():
                metric.add_metric((name, key), value)
            with contextlib.suppress(InputError):  # of a later version: its metrics are still valid
                if facts := directory.read_status(folder):
                    status.add_metric((name, str(facts["status"])), 1.0)
        yield GaugeMetricFamily("grpo_training_runs", "Exported runs.", len(runs))
        yield status
        yield metric

    def _active_runs(self) -> Iterator[Path]:
        for path in (self.folder / "metrics.jsonl", *self.folder.glob("*/metrics.jsonl")):
            with contextlib.suppress(OSError):  # missing, or removed meanwhile
                if time.time() - path.stat().st_mtime <= STALE_AFTER_S:
                    yield path.parent


def latest_metrics(folder: Path) -> dict[str, float]:
    """The latest value of each metric of a run. null (a value that could not be computed) becomes NaN."""
    latest: dict[str, float] = {}
    for line in MetricsTail(folder / "metrics.jsonl").lines():
        for key, value in line.items():
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                # A model may write a lone surrogate, which can't be encoded.
                latest[key.encode(errors="replace").decode()] = math.nan if value is None else float(value)
    return latest


def main(arguments: Sequence[str] | None = None) -> int:
    program = "python -m rlvr.tracking.prometheus_exporter"
    parser = argparse.ArgumentParser(program, description=__doc__, formatter_class=console.HelpFormatter)
    folders = "a run directory, or a folder of them; default: runs"
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help=folders)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: loopback")
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any free port")
    options = parser.parse_args(arguments)
    folder, host, port = options.folder, options.host, options.port
    registry = CollectorRegistry()
    registry.register(Exporter(folder))
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # for sigwait; before threads inherit the mask
    try:
        server, _ = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        console.error(f"Can't listen on {host}, port {port}: {error}. Choose another --host or --port.")
        return 2
    console.info(f"Serving the metrics of {folder} on http://{host}:{server.server_address[1]}/metrics")
    signal.sigwait(STOP_SIGNALS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
