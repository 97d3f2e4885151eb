"""Archives of untrusted origin are unpacked safely."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr.sagemaker import fetch
from tests.support.input_errors import input_error


def member(name: str, **about: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in about.items():
        setattr(info, key, value)
    return info


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (lambda: member("../escaped.txt"), "a name that climbs out"),
        (lambda: member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link to a file of the machine"),
        (lambda: member("link", type=tarfile.LNKTYPE, linkname="../../x"), "a hard link out of the folder"),
        (lambda: member("device", type=tarfile.CHRTYPE), "a device"),
    ],
)
def test_an_unsafe_member_is_not_unpacked(tmp_path: Path, hostile: Callable[[], tarfile.TarInfo], why: str) -> None:
    packed = pack(tmp_path / "m.tar.gz", (hostile(), b""))
    with input_error("unsafe-archive"):
        fetch.unpack(packed, tmp_path / "out")
    assert not (tmp_path / "escaped.txt").exists(), why


def test_an_absolute_name_is_unpacked_inside_the_folder(tmp_path: Path) -> None:
    """tarfile's own filter removes the leading slash."""
    target = tmp_path / "absolute.txt"
    fetch.unpack(pack(tmp_path / "m.tar.gz", (member(str(target)), b"x")), tmp_path / "out")
    assert not target.exists()


def test_an_archive_above_the_size_limit_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 10**6)
    packed = pack(tmp_path / "m.tar.gz", (member("zeros"), bytes(2 * 10**6)))
    assert packed.stat().st_size < 10**4, "a decompression bomb"
    with input_error("archive-too-large"):
        fetch.unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out" / "zeros").exists()


def test_an_archive_above_the_file_limit_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_FILES", 2)
    packed = pack(tmp_path / "m.tar.gz", *[(member(f"f{number}"), b"") for number in range(3)])
    with input_error("archive-too-large"):
        fetch.unpack(packed, tmp_path / "out")


def test_a_broken_archive_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "none.tar.gz").write_bytes(b"<html>")
    whole = pack(tmp_path / "m.tar.gz", (member("a"), bytes(range(256)) * 4000)).read_bytes()
    (tmp_path / "half.tar.gz").write_bytes(whole[: len(whole) // 2])
    for name in ("none.tar.gz", "half.tar.gz"):
        with input_error("broken-archive"):
            fetch.unpack(tmp_path / name, tmp_path / "out")
