"""Process 1 of the job's container: hands a stop on to the trainers, and keeps pip away from the image's own libraries.

    python3 pid1.py COMMAND …

The SDK would make bash process 1, which has no handler for SIGTERM, and the kernel drops a signal that process 1 has no
handler for. A stop or a spot interruption would then be two minutes of silence and a SIGKILL. This program takes its
place: it starts the command, and hands SIGTERM to the training processes themselves, who save a checkpoint and end
(rlvr/training/interruption.py). They are those that have put a file with their number into RANKS; the launcher between
is left out, since it would give them thirty seconds. Where nothing trains yet, the command is told to end.

Exit code: the command's; 128 and the signal's number if a signal ended it; 143 if it was stopped before it was done.
A stop is no failure: what the SDK's driver wrote down as one is taken back.

Standard library only, and any Python from 3.10 on: it runs before anything is installed.
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
SERVES = "serves"  # in the file of a process that serves the training and ends with it; a trainer's has its rank

# What an image brings as a matching set, down to the CUDA version. pip is to leave it as it is.
IMAGES_OWN = (
    "torch", "torchvision", "torchaudio", "triton", "flash-attn", "flash-attn-3", "deepspeed", "transformer-engine",
    "apex", "xformers", "vllm", "mpi4py", "smdistributed-dataparallel",
)  # fmt: skip
IMAGES_OWN_PREFIXES = ("nvidia-", "cuda-", "transformer-engine-")


def main(command: Sequence[str]) -> int:
    """Runs the command to its end and returns the exit code for the container."""
    shutil.rmtree(RANKS, ignore_errors=True)
    RANKS.mkdir(parents=True)
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        hand_on(signal.Signals(number), child.pid)

    # Blocked until the child is known: a signal that comes at once is then handed on as well.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = subprocess.Popen(command, env=environment(os.environ), preexec_fn=_unblock)
    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    code = wait_for(child.pid)
    if stopped and code != 0:
        FAILURE.unlink(missing_ok=True)
        return STOPPED
    return code


def hand_on(number: signal.Signals, command: int) -> None:
    """Sends the signal to every training process; to the command itself where there is none."""
    processes = {int(file.name): file.read_text(encoding="ascii") for file in RANKS.iterdir() if file.name.isdigit()}
    told = [what for process, what in processes.items() if _send(process, number)]
    if SERVES in told:
        _say(f"{number.name}: told what serves the training, which ends when that has ended")
    elif told:
        _say(f"{number.name}: told {len(told)} training processes, which save a checkpoint and end")
    else:
        _say(f"{number.name}: nothing is being trained; ending")
        _send(command, number)


def wait_for(process: int) -> int:
    """Waits for a child to end, and meanwhile for every orphan, which are process 1's to wait for."""
    while True:
        ended, status = os.wait()
        if ended == process:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment with one more constraints file for pip: what the image brings, at the versions it brings."""
    pins = image_pins()
    if not pins:
        return dict(given)
    PINS.write_text("\n".join(pins) + "\n", encoding="utf-8")
    _say(f"pip leaves as they are: {', '.join(pins)}")
    return {**given, "PIP_CONSTRAINT": f"{given.get('PIP_CONSTRAINT', '')} {PINS}".strip()}


def image_pins() -> list[str]:
    """`name==version` of every installed library that is the image's own."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in IMAGES_OWN or name.startswith(IMAGES_OWN_PREFIXES):
            found.setdefault(name, distribution.version)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _send(process: int, number: signal.Signals) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _say(text: str) -> None:
    print(f"process 1: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
