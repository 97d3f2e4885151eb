"""Tries each means of confinement in a process of its own and prints as JSON why it is not to be had, or null."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confinement  # type: ignore[import-not-found]


def tried(measure: Callable[[], None]) -> str | None:
    """What hinders a measure, or None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            measure()
        except BaseException as error:
            os.write(writing, str(error).encode() or b"it fails")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    words = os.read(reading, 1000).decode(errors="replace")
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    return None if status == 0 else words or f"its process ended with status {status}"


def main() -> None:
    folder, users, filter_code = sys.argv[1], json.loads(sys.argv[2]), bytes.fromhex(sys.argv[3])

    def load() -> None:
        confinement.no_new_privileges()
        confinement.Filter(filter_code).load()

    def landlock() -> None:
        confinement.no_new_privileges()
        confinement.restrict_paths([], [])

    outcome: dict[str, object] = {
        "seccomp": tried(load) if filter_code else "its calls are not known for this machine's processor",
        "landlock": tried(landlock),
        "chroot": tried(lambda: confinement.change_root(folder)) if folder else "no folder can be made for it",
        "users": [tried(functools.partial(confinement.change_user, user)) for user in users],
        "landlock_version": confinement.landlock_version(),
    }
    print(json.dumps(outcome))


main()
