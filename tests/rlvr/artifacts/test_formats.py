"""Every reader refuses a run directory of a later version, and reads one without a format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset

from rlvr.artifacts import checkpoints
from rlvr.artifacts.directory import FORMAT, write_status
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import RunStatus, choose_resumption
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec, RewardSpec, TaskSpec
from scripts import evaluate, report
from tests.conftest import REPOSITORY
from tests.support.input_errors import input_error
from tests.support.report_runs import write_run

DEMO = str(REPOSITORY / "recipes" / "demo-arithmetic.yaml")
LATER = "its format is 2, and this version reads up to 1"


def change(path: Path, **changes: object) -> None:
    """Changes keys of a JSON file; None takes a key away, as it does the digest."""
    content = json.loads(path.read_text()) | {"sha256": None} | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", base=[False, True], trained=[True, True])


@pytest.fixture
def later(run_dir: Path) -> Path:
    change(run_dir / "run.json", format=FORMAT + 1, status="meditating")
    return run_dir


@pytest.mark.parametrize(
    "command",
    [
        lambda folder: report.main([str(folder)]),
        lambda folder: report.main([str(folder.with_name("other")), str(folder)]),
        lambda folder: evaluate.main(["--config", DEMO, "--limit", "1", "--output", str(folder)]),
        lambda folder: evaluate.main(
            ["--config", DEMO, "--adapter", str(folder / "adapter"), "--output", str(folder.with_name("new"))]
        ),
    ],
    ids=["report", "comparison", "evaluate into it", "evaluate its adapter"],
)
def test_a_run_of_a_later_version_is_refused_in_one_sentence(
    later: Path, command: Callable[[Path], int], capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(later.with_name("other"), base=[True], trained=[True])
    (later / "adapter").mkdir()
    (later / "adapter" / "adapter_config.json").write_text("{}")
    before = {path: path.read_bytes() for path in later.rglob("*") if path.is_file()}
    assert command(later) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.endswith("…")]  # without what is loaded
    assert len(said) == 1 and LATER in said[0]
    assert before == {path: path.read_bytes() for path in later.rglob("*") if path.is_file()}, "nothing was touched"


ROWS = Dataset.from_dict({"prompt": ["one"]})


def recipe(folder: Path, resume: str = "auto") -> Recipe:
    settings = {"model_name_or_path": "m", "output_dir": str(folder), "resume_from_checkpoint": resume}
    return Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), EvaluationSpec(), settings)


def killed_run(folder: Path) -> tuple[Recipe, Identity, Path]:
    """A run that was killed after step 5."""
    run = recipe(folder)
    identity = Identity.of(run, ROWS, 1, "python")
    checkpoint = folder / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    checkpoints.mark_complete(checkpoint, 5, identity)
    RunStatus(folder, identity, writes=True).update("running", saved="adapter")
    return run, identity, checkpoint


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_run_of_a_later_version_is_neither_continued_nor_renamed(tmp_path: Path, resume: str) -> None:
    _, identity, _ = killed_run(tmp_path / "run")
    change(tmp_path / "run" / "run.json", format=FORMAT + 1)
    with input_error("later-format"):
        choose_resumption(recipe(tmp_path / "run", resume), identity)


def test_a_copied_checkpoint_of_a_later_version_is_refused(tmp_path: Path) -> None:
    _, identity, checkpoint = killed_run(tmp_path / "run")
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    change(copy / checkpoints.MARKER, format=FORMAT + 1, identity={"something": "else"})
    with input_error("later-format") as error:
        choose_resumption(recipe(tmp_path / "run", str(copy)), identity)
    assert error.value.problems[0].path == str(copy)


@pytest.mark.parametrize("identity_there", [None, {"recipe": {}}, "x"])
def test_a_checkpoint_without_a_valid_identity_is_refused(tmp_path: Path, identity_there: object) -> None:
    run, identity, checkpoint = killed_run(tmp_path / "run")
    change(checkpoint / checkpoints.MARKER, identity=identity_there)
    with input_error("checkpoint-mismatch", "identity"):
        choose_resumption(run, identity)


def test_an_evaluation_does_not_write_into_a_running_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(tmp_path, "running")
    (tmp_path / "evaluation.json").write_text("{}")
    assert evaluate.main(["--config", DEMO, "--limit", "1", "--output", str(tmp_path)]) == 2
    assert "ame another folder" in capsys.readouterr().err
    assert (tmp_path / "evaluation.json").read_text() == "{}"
