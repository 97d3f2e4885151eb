"""scripts/results.py: tables of runs, runs that can't be compared, and the README's table."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr.report.result_table import as_text, read_results, renew_readme
from rlvr.tracking.results import metrics_of_results
from scripts import results
from tests.conftest import REPOSITORY
from tests.support.report_runs import write_recorded_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a recipe, a third run that answered other rows, and files beside them."""
    folder = tmp_path_factory.mktemp("runs")
    write_recorded_run(folder / "b", "--seed", "1", trained=30)
    write_recorded_run(folder / "a")
    write_recorded_run(folder / "other", text="of another split")
    (folder / "mlflow.db").write_text("")
    (folder / "mlartifacts").mkdir()
    return folder


def test_shared_columns_are_above_and_differences_below(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr.console.columns", lambda stream: 80)
    assert results.main([str(runs / "b"), str(runs / "a"), str(runs / "a" / "result.json")]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    above, _, table = printed.partition("\n\n")
    assert above.startswith("model ") and "recipe demo-arithmetic" in above and "rows 40" in above
    assert "seed" not in above and "digest" not in above
    header, _, *rows = [line.split() for line in table.splitlines()]
    assert header[:2] == ["run", "accuracy"] and "seed" in header
    assert [row[0] for row in rows] == ["a", "b"], "sorted by seed"
    assert rows[1][1:6] == ["50.0", "%", "→", "75.0", "%"]


def test_runs_that_were_measured_differently_are_in_tables_of_their_own(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert results.main([*map(str, runs.iterdir()), "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 tables") and printed.count("\n| --- |") == 2


def test_other_programs_get_every_field(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(runs / "a"), str(runs / "b")]
    assert results.main([*words, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["evaluation.trained.accuracy"] for row in rows] == ["1.0", "0.75"]
    assert results.main([*words, "--json", "--out", str(tmp_path / "out.json")]) == 0
    records = json.loads((tmp_path / "out.json").read_text())
    assert [record["seeds"]["seed"] for record in records] == [0, 1]
    assert results.main([*words, "--out", str(tmp_path)]) == 2, "it is a folder"


def test_a_run_without_a_record_is_left_out_and_one_with_other_files_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "forged"):
        write_recorded_run(tmp_path / name)
    (tmp_path / "b" / "adapter" / "adapter_model.safetensors").write_text("other weights")
    record = tmp_path / "forged" / "result.json"
    record.write_text(record.read_text().replace('"correct": 20', '"correct": 0'))
    (tmp_path / "none").mkdir()
    assert results.main([*map(str, tmp_path.iterdir()), "--markdown"]) == 1
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 2 and "forged" in printed.err and "none" in printed.err
    assert "| ! b |" in printed.out and "\n! b: " in printed.out and "| a |" in printed.out
    assert results.main([str(tmp_path / "none")]) == 2


def test_of_several_tasks_the_mean_is_shown_as_in_the_run_and_its_report(tmp_path: Path) -> None:
    """A task with more rows counts as much as the others."""
    write_recorded_run(tmp_path / "mixed")
    [one], _ = read_results([tmp_path / "mixed"])
    interval = {"low": 0.1, "high": 0.3}
    parts = {"base": {"accuracy": 0.2, "interval": interval}, "trained": {"accuracy": 0.3, "interval": interval}}
    mean = {**parts, "difference": {"points": 0.1, "interval": interval}}
    evaluation = {**one.record.evaluation, "average": mean}
    printed = as_text([replace(one, record=replace(one.record, evaluation=evaluation))])
    assert "20.0 % → 30.0 %" in printed and "+10.0 (+10.0 … +30.0)" in printed and "mean of the tasks" in printed

    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    values = {name: value for name, value, _ in metrics_of_results(tmp_path, step=1)}
    assert (values["eval/base_accuracy"], values["eval/accuracy"], values["eval/difference"]) == (0.2, 0.3, 0.1)


def test_accuracies_of_different_rows_are_not_compared(tmp_path: Path) -> None:
    write_recorded_run(tmp_path / "one")
    [one], _ = read_results([tmp_path / "one"])
    assert "not judged" not in as_text([one])
    base = {**one.record.evaluation["base"], "unscored": 5}
    printed = as_text([replace(one, record=replace(one.record, evaluation={**one.record.evaluation, "base": base}))])
    assert "not comparable" in printed and "5 → 0" in printed and "rows 45" in printed


def test_the_readme_says_what_the_records_say() -> None:
    """If this fails after a new measurement: `python scripts/results.py --readme`."""
    records, problems = read_results(sorted((REPOSITORY / "results").glob("*.json")))
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert problems == [] and renew_readme(readme, records) == readme
    for result in records:
        recipe = f"recipes/{result.record.recipe}.yaml"
        assert (REPOSITORY / recipe).is_file() and f"]({recipe}) |" in readme


def test_a_recipe_without_a_record_is_not_measured(runs: Path) -> None:
    rows = [
        f"| [{name}](recipes/{name}.yaml) | a model | a task | 0.0 → 99.9 % |\n" for name in ("demo-arithmetic", "x")
    ]
    text = renew_readme("".join(rows), read_results([runs / "a", runs / "b"])[0])
    assert [line.split(" | ")[-1] for line in text.splitlines()] == [
        "50.0 → 100.0, 75.0 % (2 seeds) |",
        "not measured |",
    ]
