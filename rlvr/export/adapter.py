"""The adapter alone, in PEFT's layout, with the name and revision of its base for PEFT and vLLM."""

from __future__ import annotations

import json
from pathlib import Path

from rlvr.artifacts.directory import write_json
from rlvr.artifacts.finished_run import FinishedRun
from rlvr.errors import InputError
from rlvr.export.merged import copy_model


def write_adapter(run: FinishedRun, folder: Path) -> None:
    """Copy the adapter, and name its base.

    Raises:
        InputError: the run trained all weights.
    """
    if not run.is_adapter:
        message = f"{run.folder} trained all weights and has no adapter. Use --to merged."
        raise InputError(message, kind="not-an-adapter", key="--to")
    copy_model(run.weights, folder)
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": run.base["name"], "revision": run.base["revision"]}
    write_json(folder / "adapter_config.json", config)
