"""Names of the trackers in `report_to`. MLflow is ours (mlflow_tracker.py); transformers and TRL use the others.

Imports no tracker that `report_to` does not name: preflight runs these checks before a weight is loaded.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rlvr.config.schema import nearest
from rlvr.console import unused_packages_hidden
from rlvr.errors import Problem

USUAL = "none, mlflow, tensorboard, trackio or wandb"
_KEY_FILES = ("~/_netrc", "~/.config/wandb/settings", "wandb/settings")


def tracker_names(report_to: str | Sequence[str] | None) -> list[str]:
    """The trackers that `report_to` names, including MLflow. `all` means every installed one."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if "all" in names:
        from transformers.integrations.integration_utils import get_available_reporting_integrations

        names = [*names, *get_available_reporting_integrations()]
    return [name for name in dict.fromkeys(names) if name not in ("none", "all")]


def tracker_problems(report_to: str | Sequence[str] | None) -> list[Problem]:
    """Check that the trackers exist, are installed, and have their key. Import them for `unused_trackers_hidden`."""
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    names = tracker_names(report_to)
    for name in {"wandb", "trackio"} & {*names}:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    with unused_trackers_hidden():
        available = [*get_available_reporting_integrations(), "mlflow"]  # a dependency of ours
    problems = []
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            close = nearest(name, INTEGRATION_TO_CALLBACK)
            hint = f"Did you mean {close[0]}?" if close else f"Use {USUAL}."
            problems.append(Problem(f"report_to: there is no tracker {name}. {hint}", "unknown-tracker", "report_to"))
        elif name not in available:
            message = f"report_to: {name} is not installed. Run pip install {name}, or use mlflow or none."
            problems.append(Problem(message, "tracker-not-installed", "report_to"))
        elif name == "wandb" and not wandb_is_ready():
            message = (
                "report_to: wandb has no API key, and would fail after the model is loaded. Run `wandb login`, set "
                "WANDB_API_KEY, or set WANDB_MODE=offline."
            )
            problems.append(Problem(message, "missing-api-key", "report_to"))
    return problems


def unused_trackers_hidden() -> AbstractContextManager[None]:
    """Let TRL find only the trackers of `report_to`, which `tracker_problems` imports. Others could even connect.

    MLflow has a process of its own.
    """
    return unused_packages_hidden("mlflow", "wandb", "trackio")


def wandb_is_ready() -> bool:
    """Whether wandb needs no key, or may find one. A file that could hold a key counts."""
    if os.environ.get("WANDB_MODE", "").lower() in ("offline", "disabled", "dryrun"):
        return True
    if any(map(os.environ.get, ("WANDB_DISABLED", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))):
        return True
    return any(Path(file).expanduser().is_file() for file in (os.environ.get("NETRC") or "~/.netrc", *_KEY_FILES))
