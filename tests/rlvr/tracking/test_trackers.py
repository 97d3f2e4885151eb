"""Trackers in `report_to`: names, and checks before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.tracking import trackers

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("report_to", "names", "why"),
    [
        ("none", [], "no tracker"),
        (None, [], "an empty key"),
        ([], [], "an empty list"),
        ("mlflow", ["mlflow"], "a word"),
        (["tensorboard", "wandb", "tensorboard"], ["tensorboard", "wandb"], "a duplicate"),
        (["none"], [], "as transformers understands it"),
    ],
)
def test_trackers_are_named_once(report_to: str | list[str] | None, names: list[str], why: str) -> None:
    assert trackers.tracker_names(report_to) == names, why


def test_all_means_every_installed_tracker() -> None:
    from transformers.integrations.integration_utils import get_available_reporting_integrations

    assert set(trackers.tracker_names("all")) == set(get_available_reporting_integrations())
    assert "mlflow" in trackers.tracker_names(["all"])


@pytest.mark.parametrize(
    ("report_to", "kind", "named", "why"),
    [
        ("mlfow", "unknown-tracker", "mlflow", "a typo"),
        ("paper", "unknown-tracker", "tensorboard", "nothing similar: the usual ones are listed"),
        (["mlflow", "clearml"], "tracker-not-installed", "pip install clearml", "not installed"),
    ],
)
def test_an_unusable_tracker_is_a_problem_with_its_fix(
    report_to: str | list[str], kind: str, named: str, why: str
) -> None:
    [problem] = trackers.tracker_problems(report_to)
    assert (problem.kind, problem.key) == (kind, "report_to") and named in problem.message, why


@pytest.mark.parametrize(
    ("variables", "file", "ready", "why"),
    [
        ({}, None, False, "not logged in: wandb would fail after the first evaluation"),
        ({"WANDB_API_KEY": "k"}, None, True, "a key"),
        ({"WANDB_MODE": "offline"}, None, True, "nothing is sent"),
        ({"WANDB_MODE": "online"}, None, False, "what it is without the variable"),
        ({}, ".netrc", True, "where `wandb login` puts the key"),
        ({}, ".config/wandb/settings", True, "`wandb offline` is written there"),
    ],
)
def test_wandb_needs_a_key_unless_it_is_offline(
    variables: dict[str, str], file: str | None, ready: bool, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    assert trackers.wandb_is_ready() is ready, why


@pytest.mark.slow
def test_only_trackers_that_the_recipe_names_are_imported() -> None:
    script = (
        "import sys; from rlvr.tracking import trackers; trackers.tracker_problems(['mlflow', 'trackio']);"
        "import rlvr.training.trl_seam; print(*{'mlflow', 'wandb', 'trackio'} & {*sys.modules}); import wandb"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "trackio\n"), done.stderr
