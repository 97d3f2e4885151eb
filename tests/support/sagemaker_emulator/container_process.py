"""Run a module in a container, in a process that is forked from the prefork server (see prefork_client.py).

Only libraries stay imported. Modules of this repository are dropped, because a job runs the uploaded code.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import namespaces

    with socket.socket(fileno=os.dup(0)) as prefork_client:
        content, descriptors, *_ = socket.recv_fds(prefork_client, 1 << 20, 6)
        os.dup2(descriptors[0], 0)
        for descriptor in descriptors[1:]:
            namespaces.enter(descriptor)
        process = os.fork()  # only the child is in the container's process namespace
        if process:
            end_as(process)
        namespaces.die_with_parent()
        prefork_client.sendall(f"{os.getpid()}\n".encode())
    for descriptor in descriptors:
        os.close(descriptor)
    request = json.loads(content)
    os.chdir(request["folder"])
    words = request["words"]
    if words[0] == "-u":
        del words[0]  # output is flushed anyway
    flag, module, *words = words
    assert flag == "-m", "the stand-in is for modules"
    for name in list(sys.modules):
        if name.partition(".")[0] in ("rlvr", "rewards", "tasks", "scripts", "namespaces"):
            del sys.modules[name]
    tests = str(REPOSITORY / "tests")
    others = [folder for folder in sys.path if folder != str(REPOSITORY) and not folder.startswith(tests)]
    sys.path[:] = [os.getcwd(), *others]
    sys.executable = "/opt/image/bin/python3"
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_as(process: int) -> None:
    """End with the exit code or signal of another process."""
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL is always its default
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
