"""Detect which confinement mechanisms this machine offers, once per process.

    strong   seccomp, plus Landlock or an empty root. Programs can ask the kernel for nothing but memory, threads and
             time, and paths are blocked a second time. What compilers read is confined too.
    sealed   seccomp alone. Programs are confined as above. Compiled languages are refused, because what a compiler
             reads cannot be confined.
    weak     resource limits only. Refused unless weak sandboxes are allowed explicitly.

docs/verifiers.md#sandbox describes what each mechanism stops. The level is logged and kept in a run's metadata.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field

from rlvr.sandbox import directories, seccomp
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.sandbox.zygote_client import GUEST, SMALL_USERS, USERS, Confinement, Zygote, ZygoteError, ZygoteSpec

_log = logging.getLogger(__name__)
STRONG, SEALED, WEAK = "strong", "sealed", "weak"
MECHANISMS = {"seccomp": "seccomp", "landlock": "Landlock", "chroot": "empty root", "user": "separate users"}


@dataclass(frozen=True)
class SandboxCapabilities:
    """The mechanisms in use, and the reason for each that is not."""

    confinement: Confinement
    missing: dict[str, str] = field(default_factory=dict)  # mechanism -> why it is unavailable

    @property
    def level(self) -> str:
        if not self.confinement.seccomp:
            return WEAK
        return STRONG if self.can_compile else SEALED

    @property
    def can_compile(self) -> bool:
        """Whether the files that a compiler reads can be confined."""
        return self.confinement.seccomp and (self.confinement.landlock or self.confinement.chroot)

    def describe(self) -> str:
        """Return one line for a log."""
        used = [label for name, label in MECHANISMS.items() if getattr(self.confinement, name)]
        line = f"sandbox {self.level}: {', '.join(used) or 'resource limits only'}"
        if self.missing:
            line += "; without " + ", ".join(f"{MECHANISMS[name]} ({why})" for name, why in self.missing.items())
        return line

    def metadata(self) -> dict[str, str]:
        """Return the entry for a run's metadata."""
        return {"sandbox": self.describe().removeprefix("sandbox ")}


_detected: SandboxCapabilities | None = None


def detect_capabilities() -> SandboxCapabilities:
    """Return this machine's capabilities. The first call probes and verifies them."""
    global _detected
    if _detected is None:
        _detected = probe_capabilities()
        _log.info("%s", _detected.describe())
    return _detected


def probe_capabilities(disabled: Collection[str] = ()) -> SandboxCapabilities:
    """Try each mechanism, then run an escape test with those that work.

    Args:
        disabled: mechanisms to leave unused.

    Raises:
        SandboxUnavailable: an escape succeeded, or no program can be run.
    """
    capabilities = _try_mechanisms(disabled)
    _verify(capabilities)
    return capabilities


def _try_mechanisms(disabled: Collection[str]) -> SandboxCapabilities:
    with contextlib.ExitStack() as stack:
        folder = ""
        with contextlib.suppress(OSError):
            scratch = directories.Scratch("probe")
            stack.callback(scratch.discard)
            folder = str(scratch.path)
        users = json.dumps([USERS[-1], SMALL_USERS[-1]])
        code = seccomp.zygote_filter().hex() if seccomp.supported() else ""
        command = [sys.executable, "-S", "-s", "-P", "-B", str(GUEST / "probe.py"), folder, users, code]
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath}, check=False
        )
    if process.returncode != 0:
        raise SandboxUnavailable(f"The sandbox can't be probed:\n{process.stderr.strip()[-1500:]}")
    failures = json.loads(process.stdout)
    user_failures = failures.pop("users")
    missing = {name: why for name, why in failures.items() if why is not None}
    if None not in user_failures:
        missing["user"] = user_failures[0] or "it fails"
    missing |= dict.fromkeys(disabled, "disabled")
    confinement = Confinement(
        **{name: name not in missing for name in MECHANISMS}, small_users=user_failures[0] is not None
    )
    return SandboxCapabilities(confinement, missing)


def _verify(capabilities: SandboxCapabilities) -> None:
    """Run a program that tries to escape; refuse to judge if one of its attempts works.

    Raises:
        SandboxUnavailable: an attempt worked that this level must stop, or no program can be run.
    """
    if capabilities.level == WEAK:
        return
    with contextlib.ExitStack() as stack:
        files = [str(GUEST / "escape_attempts.py"), "/etc/passwd"]
        with contextlib.suppress(OSError):
            files.append(stack.enter_context(tempfile.NamedTemporaryFile(dir=directories.temporary_folders()[0])).name)
        targets = {"files": files, "judge": os.getpid()}
        try:
            zygote = Zygote(ZygoteSpec("python", preload=("ctypes", "functools", "json")), capabilities.confinement)
        except ZygoteError as error:
            raise SandboxUnavailable(f"Programs can't be confined here ({capabilities.describe()}): {error}") from error
        stack.callback(zygote.close)
        zygote.load((GUEST / "escape_attempts.py").read_bytes())
        result = zygote.run(
            Limits(time_s=10, wall_s=30, memory_mb=512, output_kb=64, processes=8), stdin=json.dumps(targets).encode()
        )
    try:
        escapes = json.loads(result.output)
    except ValueError as error:
        stderr = result.stderr.decode(errors="replace").strip()[-1000:]
        raise SandboxUnavailable(
            f"The sandbox's escape test did not finish ({capabilities.describe()}): status {result.status}\n{stderr}"
        ) from error
    if escapes:
        raise SandboxUnavailable(
            f"A confined program could {', '.join(escapes)} ({capabilities.describe()}). This sandbox judges nothing."
        )
