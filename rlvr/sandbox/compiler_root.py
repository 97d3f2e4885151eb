"""A compiler and nothing else, copied into a folder that can be its root: for kernels without Landlock.

A compiler that is started there can read its own headers and libraries and the folder that it works in, whatever the
program that it compiles includes. It takes the right to change the root, which root has in a default container.
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


def supported(row: Language) -> bool:
    """Whether it is known what a language's compiler consists of."""
    return row.compiler in ("g++", "gcc")


def install(row: Language, root: Path) -> None:
    """Copies the compiler (and C's beside C++'s) into `root`, every file to the path that it has outside.

    Raises:
        InputError: it can't be found out what belongs to it.
    """
    compiler = compiler_path(row)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            target = os.readlink(f"/{name}").lstrip("/")
            (root / target).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)
    programs = [compiler, "gcc", *(_said(compiler, f"-print-prog-name={name}") for name in _PROGRAMS)]
    programs = [found for program in programs if (found := shutil.which(program))]
    for program in programs:
        _copy(program, root)
        for library in re.findall(
            r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        ):
            _copy(library, root)
    plugin = _said(compiler, "-print-file-name=liblto_plugin.so")
    if os.path.isfile(plugin):
        _copy(plugin, root)
    for name in _OBJECTS:
        path = _said(compiler, f"-print-file-name={name}")
        for found in [path, *glob.glob(os.path.join(os.path.dirname(path), f"{name[:-2]}-*.a"))]:
            if os.path.isabs(found) and os.path.isfile(found):
                _copy(found, root)
    searched = subprocess.run([compiler, "-E", "-v", "-x", "c++", os.devnull], capture_output=True, text=True).stderr
    folders = re.findall(r"^ (/\S+)$", searched, re.M)
    if not folders:
        raise InputError(f"{compiler} does not say where its headers are, so it can't be confined:\n{searched[:500]}")
    for folder in sorted({os.path.realpath(folder) for folder in folders}):
        target = root / folder.lstrip("/")
        if os.path.isdir(folder) and not target.exists():
            shutil.copytree(folder, target, symlinks=False, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    (root / WORK).mkdir()


def _said(compiler: str, question: str) -> str:
    return subprocess.run([compiler, question], capture_output=True, text=True).stdout.strip()


def _copy(path: str, root: Path) -> None:
    """To the path that it is asked for by and to the one that it really has."""
    for name in {os.path.normpath(path), os.path.realpath(path)}:
        target = root / name.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), target)
