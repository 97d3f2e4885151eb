"""Gets what a job has made, and unpacks it as something that a stranger may have packed.

A model.tar.gz comes out of a container that ran code of the recipe's author. So nothing of it is written outside the
folder, no links that leave it, no devices, no more than there is room for, and nothing that is there is replaced
unasked.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.sagemaker import aws
from rlvr.sagemaker.job import DONE, Job
from rlvr.sagemaker.plan import size_text

MOST_BYTES = 500 * 10**9
MOST_FILES = 100_000
# Room that must be left on the disk.
_SPARE = 10**9


def fetch(job: Job, folder: Path, *, force: bool = False, checkpoints: bool = False) -> list[str]:
    """Downloads the results of a job into a folder.

    Args:
        force: replace files that are there.
        checkpoints: get the run's folder with its checkpoints instead, which a job that failed has too.

    Returns:
        The names of what was written, at the top of the folder.

    Raises:
        InputError: there is nothing to get, it isn't safe to unpack, or it would replace something.
    """
    s3 = aws.client("s3", job.region)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as beside:
        inside = Path(beside, "files")
        inside.mkdir()
        if checkpoints:
            _download_run(s3, job, inside)
        else:
            packed = Path(beside, "model.tar.gz")
            _download_results(s3, job, packed, inside)
        return _move(inside, folder, force)


def _download_results(s3: Any, job: Job, packed: Path, inside: Path) -> None:
    description = job.describe()
    status = description["TrainingJobStatus"]
    uri = description.get("ModelArtifacts", {}).get("S3ModelArtifacts") or f"{job.output}/model.tar.gz"
    try:
        aws.download(s3, uri, packed)
    except Exception as error:
        if aws.code_of(error) not in ("404", "NoSuchKey", "403"):
            with aws.explained(f"Downloading {uri}"):
                raise
        if status not in DONE:
            raise InputError(
                f"{job.name} is still in progress ({status}): its results are there when it is over."
            ) from error
        raise InputError(
            f"{job.name} ({status}) left no {uri}. A job that failed may have left checkpoints: `fetch {job.name} "
            "--checkpoints` gets them, and `resume` goes on from them."
        ) from error
    unpack(packed, inside)


def _download_run(s3: Any, job: Job, inside: Path) -> None:
    uri = f"{job.checkpoints}/run"
    with aws.explained(f"Downloading {uri}"):
        found = aws.objects(s3, uri)
        if not found:
            raise InputError(f"{job.name} has no checkpoints: there is nothing in {uri}.")
        _check_room(sum(one["Size"] for one in found), len(found), inside, uri)
        bucket, prefix = aws.split_uri(f"{uri}/")
        for one in found:
            target = (inside / one["Key"].removeprefix(prefix)).resolve()
            if not target.is_relative_to(inside.resolve()) or one["Key"].endswith("/"):
                continue  # a key may be any text, "../x" as well
            target.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, one["Key"], str(target))


def unpack(packed: Path, folder: Path) -> None:
    """Unpacks a tar file into a folder, if all of it is safe to.

    Raises:
        InputError: it is none, is too large, or holds something that would leave the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(packed) as tar:
            size = count = 0
            for member in tar:  # its own words about sizes, but no more than those are written
                size, count = size + member.size, count + 1
                _check_room(size, count, folder, packed.name)
        with tarfile.open(packed) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise InputError(
            f"{packed.name} is not unpacked, because it would write where it must not: {error}."
        ) from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{packed.name} can't be unpacked: {error}. Fetch it again.") from error


def _check_room(size: int, count: int, folder: Path, what: str) -> None:
    free = shutil.disk_usage(folder).free - _SPARE
    if size > min(MOST_BYTES, free):
        raise InputError(
            f"{what} has more than {size_text(min(MOST_BYTES, max(free, 0)))}, for which there is no room here. Free "
            f"some, or "
            "name a folder on a larger disk (--to)."
        )
    if count > MOST_FILES:
        raise InputError(f"{what} has more than {MOST_FILES:,} files, as no model has. It is not unpacked.")


def _move(inside: Path, folder: Path, force: bool) -> list[str]:
    names = sorted(path.name for path in inside.iterdir())
    there = [name for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if there and not force:
        raise InputError(
            f"{folder} has {', '.join(there[:5])} already, which would be replaced. Add --force for that, or --to "
            f"another "
            "folder."
        )
    for name in names:
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif target.exists() or target.is_symlink():
            target.unlink()
        shutil.move(str(inside / name), str(target))
    return names
