"""The W&B run of a run directory: start it, and send results to it."""

from __future__ import annotations

import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any

import wandb

from rlvr.errors import InputError
from rlvr.tracking.final_results import Results
from rlvr.tracking.messages import describe_error, print_message
from rlvr.tracking.tracked_run import remember_run, tracked_run

# W&B waits without end for an upload, and 90 s at the start. Variables of the user win.
_DEFAULTS = {"WANDB_INIT_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT": "300"}


def start_run(folder: Path, arguments: Any) -> None:
    """Create the run, or continue that of an earlier session. transformers' callback finds it and logs to it.

    If the server does not answer or refuses, this session stays on disk, for `wandb sync`.
    """
    for variable, value in _DEFAULTS.items():
        os.environ.setdefault(variable, value)
    earlier = tracked_run(folder, "wandb")
    run_id = os.environ.get("WANDB_RUN_ID") or earlier.get("run_id") or secrets.token_hex(4)
    project = os.environ.get("WANDB_PROJECT") or earlier.get("project") or "huggingface"
    options: dict[str, Any] = {"project": project, "id": run_id, "name": arguments.run_name}
    options["resume"] = os.environ.get("WANDB_RESUME") or "allow"
    words, sys.argv = sys.argv, sys.argv[:1]  # W&B keeps the command line, in which a URL may have a password
    try:
        run = wandb.init(**options)
    except Exception as error:
        wandb.teardown()
        run = wandb.init(**options, mode="offline")
        kept = f"This session is kept in {Path(run.dir).parent}: send it with `wandb sync`."
        print_message(f"W&B {describe_error(error)}. Training goes on. {kept}")
    finally:
        sys.argv = words
    if not run.disabled:
        remember_run(folder, "wandb", run_id=run_id, project=project, mode="offline" if run.offline else "online")


def send_alert(title: str, text: str, level: str) -> None:
    """Send an alert to the run of this process."""
    if wandb.run is not None:
        wandb.run.alert(title[:63], f"{title}. {text}", level)  # a title has at most 63 characters


def send_results(run_dir: Path, results: Results) -> str:
    """Send metrics, verdict and files to the run of a run directory; return where they are, if not at the server.

    Raises:
        InputError: there is no such run.
    """
    run = tracked_run(run_dir, "wandb")
    mode: Any = os.environ.get("WANDB_MODE") or run.get("mode")
    is_online = mode == "online"
    project = os.environ.get("WANDB_PROJECT") or run.get("project")
    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True)
    try:
        live = wandb.init(
            project=project, id=run["run_id"], resume="must" if is_online else None, mode=mode, settings=settings
        )
    except wandb.errors.UsageError as error:
        hint = f"{error}. Set WANDB_MODE, WANDB_PROJECT and WANDB_ENTITY as in training"
        raise InputError(hint, kind="run-not-found") from error
    if results.metrics:
        live.log({"train/global_step": results.step, **results.metrics})
    if results.files:
        name = re.sub(r"[^\w.-]+", "-", f"{results.place or 'results'}-{run['run_id']}")[:128]
        artifact = wandb.Artifact(name, type="evaluation")
        for path, folder in results.files:
            artifact.add_file(str(path), str(Path(folder, path.name)))
        live.log_artifact(artifact)
    live.summary.update({**results.metrics, **({"verdict": results.verdict} if results.verdict else {})})
    live.finish()
    return "" if is_online else f", on disk: `wandb sync {Path(live.dir).parent}` sends it"
