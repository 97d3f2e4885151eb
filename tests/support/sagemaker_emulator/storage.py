"""Copy folders from and to S3: a job's inputs, its results, and its checkpoints while it runs."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ACCOUNT = "123456789012"  # moto's


def place(uri: str) -> tuple[str, str]:
    """The bucket and the key of an s3:// address."""
    parts = urlsplit(uri)
    assert parts.scheme == "s3" and parts.netloc, f"no S3 address: {uri}"
    return parts.netloc, parts.path.lstrip("/")


def keys(s3: Any, uri: str) -> list[str]:
    """All keys that start with the address."""
    bucket, prefix = place(uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def download(s3: Any, uri: str, folder: Path) -> int:
    """Copy all objects below an address into a folder; return their number. S3 keeps no permissions.

    They come from the memory of moto, which is in this process: a job has hundreds, and each request costs more.
    """
    from moto.s3.models import s3_backends

    uri = f"{uri.rstrip('/')}/"
    bucket, prefix = place(uri)
    names = keys(s3, uri)
    for key in names:
        target = folder / key.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        found = s3_backends[ACCOUNT]["aws"].get_object(bucket, key)
        assert found is not None
        target.write_bytes(found.value)
    return len(names)


def upload_packed(s3: Any, folders: list[Path], uri: str) -> None:
    """Upload the files of several folders, if there are any, as one .tar.gz."""
    packed = io.BytesIO()
    names: set[str] = set()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                name = str(path.relative_to(folder))
                if path.is_file() and name not in names:
                    names.add(name)
                    archive.add(path, name)
    if names:
        bucket, key = place(uri)
        s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())


def upload(s3: Any, folders: list[Path], uri: str) -> None:
    """Upload the files of folders below an address."""
    bucket, prefix = place(uri)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                key = f"{prefix.rstrip('/')}/{path.relative_to(folder)}"
                s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


class Mirror:
    """Mirror a host's checkpoint folder to its bucket while it changes.

    A half-written file is uploaded as it is, and again after a change. Deletions are mirrored too.
    """

    def __init__(self, s3: Any, folder: Path, uri: str, every_s: float = 0.5) -> None:
        self._s3 = s3
        self._folder = folder
        self._bucket, self._prefix = place(uri.rstrip("/"))
        self._seen = self._look()  # restored files are in the bucket already
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, after a last copy."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            self._copy()
        self._copy()

    def _look(self) -> dict[Path, tuple[int, int]]:
        states = {}
        for path in self._folder.rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            if path.is_file():
                states[path] = (status.st_size, status.st_mtime_ns)
        return states

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
