"""Trackers beside MLflow: which ones a recipe means, and what stands against them is said before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.tracking import trackers


@pytest.mark.parametrize(
    ("report_to", "others", "why"),
    [
        ("none", [], "nobody"),
        (None, [], "an empty key"),
        ([], [], "an empty list"),
        ("mlflow", [], "MLflow is told by a process of ours; transformers would tell it a second time"),
        (["mlflow", "tensorboard"], ["tensorboard"], "a list"),
        (["tensorboard", "wandb", "tensorboard"], ["tensorboard", "wandb"], "one that is named twice is told once"),
        (["none"], [], "as transformers understands it"),
    ],
)
def test_the_others_are_whoever_is_named_but_mlflow(
    report_to: str | list[str] | None, others: list[str], why: str
) -> None:
    assert trackers.others(report_to) == others, why


def test_all_is_whatever_is_installed_and_mlflow_is_still_ours() -> None:
    from transformers.integrations.integration_utils import get_available_reporting_integrations

    assert set(trackers.named("all")) == set(get_available_reporting_integrations())
    assert "mlflow" in trackers.named(["all"]) and "mlflow" not in trackers.others(["all"])


@pytest.mark.parametrize(
    ("report_to", "words", "why"),
    [
        ("mlfow", "there is no tracker mlfow; did you mean mlflow?", "misspelt"),
        ("paper", "there are none, mlflow, tensorboard, trackio and wandb", "nothing like it"),
        (["mlflow", "clearml"], "clearml is not installed here: pip install clearml", "not installed"),
    ],
)
def test_a_tracker_that_cannot_be_told_is_one_sentence(report_to: str | list[str], words: str, why: str) -> None:
    [fault] = trackers.tracker_faults(report_to)
    assert words in fault, why


@pytest.mark.parametrize("report_to", ["none", "mlflow", "all", ["none"], [], None])
def test_what_is_there_is_no_fault(report_to: str | list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert trackers.tracker_faults(report_to) == []


@pytest.mark.parametrize(
    ("variables", "file", "ready", "why"),
    [
        ({}, None, False, "nobody has logged in: wandb would say so after the first evaluation"),
        ({"WANDB_API_KEY": "k"}, None, True, "a key"),
        ({"WANDB_MODE": "offline"}, None, True, "nothing is sent"),
        ({"WANDB_MODE": "online"}, None, False, "what it is without the variable"),
        ({}, ".netrc", True, "where `wandb login` puts the key"),
        ({}, ".config/wandb/settings", True, "`wandb offline` is written there"),
    ],
)
def test_wandb_without_a_key_is_told_from_wandb_that_may_have_one(
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
    assert trackers._wandb_is_ready() is ready, why
