"""Compile programs with a confined compiler that has its own limits. The compiled program is a file in memory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr.errors import InputError
from rlvr.sandbox import directories
from rlvr.sandbox.capabilities import SandboxCapabilities
from rlvr.sandbox.compiler_cache import ROOT_COMPILERS, ROOT_WORK, compiler_root_folder, precompiled_header
from rlvr.sandbox.languages import LANGUAGES, Language, compiler_path
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.sandbox.memory_files import executable_copy
from rlvr.sandbox.zygote_client import GUEST, ExecutionResult, Zygote, ZygoteError, ZygoteSpec

MAX_PROGRAM_BYTES = 64 << 20
_MEMORY_MB = 2048
_IDLE_S = 10.0
_MAX_OUTPUT_CHARACTERS = 2000
# What g++ and its linker print if a process of theirs is killed.
_PART_KILLED = (b"Killed signal terminated program", b"terminated with signal 9")
_working: set[str] = set()  # names of languages whose compilers are known to work
_NO_SPACE = os.strerror(errno.ENOSPC).encode()
_SYSTEM_PATHS = (
    "/usr/include",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib32",
    "/usr/libexec",
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/include",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/opt/rh",
)


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    program: int | None  # read-only descriptor of the program; None if it does not compile. The caller closes it
    output: str  # the compiler's messages
    cpu_s: float


class Compiler:
    """A confined process that starts compilers, and their working folder. Use it from one thread at a time.

    Raises:
        SandboxUnavailable: compilers can't be confined on this machine.
        InputError: the compiler is not installed.
        ZygoteError, OSError: the process does not start, or no working folder can be made.
    """

    def __init__(self, capabilities: SandboxCapabilities, *, allow_weak_sandbox: bool) -> None:
        if not capabilities.can_compile and not allow_weak_sandbox:
            raise SandboxUnavailable(
                f"Compilers can't be confined here ({capabilities.describe()}): a program could include any file while "
                "it is compiled. Use a kernel with Landlock (5.13 or newer), or accept the risk with "
                "allow_weak_sandbox: true (docs/verifiers.md#sandbox).",
                kind="compiler-not-confined",
            )
        # Without Landlock the compiler gets a root that holds only itself and its working folder.
        confinement = capabilities.confinement
        rooted = confinement.chroot and not confinement.landlock
        self.root = compiler_root_folder() if rooted else Path("/")
        self._scratch = directories.Scratch(
            "compile", self.root / ROOT_WORK if rooted else None, reachable=confinement.user and not rooted
        )
        self.folder = self._scratch.path
        try:
            readable = [*_SYSTEM_PATHS, str(directories.cache()), *_prefixes()]
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
        self._capabilities = capabilities
        self._drivers: dict[tuple[str, str], bytes] = {}

    def compile(self, language: Language, source: bytes, limits: Limits, signature: str | None = None) -> Compiled:
        """Compile a program. With a signature, link it with a driver that calls this function.

        Raises:
            ZygoteError: the compiler could not work, through no fault of the program.
            InputError: the compiler works for no program.
        """
        if self.root != Path("/") and language.compiler not in ROOT_COMPILERS:
            raise SandboxUnavailable(
                f"Without Landlock, {language.compiler} can't be confined ({self._capabilities.describe()}). Only g++ "
                "and gcc can.",
                kind="compiler-not-confined",
            )
        try:
            compiled = self._compile(language, source, limits, signature)
            if compiled.program is None:
                self._require_working(language)
            return compiled
        except OSError as error:
            raise ZygoteError(f"the compiler's working folder can't be used ({error})", kind="work-folder") from error
        finally:
            self._clear()

    def _compile(self, language: Language, source: bytes, limits: Limits, signature: str | None) -> Compiled:
        if signature is None:
            return self._run(language, source, limits)
        driver = self._driver(language, signature, limits)
        if isinstance(driver, Compiled):
            return driver
        (self.folder / "driver.o").write_bytes(driver)
        source = b'#include <bits/stdc++.h>\n#define main submitted_main\n#line 1 "program.cpp"\n' + source
        return self._run(language, source, limits, self._inside(self.folder / "driver.o"))

    def _require_working(self, language: Language) -> None:
        """Raise InputError if the compiler fails for any program. Once per process and language."""
        if language.name in _working:
            return
        compiled = self._run(language, language.smallest.encode(), Limits())
        if compiled.program is None:
            raise InputError(
                f"{compiler_path(language)} compiles no program in {language.name} inside the sandbox, not even the "
                f"smallest, so none was judged. Every user must be able to read it and its files. {language.package}\n"
                f"{compiled.output}",
                kind="compiler-incomplete",
            )
        os.close(compiled.program)
        _working.add(language.name)

    def _driver(self, language: Language, signature: str, limits: Limits) -> bytes | Compiled:
        """Return the object file that calls the function, made once per signature; or why it does not compile."""
        key = (language.name, signature)
        if key not in self._drivers:
            name = function_name(signature)
            declaration = f"{signature.strip().rstrip(';')};"
            kind, parameters = declaration.split("(", 1)
            # A typed pointer, since the library may have functions of the same name, such as `pow`.
            pointer = f"{kind.rstrip().removesuffix(name)}(*called)({parameters.removesuffix(';')} = ::{name};"
            text = (GUEST / "driver.hpp").read_text()
            text += f"{declaration}\nnamespace {{ {pointer} }}\nint main() {{ return judge_driver::drive(called); }}\n"
            compiled = self._run(language, text.encode(), limits, "-c")
            if compiled.program is None:
                return replace(compiled, output=f"The signature {signature!r} can't be called:\n{compiled.output}")
            with os.fdopen(compiled.program, "rb") as file:
                self._drivers[key] = file.read()
        return self._drivers[key]

    def _run(self, language: Language, source: bytes, limits: Limits, *extra_arguments: str) -> Compiled:
        path, inside = compiler_path(language), self._inside(self.folder)
        headers = str(precompiled_header(language)) if language.header else inside
        paths = {"headers": headers, "program": f"{inside}/program", "source": f"{inside}/{language.source}"}
        (self.folder / language.source).write_bytes(source)
        job = {
            "command": [path, *(argument.format(**paths) for argument in language.arguments), *extra_arguments],
            "folder": inside,
            "environment": {
                "PATH": os.pathsep.join([str(Path(path).parent), "/usr/bin", "/bin"]),
                "LC_ALL": "C",
                "TMPDIR": str(self.folder),
                "HOME": str(self.folder),
            },
        }
        time_s = limits.compile_time_s
        compiler_limits = Limits(time_s, _IDLE_S, _MEMORY_MB, MAX_PROGRAM_BYTES >> 10, processes=64)
        for _ in range(2):  # a kernel that is out of memory kills compilers first
            result = self.zygote.run(compiler_limits, exchange=json.dumps(job).encode())
            if not _was_killed(result) or result.cpu_s > time_s:
                break
        # The messages, without the working folder.
        output = result.stderr.decode(errors="replace").replace(f"{inside}/", "").strip()[:_MAX_OUTPUT_CHARACTERS]
        if result.stopped or result.cpu_s > time_s:
            used = f"at {_MEMORY_MB} MB" if result.stopped == "memory" else f"after {result.cpu_s:.1f} s"
            return Compiled(None, f"The compiler was stopped {used}.\n{output}", result.cpu_s)
        if result.status != 0:
            # The compiler has removed its partial files, so the disk may have space again: search its messages too.
            disk_full = _NO_SPACE in result.stderr and _NO_SPACE not in source
            if disk_full or shutil.disk_usage(self.folder).free < MAX_PROGRAM_BYTES:
                raise ZygoteError(f"no space left in {self.folder.parent}", kind="work-folder")
            return Compiled(None, output or f"The compiler ended with exit status {result.status >> 8}.", result.cpu_s)
        return Compiled(executable_copy(self.folder / "program"), output, result.cpu_s)

    def _inside(self, path: Path) -> str:
        """Return a path as the compiler sees it."""
        return f"/{path.relative_to(self.root)}"

    def _clear(self) -> None:
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

    def alive(self) -> bool:
        return self.zygote.alive()

    def close(self) -> None:
        self.zygote.close()
        self._scratch.discard()


def _was_killed(result: ExecutionResult) -> bool:
    """Whether the compiler or one of its processes was killed from outside."""
    return result.killed or (
        result.status != 0 and not result.stopped and any(text in result.stderr for text in _PART_KILLED)
    )


_SIGNATURE = re.compile(r"^[^()={}#]*?[\s&*>](\w+)\s*\([^{}#;=]*\)\s*;?\s*$", re.ASCII)


def function_name(signature: str) -> str:
    """Return the function's name in a C++ signature such as "int add(int, int)".

    Raises:
        InputError: it is no function signature.
    """
    match = _SIGNATURE.match(signature) if len(signature) <= 2000 else None
    if match is None:
        raise InputError(
            f"{signature[:200]!r} is no function signature. Write type, name and parameters: 'int add(int, int)'.",
            kind="invalid-signature",
            key="signature",
        )
    return match[1]


def _prefixes() -> list[str]:
    """Return the installation folders of compilers outside of the system's paths."""
    folders = []
    for language in LANGUAGES.values():
        installed = language.compiler and shutil.which(language.compiler)
        real = Path(compiler_path(language)).resolve() if installed else None
        if real and not str(real).startswith(("/usr/bin/", "/usr/local/bin/", "/bin/")) and real.parent.name == "bin":
            folders.append(str(real.parent.parent))
    return folders
