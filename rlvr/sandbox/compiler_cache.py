"""Files that compiled programs need, made once per machine and cached: launcher, precompiled header, compiler root.

The cache is a folder that only this user writes to (directories.py).
"""

from __future__ import annotations

import fcntl
import functools
import glob
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from rlvr.errors import InputError
from rlvr.sandbox import directories
from rlvr.sandbox.languages import LANGUAGES, Language, compiler_path
from rlvr.sandbox.zygote_client import GUEST

_log = logging.getLogger(__name__)
_PROGRAMS = ("cc1plus", "cc1", "collect2", "lto-wrapper", "as", "ld")
_OBJECTS = (
    "crt1.o",
    "crti.o",
    "crtn.o",
    "crtbeginT.o",
    "crtbegin.o",
    "crtend.o",
    "libc.a",
    "libm.a",
    "libstdc++.a",
    "libgcc.a",
    "libgcc_eh.a",
    "libpthread.a",
    "libmvec.a",
    "libdl.a",
    "librt.a",
    "libsupc++.a",
)
ROOT_COMPILERS = ("g++", "gcc")  # whose files are known, so that they can be copied
ROOT_WORK = "work"  # the working folder within a compiler's root


@functools.cache
def precompiled_header(language: Language) -> Path:
    """Return the folder of a language's precompiled header.

    Raises:
        InputError: the compiler can't make it.
    """
    flags = [argument for argument in language.arguments if argument.startswith(("-std", "-O", "-D", "-w"))]

    def make(folder: Path) -> None:
        target = folder / language.header
        target.parent.mkdir(parents=True)
        # The compiler ignores a precompiled header if a token precedes its #include. So the header itself is needed.
        target.write_text(f"#pragma once\n#pragma GCC system_header\n#include_next <{language.header}>\n")
        source = folder / "precompiled.hpp"  # a separate file, since #include_next in the main file means #include
        source.write_text(f"#include <{language.header}>\n")
        _compile(language, [*flags, f"-I{folder}", "-x", "c++-header", "-o", f"{target}.gch", str(source)])

    return _cached(f"{language.name}-header", [_version(language), *flags], make)


def compiler_root_folder() -> Path:
    """Return a folder that holds only the C++ and C compilers and the header, for use as `/` without Landlock.

    There a compiler can read only its own headers and libraries and its working folder, whatever a program includes.

    Raises:
        InputError: they can't be copied.
    """
    language = LANGUAGES["cpp"]
    header = precompiled_header(language)

    def make(root: Path) -> None:
        _copy_compilers(language, root)
        shutil.copytree(header, root / str(header).lstrip("/"))

    return _cached("toolchain", [_version(language), str(header)], make)


@functools.cache
def launcher() -> Path:
    """Return the program that starts compiled programs.

    Raises:
        InputError: it can't be compiled.
    """
    language = LANGUAGES["cpp"]
    source = GUEST / "launcher.cpp"

    def make(folder: Path) -> None:
        _compile(language, ["-O2", "-static", "-o", str(folder / "launcher"), str(source)])

    return _cached("launcher", [_version(language), source.read_text()], make) / "launcher"


def _version(language: Language) -> str:
    return subprocess.run([compiler_path(language), "--version"], capture_output=True, text=True, check=False).stdout


def _compile(language: Language, arguments: list[str]) -> None:
    process = subprocess.run([compiler_path(language), *arguments], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise InputError(
            f"{language.compiler} can't compile what the judge needs for programs in {language.name}. "
            f"{language.package}\n{process.stderr.strip()[:1500]}",
            kind="compiler-incomplete",
        )


def _cached(name: str, key: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return the cached folder of that name and key. One process makes it while others wait."""
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
            partial = cache / f"{name}-{digest}.new"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                make(partial)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            for path in (partial, *(path for path in partial.rglob("*") if not path.is_symlink())):
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
            partial.rename(folder)
            return folder
    except OSError as error:
        raise InputError(
            f"The judge's cache for compiled programs can't be written: {error}. Set GRPO_RECIPES_CACHE to a "
            "writable folder.",
            kind="cache-not-writable",
        ) from error


def _copy_compilers(language: Language, root: Path) -> None:
    """Copy the C and C++ compilers into `root`, every file to the same path as outside."""
    compiler = compiler_path(language)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            target = os.readlink(f"/{name}").lstrip("/")
            (root / target).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)
    programs = [compiler, "gcc", *(_query(compiler, f"-print-prog-name={name}") for name in _PROGRAMS)]
    programs = [path for program in programs if (path := shutil.which(program))]
    for program in programs:
        _copy(program, root)
        for library in re.findall(
            r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        ):
            _copy(library, root)
    plugin = _query(compiler, "-print-file-name=liblto_plugin.so")
    if os.path.isfile(plugin):
        _copy(plugin, root)
    for name in _OBJECTS:
        path = _query(compiler, f"-print-file-name={name}")
        for library in [path, *glob.glob(os.path.join(os.path.dirname(path), f"{name[:-2]}-*.a"))]:
            if os.path.isabs(library) and os.path.isfile(library):
                _copy(library, root)
    search_paths = subprocess.run(
        [compiler, "-E", "-v", "-x", "c++", os.devnull], capture_output=True, text=True
    ).stderr
    folders = re.findall(r"^ (/\S+)$", search_paths, re.M)
    if not folders:
        raise InputError(
            f"{compiler} does not tell its header folders, so it can't be confined:\n{search_paths[:500]}",
            kind="compiler-incomplete",
        )
    for folder in sorted({os.path.realpath(folder) for folder in folders}):
        target = root / folder.lstrip("/")
        if os.path.isdir(folder) and not target.exists():
            shutil.copytree(folder, target, symlinks=False, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    (root / ROOT_WORK).mkdir()


def _query(compiler: str, question: str) -> str:
    return subprocess.run([compiler, question], capture_output=True, text=True).stdout.strip()


def _copy(path: str, root: Path) -> None:
    """Copy a file to its path and to its real path."""
    for name in {os.path.normpath(path), os.path.realpath(path)}:
        target = root / name.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), target)
