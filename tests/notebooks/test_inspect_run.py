"""notebooks/inspect_run.ipynb runs from its first cell to its last, on a run that is whole and on one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.report_runs import HOSTILE, write_run

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "inspect_run.ipynb"

pytestmark = pytest.mark.slow


def execute(**parameters: object) -> str:
    """All that the notebook prints, with its parameters replaced."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name in parameters:
        assert f"{name} = " in cell.source, "a parameter of the notebook"
    cell.source += "\n" + "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def test_it_shows_a_whole_run_and_another_beside_it(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, base=[False] * 6, trained=[True] * 6, text=HOSTILE, steps=12) for name in ("a", "b")
    ]
    output = execute(RUN_DIR=str(runs[0]), OTHER_RUN_DIR=str(runs[1]), SEARCH="completion 2")
    for words in (
        "On 6 held-out problems the accuracy rose from 0.0 % to 100.0 %",
        "reward 0.1 → 1.2 in 12 steps",
        "── step 12, total",
        "completion 2 of step 12",
        "math_correctness",
        str(runs[0] / "report.html"),
        str(runs[0] / "comparison.html"),
    ):
        assert words in output
    assert (runs[0] / "comparison.html").is_file()


def test_it_comes_to_its_end_on_a_run_that_has_just_begun(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("model_name_or_path: m\n", encoding="utf-8")
    output = execute(RUN_DIR=str(tmp_path))
    assert "No training step has been logged." in output and "No evaluation." in output


def test_it_is_kept_without_outputs() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
