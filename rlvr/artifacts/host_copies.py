"""Copy what the main process saved to hosts that do not share its disk."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, gather_object

CHUNK_BYTES = 64 * 2**20


def copy_to_all_hosts(folder: Path, state: PartialState) -> None:
    """Copy a folder of the main process to all hosts, through the processes' own network. Collective.

    Hosts that share the main process's disk are left alone.
    """
    if state.num_processes == 1:
        return
    is_missing = not _is_on_shared_disk(folder, state)
    if not any(gather_object([is_missing])):
        return
    writes = is_missing and state.is_local_main_process
    sizes = None
    if state.is_main_process:
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    sizes = broadcast_object_list([sizes])[0]
    for name, size in sizes.items():
        _copy_file(folder / name, size, state, writes)
    if writes:
        for path in folder.rglob("*"):
            if path.is_file() and str(path.relative_to(folder)) not in sizes:
                path.unlink()  # of an earlier run
    state.wait_for_everyone()


def _is_on_shared_disk(folder: Path, state: PartialState) -> bool:
    """Whether this process sees a file that the main process has just written. Collective."""
    marker = folder / broadcast_object_list([f".{secrets.token_hex(8)}"])[0]
    if state.is_main_process:
        marker.touch()
    state.wait_for_everyone()
    is_shared = marker.exists()
    state.wait_for_everyone()
    if state.is_main_process:
        marker.unlink()
    return is_shared


def _copy_file(path: Path, size: int, state: PartialState, writes: bool) -> None:
    with ExitStack() as stack:
        source = stack.enter_context(path.open("rb")) if state.is_main_process else None
        partial = path.with_name(f".{path.name}.partial")
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
        target = stack.enter_context(partial.open("wb")) if writes else None
        for start in range(0, size, CHUNK_BYTES):
            chunk = torch.empty(min(CHUNK_BYTES, size - start), dtype=torch.uint8)
            if source is not None:
                chunk = torch.frombuffer(bytearray(source.read(len(chunk))), dtype=torch.uint8)
            chunk = broadcast(chunk.to(state.device))
            if target is not None:
                target.write(chunk.cpu().numpy().tobytes())
    if writes:
        partial.replace(path)
