"""Try each confinement mechanism in a child process; print as JSON why it fails, or null."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confinement  # type: ignore[import-not-found]


def failure_of(action: Callable[[], None]) -> str | None:
    """Run an action in a child process; return why it fails, or None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException as error:
            os.write(writing, str(error).encode() or b"it fails")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    message = os.read(reading, 1000).decode(errors="replace")
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    return None if status == 0 else message or f"its process ended with status {status}"


def main() -> None:
    folder, users, filter_code = sys.argv[1], json.loads(sys.argv[2]), bytes.fromhex(sys.argv[3])

    def load() -> None:
        confinement.no_new_privileges()
        confinement.Filter(filter_code).load()

    def landlock() -> None:
        confinement.no_new_privileges()
        confinement.restrict_paths([], [])

    failures: dict[str, object] = {
        "seccomp": failure_of(load) if filter_code else "no filter for this machine's processor",
        "landlock": failure_of(landlock),
        "chroot": failure_of(lambda: confinement.change_root(folder)) if folder else "no empty folder can be made",
        "users": [failure_of(functools.partial(confinement.change_user, user)) for user in users],
    }
    print(json.dumps(failures))


main()
