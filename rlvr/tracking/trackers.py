"""Names of the trackers in `report_to`. MLflow is ours (mlflow_tracker.py); transformers and TRL use the others.

Imports no tracker: preflight runs these checks before a weight is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlvr.config.schema import nearest

USUAL = "none, mlflow, tensorboard, trackio and wandb"
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


def tracker_faults(report_to: str | Sequence[str] | None) -> list[str]:
    """A sentence for each tracker that there is none of, that is not installed, or that would not let us in."""
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    faults = []
    for name in tracker_names(report_to):
        if name not in INTEGRATION_TO_CALLBACK:
            close = nearest(name, INTEGRATION_TO_CALLBACK)
            hint = f"did you mean {close[0]}?" if close else f"there are {USUAL}."
            faults.append(f"report_to: there is no tracker {name}; {hint}")
        elif name not in get_available_reporting_integrations():
            faults.append(f"report_to: {name} is not installed here: pip install {name}, or use mlflow or none.")
        elif name == "wandb" and not _wandb_is_ready():
            faults.append(
                "report_to: wandb has no API key here, which it would say only once the model is loaded. Run `wandb "
                "login`, set WANDB_API_KEY, or keep the run on this machine with WANDB_MODE=offline."
            )
    return faults


def _wandb_is_ready() -> bool:
    """Whether wandb needs no key, or may find one. A file that could hold a key counts."""
    mode = os.environ.get("WANDB_MODE", "").lower()
    if mode in ("offline", "disabled", "dryrun") or os.environ.get("WANDB_DISABLED"):
        return True
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    files = [os.environ.get("NETRC", ""), *_NETRC, *_WANDB_SETTINGS]
    return any(Path(file).expanduser().is_file() for file in files if file)
