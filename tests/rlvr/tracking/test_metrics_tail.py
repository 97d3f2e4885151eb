"""The lines of a growing metrics.jsonl, and the names of metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.tracking.metrics_tail import MetricsTail, metric_name, metrics_of


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


def test_only_numbers_are_metrics() -> None:
    line = {"step": 3, "time": 1.5, "a(b": 1, "none": None, "words": "x", "yes": True}
    assert metrics_of(line) == {"a_b": 1.0}


def test_complete_new_lines_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert [*tail.lines()] == [], "the file does not exist yet"
    for part, steps in (('{"step": 1}\n{"step": 2, "lo', [1]), ('ss": 1.0}', []), ("\n", [2])):
        with path.open("a") as file:
            file.write(part)
        assert [line["step"] for line in tail.lines()] == steps
    path.write_text('{"step": 1}\n')
    assert [line["step"] for line in tail.lines()] == [1], "truncated: the run is resumed from a checkpoint"
    other = tmp_path / "new"
    other.write_text("".join(f'{{"step": {step}}}\n' for step in range(1, 9)))
    other.replace(path)
    assert len([*tail.lines()]) == 8, "a new run has another file, which is longer"
