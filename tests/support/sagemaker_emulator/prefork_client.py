"""Replace a Python program in a container that would import libraries for ten seconds; see containers.py.

    python -S prefork_client.py PATH -m MODULE words…     PATH: of container_process.py, outside the container

tests/support/prefork.py forks a process that has imported the libraries. That process runs container_process.py, which
enters this container and runs its module. This program forwards signals to it, and ends with its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from types import FrameType

PREFORK_SOCKET = "/opt/image/prefork"
KINDS = ("mnt", "uts", "ipc", "net", "pid")


def main(container_process: str, words: list[str]) -> int:
    ours, theirs = socket.socketpair()
    prefork = socket.socket(socket.AF_UNIX)
    prefork.connect(PREFORK_SOCKET)
    request = {"words": [container_process], "environment": dict(os.environ), "folder": "/"}
    socket.send_fds(prefork, [json.dumps(request).encode()], [theirs.fileno(), 1, 2])
    theirs.close()
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in KINDS]
    socket.send_fds(ours, [json.dumps({"words": words, "folder": os.getcwd()}).encode()], [0, *namespaces])
    process = int(ours.makefile().readline())

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(process, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    *_, end = prefork.makefile().read().splitlines()
    code = int(json.loads(end)["code"])
    if code < 0:  # A signal ended it, so that is how this one ends.
        with contextlib.suppress(OSError):  # SIGKILL is always its default
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
