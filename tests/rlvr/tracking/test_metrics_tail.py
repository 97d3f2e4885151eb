"""Names of metrics. test_prometheus_exporter.py tests how the lines of a growing file are read."""

from __future__ import annotations

import pytest

from rlvr.tracking.metrics_tail import metric_name, metrics_of


@pytest.mark.parametrize(
    ("key", "name", "why"),
    [
        ("rewards/math_correctness/mean", "rewards/math_correctness/mean", "as it is"),
        ("profiling/Time taken: step", "profiling/Time taken: step", "what MLflow accepts stays"),
        ("reward (mean)", "reward _mean_", "brackets"),
        ("/rewards//a/../b", "rewards/b", "MLflow refuses paths with detours"),
        ("größe", "größe", "letters of any language"),
        ("", "_", "nothing"),
    ],
)
def test_metric_names_are_accepted_by_mlflow(key: str, name: str, why: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert metric_name(key) == name, why
    _validate_metric_name(metric_name(key))


def test_two_metrics_never_get_one_name() -> None:
    line = {"step": 3, "time": 1.5, "a(b": 1, "a)b": 2, "none": None, "words": "x", "yes": True}
    assert metrics_of(line) == {"a_b": 1.0, "a_b_": 2.0}
