"""Copy a compiler into a folder that serves as its root, for kernels without Landlock.

There it can read only its own headers and libraries and its working folder, whatever a program includes. This needs the
right to change the root, which root has in a default container.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

from rlvr.errors import InputError
from rlvr.sandbox.languages import Language, compiler_path

_PROGRAMS = ("cc1plus", "cc1", "collect2", "lto-wrapper", "as", "ld")
_OBJECTS = ("crt1.o", "crti.o", "crtn.o", "crtbeginT.o", "crtbegin.o", "crtend.o", "libc.a", "libm.a", "libstdc++.a",
            "libgcc.a", "libgcc_eh.a", "libpthread.a", "libmvec.a", "libdl.a", "librt.a", "libsupc++.a")  # fmt: skip
WORK = "work"


def supported(language: Language) -> bool:
    """Whether the files of a language's compiler are known."""
    return language.compiler in ("g++", "gcc")


def install(language: Language, root: Path) -> None:
    """Copy the C and C++ compilers into `root`, every file to the same path as outside.

    Raises:
        InputError: the compiler does not tell its header folders.
    """
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
    (root / WORK).mkdir()


def _query(compiler: str, question: str) -> str:
    return subprocess.run([compiler, question], capture_output=True, text=True).stdout.strip()


def _copy(path: str, root: Path) -> None:
    """Copy a file to its path and to its real path."""
    for name in {os.path.normpath(path), os.path.realpath(path)}:
        target = root / name.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), target)
