"""Compilers at work: confined like the programs, with limits of their own; what is compiled lies in memory.

The launcher of compiled programs and the precompiled header are made once a machine, by the same compiler, and kept in
a folder that only this user writes to (places.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.sandbox import compiler_root, directories
from rlvr.sandbox.capabilities import SandboxCapabilities
from rlvr.sandbox.languages import LANGUAGES, Language, compiler_path
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.sandbox.zygote import GUEST, ExecutionResult, ResourceLimits, Zygote, ZygoteError, ZygoteSpec, in_memory

_log = logging.getLogger(__name__)
LARGEST_PROGRAM = 64 << 20
_MEMORY_MB = 2048
_COMPILER_IDLE_S = 10.0  # a compiler that waits for this long waits for what never comes
_OUTPUT_CHARACTERS = 2000
_PART_KILLED = (b"Killed signal terminated program", b"terminated with signal 9")  # of g++, and of its linker
_NO_SPACE = os.strerror(errno.ENOSPC).encode()
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/libexec", "/usr/bin", "/usr/local/bin",
           "/usr/local/lib", "/usr/local/include", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives",
           "/opt/rh")  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """What a compiler made.

    Attributes:
        program: a descriptor of the program, open for reading only; None if it does not compile. The owner closes it.
        output: what the compiler said.
        cpu_s: seconds of CPU time.
    """

    program: int | None
    output: str
    cpu_s: float


class Compiler:
    """A confined process that starts compilers, and the folder they work in; used by one thread at a time.

    Raises:
        SandboxUnavailable: compilers can't be confined here.
        InputError: the compiler is not installed.
        ZygoteError, OSError: it does not start, or there is no folder to work in.
    """

    def __init__(self, found: SandboxCapabilities, *, allow_weak_sandbox: bool) -> None:
        if not found.can_compile and not allow_weak_sandbox:
            raise SandboxUnavailable(
                "Compilers can't be confined here, so a program could read files into itself while it is compiled "
                f"({found.describe()}). Use a kernel with Landlock (5.13 or newer), or accept that with "
                "allow_weak_sandbox: true; see docs/sandbox.md."
            )
        # Without Landlock the compiler gets a root with nothing but itself and the folder it works in.
        confinement = found.confinement
        rooted = confinement.chroot and not confinement.landlock
        self.root = _rooted() if rooted else Path("/")
        self._scratch = directories.Scratch(
            "compile", self.root / compiler_root.WORK if rooted else None, reachable=confinement.user and not rooted
        )
        self.folder = self._scratch.path
        try:
            readable = [*_SYSTEM, str(directories.cache()), *_prefixes()]
            writable = (str(self.folder), "/dev/null")
            root = str(self.root) if rooted else None
            self.zygote = Zygote(
                ZygoteSpec("compile", readable=tuple(readable), writable=writable, root=root), confinement
            )
            if self.zygote.user:
                os.chown(self.folder, self.zygote.user, self.zygote.user)
        except BaseException:
            self._scratch.discard()
            raise
        self.described = found.describe()
        self._drivers: dict[tuple[str, str], bytes] = {}

    def compile(self, row: Language, source: bytes, limits: Limits, signature: str | None = None) -> Compiled:
        """Compiles a program; with a signature, for being called.

        Raises:
            ZygoteError: the compiler could not do its work, through no fault of the program.
        """
        path = compiler_path(row)
        if self.root != Path("/") and not compiler_root.supported(row):
            raise SandboxUnavailable(
                f"Without Landlock, {row.compiler} can't be confined ({self.described}): only g++ and gcc can."
            )
        headers = self._headers(row)
        try:
            extra: list[str] = []
            if signature is not None:
                driver = self._driver(row, path, headers, signature, limits)
                if isinstance(driver, Compiled):
                    return driver
                (self.folder / "driver.o").write_bytes(driver)
                extra = [self._inside(self.folder / "driver.o")]
                source = b'#include <bits/stdc++.h>\n#define main submitted_main\n#line 1 "program.cpp"\n' + source
            return self._run(row, path, headers, source, limits, extra)
        except OSError as error:
            raise ZygoteError(f"the compiler's folder can't be used ({error})") from error
        finally:
            self._clear()

    def _driver(self, row: Language, path: str, headers: str, signature: str, limits: Limits) -> bytes | Compiled:
        """The object that calls the function: made once a signature; the compiler's complaint where it is none."""
        key = (row.name, signature)
        if key not in self._drivers:
            name = function_name(signature)
            text = (GUEST / "driver.hpp").read_text()
            text += f"{signature.strip().rstrip(';')};\nint main() {{ return judge_driver::drive(::{name}); }}\n"
            compiled = self._run(row, path, headers, text.encode(), limits, ["-c"])
            if compiled.program is None:
                return Compiled(
                    None, f"The signature {signature!r} can't be called:\n{compiled.output}", compiled.cpu_s
                )
            with os.fdopen(compiled.program, "rb") as file:
                self._drivers[key] = file.read()
        return self._drivers[key]

    def _run(
        self, row: Language, path: str, headers: str, source: bytes, limits: Limits, extra: Sequence[str]
    ) -> Compiled:
        program = self.folder / "program"
        (self.folder / row.source).write_bytes(source)
        inside = self._inside(self.folder)
        names = {"headers": headers, "program": f"{inside}/program", "source": f"{inside}/{row.source}"}
        command = [path, *(argument.format(**names) for argument in row.arguments), *extra]
        order = {
            "command": command,
            "folder": inside,
            "environment": {"PATH": os.pathsep.join([str(Path(path).parent), "/usr/bin", "/bin"]), "LC_ALL": "C",
                            "TMPDIR": str(self.folder), "HOME": str(self.folder)},
        }  # fmt: skip
        time_s = limits.compile_time_s
        allowance = ResourceLimits(time_s, _COMPILER_IDLE_S, _MEMORY_MB, LARGEST_PROGRAM, processes=64)
        for _ in range(2):  # the kernel, when memory runs out, ends compilers first
            ran = self.zygote.run(allowance, exchange=json.dumps(order).encode())
            if not _was_killed(ran) or ran.cpu_s > time_s:
                break
        said = _readable(ran.stderr, inside)
        if ran.stopped or ran.cpu_s > limits.compile_time_s:
            return Compiled(None, f"The compiler was stopped after {ran.cpu_s:.1f} s.\n{said}", ran.cpu_s)
        if ran.status != 0:
            # By now there may be room again, since what it could not end is removed: then its words tell.
            starved = _NO_SPACE in ran.stderr and _NO_SPACE not in source
            if starved or shutil.disk_usage(self.folder).free < LARGEST_PROGRAM:
                raise ZygoteError(f"there is no space left in {self.folder.parent}")
            return Compiled(None, said or f"The compiler ended with status {ran.status}.", ran.cpu_s)
        return Compiled(in_memory(program), said, ran.cpu_s)

    def _inside(self, path: Path) -> str:
        """A path as the compiler sees it."""
        return f"/{path.relative_to(self.root)}"

    def _headers(self, row: Language) -> str:
        """The folder of the precompiled header, as the compiler sees it."""
        if not row.header:
            return self._inside(self.folder)
        folder = precompiled(row)
        if self.root != Path("/"):
            target = self.root / str(folder).lstrip("/")
            if not target.exists():
                new = Path(f"{target}.{os.getpid()}-{id(self)}")
                shutil.copytree(folder, new)
                with contextlib.suppress(OSError):  # another process was faster
                    new.rename(target)
                shutil.rmtree(new, ignore_errors=True)
        return str(folder)

    def _clear(self) -> None:
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

    def alive(self) -> bool:
        return self.zygote.alive()

    def close(self) -> None:
        self.zygote.close()
        self._scratch.discard()


