"""Which means of confinement this machine offers: tried once a process, named in logs and in a run's metadata.

    strong   programs can ask the kernel for nothing but memory, threads and time (seccomp), and paths are closed a
             second time, by Landlock or by an empty root. What compilers read is confined too.
    sealed   the same for programs, by seccomp alone. What a compiler reads can't be confined, so nothing is compiled.
    weak     resource limits only. Refused, unless weak sandboxes are allowed explicitly.

docs/sandbox.md says what each of them stops.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rlvr.sandbox import directories, seccomp
from rlvr.sandbox.limits import SandboxUnavailable
from rlvr.sandbox.zygote import (
    _SMALL_USERS,
    _USERS,
    GUEST,
    Confinement,
    ResourceLimits,
    Zygote,
    ZygoteError,
    ZygoteSpec,
)

_log = logging.getLogger(__name__)
STRONG, SEALED, WEAK = "strong", "sealed", "weak"
MEANS = ("seccomp", "landlock", "chroot", "user")


@dataclass(frozen=True)
class SandboxCapabilities:
    """What is used here, and why the rest is not.

    Attributes:
        missing: by the name of a means, what hinders it.
    """

    confinement: Confinement
    landlock_version: int = 0
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def tier(self) -> str:
        if not self.confinement.seccomp:
            return WEAK
        return STRONG if self.confinement.landlock or self.confinement.chroot else SEALED

    @property
    def compiling(self) -> bool:
        """Whether a compiler can be kept from reading what it is not meant to."""
        return self.confinement.seccomp and (self.confinement.landlock or self.confinement.chroot)

    def describe(self) -> str:
        """One line for a log."""
        names = {"seccomp": "seccomp", "landlock": "Landlock", "chroot": "empty root", "user": "users of their own"}
        used = [words for name, words in names.items() if getattr(self.confinement, name)]
        line = f"sandbox {self.tier}: {', '.join(used) or 'resource limits only'}"
        if self.missing:
            line += "; without " + ", ".join(f"{names[name]} ({why})" for name, why in self.missing.items())
        return line

    def metadata(self) -> dict[str, str]:
        """For the log and the metadata of a run."""
        return {"sandbox": self.describe().removeprefix("sandbox ")}


_found: SandboxCapabilities | None = None
_switched_off: frozenset[str] = frozenset()


def detect_capabilities() -> SandboxCapabilities:
    """What this machine offers; found out at the first call."""
    global _found
    if _found is None:
        found = _probe()
        _verify(found)
        _found = found
        _log.info("%s", found.describe())
    return _found


@contextlib.contextmanager
def switched_off(*names: str) -> Iterator[SandboxCapabilities]:
    """Does without some means for a while: to see what the others hold.

    Raises:
        ValueError: there is no such means.
    """
    global _found, _switched_off
    from rlvr.verifiers.code import scheduler

    unknown = set(names) - set(MEANS)
    if unknown:
        raise ValueError(f"no such means: {', '.join(sorted(unknown))}; there are {', '.join(MEANS)}")
    before = _switched_off
    scheduler.close()
    _found, _switched_off = None, before | set(names)
    try:
        yield detect_capabilities()
    finally:
        scheduler.close()
        _found, _switched_off = None, before


def _probe() -> SandboxCapabilities:
    folder = None
    with contextlib.suppress(OSError):
        folder = directories.Scratch("probe")
    try:
        code = seccomp.starter_filter().hex() if seccomp.supported() else ""
        command = [sys.executable, "-S", "-s", "-P", "-B", str(GUEST / "probe.py"), str(folder.path if folder else "")]
        command += [json.dumps([_USERS[-1], _SMALL_USERS[-1]]), code]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath}, check=False
        )
        if done.returncode != 0:
            raise SandboxUnavailable(f"The sandbox can't be probed:\n{done.stderr.strip()[-1500:]}")
        outcome = json.loads(done.stdout)
    finally:
        if folder is not None:
            folder.discard()
    users = outcome.pop("users")
    version = outcome.pop("landlock_version")
    hindered = {name: why for name, why in outcome.items() if why is not None}
    if None not in users:
        hindered["user"] = users[0] or "it fails"
    for name in _switched_off:
        hindered[name] = "switched off"
    confinement = Confinement(**{name: name not in hindered for name in MEANS})
    return SandboxCapabilities(replace(confinement, small_users=users[0] is not None), version, hindered)


def _verify(found: SandboxCapabilities) -> None:
    """Runs a program that tries to get out; nothing is judged where one of its attempts works.

    Raises:
        SandboxUnavailable: an attempt worked that this tier must stop, or nothing can be run.
    """
    if found.tier == WEAK:
        return
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        files = [str(GUEST / "escape_canary.py"), "/etc/passwd"]
        with contextlib.suppress(OSError):
            files.append(stack.enter_context(tempfile.NamedTemporaryFile(dir=directories.temporary_folders()[0])).name)
        given = {"files": files, "port": listener.getsockname()[1], "judge": os.getpid()}
        try:
            zygote = Zygote(ZygoteSpec("python", preload=("ctypes", "functools", "json")), found.confinement)
        except ZygoteError as error:
            raise SandboxUnavailable(f"Programs can't be confined here ({found.describe()}): {error}") from error
        stack.callback(zygote.close)
        zygote.load((GUEST / "escape_canary.py").read_bytes())
        ran = zygote.run(ResourceLimits(10, 30, 512, 1 << 16, 8), given=json.dumps(given).encode())
    try:
        worked = json.loads(ran.output)
    except ValueError as error:
        words = ran.stderr.decode(errors="replace").strip()[-1000:]
        raise SandboxUnavailable(
            f"The sandbox's own test did not run through ({found.describe()}): status {ran.status}\n{words}"
        ) from error
    if worked:
        raise SandboxUnavailable(
            f"A confined program could {', '.join(worked)} ({found.describe()}). Nothing is judged in such a sandbox."
        )
