"""Process 1 of a job's container: forward stop signals to the trainers, and pin the image's libraries for pip.

    python3 pid1.py COMMAND …

If bash were process 1, the kernel would drop SIGTERM, because bash has no handler for it. A stop or a spot interruption
would then be two minutes of silence and a SIGKILL. This program runs the command and forwards SIGTERM to the training
processes, which save a checkpoint and exit (rlvr/training/interruption.py). They have registered their process ids in
RANKS. The launcher gets no signal, because it would kill them after 30 seconds. If nothing trains yet, the command gets
the signal.

Exit code: the command's; 128 + N if signal N ended it; 143 if it was stopped before it was done. A stop is not a
failure, so the failure file is then deleted.

Standard library only, for Python 3.10 or newer: it runs before anything is installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

RANKS = Path("/tmp/grpo-ranks")
PINS = Path("/tmp/grpo-image-constraints.txt")
FAILURE = Path("/opt/ml/output/failure")
STOPPED = 128 + signal.SIGTERM
SERVER = "server"  # content of the file of a process that serves the training; a trainer's file has its rank

# Libraries that an image brings as a matching set, down to the CUDA version. pip must not replace them.
IMAGE_PACKAGES = (
    "torch",
    "torchvision",
    "torchaudio",
    "triton",
    "flash-attn",
    "flash-attn-3",
    "deepspeed",
    "transformer-engine",
    "apex",
    "xformers",
    "vllm",
    "mpi4py",
    "smdistributed-dataparallel",
)
IMAGE_PACKAGE_PREFIXES = ("nvidia-", "cuda-", "transformer-engine-")


def main(command: Sequence[str]) -> int:
    """Run the command; return the exit code of the container."""
    shutil.rmtree(RANKS, ignore_errors=True)
    RANKS.mkdir(parents=True)
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        forward_signal(signal.Signals(number), child.pid)

    # Blocked until `child` is set, so that an early signal is forwarded too.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = subprocess.Popen(command, env=pinned_environment(os.environ), preexec_fn=_unblock)
    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    code = reap_until_exit(child.pid)
    if stopped and code != 0:
        FAILURE.unlink(missing_ok=True)
        return STOPPED
    if code and FAILURE.parent.is_dir() and not FAILURE.exists():
        FAILURE.write_text(f"{command[-1]} failed without a reason: see the log", encoding="utf-8")
    return code


def forward_signal(number: signal.Signals, command: int) -> None:
    """Send the signal to all registered processes, or to the command if there are none."""
    processes = {int(file.name): file.read_text(encoding="ascii") for file in RANKS.iterdir() if file.name.isdigit()}
    reached = [role for process, role in processes.items() if _send(process, number)]
    if SERVER in reached:
        _log(f"{number.name} forwarded to the server, which ends when the training has ended")
    elif reached:
        _log(f"{number.name} forwarded to {len(reached)} training processes, which save a checkpoint and end")
    else:
        _log(f"{number.name}: nothing trains yet, so the command is stopped")
        _send(command, number)


def reap_until_exit(process: int) -> int:
    """Wait for a child's exit code, and reap all orphans meanwhile, as process 1 must."""
    while True:
        ended, status = os.wait()
        if ended == process:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def pinned_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Add a pip constraints file with the image's libraries at their installed versions."""
    pins = image_pins()
    if not pins:
        return dict(environment)
    PINS.write_text("\n".join(pins) + "\n", encoding="utf-8")
    _log(f"pinned for pip: {', '.join(pins)}")
    return {**environment, "PIP_CONSTRAINT": f"{environment.get('PIP_CONSTRAINT', '')} {PINS}".strip()}


def image_pins() -> list[str]:
    """`name==version` of each installed library of the image's matching set."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in IMAGE_PACKAGES or name.startswith(IMAGE_PACKAGE_PREFIXES):
            versions.setdefault(name, distribution.version)
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def _send(process: int, number: signal.Signals) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _log(text: str) -> None:
    print(f"process 1: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
