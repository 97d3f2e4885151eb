"""Ends what still costs something, and deletes what the project has made; listed first, and nothing else.

What is the project's is told by two marks: a job's tag, and the job.json that lies in its folder in S3. The bucket,
roles, logs and anything without these marks are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rlvr.errors import InputError
from rlvr.sagemaker import aws, request
from rlvr.sagemaker.job import DONE, EXPERIMENT, RECORD, Job, is_missing
from rlvr.sagemaker.plan import size_text

_WARM = ("Available", "InUse")
# How the name of every job of this project ends: see request.job_name.
_NAMED = re.compile(r".+-\d{8}-\d{6}")


@dataclass(frozen=True)
class Leftover:
    """What is left of a job.

    Attributes:
        running: it is in progress, or a job that goes on from its checkpoints is; then nothing of it is touched.
        warm: its hosts are kept for a next job, and paid for.
        uris: its folders in S3, with the number and the bytes of their objects.
    """

    job: Job
    running: bool
    warm: bool
    uris: tuple[tuple[str, int, int], ...]

    def lines(self) -> list[str]:
        if self.running:
            return [
                f"{self.job.name}: it, or a job that goes on from its checkpoints, is in progress: it is left alone"
            ]
        lines = [f"{self.job.name}: ends its warm pool"] if self.warm else []
        return lines + [
            f"{self.job.name}: deletes {uri}/ ({count} objects, {size_text(size)})" for uri, count, size in self.uris
        ]


def jobs_of_account(region: str | None, known: Iterable[str] = ()) -> list[Job]:
    """The project's jobs in an account and region, whoever submitted them: by their names, and then by their tag.

    Asks for nothing but what docs/sagemaker/caller-policy.json allows: a search by tag would take a permission more.

    Args:
        known: names of jobs to leave out.
    """
    client = aws.client("sagemaker", region)
    left_out = set(known)
    with aws.explained("Looking for the project's jobs in the account"):
        pages = client.get_paginator("list_training_jobs").paginate(SortBy="CreationTime", SortOrder="Descending")
        found = [
            one
            for page in pages
            for one in page["TrainingJobSummaries"]
            if _NAMED.fullmatch(one["TrainingJobName"]) and one["TrainingJobName"] not in left_out
        ]

        def job_of(one: dict[str, Any]) -> Job | None:
            tags = client.list_tags(ResourceArn=one["TrainingJobArn"])["Tags"]
            if not any(tag["Key"] == request.TAG for tag in tags):
                return None
            description = client.describe_training_job(TrainingJobName=one["TrainingJobName"])
            return _described(description, client.meta.region_name)

        with ThreadPoolExecutor(aws.THREADS) as threads:
            return [job for job in threads.map(job_of, found) if job is not None]


def _described(description: dict[str, Any], region: str) -> Job | None:
    """What clearing up has to know of a job, from what the service says of it; None where that isn't our layout."""
    name = description["TrainingJobName"]
    code = next((one for one in description.get("InputDataConfig", []) if one["ChannelName"] == "code"), None)
    if code is None:
        return None
    root, _, within = code["DataSource"]["S3DataSource"]["S3Uri"].partition("/input/code")
    if within or root.rpartition("/")[2] != name:
        return None
    output = f"{description['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{name}/output"
    checkpoints = description.get("CheckpointConfig", {}).get("S3Uri", "")
    return Job(name, region, root, output, checkpoints, recipe="")


def leftovers(jobs: list[Job]) -> list[Leftover]:
    """What is left of each job."""
    for region in {job.region for job in jobs}:
        for service in ("sagemaker", "s3"):
            aws.client(service, region)  # clients may be used by many threads at once, but not made by them
    with ThreadPoolExecutor(aws.THREADS) as threads:
        found = list(threads.map(_left_of, jobs))
    return [one for one in found if one.running or one.warm or one.uris]


def _left_of(job: Job) -> Leftover:
    try:
        description = job.describe()
    except InputError as error:
        if not is_missing(error):
            raise
        description = {}
    with aws.explained(f"Looking at what is left of {job.name}"):
        tags = _tags(job, description)
        ours = request.TAG in tags or not description
        warm = description.get("WarmPoolStatus", {}).get("Status") in _WARM and ours
        s3 = aws.client("s3", job.region)
        uris = []
        for uri in dict.fromkeys([job.root, *([job.output] if not job.output.startswith(job.root) else [])]):
            # Without its job.json a folder is not known to be ours.
            if aws.read_json(s3, f"{job.root}/{RECORD}") is None:
                continue
            objects = aws.objects(s3, uri)
            if objects:
                uris.append((uri, len(objects), sum(one["Size"] for one in objects)))
    return Leftover(job, _in_progress(description) or _goes_on(job), warm, tuple(uris))


def _in_progress(description: dict[str, Any]) -> bool:
    return bool(description) and description["TrainingJobStatus"] not in DONE


def _goes_on(job: Job) -> bool:
    """Whether another job, that went on from this one's checkpoints, is writing them now."""
    experiment = aws.read_json(aws.client("s3", job.region), f"{job.root}/{EXPERIMENT}") or {}
    heir = experiment.get("job")
    if heir in (None, job.name):
        return False
    return _in_progress(replace(job, name=heir).describe())


def _tags(job: Job, description: dict[str, Any]) -> dict[str, str]:
    if not description:
        return {}
    tags = aws.client("sagemaker", job.region).list_tags(ResourceArn=description["TrainingJobArn"])["Tags"]
    return {one["Key"]: one["Value"] for one in tags}


def clean(leftover: Leftover) -> list[str]:
    """Ends the warm pool and deletes the folders of one job; what was done."""
    if leftover.running:
        return []
    job, done = leftover.job, []
    if leftover.warm:
        with aws.explained(f"Ending the warm pool of {job.name}"):
            aws.client("sagemaker", job.region).update_training_job(
                TrainingJobName=job.name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        done.append(f"{job.name}: its warm pool ends")
    s3 = aws.client("s3", job.region)
    for uri, _, _ in leftover.uris:
        with aws.explained(f"Deleting {uri}"):
            done.append(f"{job.name}: deleted {aws.delete(s3, uri)} objects of {uri}/")
    return done
