"""Pass@k on the page, also from malformed files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.artifacts.evaluation import Evaluation, from_json
from rlvr.artifacts.evaluation_summary import pass_at_k_table
from rlvr.report.page import write_report
from tests.support.report_runs import read, write_run


def test_pass_at_k_and_the_published_score_are_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 4, trained=[True] * 4)
    path = folder / "evaluation.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    value = {"value": 0.5, "interval": {"low": 0.25, "high": 0.75}, "rows": 4}
    content["pass_at_k"] = {"samples": 2, "decoding": "sampled at temperature 1", "base": {"1": value, "2": value}}
    content["warnings"] = ["The evaluation is <b>suspect</b>."]
    content["reference"] = {"score": 0.416, "source": "its model card"}
    path.write_text(json.dumps(content), encoding="utf-8")
    text = read(write_report(folder)).text.replace("\u00a0", " ")
    for words in (
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
        section = {"samples": 2, "decoding": "", "base": {"1": one}, "trained": other, "difference": one}
        pass_at_k_table(from_json(Evaluation, {"pass_at_k": section}))
