"""Stands in a container for a Python program that would import for ten seconds; containers.py says where.

    python -S stand_in.py ENTERED -m MODULE words…     where ENTERED is the path of entered.py outside

It has tests/support/prefork.py fork a process that has the libraries imported. That runs entered.py, which comes into
this container and there runs the module, as it lies in this container. Signals are handed on, and this ends as it ends.
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


def main(entered: str, words: list[str]) -> int:
    ours, theirs = socket.socketpair()
    prefork = socket.socket(socket.AF_UNIX)
    prefork.connect(PREFORK_SOCKET)
    request = {"words": [entered], "environment": dict(os.environ), "folder": "/"}
    socket.send_fds(prefork, [json.dumps(request).encode()], [theirs.fileno(), 1, 2])
    theirs.close()
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in KINDS]
    socket.send_fds(ours, [json.dumps({"words": words, "folder": os.getcwd()}).encode()], [0, *namespaces])
    process = int(ours.makefile().readline())

    def hand_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended this moment
            os.kill(process, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hand_on)
    *_, end = prefork.makefile().read().splitlines()
    code = int(json.loads(end)["code"])
    if code < 0:  # A signal ended it, so that is how this one ends.
        with contextlib.suppress(OSError):  # SIGKILL is always its default
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
