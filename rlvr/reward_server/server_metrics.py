"""Metrics of the server, for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import prometheus_client as prometheus

# Seconds: a trivial score takes milliseconds, a batch of programs minutes.
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
CONTENT_TYPE = prometheus.CONTENT_TYPE_PLAIN_0_0_4

# name: (help, labels)
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "grpo_requests_total": ("Requests answered, by path and status.", ("path", "status")),
    "grpo_requests_refused_total": ("Requests refused before their body was parsed.", ("reason",)),
    "grpo_rows_total": ("Rows scored, by reward.", ("reward",)),
    "grpo_rows_unscored_total": ("Rows without a value, by reward.", ("reward",)),
    "grpo_reward_sum_total": ("Sum of the values above 0; its rate over that of the rows is their mean.", ("reward",)),
    "grpo_calls_total": ("Calls of rewards, by outcome.", ("reward", "outcome")),
    "grpo_figure_sum_total": ("Sum over rows of what rewards log (log_metric), by its name.", ("figure",)),
    "grpo_figure_rows_total": ("Rows for which rewards logged it.", ("figure",)),
    "grpo_programs_total": ("Programs judged by /judge, by language.", ("language",)),
    "grpo_verdicts_total": ("Tests of /judge, by verdict.", ("verdict",)),
    "grpo_program_cpu_seconds_total": ("CPU time of the programs of /judge.", ()),
}
_GAUGES: Mapping[str, str] = {
    "grpo_requests_in_flight": "Requests that are being read or answered.",
    "grpo_workers": "Worker processes of each group of rewards, and of the judge.",
    "grpo_workers_busy": "Busy worker processes.",
    "grpo_calls_waiting": "Calls that wait for a worker.",
    "grpo_ready": "1 while the server accepts requests.",
}
prometheus.disable_created_metrics()  # a second series for each counter, which no dashboard reads


class Metrics:
    """Counters, gauges and a histogram. Usable from any thread."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        self._counters = {
            name: prometheus.Counter(name, text, labels, registry=registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        text = "From the last byte of a request to its answer."
        self._seconds = prometheus.Histogram("grpo_request_seconds", text, ["path"], buckets=BUCKETS, registry=registry)

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Add to a counter. Negative values, NaN and infinity are ignored: a counter only rises."""
        if by >= 0 and math.isfinite(by):
            # A model may write a lone surrogate, which can't be encoded.
            texts = [label.encode(errors="replace").decode() for label in labels]
            (self._counters[name].labels(*texts) if texts else self._counters[name]).inc(by)

    def observe_request(self, path: str, seconds: float) -> None:
        self._seconds.labels(path).observe(seconds)

    def set_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Set the function that reads a gauge, called for each page."""
        prometheus.Gauge(name, _GAUGES[name], registry=self._registry).set_function(read)

    def page(self) -> bytes:
        return prometheus.generate_latest(self._registry)
