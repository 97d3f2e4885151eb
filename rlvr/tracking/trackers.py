"""Names of the trackers in `report_to`. MLflow is ours (mlflow_tracker.py); transformers and TRL use the others.

Imports no tracker: preflight runs these checks before a weight is loaded.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

from rlvr.config.schema import nearest
from rlvr.errors import Problem
from rlvr.health import Finding

USUAL = "none, mlflow, tensorboard, trackio or wandb"
_NETRC = ("~/.netrc", "~/_netrc")
_WANDB_SETTINGS = ("~/.config/wandb/settings", "wandb/settings")


def tracker_names(report_to: str | Sequence[str] | None) -> list[str]:
    """The trackers that `report_to` names, including MLflow. `all` means every installed one."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if "all" in names:
        from transformers.integrations.integration_utils import get_available_reporting_integrations

        names = [*names, *get_available_reporting_integrations()]
    return [name for name in dict.fromkeys(names) if name not in ("none", "all")]


def other_trackers(report_to: str | Sequence[str] | None) -> list[str]:
    """The trackers except MLflow: `report_to` of TRL's configuration."""
    return [name for name in tracker_names(report_to) if name != "mlflow"]


def tracker_problems(report_to: str | Sequence[str] | None) -> list[Problem]:
    """Check that the trackers exist, are installed, and have their key."""
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    problems = []
    for name in tracker_names(report_to):
        if name not in INTEGRATION_TO_CALLBACK:
            close = nearest(name, INTEGRATION_TO_CALLBACK)
            hint = f"Did you mean {close[0]}?" if close else f"Use {USUAL}."
            problems.append(Problem(f"report_to: there is no tracker {name}. {hint}", "unknown-tracker", "report_to"))
        elif name not in get_available_reporting_integrations():
            message = f"report_to: {name} is not installed. Run pip install {name}, or use mlflow or none."
            problems.append(Problem(message, "tracker-not-installed", "report_to"))
        elif name == "wandb" and not _wandb_is_ready():
            message = (
                "report_to: wandb has no API key, and would fail after the model is loaded. Run `wandb login`, set "
                "WANDB_API_KEY, or set WANDB_MODE=offline."
            )
            problems.append(Problem(message, "missing-api-key", "report_to"))
    return problems


def send_alert(report_to: str | Sequence[str] | None, finding: Finding) -> None:
    """Show a finding about the run's health as an alert in trackio, if the run reports to it."""
    if "trackio" not in tracker_names(report_to):
        return
    import trackio

    if hasattr(trackio, "alert"):  # earlier versions have none
        level = trackio.AlertLevel.ERROR if finding.level == "alarm" else trackio.AlertLevel.WARN
        with contextlib.redirect_stdout(io.StringIO()):  # trackio prints it; the run has printed it already
            text = f"Since step {finding.since_step:,}. {finding.fix} See {finding.page}"
            trackio.alert(finding.problem, text, level)


def _wandb_is_ready() -> bool:
    """Whether wandb needs no key, or may find one. A file that could hold a key counts."""
    mode = os.environ.get("WANDB_MODE", "").lower()
    if mode in ("offline", "disabled", "dryrun") or os.environ.get("WANDB_DISABLED"):
        return True
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    files = [os.environ.get("NETRC", ""), *_NETRC, *_WANDB_SETTINGS]
    return any(Path(file).expanduser().is_file() for file in files if file)
