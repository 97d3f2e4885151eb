"""Accuracy by shots and pass@k on the page, also from malformed files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.artifacts.evaluation import Evaluation, Sweep, from_json
from rlvr.evaluation.scores import summarise
from rlvr.evaluation.shot_sweep import write_sweep
from rlvr.report.evaluation_extras import pass_at_k, sweep
from rlvr.report.page import write_report
from tests.support.report_runs import read, record, write_run


def results(right: int) -> Any:
    records = [{**record(row, row < right), "lenient": row < right, "formatted": True} for row in range(10)]
    return summarise(records, ["math_correctness"]), records


@pytest.fixture
def swept(tmp_path: Path) -> dict[str, Any]:
    about = {"model": "m", "task": {"name": "gsm8k", "shots": 2}, "split": "test", "metric": "x", "decoding": "greedy"}
    return write_sweep(
        tmp_path / "sweep",
        {**about, "reference": {"score": 0.9, "source": "its card"}},
        {shots: {"base": results(shots), "trained": results(8)} for shots in (0, 2, 4)},
    )


def test_a_sweep_is_a_row_for_each_number_of_shots_and_a_chart(swept: dict[str, Any]) -> None:
    content = from_json(Sweep, json.loads(json.dumps(swept)))
    found = sweep(content)
    assert found is not None
    assert found.header == ("base", "trained", "change")
    assert [row[0] for row in found.rows] == ["0", "2", "4"]
    assert found.rows[1][1].startswith("20.0 % (") and found.rows[1][3].startswith("+60.0 (")
    assert "var(--base)" in found.svg and "var(--trained)" in found.svg
    [warning] = content.warnings
    assert "suspect" in warning


def test_the_sweep_and_pass_at_k_are_on_the_page(tmp_path: Path, swept: dict[str, Any]) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 4, trained=[True] * 4)
    (folder / "sweep.json").write_text(json.dumps(swept), encoding="utf-8")
    path = folder / "evaluation.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    value = {"value": 0.5, "interval": {"low": 0.25, "high": 0.75}, "rows": 4}
    content["pass_at_k"] = {"samples": 2, "decoding": "sampled at temperature 1", "base": {"1": value, "2": value}}
    content["warnings"] = ["The evaluation is <b>suspect</b>."]
    content["reference"] = {"score": 0.416, "source": "its model card"}
    path.write_text(json.dumps(content), encoding="utf-8")
    text = read(write_report(folder)).text.replace("\u00a0", " ")
    for words in (
        "Accuracy by number of shots",
        "at least one right answer among k sampled answers",
        "50.0 % (25.0 … 75.0)",
        "2 samples a row, sampled at temperature 1",
        "The evaluation is <b>suspect</b>.",
        "Published for the base model: 41.6 % (its model card); measured here: 0.0 %.",
    ):
        assert words in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["base", "1", "value", "interval", "low"]), inner),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, JSON)
def test_malformed_parts_break_nothing(one: Any, other: Any) -> None:
    with suppress(ValueError):
        sweep(from_json(Sweep, {"points": [{"shots": one, "base": other}, one], "warnings": other}))
    with suppress(ValueError):
        section = {"samples": 2, "decoding": "", "base": {"1": one}, "trained": other, "difference": one}
        pass_at_k(from_json(Evaluation, {"pass_at_k": section}))
