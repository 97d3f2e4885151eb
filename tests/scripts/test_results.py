"""scripts/results.py: tables of runs, runs that can't be compared, and the generated pages."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr.artifacts.evaluation import read_evaluation
from rlvr.artifacts.origin import recipe_file_digest
from rlvr.report import recipe_tables
from rlvr.report.result_table import Result, as_text, read_results
from rlvr.tracking.final_results import metrics_of_results
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


def test_other_programs_get_every_field(runs: Path, tmp_path: Path) -> None:
    words = [str(runs / "a"), str(runs / "b")]
    assert results.main([*words, "--json", "--out", str(tmp_path / "out.json")]) == 0
    records = json.loads((tmp_path / "out.json").read_text())
    assert [record["seeds"]["seed"] for record in records] == [0, 1]
    assert [record["evaluation"]["trained"]["accuracy"] for record in records] == [1.0, 0.75]
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
    values = metrics_of_results(read_evaluation(tmp_path))
    assert (values["eval/base_accuracy"], values["eval/accuracy"], values["eval/difference"]) == (0.2, 0.3, 0.1)


def test_accuracies_of_different_rows_are_not_compared(tmp_path: Path) -> None:
    write_recorded_run(tmp_path / "one")
    [one], _ = read_results([tmp_path / "one"])
    assert "not judged" not in as_text([one])
    base = {**one.record.evaluation["base"], "unscored": 5}
    printed = as_text([replace(one, record=replace(one.record, evaluation={**one.record.evaluation, "base": base}))])
    assert "not comparable" in printed and "5 → 0" in printed and "rows 45" in printed


def test_a_table_shows_the_speed_and_the_commit_of_a_run(tmp_path: Path) -> None:
    write_recorded_run(tmp_path / "one")
    [one], _ = read_results([tmp_path / "one"])
    record = replace(one.record, tokens={"trained": 9000, "generated": 7200}, commit="0123456789abcdef-dirty")
    record = replace(record, times={**record.times, "training_hours": 0.001})
    printed = as_text([replace(one, record=record)])
    assert "tokens/s 2,000" in printed and "commit 01234567-dirty" in printed


@pytest.mark.slow
def test_the_generated_pages_say_what_the_records_and_the_recipes_say() -> None:
    """If this fails after a measurement or a change of a recipe: `python scripts/results.py --readme`."""
    records, problems = read_results(sorted((REPOSITORY / "results").glob("*.json")))
    assert problems == []
    pages = recipe_tables.pages(REPOSITORY, records)
    for name, page in pages.items():
        assert (REPOSITORY / name).read_text(encoding="utf-8") == page, name
        generated = page.partition(recipe_tables.BEGIN)[2].partition(recipe_tables.END)[0] or page
        for row in re.findall(r"(?m)^\| (.+) \|$", generated):
            assert all(len(cell.split()) <= 12 for cell in row.split(" | ")), row
    table = pages["README.md"].partition(recipe_tables.BEGIN)[2].partition(recipe_tables.END)[0]
    assert "not measured" not in table
    for result in records:
        assert f"](recipes/{result.record.recipe}.yaml) |" in table
    for recipe in (REPOSITORY / "recipes").glob("*.yaml"):
        assert f"]({recipe.name}) |" in pages["recipes/README.md"]


@pytest.fixture
def project(runs: Path, tmp_path: Path) -> Path:
    """A recipe that two seeds measured, one that nobody measured, an earlier run, and a published figure."""
    for folder in ("recipes", "results/earlier"):
        (tmp_path / folder).mkdir(parents=True)
    text = (REPOSITORY / "recipes" / "demo-arithmetic.yaml").read_text()
    (tmp_path / "recipes" / "demo-arithmetic.yaml").write_text(text)
    (tmp_path / "recipes" / "other.yaml").write_text(text.replace("to carry and to borrow", f"{'very ' * 20} well"))
    (tmp_path / "README.md").write_text(f"before\n{recipe_tables.BEGIN}\nold\n{recipe_tables.END}\nbehind\n")
    figure = {"recipe": "other", "accuracy": "1.0 %", "what": "of another program", "source": "its page"}
    (tmp_path / "results" / "published.jsonl").write_text(json.dumps(figure) + "\n")
    (tmp_path / "results" / "earlier" / "README.md").write_text("# An old run\n\n5 % of\n9 rows.\n\nMore.\n")
    return tmp_path


def seeds_of(project: Path, runs: Path) -> list[Result]:
    """Two seeds of the project's recipe as it is."""
    digest = recipe_file_digest(project / "recipes" / "demo-arithmetic.yaml")
    found, _ = read_results([runs / "a", runs / "b"])
    return [replace(each, record=replace(each.record, recipe_file_digest=digest)) for each in found]


def test_measured_published_and_earlier_figures_are_apart(project: Path, runs: Path) -> None:
    pages = recipe_tables.pages(project, seeds_of(project, runs))
    before, table, behind = re.split(rf"{recipe_tables.BEGIN}\n|{recipe_tables.END}\n", pages["README.md"])
    assert (before, behind) == ("before\n", "behind\n")
    [row] = table.splitlines()[2:]
    assert "| 50.0 → 100.0, 75.0 % |" in row and "| 8 s |" in row

    everything, measured, earlier, published = pages["recipes/README.md"].split("\n## ")
    [demo, other] = [line.split(" | ") for line in everything.splitlines() if ".yaml)" in line]
    assert demo[-1] == "50.0 → 100.0, 75.0 % |" and other[-1] == "– |"
    assert demo[3].endswith("to carry and to borrow") and other[3].endswith(" …")
    assert "+50.0, +25.0 (" in measured and "seeds 0, 1" in measured and "other" not in measured
    assert "[An old run](../results/earlier/README.md): 5 % of 9 rows." in earlier
    assert "| [other](other.yaml) | 1.0 % | of another program | its page |" in published


def test_a_recipe_that_changed_after_its_measurement_is_marked(project: Path, runs: Path) -> None:
    measured = seeds_of(project, runs)
    mark = "(measured with an earlier recipe)"
    assert not any(mark in page for page in recipe_tables.pages(project, measured).values())
    recipe = project / "recipes" / "demo-arithmetic.yaml"
    recipe.write_text(recipe.read_text() + "\nepsilon: 0.1\n")
    assert all(page.count(mark) >= 1 for page in recipe_tables.pages(project, measured).values())


def test_the_pages_are_written_from_the_records_in_results(
    project: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rlvr.config.project.ROOT", project)
    shutil.copy(runs / "a" / "result.json", project / "results" / "demo-arithmetic-seed0.json")
    assert results.main(["--readme"]) == 0
    for page in ("README.md", "recipes/README.md"):
        assert "50.0 → 100.0 %" in (project / page).read_text()
    for words in ([], ["--readme", "--out", str(tmp_path / "x")], ["--readme", str(tmp_path)]):
        with pytest.raises(SystemExit):
            results.main(words)
