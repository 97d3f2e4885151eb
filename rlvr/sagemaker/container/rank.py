"""Run one training process of a job, and record how it ended.

    python -m rlvr.sagemaker.container.rank run_grpo.py --config recipe.yaml

A launcher turns every failure into its own exit code 1 and its own traceback. So each process registers in RANKS, where
pid1.py finds it to stop it. At its end it writes its exit code and last message there, from which entrypoint.py makes
the failure reason.
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
    messages = _record_messages()
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
        messages.append(f"{type(error).__name__}: {error}")
        code = 1
    _write_exit(rank, code, messages[-1] if messages else "")
    return code


def _record_messages() -> list[str]:
    """Collect all console messages of this process from now on. Every rank does, though only rank 0 prints."""
    messages: list[str] = []
    info, error = console.info, console.error

    def record_info(text: str = "") -> None:
        messages.append(text)
        info(text)

    def record_error(text: str) -> None:
        messages.append(text)
        error(text)

    console.info, console.error = record_info, record_error
    return messages


def _write_exit(rank: int, code: int, message: str) -> None:
    temporary = RANKS / f".{rank}"
    content = {"rank": rank, "code": code, "message": message, "time": time.time()}
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(RANKS / f"{rank}.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
