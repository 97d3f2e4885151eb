"""Make the job's failure reason and exit code from the exits of its training processes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FAILURE = Path("/opt/ml/output/failure")
MAX_LENGTH = 990  # the service cuts the reason at 1024 characters, with its own words around it
STOPPED_EARLY = 75


@dataclass(frozen=True)
class ProcessExit:
    """How one training process of this host ended.

    Attributes:
        code: its exit code; None if it was killed before it could write one.
        message: its last message.
        time: seconds since 1970.
    """

    rank: int
    code: int | None
    message: str = ""
    time: float = 0.0


def read_exits(ranks: Path) -> list[ProcessExit]:
    """The exits that rank.py recorded, and one without a code for each process that recorded none."""
    exits = {}
    for file in ranks.glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        exits[content["rank"]] = ProcessExit(**content)
    started = [int(file.read_text(encoding="ascii") or 0) for file in ranks.iterdir() if file.name.isdigit()]
    return [*exits.values(), *(ProcessExit(rank, None) for rank in started if rank not in exits)]


def failure_reason(exits: Sequence[ProcessExit], launcher_code: int) -> tuple[str, int]:
    """The reason why training ended, and the exit code of the job.

    The first process that failed is the cause, because the launcher then ends the others. Processes that were killed or
    that stopped with a checkpoint only followed.
    """
    failed = sorted((exit for exit in exits if exit.code not in (None, 0, STOPPED_EARLY)), key=lambda exit: exit.time)
    killed = [exit for exit in exits if exit.code is None]
    stopped = sorted((exit for exit in exits if exit.code == STOPPED_EARLY), key=lambda exit: exit.rank)
    if failed:
        first = failed[0]
        return (
            first.message or f"Process {first.rank} ended with exit code {first.code} and no message.",
            first.code or 1,
        )
    if killed:
        return (
            f"Process {killed[0].rank} was killed, most often because the host's memory (not the GPU's) was exhausted. "
            "A job on the same checkpoints continues from the last one.",
            1,
        )
    if stopped:
        first = stopped[0]
        return _name_resume_command(first.message if first.rank == 0 else "Stopped early."), STOPPED_EARLY
    return f"The launcher ended with exit code {launcher_code} before any training process started: see the log.", 1


def _name_resume_command(message: str) -> str:
    """A run's message says that "the same command" continues it. For a job that is `resume`."""
    command = f"`scripts/sagemaker.py resume {os.environ.get('TRAINING_JOB_NAME', 'JOB')}`"
    named, replacements = re.subn("the same command", command, message, flags=re.IGNORECASE)
    return named if replacements else f"{message} {command} continues."


def fail(reason: str, code: int, *, is_logged: bool = False) -> int:
    """Write the failure reason as one line; return the exit code."""
    line = single_line(reason)
    if not is_logged:
        print(f"\n{line}", file=sys.stderr, flush=True)
    FAILURE.parent.mkdir(parents=True, exist_ok=True)
    FAILURE.write_text(line, encoding="utf-8")
    return code


def single_line(text: str) -> str:
    """Join lines to one that the service keeps whole. The service appends a comma and the exit code."""
    joined = ""
    for line in (line.strip() for line in text.splitlines() if line.strip()):
        joined += ("" if not joined else " " if joined[-1] in ".:;!?," else "; ") + line
    return joined.rstrip(".") if len(joined) <= MAX_LENGTH else joined[: MAX_LENGTH - 1] + "…"
