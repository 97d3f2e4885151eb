"""Training jobs: describe, find, stop, and write their records.

A record is `job.json`, written twice: in the run's folder and beside the job's files in S3. So a job can be followed
from the machine that submitted it and from any other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlvr.artifacts import directory
from rlvr.errors import InputError
from rlvr.sagemaker import aws

RECORD = "job.json"
DONE = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True)
class TrainingJob:
    """A submitted job, as job.json records it.

    Attributes:
        root: S3 folder of the job's own files.
        output, checkpoints: S3 URIs.
        recipe, overrides: the recipe's path and the overrides on the command line.
        folder: the run's folder on the machine that submitted the job.
        digest: see `request.recipe_digest`.
        identity: see `JobPlan.identity`.
        submitted: seconds since 1970.
    """

    name: str
    region: str
    root: str
    output: str
    checkpoints: str
    recipe: str
    overrides: tuple[str, ...] = ()
    folder: str = ""
    digest: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)
    submitted: float = 0.0

    @classmethod
    def from_record(cls, content: Mapping[str, Any]) -> TrainingJob:
        return cls(**{**content, "overrides": tuple(content.get("overrides", ()))})

    @property
    def link(self) -> str:
        """The job's page in the AWS console."""
        return f"https://{self.region}.console.aws.amazon.com/sagemaker/home?region={self.region}#/jobs/{self.name}"

    def describe(self) -> dict[str, Any]:
        """The service's description of the job.

        Raises:
            InputError: the job does not exist (kind "aws-not-found"), or AWS refuses the call.
        """
        with aws.translate_errors(f"Describing the job {self.name}"):
            return dict(aws.client("sagemaker", self.region).describe_training_job(TrainingJobName=self.name))


def has_checkpoint(job: TrainingJob) -> bool:
    """Whether a job has saved a checkpoint or a model; also True if that can't be read."""
    try:
        with aws.translate_errors(f"Listing {job.checkpoints}"):
            objects = aws.list_folder(aws.client("s3", job.region), f"{job.checkpoints}/run")
    except InputError:
        return True
    return any(re.search(r"/run/(checkpoint-\d+/complete\.json$|adapter/|model/)", entry["Key"]) for entry in objects)


def stop_job(job: TrainingJob) -> str:
    """Ask the service to stop a job; return what happens next."""
    status = job.describe()["TrainingJobStatus"]
    if status in DONE:
        return f"{job.name} has already ended: {status}."
    with aws.translate_errors(f"Stopping {job.name}"):
        aws.client("sagemaker", job.region).stop_training_job(TrainingJobName=job.name)
    return (
        f"{job.name} is stopping: it finishes the current step and saves a checkpoint within two minutes. "
        f"`resume {job.name}` continues from it."
    )


def write_record(job: TrainingJob, folder: Path) -> None:
    """Write job.json. The record of an earlier job in the folder becomes job-NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = read_record(folder / RECORD)
    if earlier is not None and earlier.name != job.name:
        (folder / RECORD).replace(folder / f"job-{earlier.name}.json")
    directory.write_json(folder / RECORD, asdict(job))


def read_record(path: Path) -> TrainingJob | None:
    """Read a job.json; None if the file is missing or is no record."""
    try:
        return TrainingJob.from_record(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def find_job(reference: str, region: str | None = None) -> TrainingJob:
    """Find a job by its name, its job.json or its run's folder.

    Raises:
        InputError: there is no such job (kind "job-not-found").
    """
    path = Path(reference)
    for file in (path, path / RECORD):
        if file.is_file():
            job = read_record(file)
            if job is None:
                raise InputError(f"{file} is not a job record of this project.", kind="job-not-found", path=file)
            return job
    if "/" in reference or reference.endswith(".json"):
        raise InputError(
            f"{reference} has no {RECORD}. Name a job, its {RECORD} or its run's folder.",
            kind="job-not-found",
            path=path,
        )
    for file in sorted(Path("runs").glob("*/job*.json")):
        job = read_record(file)
        if job is not None and job.name == reference:
            return job
    return find_in_account(reference, region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))


def find_in_account(name: str, region: str | None) -> TrainingJob:
    """Find a job by the record beside its files in S3; errors as in `find_job`."""
    client = aws.client("sagemaker", region)
    region = client.meta.region_name
    try:
        with aws.translate_errors(f"Looking for the job {name} in {region}"):
            description = client.describe_training_job(TrainingJobName=name)
            channels = {channel["ChannelName"]: channel for channel in description["InputDataConfig"]}
            if "code" not in channels:
                raise InputError(f"The job {name} was not submitted by this project.", kind="job-not-found")
            root = channels["code"]["DataSource"]["S3DataSource"]["S3Uri"].partition("/input/code")[0]
            record = aws.read_json(aws.client("s3", region), f"{root}/{RECORD}")
    except InputError as error:
        if error.kind != "aws-not-found":
            raise
        raise InputError(
            f"There is no job {name} in {region}. Check the whole name and the region (--region).",
            kind="job-not-found",
        ) from error
    if record is None:
        raise InputError(
            f"The job {name} has no {root}/{RECORD}: it was cleaned up, or another project submitted it.",
            kind="job-not-found",
        )
    return TrainingJob.from_record(record)