def _was_killed(ran: ExecutionResult) -> bool:
    """Whether the compiler, or a part of it, was killed from outside."""
    return ran.killed or (ran.status != 0 and not ran.stopped and any(words in ran.stderr for words in _PART_KILLED))


def _readable(text: bytes, folder: str) -> str:
    """A compiler's words without the folder it worked in."""
    return text.decode(errors="replace").replace(f"{folder}/", "").strip()[:_OUTPUT_CHARACTERS]


_SIGNATURE = re.compile(r"^[^()={}#]*?[\s&*>](\w+)\s*\([^{}#;=]*\)\s*;?\s*$", re.ASCII)


def function_name(signature: str) -> str:
    """The name in a C++ signature such as "int add(int, int)".

    Raises:
        InputError: it is no signature of a function.
    """
    match = _SIGNATURE.match(signature) if len(signature) <= 2000 else None
    if match is None:
        raise InputError(
            f"The signature {signature[:200]!r} is not that of a function. Write result, name and parameters, as in "
            "'int add(int, int)'."
        )
    return match[1]


def _prefixes() -> list[str]:
    """Folders of compilers that are installed elsewhere than the system's."""
    found = []
    for row in LANGUAGES.values():
        path = shutil.which(row.compiler) if row.compiler else None
        real = Path(path).resolve() if path else None
        if real and not str(real).startswith(("/usr/bin/", "/usr/local/bin/", "/bin/")) and real.parent.name == "bin":
            found.append(str(real.parent.parent))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Made once a machine


