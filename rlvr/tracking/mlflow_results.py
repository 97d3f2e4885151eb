"""Send results to an existing MLflow run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.tracking.results import Point, Results

NOTE, OUR_NOTE = "mlflow.note.content", "grpo-recipes.verdict"


def send_results(uri: str, run: Mapping[str, Any], results: Results) -> None:
    """Send metrics, files and the verdict to an existing run.

    Raises:
        InputError: there is no such run.
        Exception: any error of MLflow.
    """
    from mlflow import MlflowClient

    client, run_id = MlflowClient(tracking_uri=uri), run["run_id"]
    if find_run(client, run_id) is None:
        raise InputError(f"it has no run {run_id}", kind="run-not-found")
    log_points(client, run_id, results.points)
    set_description(client, run_id, results.verdict)
    for path, place in results.files:
        client.log_artifact(run_id, path, place or None)


def find_run(client: Any, run_id: str) -> Any:
    """The run; None if it does not exist or was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def log_points(client: Any, run_id: str, points: Sequence[Point]) -> None:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    metrics = [Metric(name, value, now, step) for name, value, step in points]
    if metrics:
        client.log_batch(run_id, metrics=metrics, synchronous=True)


def set_description(client: Any, run_id: str, sentence: str) -> None:
    """Set the description on top of MLflow's page to the verdict, unless a user has written another one."""
    if not sentence:
        return
    tags = client.get_run(run_id).data.tags
    if tags.get(NOTE) in (None, "", tags.get(OUR_NOTE)):
        client.set_tag(run_id, OUR_NOTE, sentence)
        client.set_tag(run_id, NOTE, sentence)
