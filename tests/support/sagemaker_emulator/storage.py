"""Folders and S3: what a job is given, what it leaves, and the checkpoints that go both ways while it runs."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def place(uri: str) -> tuple[str, str]:
    """The bucket and the key of an s3:// address."""
    parts = urlsplit(uri)
    assert parts.scheme == "s3" and parts.netloc, f"no S3 address: {uri}"
    return parts.netloc, parts.path.lstrip("/")


def keys(s3: Any, uri: str) -> list[str]:
    """All keys that begin as the address says."""
    bucket, prefix = place(uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def download(s3: Any, uri: str, folder: Path) -> int:
    """Copies all objects below an address into a folder; returns how many. Permissions are lost, as they are in S3."""
    bucket, prefix = place(uri)
    base = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    found = keys(s3, uri)
    for key in found:
        # An address of a single object gives a file of its name; a folder's own marker gives nothing.
        name = key[len(base) :] if key.startswith(base) else key.rsplit("/", 1)[-1] if key == prefix else None
        if not name or name.endswith("/"):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    return len(found)


def upload_packed(s3: Any, folders: list[Path], uri: str) -> bool:
    """Uploads what lies in folders, together, as one .tar.gz; False where there is nothing."""
    packed = io.BytesIO()
    names: set[str] = set()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                name = str(path.relative_to(folder))
                if path.is_file() and name not in names:
                    names.add(name)
                    archive.add(path, name)
    if not names:
        return False
    bucket, key = place(uri)
    s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())
    return True


def upload(s3: Any, folders: list[Path], uri: str) -> None:
    """Uploads what lies in folders below an address, a file at a time."""
    bucket, prefix = place(uri)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                key = f"{prefix.rstrip('/')}/{path.relative_to(folder)}"
                s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


class Mirror:
    """Keeps S3 as a folder is, while the folder changes: what a host's checkpoint folder is to its bucket.

    A file that is seen half-written is uploaded so, and again when it has changed; what is deleted here is deleted
    there.
    """

    def __init__(self, s3: Any, folder: Path, uri: str, every_s: float = 0.5) -> None:
        self._s3 = s3
        self._folder = folder
        self._bucket, self._prefix = place(uri.rstrip("/"))
        self._seen = self._look()  # what was restored is there already
        self._every_s = every_s
        self._end = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self, *, lost: bool = False) -> None:
        """Ends; with a last look, unless the machine is lost."""
        self._lost = lost
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            self._copy()
        if not self._lost:
            self._copy()

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._folder.rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted while we look
            if path.is_file():
                found[path] = (status.st_size, status.st_mtime_ns)
        return found

    def _copy(self) -> None:
        now = self._look()
        for path, state in now.items():
            if self._seen.get(path) != state:
                try:
                    content = path.read_bytes()
                except FileNotFoundError:
                    continue
                self._s3.put_object(Bucket=self._bucket, Key=self._key(path), Body=content)
        for path in self._seen.keys() - now.keys():
            self._s3.delete_object(Bucket=self._bucket, Key=self._key(path))
        self._seen = now

    def _key(self, path: Path) -> str:
        return f"{self._prefix}/{path.relative_to(self._folder)}"
