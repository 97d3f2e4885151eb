"""List and delete what jobs leave behind: warm pools and files in S3.

Only resources with the project's marks are touched: the job's tag, and the job.json in its S3 folder. Buckets, roles
and logs stay.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rlvr.errors import InputError
from rlvr.formatting import byte_count
from rlvr.sagemaker import aws, request
from rlvr.sagemaker.job import DONE, RECORD, TrainingJob
from rlvr.sagemaker.submission import EXPERIMENT

_START_S = 3600.0  # between the mark of a `resume` and its job: the time of an upload
_WARM_POOL_STATUSES = ("Available", "InUse")


@dataclass(frozen=True)
class JobResources:
    """Resources that a job has left.

    Attributes:
        in_use: why nothing may be deleted; empty if it may.
        folders: S3 folders, with the number and the bytes of their objects.
        selected: names of all jobs that are cleaned up together.
    """

    job: TrainingJob
    in_use: str
    warm_pool: bool
    folders: tuple[tuple[str, int, int], ...]
    selected: frozenset[str] = frozenset()

    def lines(self) -> list[str]:
        if self.in_use:
            return [f"{self.job.name}: skipped, because {self.in_use}"]
        lines = [f"{self.job.name}: ends its warm pool"] if self.warm_pool else []
        return lines + [
            f"{self.job.name}: deletes {uri}/ ({count} objects, {byte_count(size)})"
            for uri, count, size in self.folders
        ]


def find_resources(jobs: list[TrainingJob]) -> list[JobResources]:
    """The resources of each job that has any. Checkpoints that only these jobs would continue may be deleted."""
    selected = frozenset(job.name for job in jobs)
    for region in {job.region for job in jobs}:
        for service in ("sagemaker", "s3"):
            aws.client(service, region)  # boto3 clients are thread-safe, but creating one is not
    with ThreadPoolExecutor(aws.MAX_THREADS) as threads:
        resources = list(threads.map(lambda job: _resources_of(job, selected), jobs))
    return [entry for entry in resources if entry.in_use or entry.warm_pool or entry.folders]


def _resources_of(job: TrainingJob, selected: frozenset[str]) -> JobResources:
    description = _describe(job)
    with aws.translate_errors(f"Listing the resources of {job.name}"):
        is_tagged = request.TAG in _tags(job, description) or not description
        warm_pool = description.get("WarmPoolStatus", {}).get("Status") in _WARM_POOL_STATUSES and is_tagged
        s3 = aws.client("s3", job.region)
        folders = []
        for uri in dict.fromkeys([job.root, *([job.output] if not job.output.startswith(job.root) else [])]):
            # Without its job.json the folder may belong to something else.
            if aws.read_json(s3, f"{job.root}/{RECORD}") is None:
                continue
            objects = aws.list_folder(s3, uri)
            if objects:
                folders.append((uri, len(objects), sum(entry["Size"] for entry in objects)))
        experiment = aws.read_json(s3, f"{job.root}/{EXPERIMENT}") or {}
        in_use = "it is in progress" if _in_progress(description) else _why_needed(job, experiment, selected)
    return JobResources(job, in_use, warm_pool, tuple(folders), selected)


def _describe(job: TrainingJob) -> dict[str, Any]:
    """The service's description; empty if there is no such job."""
    try:
        return job.describe()
    except InputError as error:
        if error.kind != "aws-not-found":
            raise
        return {}


def _in_progress(description: dict[str, Any]) -> bool:
    return bool(description) and description["TrainingJobStatus"] not in DONE


def _why_needed(job: TrainingJob, experiment: dict[str, Any], selected: frozenset[str]) -> str:
    """Why a later job needs this job's checkpoints; empty if none does."""
    later = experiment.get("job", job.name)
    if later == job.name:
        return ""
    description = _describe(replace(job, name=later))
    if _in_progress(description):
        return f"{later} continues from its checkpoints"
    if not description:
        starts = time.time() - experiment.get("submitted", 0.0) < _START_S
        return f"{later} is about to continue from its checkpoints" if starts else ""
    root = experiment.get("root", f"{aws.parent_uri(job.root)}/{later}")
    done = description["TrainingJobStatus"] == "Completed" or later in selected
    if done or aws.read_json(aws.client("s3", job.region), f"{root}/{RECORD}") is None:
        return ""
    return f"`resume {later}` would need its checkpoints; name {later} too to delete both"


def _tags(job: TrainingJob, description: dict[str, Any]) -> dict[str, str]:
    if not description:
        return {}
    tags = aws.client("sagemaker", job.region).list_tags(ResourceArn=description["TrainingJobArn"])["Tags"]
    return {tag["Key"]: tag["Value"] for tag in tags}


def delete_resources(resources: JobResources) -> list[str]:
    """End a job's warm pool and delete its S3 folders; return a line per action.

    A job that was resumed since the resources were listed keeps its files.
    """
    if resources.in_use:
        return []
    job, actions = resources.job, []
    s3 = aws.client("s3", job.region)
    with aws.translate_errors(f"Reading {EXPERIMENT} of {job.name}"):
        experiment, version = aws.read_json_version(s3, f"{job.root}/{EXPERIMENT}")
    if experiment is not None:
        in_use = _why_needed(job, experiment, resources.selected)
        if in_use:
            return replace(resources, in_use=in_use).lines()
        # From here on `resume` refuses the checkpoints. If it came first, this fails.
        try:
            aws.write_json(s3, f"{job.root}/{EXPERIMENT}", {**experiment, "deleted": True}, **version)
        except InputError as error:
            if error.kind != "changed-meanwhile":
                raise
            return [f"{job.name}: skipped, because it was just resumed"]
    if resources.warm_pool:
        with aws.translate_errors(f"Ending the warm pool of {job.name}"):
            aws.client("sagemaker", job.region).update_training_job(
                TrainingJobName=job.name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        actions.append(f"{job.name}: ended its warm pool")
    for uri, _, _ in resources.folders:
        with aws.translate_errors(f"Deleting {uri}"):
            actions.append(f"{job.name}: deleted {aws.delete_folder(s3, uri)} objects of {uri}/")
    return actions
