"""Start a program through the prefork server (tests/support/prefork.py), in place of `accelerate` or a script.

python prefork_client.py accelerate launch --config_file X --num_processes 2 prefork_client.py run_grpo --config RECIPE
python prefork_client.py scripts/evaluate.py --config RECIPE
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
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ["PREFORK_SOCKET"])
    request = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    answers = server.makefile()
    child = json.loads(answers.readline())["pid"]

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    rank = os.environ.get("RANK", "launcher" if words[0] == "accelerate" else "0")
    write_note(f"{rank}.pid", str(child))
    answer = answers.read()
    code = json.loads(answer)["code"] if answer else -signal.SIGKILL  # the server was killed, and the child with it
    write_note(f"{rank}.code", str(code))
    if code < 0:  # end by the same signal
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def write_note(name: str, text: str) -> None:
    """Write a file for the test atomically, if it asks for any."""
    if "LAUNCH_NOTES" not in os.environ:
        return
    path = os.path.join(os.environ["LAUNCH_NOTES"], name)
    with open(f"{path}.half", "w") as file:
        file.write(text)
    os.rename(f"{path}.half", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
