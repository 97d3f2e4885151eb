"""What training and evaluation share in their use of vLLM."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import psutil
from packaging.specifiers import SpecifierSet

from rlvr.errors import Problem

SUPPORTED = ">=0.22,<0.32"  # by TRL 1.16; the same as in pyproject.toml
INSTALL = "Run `pip install -e '.[vllm]'` in an environment of its own"
# The ranks that vLLM makes room for; an adapter takes the next larger one (vllm.config.lora.MaxLoRARanks).
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
MAX_RANK = _RANKS[-1]

ENDED_S = 60.0  # for a killed process to give its memory back
_CLIENT = "GRPO_VLLM_CLIENT"  # the process that uses an engine, for the engine's processes


def room_for_rank(rank: int) -> int:
    """The `max_lora_rank` with which vLLM takes an adapter of a rank, which is at most `MAX_RANK`."""
    return next(room for room in _RANKS if room >= rank)


def sends_adapter(settings: Mapping[str, Any]) -> bool:
    """Whether vLLM gets the adapter instead of all weights."""
    return bool(settings.get("use_peft")) and settings.get("vllm_weight_sync") != "merged"


class EndsWithClient:
    """A base class for vLLM's worker: ends vLLM's processes when the program that uses them is killed.

    Without it they wait for requests forever, and keep their share of the GPU.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> EndsWithClient:
        parent, client = multiprocessing.parent_process(), int(os.environ[_CLIENT])
        if parent is not None:  # otherwise vLLM runs in the program itself (VLLM_ENABLE_V1_MULTIPROCESSING=0)
            # On CPUs the worker is a process of the engine's, elsewhere the engine itself.
            processes = [os.getpid()] if parent.pid == client else [parent.pid, os.getpid()]
            threading.Thread(target=_kill_after, args=(client, processes), daemon=True).start()
        return super().__new__(cls)


def _kill_after(client: int, processes: Sequence[int]) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(client).wait()
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def ends_with_this_process() -> dict[str, str]:
    """The option of `vllm.LLM` with which its processes end when this one does, however that is."""
    os.environ[_CLIENT] = str(os.getpid())
    return {"worker_extension_cls": f"{EndsWithClient.__module__}.{EndsWithClient.__qualname__}"}


def end_engine(engine: Any) -> None:
    """End the engine of a `vllm.LLM`, with its processes; its memory is free once the last reference is gone."""
    processes = multiprocessing.active_children()
    engine.llm_engine.engine_core.shutdown()
    for process in processes:
        if process.name.startswith("EngineCore"):
            process.join(ENDED_S)  # vLLM kills it after a few seconds, and then doesn't wait
    gc.unfreeze()  # vLLM froze all objects when it started, and frozen ones are never collected


def installation_problem(key: str) -> Problem | None:
    """Why the installed vLLM can't be used; None if it can.

    Args:
        key: of the recipe, which asks for vLLM.
    """
    try:
        version = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return Problem(f"{key}: vLLM is not installed. {INSTALL}.", "package-not-installed", key)
    if SpecifierSet(SUPPORTED).contains(version, prereleases=True):
        return None
    message = f"{key}: vLLM {version} is installed, but TRL supports {SUPPORTED}. {INSTALL}."
    return Problem(message, "unsupported-version", key)
