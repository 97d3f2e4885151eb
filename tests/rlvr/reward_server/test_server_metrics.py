"""The server's metrics."""

from __future__ import annotations

import math

from rlvr.reward_server.server_metrics import Metrics


def test_counters_only_rise_and_any_text_is_a_label() -> None:
    metrics = Metrics()
    metrics.add("grpo_rows_total", 'a "name"\\ of\nlines \ud800', by=2.5)
    for by in (math.nan, math.inf, -1.0):
        metrics.add("grpo_rows_total", "b", by=by)
    for seconds in (0.001, 0.3, 1e9):
        metrics.observe_request("/score", seconds)
    metrics.set_gauge("grpo_ready", lambda: 1.0)
    lines = metrics.page().decode().splitlines()
    assert 'grpo_rows_total{reward="a \\"name\\"\\\\ of\\nlines ?"} 2.5' in lines
    assert not any('reward="b"' in line for line in lines)
    assert 'grpo_request_seconds_bucket{le="0.5",path="/score"} 2.0' in lines
    assert 'grpo_request_seconds_bucket{le="+Inf",path="/score"} 3.0' in lines
    assert "grpo_ready 1.0" in lines
