"""The server's metrics in Prometheus' text format."""

from __future__ import annotations

import math
import re

from rlvr.reward_server.metrics import Metrics

_SAMPLE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? (\d+|\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)')


def test_the_page_is_valid_in_prometheus_text_format() -> None:
    metrics = Metrics()
    metrics.add("grpo_rows_total", 'a "name"\\ of\nlines', by=2.5)
    metrics.add("grpo_rows_total", "b", by=math.nan)
    metrics.add("grpo_rows_total", "b", by=-1)
    for value in (0.001, 0.3, 1e9):
        metrics.observe("grpo_request_seconds", "/score", value=value)
    metrics.set_gauge("grpo_ready", lambda: 1.0)
    lines = metrics.page().splitlines()
    assert all(_SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")), lines
    assert 'grpo_request_seconds_bucket{path="/score",le="0.5"} 2' in lines
    assert 'grpo_request_seconds_bucket{path="/score",le="+Inf"} 3' in lines
    assert 'grpo_rows_total{reward="b"}' not in "\n".join(lines), "a counter only rises"
    assert len([line for line in lines if line.startswith("# TYPE grpo_request_seconds ")]) == 1
