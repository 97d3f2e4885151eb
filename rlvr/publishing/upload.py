"""The files of an upload, and what must not be in them: secrets, and folders of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts.secret_scan import secrets_in
from rlvr.config import project
from rlvr.errors import Problem

# Everything else in a folder is left out: optimizer states, logs, and pickles, which run code when they are loaded.
SUFFIXES = (".safetensors", ".gguf", ".json", ".jinja", ".model", ".txt", ".py", ".md")
_LEFT_OUT = {
    "trainer_state.json": "it belongs to a checkpoint",
    "training_args.bin": "a pickle with settings of this machine; recipe.yaml has them",
    "optimizer.pt": "the optimizer's state",
    "scheduler.pt": "the scheduler's state",
}
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")  # tokens look like anything
_DATA = (*_VOCABULARIES, "README.md", "evaluation.json", "result.json", "export.json")  # digests look like secrets
_READ_BYTES = 16 * 2**20  # of a file; the headers of weights are at their beginning


@dataclass(frozen=True)
class UploadFile:
    """A file by its name in the repository, and where its content is."""

    name: str
    source: Path | bytes

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


@dataclass(frozen=True)
class Upload:
    """What would be uploaded: the files, the others with the reason why not, and what forbids it."""

    files: tuple[UploadFile, ...]
    left_out: Mapping[str, str]
    problems: tuple[Problem, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def collect(folder: Path, own: Sequence[UploadFile], private_folders: Sequence[Path]) -> Upload:
    """List the files of a folder with weights, and scan them.

    Args:
        own: files that are made for the upload; they replace those of the folder.
        private_folders: whose paths no file may name, besides this user's and the project's.
    """
    files, left_out = {file.name: file for file in own}, {}
    for path in sorted(folder.iterdir()):
        if path.name in files:
            continue
        reason = _why_left_out(path)
        if reason is not None:
            left_out[path.name] = reason
        else:
            files[path.name] = UploadFile(path.name, path)
    folders = local_folders(private_folders)
    problems = [problem for file in files.values() for problem in _scan(file, folders)]
    return Upload(tuple(files.values()), left_out, tuple(problems))


def _why_left_out(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return "not a plain file"
    if path.name in _LEFT_OUT:
        return _LEFT_OUT[path.name]
    if path.name.startswith(".") or not path.name.endswith((*SUFFIXES, "LICENSE", "NOTICE")):
        return "not a part of a model"
    return None


def _scan(file: UploadFile, folders: Sequence[str]) -> Iterator[Problem]:
    content = _beginning(file)
    for secret in secrets_in(content, shapes_only=file.name in _DATA):
        message = f"{file.name}, line {secret.line}: {secret.what}. Remove it, and replace the secret by a new one."
        yield Problem(message, kind="secret-in-upload", path=file.name, line=secret.line)
    if file.name in _VOCABULARIES:
        return
    found = list(_paths_in_json(file, content))
    yield from found
    if not found:
        yield from _folders_in(file.name, content, folders)


def _paths_in_json(file: UploadFile, content: bytes) -> Iterator[Problem]:
    """Values of a configuration that are paths. Whatever reads it elsewhere would look there."""
    if not file.name.endswith(".json"):
        return
    try:
        values = json.loads(content)
    except ValueError:
        values = None
    for key, value in _texts(values):
        if value.startswith(("/", "~/")) and value.count("/") > 1 and "\n" not in value:
            message = f"{file.name}, {key}: {value} is a folder of this machine. Replace the value, or remove it."
            yield Problem(message, kind="local-path-in-upload", key=key, path=file.name)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _texts(item, f"{key}.{name}".lstrip("."))


def _folders_in(name: str, content: bytes, folders: Sequence[str]) -> Iterator[Problem]:
    for folder in folders:
        at = content.find(folder.encode())
        if at >= 0:
            is_text = b"\0" not in content[:8192]
            line = content.count(b"\n", 0, at) + 1 if is_text else None
            where = f"{name}, line {line}" if is_text else name
            message = f"{where}: {folder} is a folder of this machine. Remove its path from the file."
            yield Problem(message, kind="local-path-in-upload", path=name, line=line)


def local_folders(private_folders: Sequence[Path] = ()) -> list[str]:
    """Paths that tell something of this machine or its user."""
    folders = [Path.home(), Path.cwd(), project.ROOT, *private_folders]
    return sorted({f"{folder.absolute()}/" for folder in folders if len(folder.absolute().parts) > 1})


def _beginning(file: UploadFile) -> bytes:
    if isinstance(file.source, bytes):
        return file.source[:_READ_BYTES]
    with file.source.open("rb") as opened:
        return opened.read(_READ_BYTES)
