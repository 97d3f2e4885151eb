"""The licences of a base model and of a data set, from cards that are on this machine. The hub is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.config import project
from rlvr.errors import InputError
from rlvr.health.run_metrics import short_name


def model_licence(name: str) -> str:
    """A sentence on the licence of a base model, a folder or an id on the hub."""
    folder = next((root / name for root in project.roots() if (root / name).is_dir()), None)
    card = folder / "README.md" if folder is not None else _cached_card(name, "model")
    return _sentence(f"Base model {Path(name).name if folder is not None else name}", card)


def data_licence(task: Mapping[str, Any]) -> str:
    """A sentence on the licence of a task's data set on the hub; of another task, that it is unknown."""
    name, path = str(task.get("name", "unknown")), task.get("path")
    dataset = str(path) if path else _hub_dataset(name)
    card = _cached_card(dataset, "dataset") if dataset and not dataset.startswith(("/", ".", "~")) else None
    shown = Path(dataset).name if card is None and path else dataset
    return _sentence(f"Data of the task {short_name(name)}{f' ({shown})' if shown else ''}", card)


def _hub_dataset(task: str) -> str:
    """The id of a task's data set, which its file has as HUB_DATASET; empty if there is none."""
    from rlvr.scoring.registry import task_module

    try:
        return str(vars(task_module(task)).get("HUB_DATASET", ""))
    except InputError:
        return ""  # the task's file is not on this machine


def _cached_card(name: str, repo_type: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(name, "README.md", repo_type=repo_type)
    except HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


def _sentence(what: str, card: Path | None) -> str:
    from huggingface_hub import metadata_load
    from yaml import YAMLError

    try:
        licence = (metadata_load(card) or {}).get("license") if card is not None and card.is_file() else None
    except (ValueError, YAMLError):
        licence = None  # its metadata can't be read
    if not licence:
        return f"{what}: the licence is not known. No card of it on the training machine named one."
    return f"{what}: {', '.join(map(str, licence)) if isinstance(licence, list) else licence}, as its card says."
