"""The languages that programs may be written in. A compiled one is a row of this table.

A row's compiler makes one file that runs without opening any other: programs can't open files, so they are linked
statically. Rows are all that the judge knows about a compiled language.
"""

from __future__ import annotations

import difflib
import shutil
from dataclasses import dataclass

from rlvr.errors import InputError


@dataclass(frozen=True)
class Language:
    """A row.

    Attributes:
        name: as recipes say it.
        fences: other words for it behind the opening fence of a code block.
        source: what its source file is called; empty: the program is not compiled (Python).
        compiler: the program that compiles it, looked up in PATH.
        arguments: to the compiler; {source} and {program} stand for the files, {headers} for the folder with the
            precompiled header.
        package: what to install where the compiler is missing.
        header: a header worth precompiling.
    """

    name: str
    fences: tuple[str, ...]
    source: str = ""
    compiler: str = ""
    arguments: tuple[str, ...] = ()
    package: str = ""
    header: str = ""

    @property
    def compiled(self) -> bool:
        return bool(self.compiler)


_CPP_FLAGS = ("-std=c++17", "-O2", "-DONLINE_JUDGE", "-w")

LANGUAGES = {
    language.name: language
    for language in (
        Language("python", ("py", "python3", "py3", "ipython")),
        Language(
            "cpp",
            ("c++", "cc", "cxx", "c++17", "cpp17", "g++", "gnu++"),
            source="program.cpp",
            compiler="g++",
            arguments=(*_CPP_FLAGS, "-pipe", "-static", "-fmax-errors=20", "-I{headers}", "-o", "{program}",
                       "{source}"),
            package="Install g++ and the static C library (Debian: apt-get install g++; Amazon Linux: dnf install "
            "gcc-c++ glibc-static libstdc++-static).",
            header="bits/stdc++.h",
        ),
        Language(
            "c",
            ("c11", "c17"),
            source="program.c",
            compiler="gcc",
            arguments=("-std=c17", "-O2", "-DONLINE_JUDGE", "-w", "-pipe", "-static", "-fmax-errors=20",
                       "-o", "{program}", "{source}", "-lm"),
            package="Install gcc and the static C library (Debian: apt-get install gcc libc6-dev).",
        ),
        Language(
            "rust",
            ("rs",),
            source="program.rs",
            compiler="rustc",
            arguments=("--edition=2021", "-O", "-A", "warnings", "-C", "target-feature=+crt-static", "-o", "{program}",
                       "{source}"),
            package="Install rustc (Debian: apt-get install rustc).",
        ),
    )
}  # fmt: skip


def language(name: str) -> Language:
    """The row of a language.

    Raises:
        InputError: there is none of that name.
    """
    if name in LANGUAGES:
        return LANGUAGES[name]
    for row in LANGUAGES.values():
        if isinstance(name, str) and name.lower() in (row.name, *row.fences):
            return row
    near = difflib.get_close_matches(str(name).lower(), LANGUAGES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"Unknown language {name!r}: the judge knows {', '.join(LANGUAGES)}.{hint}")


def compiler_path(row: Language) -> str:
    """Where a language's compiler is.

    Raises:
        InputError: it is not installed; with the package to install.
    """
    path = shutil.which(row.compiler)
    if path is None:
        raise InputError(f"Programs in {row.name} need {row.compiler}, which is not in PATH. {row.package}")
    return path
