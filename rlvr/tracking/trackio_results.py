"""Name the trackio run of a run directory, and send results to it."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError
from rlvr.tracking.tracked_run import remember_run, tracked_run
from rlvr.tracking.wandb_results import artifact_name

if TYPE_CHECKING:
    from rlvr.tracking.results import Results


def run_name(folder: Path, project: str, name: str) -> str:
    """The name of the run, by which trackio finds it again; another one if the project has a run of this name.

    A run of the same name elsewhere, in a Space or on a server, is continued.
    """
    earlier = tracked_run(folder, "trackio").get("name")
    if earlier is None:
        import trackio

        with contextlib.suppress(ValueError):  # there is no such project
            if any(run.name == name for run in trackio.Api().runs(project)):
                name = f"{name}-{secrets.token_hex(2)}"
        remember_run(folder, "trackio", name=name, project=project)
    return earlier or name


def send_alert(title: str, text: str, level: str) -> None:
    """Send an alert to the run of this process."""
    import trackio

    if trackio.context_vars.current_run.get() is not None and hasattr(trackio, "alert"):  # earlier versions have none
        with contextlib.redirect_stdout(io.StringIO()):  # trackio prints it; the run has printed it already
            trackio.alert(title, text, trackio.AlertLevel[level])


def send_results(uri: str, run: Mapping[str, Any], results: Results) -> None:
    """Send metrics, verdict, table, alert and files to an existing run.

    Raises:
        InputError: there is no such run.
        Exception: any error of trackio.
    """
    import trackio

    try:
        live = trackio.init(
            run["project"], run["name"], resume="must", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
    except ValueError as error:
        at = "Set TRACKIO_DIR, TRACKIO_SPACE_ID or TRACKIO_SERVER_URL as in training"
        raise InputError(f"{error}. {at}", kind="run-not-found") from error
    live.config.clear()  # an empty one leaves that of training as it is
    for line in results.lines():
        live.log(line)
    if results.table:
        header, *rows = results.table
        place = "/".join(filter(None, (results.place, "evaluation")))
        live.log({place: trackio.Table(columns=list(header), data=[list(row) for row in rows])})
    if results.verdict:
        live.log({"eval/verdict": trackio.Markdown(results.verdict)})
        live.alert(f"Evaluation: {results.label}", results.verdict, trackio.AlertLevel.INFO)
    if results.files:
        artifact = trackio.Artifact(artifact_name(results.place or "results", run["name"]), "evaluation")
        for path, place in results.files:
            artifact.add_file(path, os.path.join(place.removeprefix(results.place).strip("/"), Path(path).name))
        live.log_artifact(artifact)
    trackio.finish()