@functools.cache
def precompiled(row: Language) -> Path:
    """The folder with a language's precompiled header.

    Raises:
        InputError: the compiler can't make one.
    """
    flags = [argument for argument in row.arguments if argument.startswith(("-std", "-O", "-D", "-w"))]

    def make(folder: Path) -> None:
        target = folder / row.header
        target.parent.mkdir(parents=True)
        # The header itself lies beside its precompiled form, which the compiler passes over wherever something stands
        # before the #include.
        target.write_text(f"#pragma once\n#pragma GCC system_header\n#include_next <{row.header}>\n")
        source = folder / "precompiled.hpp"  # another file, since #include_next in the first one means #include
        source.write_text(f"#include <{row.header}>\n")
        _compiler(row, [*flags, f"-I{folder}", "-x", "c++-header", "-o", f"{target}.gch", str(source)])

    return _cached(f"{row.name}-header", [_version(row), *flags], make)


def _rooted() -> Path:
    """The folder with nothing but the compilers of C++ and C in it.

    Raises:
        InputError: they can't be copied.
    """
    row = LANGUAGES["cpp"]
    return _cached("toolchain", [_version(row)], functools.partial(compiler_root.install, row))


@functools.cache
def launcher() -> Path:
    """The program that starts compiled programs.

    Raises:
        InputError: it can't be compiled.
    """
    row = LANGUAGES["cpp"]
    source = GUEST / "launcher.cpp"

    def make(folder: Path) -> None:
        _compiler(row, ["-O2", "-static", "-o", str(folder / "launcher"), str(source)])

    return _cached("launcher", [_version(row), source.read_text()], make) / "launcher"


def _version(row: Language) -> str:
    return subprocess.run([compiler_path(row), "--version"], capture_output=True, text=True, check=False).stdout


def _compiler(row: Language, arguments: list[str]) -> None:
    done = subprocess.run([compiler_path(row), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(
            f"{row.compiler} can't compile what the judge needs for programs in {row.name}. {row.package}\n"
            f"{done.stderr.strip()[:1500]}"
        )


def _cached(name: str, key: list[Any], make: Any) -> Path:
    """The folder of that name and key in the cache, made by one process while others wait for it."""
    digest = hashlib.sha256("\n".join([platform.machine(), *key]).encode()).hexdigest()[:16]
    try:
        cache = directories.cache()
        folder = cache / f"{name}-{digest}"
        if folder.is_dir():
            return folder
        with open(cache / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder
            _log.info("preparing the judge for compiled programs, once on this machine: %s", name)
            new = cache / f"{name}-{digest}.new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            try:
                make(new)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            for path in (new, *(path for path in new.rglob("*") if not path.is_symlink())):
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
            new.rename(folder)
            return folder
    except OSError as error:
        raise InputError(f"The judge has no place for what it needs for compiled programs: {error}.") from error
