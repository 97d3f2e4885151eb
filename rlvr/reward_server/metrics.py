"""Metrics of the server, in Prometheus' text format."""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Callable, Mapping, Sequence

from rlvr.tracking.prometheus_format import sample

# Seconds: a trivial score takes milliseconds, a batch of programs minutes.
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_Labels = tuple[str, ...]

# name: (type, help, labels)
_METRICS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "grpo_requests_total": ("counter", "Requests answered, by path and status.", ("path", "status")),
    "grpo_request_seconds": ("histogram", "From the last byte of a request to its answer.", ("path",)),
    "grpo_requests_refused_total": ("counter", "Requests refused before their body was parsed.", ("reason",)),
    "grpo_requests_repeated_total": ("counter", "Repeated requests that were answered without new work.", ()),
    "grpo_requests_in_flight": ("gauge", "Requests that are being read or answered.", ()),
    "grpo_bytes_in_flight": ("gauge", "Bytes of the requests that are being read or answered.", ()),
    "grpo_rows_total": ("counter", "Rows scored, by reward.", ("reward",)),
    "grpo_rows_unscored_total": ("counter", "Rows without a value, by reward.", ("reward",)),
    "grpo_reward_sum_total": (
        "counter", "Sum of the values above 0; its rate over that of the rows is their mean.", ("reward",)
    ),
    "grpo_calls_total": ("counter", "Calls of rewards, by outcome.", ("reward", "outcome")),
    "grpo_figure_sum_total": ("counter", "Sum over rows of what rewards log (log_metric), by its name.", ("figure",)),
    "grpo_figure_rows_total": ("counter", "Rows for which rewards logged it.", ("figure",)),
    "grpo_programs_total": ("counter", "Programs judged by /judge, by language.", ("language",)),
    "grpo_verdicts_total": ("counter", "Tests of /judge, by verdict.", ("verdict",)),
    "grpo_program_cpu_seconds_total": ("counter", "CPU time of the programs of /judge.", ()),
    "grpo_workers": ("gauge", "Worker processes of each group of rewards, and of the judge.", ()),
    "grpo_workers_busy": ("gauge", "Busy worker processes.", ()),
    "grpo_calls_waiting": ("gauge", "Calls that wait for a worker.", ()),
    "grpo_ready": ("gauge", "1 while the server accepts requests.", ()),
}  # fmt: skip


class Metrics:
    """Counters, gauges and histograms. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[_Labels, float]] = {}
        self._histograms: dict[tuple[str, _Labels], tuple[list[int], list[float]]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        for name, (kind, _, labels) in _METRICS.items():
            if kind == "counter" and not labels:
                self._counters[name] = {(): 0.0}

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Add to a counter. Negative values, NaN and infinity are ignored: a counter only rises."""
        if not by >= 0 or math.isinf(by):
            return
        with self._lock:
            counter = self._counters.setdefault(name, {})
            counter[labels] = counter.get(labels, 0.0) + by

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Add a value to a histogram."""
        with self._lock:
            counts, total = self._histograms.setdefault((name, labels), ([0] * (len(BUCKETS) + 1), [0.0]))
            counts[bisect.bisect_left(BUCKETS, value)] += 1
            total[0] += value

    def set_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Set the function that reads a gauge, called for each page."""
        self._gauges[name] = read

    def page(self) -> str:
        lines: list[str] = []
        with self._lock:
            for name, (kind, help_text, labels) in _METRICS.items():
                samples = self._samples(name, kind, labels)
                if samples:
                    lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"

    def _samples(self, name: str, kind: str, labels: Sequence[str]) -> list[str]:
        if kind == "gauge":
            return [sample(name, (), self._gauges[name]())] if name in self._gauges else []
        if kind == "counter":
            counter = self._counters.get(name, {})
            return [sample(name, zip(labels, values, strict=True), counter[values]) for values in sorted(counter)]
        samples = []
        for (histogram, values), (counts, total) in sorted(self._histograms.items()):
            if histogram != name:
                continue
            pairs = list(zip(labels, values, strict=True))
            cumulative = 0
            for bound, count in zip((*BUCKETS, math.inf), counts, strict=True):
                cumulative += count
                edge = "+Inf" if math.isinf(bound) else f"{bound:g}"
                samples.append(sample(f"{name}_bucket", [*pairs, ("le", edge)], cumulative))
            samples += [sample(f"{name}_sum", pairs, total[0]), sample(f"{name}_count", pairs, cumulative)]
        return samples
