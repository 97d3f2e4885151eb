"""The trackio run of a run directory: name it, and send results to it."""

from __future__ import annotations

import contextlib
import io
import secrets
from pathlib import Path
from typing import Any

import trackio

from rlvr.errors import InputError
from rlvr.tracking.final_results import Results
from rlvr.tracking.tracked_run import remember_run, tracked_run


def start_run(folder: Path, arguments: Any) -> None:
    """Set the name of the run, by which trackio finds it again; another one if the project has a run of this name.

    A run of the same name elsewhere, in a Space or on a server, is continued.
    """
    earlier, name = tracked_run(folder, "trackio").get("name"), arguments.run_name
    if earlier is None:
        with contextlib.suppress(ValueError):  # there is no such project
            if any(run.name == name for run in trackio.Api().runs(arguments.project)):
                name = f"{name}-{secrets.token_hex(2)}"
        remember_run(folder, "trackio", name=name, project=arguments.project)
    arguments.run_name = earlier or name


def send_alert(title: str, text: str, level: str) -> None:
    """Send an alert to the run of this process."""
    if trackio.context_vars.current_run.get() is not None:
        with contextlib.redirect_stdout(io.StringIO()):  # trackio prints it; the run has printed it already
            trackio.alert(title, text, trackio.AlertLevel[level])


def send_results(run_dir: Path, results: Results) -> str:
    """Send metrics, verdict and files to the run of a run directory.

    Raises:
        InputError: there is no such run.
    """
    run = tracked_run(run_dir, "trackio")
    try:
        live = trackio.init(
            run["project"], run["name"], resume="must", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
    except ValueError as error:
        at = "Set TRACKIO_DIR, TRACKIO_SPACE_ID or TRACKIO_SERVER_URL as in training"
        raise InputError(f"{error}. {at}", kind="run-not-found") from error
    live.config.clear()  # an empty one leaves that of training as it is
    results.log_to(trackio, live, run["name"])
    if results.verdict:
        live.log({"eval/verdict": trackio.Markdown(results.verdict)})
    trackio.finish()
    return ""
