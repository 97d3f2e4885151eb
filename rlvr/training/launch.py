"""How this process was started, what can't be trained so, and whether the processes really train together.

Most of this is about launches that go wrong without a word. accelerate's `distributed_type: MULTI_CPU` starts a single
process whatever `num_processes` says. Several processes on a machine without GPUs do not join unless the recipe says
`use_cpu: true`: each trains alone, into the same folder, and exits with 0. FSDP without GPUs is DDP, and with
accelerate's own choice of checkpoints it saves no adapter. rlvr/training/deepspeed_build.py is about what DeepSpeed
compiles.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from accelerate import PartialState

# Whether accelerate shards on CPUs when FSDP is asked for: 1.15 quietly takes DDP (accelerate/state.py names the
# devices). tests/launchers makes it take FSDP, and says so here.
FSDP_ON_CPUS = False


def launcher() -> str:
    """The kind of launch: python, ddp, zero2, zero2_offload, zero3, zero3_offload, fsdp1 or fsdp2.

    Read from what `accelerate launch` puts into the environment; nothing is imported.
    """
    if _is_on("ACCELERATE_USE_DEEPSPEED"):
        stage, offloads = _deepspeed_plan()
        return f"zero{stage}_offload" if offloads else f"zero{stage}"
    if _is_on("ACCELERATE_USE_FSDP"):
        return f"fsdp{os.environ.get('FSDP_VERSION', '1')}"
    return "ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "python"


# What `accelerate launch` puts into the environment for the configurations of accelerate_configs/.
_TOLD = {
    "zero2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
    "fsdp2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"},
}
_TOLD["zero2_offload"] = {**_TOLD["zero2"], "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu"}


@contextmanager
def as_launched(kind: str | None) -> Iterator[None]:
    """The environment that a launcher of accelerate_configs/ would give to a run; None for the one that there is.

    For checks of a recipe that is meant for elsewhere. Nothing is launched.
    """
    told = _TOLD.get(kind or "", {})
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def launch_faults(recipe: Recipe, *, here: bool = True) -> list[str]:
    """What of the recipe can't be trained under this launch: each with the reason and with what to use instead.

    Args:
        here: False for a launch on another machine, of which nothing is known.
    """
    settings, kind = recipe.settings, launcher()
    faults = []
    for key in ("deepspeed", "fsdp", "fsdp_config"):
        if settings.get(key):
            faults.append(
                f"{key}: how processes share the work is the launcher's business: remove the key and use accelerate "
                "launch --config_file accelerate_configs/zero3.yaml (or another of that folder)."
            )
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision != "no" and settings.get("bf16") is False and not settings.get("fp16"):
        faults.append(
            f"mixed_precision: {precision} in the launcher's configuration would win over the recipe's bf16: false. "
            'Set mixed_precision: "no" there, as accelerate_configs/ does, or bf16: true in the recipe.'
        )
    if kind.startswith("zero"):
        faults += _deepspeed_faults(recipe, kind, here)
    if kind.startswith("fsdp"):
        faults += _fsdp_faults(recipe, kind)
    return faults


def _deepspeed_faults(recipe: Recipe, kind: str, here: bool) -> list[str]:
    from rlvr.training import deepspeed_build

    faults = []
    if kind.startswith("zero3") and os.environ.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true") == "false":
        faults.append(
            "zero3_save_16bit_model: false in the launcher's configuration: the trained weights would never be "
            "gathered, and no model saved. Set it to true, as accelerate_configs/zero3.yaml does."
        )
    if kind.endswith("_offload"):
        optimizer = str(recipe.settings.get("optim", "adamw_torch"))
        if not optimizer.startswith("adamw_torch"):
            faults.append(
                f"optim: {optimizer} with {kind}: the optimizer on the CPU is always DeepSpeed's Adam, whatever the "
                "recipe says. Remove the key, or use accelerate_configs/zero2.yaml or zero3.yaml."
            )
        faults += deepspeed_build.faults(on_cpu=bool(recipe.settings.get("use_cpu"))) if here else []
    return faults


def _fsdp_faults(recipe: Recipe, kind: str) -> list[str]:
    settings = recipe.settings
    faults = []
    if settings.get("use_cpu") and not FSDP_ON_CPUS:
        faults.append(
            f"{kind} with use_cpu: without GPUs accelerate quietly takes DDP, and nothing would be sharded. Use "
            "accelerate_configs/cpu.yaml, or zero3.yaml with --num_processes 2, which shards on CPUs too."
        )
    if kind != "fsdp2":
        faults.append(
            "fsdp_version: 1 in the launcher's configuration: its weights are not gathered for generation here. Use "
            "accelerate_configs/fsdp2.yaml, its successor."
        )
    if "FULL" not in os.environ.get("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT" if kind == "fsdp1" else "SHARDED"):
        faults.append(
            "fsdp_state_dict_type: SHARDED_STATE_DICT (accelerate's own default) in the launcher's configuration: the "
            "run would end well and have saved no adapter and no model. Set it to FULL_STATE_DICT, as "
            "accelerate_configs/fsdp2.yaml does."
        )
    storage = settings.get("bnb_4bit_quant_storage", "uint8")
    if settings.get("load_in_4bit") and storage in ("uint8", "int8"):
        faults.append(
            f"load_in_4bit with {kind}: accelerate leaves 4-bit weights that are stored as {storage} out of the "
            "sharding, so that every GPU would hold them all. Set bnb_4bit_quant_storage: "
            f"{settings.get('dtype', 'bfloat16')}, or use accelerate_configs/ddp.yaml if they fit on each GPU, or "
            "zero3.yaml, which shards them as they are."
        )
    if settings.get("load_in_8bit"):
        faults.append(
            f"load_in_8bit with {kind}: 8-bit weights are integers, which FSDP can't shard. Use load_in_4bit, or "
            "accelerate_configs/ddp.yaml."
        )
    return faults


def _is_on(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1", "yes", "on")


def _deepspeed_plan() -> tuple[str, bool]:
    """The ZeRO stage, and whether optimizer states go to the CPU; from DeepSpeed's own file if one is named."""
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if file.lower() != "none" and Path(file).is_file():
        zero = json.loads(Path(file).read_text(encoding="utf-8")).get("zero_optimization", {})
        return str(zero.get("stage", 0)), zero.get("offload_optimizer", {}).get("device", "none") != "none"
    offload = os.environ.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none")
    return os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"), offload.lower() != "none"


def join(recipe: Recipe) -> PartialState:
    """Joins the processes of this launch (once; later calls return the same state).

    Raises:
        InputError: fewer processes train together than were asked for.
    """
    check_environment(recipe)
    from accelerate import PartialState

    use_cpu = bool(recipe.settings.get("use_cpu", False))
    if use_cpu and launcher().startswith("zero"):
        from rlvr.training import deepspeed_build

        deepspeed_build.spare_shared_memory()
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
    """Finds, without importing torch, a launch that can't be joined, or that starts one process instead of several.

    Raises:
        InputError: with what to start instead.
    """
    if launcher().startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        raise InputError(
            f"{launcher()}: deepspeed is not installed here: pip install deepspeed, or launch with "
            "accelerate_configs/fsdp2.yaml, which shards without it."
        )
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
