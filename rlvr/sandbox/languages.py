"""Table of the languages that programs may be written in. To add a compiled language, add a row.

A row's compiler must make one static executable, since programs can't open files.
"""

from __future__ import annotations

import difflib
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass

from rlvr.errors import InputError


@dataclass(frozen=True)
class Language:
    """A language."""

    name: str  # as in recipes
    fences: tuple[str, ...]  # further labels of its code blocks
    source: str = ""  # name of its source file; empty if programs are not compiled (Python)
    compiler: str = ""  # looked up in PATH
    arguments: tuple[str, ...] = ()  # {source} and {program} are files, {headers} the precompiled header's folder
    package: str = ""  # how to install the compiler
    header: str = ""  # a header to precompile
    smallest: str = "int main() { return 0; }"  # a program that compiles, unless the compiler does not work

    @property
    def compiled(self) -> bool:
        return bool(self.compiler)


_CPP_FLAGS = ("-std=c++17", "-O2", "-DONLINE_JUDGE", "-w")

LANGUAGES = {
    language.name: language
    for language in (
        Language("python", ("py", "python3", "py3", "ipython", "pypy")),
        Language(
            "cpp",
            ("c++", "cc", "cxx", "c++17", "cpp17", "g++", "gnu++", "cplusplus"),
            source="program.cpp",
            compiler="g++",
            arguments=(
                *_CPP_FLAGS,
                "-pipe",
                "-static",
                "-fmax-errors=20",
                "-I{headers}",
                "-o",
                "{program}",
                "{source}",
            ),
            package="Install g++ and the static C library (Debian: apt-get install g++; Amazon Linux: dnf install "
            "gcc-c++ glibc-static libstdc++-static).",
            header="bits/stdc++.h",
        ),
        Language(
            "c",
            ("c11", "c17"),
            source="program.c",
            compiler="gcc",
            arguments=(
                "-std=c17",
                "-O2",
                "-DONLINE_JUDGE",
                "-w",
                "-pipe",
                "-static",
                "-fmax-errors=20",
                "-o",
                "{program}",
                "{source}",
                "-lm",
            ),
            package="Install gcc and the static C library (Debian: apt-get install gcc libc6-dev).",
        ),
        Language(
            "rust",
            ("rs",),
            source="program.rs",
            compiler="rustc",
            arguments=(
                "--edition=2021",
                "-O",
                "-A",
                "warnings",
                "-C",
                "target-feature=+crt-static",
                "-o",
                "{program}",
                "{source}",
            ),
            package="Install rustc (Debian: apt-get install rustc).",
            smallest="fn main() {}",
        ),
    )
}


def find_language(name: str) -> Language:
    """Return the language of that name or label.

    Raises:
        InputError: there is none.
    """
    if name in LANGUAGES:
        return LANGUAGES[name]
    for language in LANGUAGES.values():
        if isinstance(name, str) and name.lower() in (language.name, *language.fences):
            return language
    near = difflib.get_close_matches(str(name).lower(), LANGUAGES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(
        f"Unknown language {name!r}. The judge knows {', '.join(LANGUAGES)}.{hint}",
        kind="unknown-language",
        key="language",
    )


def compiler_path(language: Language) -> str:
    """Return the path of a language's compiler.

    Raises:
        InputError: it is not installed.
    """
    path = shutil.which(language.compiler)
    if path is None:
        raise InputError(
            f"Programs in {language.name} need {language.compiler}, which is not in PATH. {language.package}",
            kind="compiler-missing",
        )
    return _behind_rustup(path) if os.path.basename(os.path.realpath(path)) == "rustup" else path


@functools.cache
def _behind_rustup(path: str) -> str:
    """Return the compiler that rustup's would start: rustup needs the user's home, which the sandbox lacks."""
    command = [path, "--print", "sysroot"]
    sysroot = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    compiler = os.path.join(sysroot, "bin", os.path.basename(path))
    return compiler if sysroot and os.path.isfile(compiler) else path
