"""Detect the launcher, refuse what it can't train, and join its processes.

Most checks are for launches that fail silently. accelerate's `distributed_type: MULTI_CPU` starts a single
process whatever `num_processes` says. Several processes on a machine without GPUs do not join unless the recipe says
`use_cpu: true`: each trains alone, into the same folder, and exits with 0. FSDP without GPUs is DDP, and with
accelerate's default checkpoints it saves no adapter. rlvr/training/deepspeed_build.py covers what DeepSpeed compiles.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from ruamel.yaml import YAML

from rlvr.config.recipe import Recipe
from rlvr.errors import InputError, Problem
from rlvr.training import deepspeed_build

if TYPE_CHECKING:
    from accelerate import PartialState

# Whether accelerate shards on CPUs if FSDP is requested: 1.15 silently uses DDP (accelerate/state.py lists devices).
# tests/support/prefork.py makes it use FSDP, and sets this.
FSDP_ON_CPUS = False


def launcher() -> str:
    """Name the launcher: python, ddp, zero2, zero2_offload, zero3, zero3_offload, fsdp1 or fsdp2.

    Read from the environment variables of `accelerate launch`; nothing is imported.
    """
    if _is_on("ACCELERATE_USE_DEEPSPEED"):
        stage, offloads = _deepspeed_stage()
        return f"zero{stage}_offload" if offloads else f"zero{stage}"
    if _is_on("ACCELERATE_USE_FSDP"):
        return f"fsdp{os.environ.get('FSDP_VERSION', '1')}"
    return "ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "python"


# The environment variables of `accelerate launch` for the configurations of accelerate_configs/.
_ENVIRONMENTS = {
    "zero2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
    "fsdp2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"},
}
_ENVIRONMENTS["zero2_offload"] = {**_ENVIRONMENTS["zero2"], "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu"}


@contextlib.contextmanager
def as_launched(kind: str | None) -> Iterator[None]:
    """Set the environment variables of a launcher of accelerate_configs/; None changes nothing.

    For checks of a recipe for another machine. Nothing is launched.
    """
    variables = _ENVIRONMENTS.get(kind or "", {})
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def launch_problems(recipe: Recipe, *, here: bool = True) -> list[Problem]:
    """Find what this launcher can't train; each problem names the alternative.

    Args:
        here: False for a launch on another machine.
    """
    kind = launcher()
    problems = [Problem(message, "launcher-conflict", key) for key, message in _conflicts(recipe.settings, kind)]
    if kind.endswith("_offload") and here:
        problems += deepspeed_build.stale_locks()
    return problems


def _conflicts(settings: Mapping[str, Any], kind: str) -> Iterator[tuple[str | None, str]]:
    """Keys of the recipe (None: of the launcher's configuration), and what is wrong with each."""
    for key in ("deepspeed", "fsdp", "fsdp_config"):
        if settings.get(key):
            message = (
                f"{key}: the launcher decides how processes share the work. Remove the key and use accelerate launch "
                "--config_file accelerate_configs/zero3.yaml (or another of that folder)."
            )
            yield key, message
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision != "no" and settings.get("bf16") is False and not settings.get("fp16"):
        message = (
            f"mixed_precision: {precision} in the launcher's configuration overrides the recipe's bf16: false. "
            'Set mixed_precision: "no" there, as accelerate_configs/ does, or bf16: true in the recipe.'
        )
        yield "bf16", message
    if kind.startswith("zero3") and os.environ.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true") == "false":
        message = (
            "zero3_save_16bit_model: false in the launcher's configuration: the trained weights would never be "
            "gathered, and no model saved. Set it to true, as accelerate_configs/zero3.yaml does."
        )
        yield None, message
    optimizer = settings.get("optim")
    if kind.endswith("_offload") and optimizer and not str(optimizer).startswith("adamw_torch"):
        message = (
            f"optim: {optimizer} with {kind}: the optimizer on the CPU is always DeepSpeed's Adam. Remove the key, "
            "or use accelerate_configs/zero2.yaml or zero3.yaml."
        )
        yield "optim", message
    if kind.startswith("fsdp"):
        yield from _fsdp_conflicts(settings, kind)


def _fsdp_conflicts(settings: Mapping[str, Any], kind: str) -> Iterator[tuple[str | None, str]]:
    if settings.get("use_cpu") and not FSDP_ON_CPUS:
        message = (
            f"{kind} with use_cpu: without GPUs accelerate silently uses DDP, which shards nothing. Use "
            "accelerate_configs/cpu.yaml, or zero3.yaml with --num_processes 2, which shards on CPUs too."
        )
        yield "use_cpu", message
    if kind != "fsdp2":
        message = (
            "fsdp_version: 1 in the launcher's configuration: its weights are not gathered for generation. Use "
            "accelerate_configs/fsdp2.yaml, its successor."
        )
        yield None, message
    if "FULL" not in os.environ.get("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT" if kind == "fsdp1" else "SHARDED"):
        message = (
            "fsdp_state_dict_type: SHARDED_STATE_DICT (accelerate's default) in the launcher's configuration: the run "
            "would succeed and save neither adapter nor model. Set it to FULL_STATE_DICT, as "
            "accelerate_configs/fsdp2.yaml does."
        )
        yield None, message
    storage = settings.get("bnb_4bit_quant_storage", "uint8")
    if settings.get("load_in_4bit") and storage in ("uint8", "int8"):
        message = (
            f"load_in_4bit with {kind}: accelerate doesn't shard 4-bit weights that are stored as {storage}, so every "
            f"GPU would hold them all. Set bnb_4bit_quant_storage: {settings.get('dtype', 'bfloat16')}. Or use "
            "accelerate_configs/ddp.yaml if they fit on each GPU, or zero3.yaml, which shards them as they are."
        )
        yield "bnb_4bit_quant_storage", message


def _is_on(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1", "yes", "on")


def _deepspeed_stage() -> tuple[str, bool]:
    """The ZeRO stage, and whether optimizer states are on the CPU; from DeepSpeed's own file if one is named."""
    file = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if file.lower() != "none" and Path(file).is_file():
        zero = json.loads(Path(file).read_text(encoding="utf-8")).get("zero_optimization", {})
        return str(zero.get("stage", 0)), zero.get("offload_optimizer", {}).get("device", "none") != "none"
    offload = os.environ.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none")
    return os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"), offload.lower() != "none"


def join(recipe: Recipe) -> PartialState:
    """Join the processes of this launch; later calls return the same state.

    Raises:
        InputError: fewer processes train together than were started.
    """
    check_environment(recipe)
    from accelerate import PartialState

    use_cpu = bool(recipe.value("use_cpu"))
    if use_cpu and launcher().startswith("zero"):
        deepspeed_build.skip_shared_memory_kernel()
    # The first PartialState decides how long a rank waits for the others. TrainingArguments would come too late, since
    # the base model is evaluated first.
    timeout = timedelta(seconds=recipe.value("ddp_timeout"))
    state = PartialState(cpu=use_cpu, **({"timeout": timeout} if "RANK" in os.environ else {}))
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != started:
        raise InputError(
            f"{started} processes were started, but they don't train together: without GPUs the recipe needs "
            "use_cpu: true (or --use_cpu true). Otherwise each would train alone into the same folder.",
            kind="launch-failed",
            key="use_cpu",
        )
    return state


def check_environment(recipe: Recipe) -> None:
    """Check, without importing torch, that the launch can be joined and started every process.

    Raises:
        InputError: it can't, or didn't; names the command to use.
    """
    if launcher().startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        raise InputError(
            f"{launcher()}: deepspeed is not installed. Run pip install deepspeed, or launch with "
            "accelerate_configs/fsdp2.yaml, which shards without it.",
            kind="package-not-installed",
        )
    requested = None
    with contextlib.suppress(psutil.Error):  # the parent has ended, or can't be read
        requested = requested_processes(psutil.Process(os.getppid()).cmdline())
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if requested is not None and requested > 1 and started == 1:
        raise InputError(
            f"accelerate was asked for {requested} processes but started one: its MULTI_CPU type, and its default "
            "without GPUs, do that silently. Use accelerate launch --config_file accelerate_configs/cpu.yaml "
            f"--num_processes {requested}.",
            kind="launch-failed",
        )


def requested_processes(command: Sequence[str]) -> int | None:
    """The number of processes that an `accelerate launch` command line requests; None if it is no such command."""
    words = [Path(word).name for word in command]
    if not any(word in ("accelerate", "accelerate-launch", "accelerate.commands.launch") for word in words):
        return None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--num_processes", "--num-processes", type=int)
    parser.add_argument("--config_file", "--config-file", type=Path)
    options, _ = parser.parse_known_args(command)
    if options.num_processes is None and options.config_file is not None and options.config_file.is_file():
        return (YAML(typ="safe", pure=True).load(options.config_file) or {}).get("num_processes")
    return options.num_processes
