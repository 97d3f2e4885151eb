"""The files of an upload, and the scan for what must not be in them: secrets, and folders of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlvr.artifacts.secret_scan import read_text, secrets_in
from rlvr.config import project
from rlvr.errors import InputError, Problem

Files = Mapping[str, Path | bytes]  # the content by its name in the repository; of weights, the path

# Everything else in a folder is left out: optimizer states, logs, and pickles, which run code when they are loaded.
_SUFFIXES = (".safetensors", ".gguf", ".json", ".jinja", ".model", ".txt", ".py", ".md", "LICENSE", "NOTICE")
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")  # tokens look like anything
_DATA = (*_VOCABULARIES, "README.md", "evaluation.json", "result.json", "export.json")  # digests look like secrets
_STATE = "trainer_state.json"
_WEIGHTS = (".safetensors", ".gguf")
_HEADER_BYTES = 16 * 2**20  # of weights; everything else is scanned as a whole
_PATH_IN_JSON = re.compile(r'(?<!\\)"(~?/[^"/\\\s]+/[^"\n]*|[A-Za-z]:(?:/|\\\\)[^"\n]*)"')
_PATH_ANYWHERE = r"\b(?i:file):/+[\w~.%-][^\s\"'<>)]+|\b[A-Za-z]:[\\/]+(?i:users)[\\/][^\s\"'<>)]+"


def is_part_of_model(path: Path) -> bool:
    """Whether a file in a folder with weights is uploaded."""
    return path.is_file() and not path.name.startswith(".") and path.name.endswith(_SUFFIXES) and path.name != _STATE


def read(path: Path, folder: Path) -> Path | bytes:
    """Return the content of a file in a run's or an export's folder. Weights stay a path: they are too large.

    Raises:
        InputError: it is a link, or it lies elsewhere: the upload would hold a file that is not of this run.
    """
    if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
        message = f"{path} is a link or lies outside {folder}. Put a copy into the folder, or remove it."
        raise InputError(message, kind="path-outside-run", path=path)
    return path if path.name.endswith(_WEIGHTS) else path.read_bytes()


def size(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def scan(files: Files, private_folders: Iterable[str | Path] = ()) -> Iterator[Problem]:
    """Find secrets and paths of this machine.

    Args:
        private_folders: paths that no file may name, besides folders of this user and of the project.
    """
    private = {str(Path(folder).absolute()) for folder in (Path.home(), Path.cwd(), project.ROOT, *private_folders)}
    own = (rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])" for folder in sorted(private - {"/"}))
    folders = re.compile("|".join([_PATH_ANYWHERE, *own]))
    for name, source in files.items():
        text = read_text(source if isinstance(source, bytes) else _header(source))
        for line, what in secrets_in(text, shapes_only=name in _DATA or name.endswith(".gguf")):
            message = f"{name}, line {line}: {what}. Remove it, and replace the secret by a new one."
            yield Problem(message, kind="secret-in-upload", path=name, line=line)
        if name in _VOCABULARIES:
            continue
        found = (name.endswith(".json") and _PATH_IN_JSON.search(text)) or folders.search(text)
        if found:
            path, line = found[found.re.groups], text.count("\n", 0, found.start()) + 1
            message = f"{name}, line {line}: {path} is a path on this machine. Replace or remove it."
            yield Problem(message, kind="local-path-in-upload", path=name, line=line)


def _header(weights: Path) -> bytes:
    with weights.open("rb") as opened:
        return opened.read(_HEADER_BYTES)
