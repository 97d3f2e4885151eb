"""Download a job's results and unpack them safely.

The archive comes from a container that ran third-party code. So unpacking writes only inside the target folder, refuses
links that leave it and devices, limits size and number of files, and replaces existing files only with `force`.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.formatting import byte_count
from rlvr.sagemaker import aws
from rlvr.sagemaker.job import DONE, TrainingJob

MAX_BYTES = 500 * 10**9
MAX_FILES = 100_000
_RESERVED_BYTES = 10**9  # stay free on the disk


def fetch_results(job: TrainingJob, folder: Path, *, force: bool = False, checkpoints: bool = False) -> list[str]:
    """Download a job's results into a folder.

    Args:
        force: replace existing files.
        checkpoints: download the run directory with its checkpoints instead. A failed job has one too.

    Returns:
        The names of the written files and folders.

    Raises:
        InputError: there are no results, unpacking them is unsafe, or files would be replaced.
    """
    s3 = aws.client("s3", job.region)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as temporary:
        staging = Path(temporary, "files")
        staging.mkdir()
        if checkpoints:
            _download_run(s3, job, staging)
        else:
            archive = Path(temporary, "model.tar.gz")
            _download_archive(s3, job, archive)
            unpack(archive, staging)
        return _move(staging, folder, force)


def _download_archive(s3: Any, job: TrainingJob, archive: Path) -> None:
    description = job.describe()
    status = description["TrainingJobStatus"]
    if status not in DONE:
        message = f"{job.name} is still in progress ({status}): its results exist when it has ended."
        raise InputError(message, kind="job-in-progress")
    uri = description.get("ModelArtifacts", {}).get("S3ModelArtifacts") or f"{job.output}/model.tar.gz"
    try:
        s3.download_file(*aws.split_uri(uri), str(archive))
    except Exception as error:
        if aws.error_code(error) not in ("404", "NoSuchKey", "403"):
            with aws.translate_errors(f"Downloading {uri}"):
                raise
        raise InputError(
            f"{job.name} ({status}) has no results at {uri}. A failed job may have checkpoints: `fetch {job.name} "
            "--checkpoints` downloads them, and `resume` continues from them.",
            kind="no-results",
        ) from error


def _download_run(s3: Any, job: TrainingJob, staging: Path) -> None:
    uri = f"{job.checkpoints}/run"
    with aws.translate_errors(f"Downloading {uri}"):
        objects = aws.list_folder(s3, uri)
        if not objects:
            raise InputError(f"{job.name} has no checkpoints: {uri} is empty.", kind="no-results")
        _check_size(sum(entry["Size"] for entry in objects), len(objects), staging, uri)
        bucket, prefix = aws.split_uri(f"{uri}/")
        for entry in objects:
            target = (staging / entry["Key"].removeprefix(prefix)).resolve()
            if not target.is_relative_to(staging.resolve()) or entry["Key"].endswith("/"):
                continue  # a key may be any text, such as "../x"
            target.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, entry["Key"], str(target))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into a folder if all of its members are safe.

    Raises:
        InputError: it is not a tar archive, it is too large, or a member would be written outside the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            size = count = 0
            for member in tar:  # a member's size is a claim, but tarfile writes no more than that
                size, count = size + member.size, count + 1
                _check_size(size, count, folder, archive.name)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise InputError(
            f"{archive.name} is not unpacked, because a member would leave the folder: {error}.", kind="unsafe-archive"
        ) from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(
            f"{archive.name} can't be unpacked: {error}. Fetch it again.", kind="broken-archive"
        ) from error


def _check_size(size: int, count: int, folder: Path, source: str) -> None:
    free = shutil.disk_usage(folder).free - _RESERVED_BYTES
    limit = min(MAX_BYTES, free)
    if size > limit:
        raise InputError(
            f"{source} has more than {byte_count(max(limit, 0))}, which does not fit here. Free disk space, or name a "
            "folder on a larger disk (--to).",
            kind="archive-too-large",
        )
    if count > MAX_FILES:
        raise InputError(
            f"{source} has more than {MAX_FILES:,} files, so it is no model. It is not unpacked.",
            kind="archive-too-large",
        )


def _move(staging: Path, folder: Path, force: bool) -> list[str]:
    names = sorted(path.name for path in staging.iterdir())
    existing = [name for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if existing and not force:
        raise InputError(
            f"{folder} already has {', '.join(existing[:5])}. Add --force to replace them, or name another folder "
            "(--to).",
            kind="file-exists",
            path=folder,
        )
    for name in names:
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif target.exists() or target.is_symlink():
            target.unlink()
        shutil.move(str(staging / name), str(target))
    return names
