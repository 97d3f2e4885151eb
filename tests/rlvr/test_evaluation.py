"""The statistics are right, and base and adapter go through one honest code path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.evaluation import compare, paired_difference, results_table, summarise, wilson, write_evaluation


@pytest.mark.parametrize(
    ("correct", "rows", "low", "high", "why"),
    [
        (0, 10, 0.0, 0.2775, "none right still leaves room above"),
        (10, 10, 0.7225, 1.0, "all right still leaves room below"),
        (81, 263, 0.2553, 0.3662, "Newcombe 1998, table I: 81 of 263"),
        (15, 148, 0.0624, 0.1605, "Newcombe 1998, table I: 15 of 148"),
        (1, 29, 0.0061, 0.1718, "Newcombe 1998, table I: 1 of 29"),
    ],
)
def test_wilson_agrees_with_published_values(correct: int, rows: int, low: float, high: float, why: str) -> None:
    interval = wilson(correct, rows)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high), why


@given(st.integers(1, 2000), st.data())
def test_wilson_holds_its_own_estimate(rows: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, rows))
    interval = wilson(correct, rows)
    assert 0 <= interval.low <= correct / rows <= interval.high <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_a_paired_difference_is_antisymmetric_and_within_its_interval(pairs: list[tuple[bool, bool]]) -> None:
    base, trained = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = paired_difference(base, trained), paired_difference(trained, base)
    assert there.points == -back.points and there.gained == back.lost
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert -1 <= there.interval.low <= there.interval.high <= 1


def test_a_difference_of_rows_that_did_not_change_is_no_difference() -> None:
    same = [True] * 30 + [False] * 70
    found = paired_difference(same, same)
    assert found.points == 0 and found.interval.low < 0 < found.interval.high


def record(correct: bool | None, **kwargs: object) -> dict[str, object]:
    return {"row": 0, "correct": correct, "tokens": 10, "ended": True, "rewards/r": 1.0, "source": "a", **kwargs}


def test_rows_that_could_not_be_scored_are_counted_apart() -> None:
    score = summarise([record(True), record(False), record(None), record(True, ended=False, source="b")], ["r"])
    assert (score.rows, score.correct, score.unscored, score.cut_off) == (3, 2, 1, 0.25)
    assert score.by_source["a"]["accuracy"] == 0.5 and score.by_source["b"]["rows"] == 1


def test_a_comparison_leaves_out_rows_that_either_side_could_not_score() -> None:
    base = [record(True), record(None), record(False)]
    trained = [record(True), record(True), record(True)]
    assert compare(base, trained).points == 0.5


def test_an_evaluation_is_written_whole(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    base, trained = [record(False), record(True)], [record(True), record(True)]
    results = {name: (summarise(rows, ["r"]), rows) for name, rows in (("base", base), ("trained", trained))}
    about = {"split": "test", "metric": "r", "task": {"name": "t"}, "decoding": "greedy"}
    content = write_evaluation(tmp_path, about, results)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == content
    assert content["base"]["accuracy"] == 0.5 and content["difference"]["points"] == 0.5
    assert pq.read_table(tmp_path / "completions" / "evaluation_base.parquet").num_rows == 2
    text = results_table(content)
    assert "50.0 %" in text and "100.0 %" in text and "+50.0 points" in text


def test_golds_that_the_metric_cannot_read_end_the_run_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import run_grpo

    rows = [json.dumps({"prompt": f"What is {n} + {n}?", "final_answer": "quite a lot"}) for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    demo = Path(__file__).resolve().parents[2] / "recipes" / "demo-arithmetic.yaml"
    words = ["--config", str(demo), "--task", f"{{name: jsonl, path: {tmp_path}/rows.jsonl, style: chat}}"]
    code = run_grpo.main([*words, "--output_dir", str(tmp_path / "run"), "--report_to", "none"])
    assert code == 2
    said = capsys.readouterr().err
    assert "'quite a lot'" in said and "rows-train-0" in said
    assert not (tmp_path / "run").exists()
