"""Stands for `accelerate` or a script in what a test starts; tests/support/nest.py says why, and does the work.

python stand_in.py accelerate launch --config_file X --num_processes 2 stand_in.py run_grpo --config RECIPE
python stand_in.py scripts/evaluate.py --config RECIPE base
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from types import FrameType


def main(words: list[str]) -> int:
    nest = socket.socket(socket.AF_UNIX)
    nest.connect(os.environ["NEST"])
    request = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(nest, [json.dumps(request).encode()], [0, 1, 2])
    answers = nest.makefile()
    child = json.loads(answers.readline())["pid"]

    def hand_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended this moment
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hand_on)
    rank = os.environ.get("RANK", "launcher" if words[0] == "accelerate" else "0")
    leave(f"{rank}.pid", str(child))
    answer = answers.read()
    code = json.loads(answer)["code"] if answer else -signal.SIGKILL  # the nest is gone, and with it the child
    leave(f"{rank}.code", str(code))
    if code < 0:  # A signal ended it, so that is how this one ends.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def leave(name: str, text: str) -> None:
    """Leaves a note for the test, if it wants any, whole or not at all."""
    if "NOTES" not in os.environ:
        return
    path = os.path.join(os.environ["NOTES"], name)
    with open(f"{path}.half", "w") as file:
        file.write(text)
    os.rename(f"{path}.half", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
