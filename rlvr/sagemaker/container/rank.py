"""One training process of a job: runs the program, and leaves word of how it ended.

    python -m rlvr.sagemaker.container.rank run_grpo.py --config recipe.yaml

A launcher makes of every failure its own exit code 1 and its own traceback. So each process notes, in RANKS, that it is
there (which is how a stop finds it, see pid1.py), and at its end its exit code and the last that it had to say,
from which entrypoint.py makes the one line that a person reads as the reason.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Sequence

from rlvr import console
from rlvr.sagemaker.container.pid1 import RANKS


def main(words: Sequence[str]) -> int:
    program, *arguments = words
    rank = int(os.environ.get("RANK", "0"))
    RANKS.mkdir(parents=True, exist_ok=True)
    (RANKS / str(os.getpid())).write_text(str(rank), encoding="ascii")
    said = _listen()
    code = 0
    sys.argv = [program, *arguments]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            console.error(end.code)
    except BaseException as error:
        traceback.print_exc()
        said.append(f"{type(error).__name__}: {error}")
        code = 1
    _note(rank, code, said[-1] if said else "")
    return code


def _listen() -> list[str]:
    """Collects from now on what our own code says to people, of every rank, though only rank 0 prints it."""
    said: list[str] = []
    say, complain = console.info, console.error

    def say_and_keep(text: str = "") -> None:
        said.append(text)
        say(text)

    def complain_and_keep(text: str) -> None:
        said.append(text)
        complain(text)

    console.info, console.error = say_and_keep, complain_and_keep
    return said


def _note(rank: int, code: int, said: str) -> None:
    beside = RANKS / f".{rank}"
    beside.write_text(json.dumps({"rank": rank, "code": code, "said": said, "at": time.time()}), encoding="utf-8")
    beside.replace(RANKS / f"{rank}.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
