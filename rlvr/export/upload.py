"""The files of an upload, and the scan for what must not be in them: secrets, and folders of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlvr.artifacts.secret_scan import secrets_in
from rlvr.config import project
from rlvr.errors import Problem

Files = Mapping[str, Path | bytes]  # the content by its name in the repository

# Everything else in a folder is left out: optimizer states, logs, and pickles, which run code when they are loaded.
_SUFFIXES = (".safetensors", ".gguf", ".json", ".jinja", ".model", ".txt", ".py", ".md", "LICENSE", "NOTICE")
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")  # tokens look like anything
_DATA = (*_VOCABULARIES, "README.md", "evaluation.json", "result.json", "export.json")  # digests look like secrets
_PATH_IN_JSON = re.compile(rb'(?<!\\)"(~?/[^"/\\\s]+/[^"\n]*)"')
_READ_BYTES = 16 * 2**20  # of a file; the headers of weights are at their beginning


def is_part_of_model(path: Path) -> bool:
    """Whether a file in a folder with weights is uploaded."""
    is_plain = path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    return is_plain and path.name.endswith(_SUFFIXES) and path.name != "trainer_state.json"


def size(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def scan(files: Files, private_folders: Iterable[str | Path] = ()) -> Iterator[Problem]:
    """Find secrets and paths of this machine.

    Args:
        private_folders: paths that no file may name, besides folders of this user and of the project.
    """
    private = {str(Path(folder).absolute()) for folder in (Path.home(), Path.cwd(), project.ROOT, *private_folders)}
    folders = re.compile("|".join(re.escape(f"{folder}/") for folder in sorted(private - {"/"})).encode())
    for name, source in files.items():
        content = _beginning(source)
        for line, what in secrets_in(content, shapes_only=name in _DATA):
            message = f"{name}, line {line}: {what}. Remove it, and replace the secret by a new one."
            yield Problem(message, kind="secret-in-upload", path=name, line=line)
        if name in _VOCABULARIES:
            continue
        found = (name.endswith(".json") and _PATH_IN_JSON.search(content)) or folders.search(content)
        if found:
            path, line = found[found.re.groups].decode(errors="replace"), content.count(b"\n", 0, found.start()) + 1
            message = f"{name}, line {line}: {path} is a path on this machine. Replace or remove it."
            yield Problem(message, kind="local-path-in-upload", path=name, line=line)


def _beginning(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source[:_READ_BYTES]
    with source.open("rb") as opened:
        return opened.read(_READ_BYTES)
