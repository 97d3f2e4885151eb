"""How this process was started, and whether the processes that were asked for really train together.

Two launches go wrong without a word: accelerate's `distributed_type: MULTI_CPU` starts a single process whatever
`num_processes` says, and several processes on a machine without GPUs do not join unless the recipe says `use_cpu:
true`: each then trains alone, into the same folder, and exits with 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.errors import InputError
from rlvr.recipe import Recipe

if TYPE_CHECKING:
    from accelerate import PartialState


def join(recipe: Recipe) -> PartialState:
    """Joins the processes of this launch (once; later calls return the same state).

    Raises:
        InputError: fewer processes train together than were asked for.
    """
    check_environment(recipe)
    from accelerate import PartialState

    use_cpu = bool(recipe.settings.get("use_cpu", False))
    # Whoever makes the state first decides how long a rank may wait for the others; TrainingArguments would come too
    # late, because the base model is evaluated before it is made.
    timeout = timedelta(seconds=recipe.settings.get("ddp_timeout", 1800))
    state = PartialState(cpu=use_cpu, **({"timeout": timeout} if "RANK" in os.environ else {}))
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != wanted:
        raise InputError(
            f"{wanted} processes were started, but they don't train together: on a machine without GPUs the recipe "
            "must say use_cpu: true (or add --use_cpu true). Otherwise each would train alone into the same folder."
        )
    return state


def check_environment(recipe: Recipe) -> None:
    """Finds, without importing torch, the launch that starts one process where several were asked for."""
    asked = _asked_of_accelerate(_parent_command())
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if asked is not None and asked > 1 and started == 1:
        raise InputError(
            f"accelerate was asked for {asked} processes but started one: its MULTI_CPU type, and its default on a "
            "machine without GPUs, do that silently. Use accelerate launch --config_file accelerate_configs/cpu.yaml "
            f"--num_processes {asked}."
        )


def _parent_command() -> list[str]:
    """The command line of the process that started this one; empty where it can't be read."""
    import psutil

    try:
        parent = psutil.Process().parent()
        return parent.cmdline() if parent is not None else []
    except psutil.Error:
        return []


def _asked_of_accelerate(command: Sequence[str]) -> int | None:
    """The number of processes that an `accelerate launch` command line asks for, or None if it is no such command."""
    words = [Path(word).name for word in command]
    if not any(word in ("accelerate", "accelerate-launch", "accelerate.commands.launch") for word in words):
        return None
    value = _option(command, "num_processes")
    config = _option(command, "config_file")
    if value is None and config is not None and Path(config).is_file():
        from ruamel.yaml import YAML

        value = str((YAML(typ="safe", pure=True).load(Path(config)) or {}).get("num_processes", ""))
    return int(value) if value is not None and value.isdigit() else None


def _option(command: Sequence[str], name: str) -> str | None:
    for number, word in enumerate(command):
        key, equals, value = word.partition("=")
        if key.replace("-", "_") == f"__{name}":
            return value if equals else command[number + 1] if number + 1 < len(command) else None
    return None
