"""Submit a planned job, and decide whether it may continue an earlier job's checkpoints.

`experiment.json` beside the checkpoints describes the run that wrote them, and the job that continues them. A job of
another recipe is refused there. It is replaced only in the version that was read, so `resume` and `cleanup` can't both
take the same checkpoints.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from rlvr.artifacts.identity import RESUME_MAY_CHANGE, Identity
from rlvr.errors import InputError
from rlvr.sagemaker import aws, request
from rlvr.sagemaker.account import check_bucket, make_default_bucket
from rlvr.sagemaker.job import DONE, RECORD, TrainingJob, find_job, write_record
from rlvr.sagemaker.plan import JobPlan

EXPERIMENT = "experiment.json"


class AlreadyRunning(InputError):
    """A job of the same recipe is in progress: `job`."""

    def __init__(self, job: TrainingJob) -> None:
        super().__init__(
            f"{job.name} trains the same recipe and is in progress, so no second job was started. Follow it with "
            f"`follow {job.name}`, or add --allow_duplicate to start another one.",
            kind="job-already-running",
        )
        self.job = job


def submit(plan: JobPlan, overrides: tuple[str, ...] = (), *, allow_duplicate: bool = False) -> TrainingJob:
    """Upload a plan's files and start its job.

    Args:
        overrides: the overrides that the plan was made with, for the record.
        allow_duplicate: start the job even if a job of the same recipe is in progress.

    Raises:
        InputError: the plan or the account has problems; nothing was uploaded. Or the service refused the request; the
            uploaded files are deleted again.
        AlreadyRunning: a job of the same recipe is in progress.
    """
    job = upload_job(plan, overrides, allow_duplicate=allow_duplicate)
    assert plan.request is not None  # a plan without problems has one
    try:
        with aws.translate_errors(f"Submitting {job.name}"):
            aws.client("sagemaker", job.region).create_training_job(**plan.request)
    except BaseException:
        delete_upload(job)
        raise
    write_record(job, plan.recipe.output_dir)
    return job


def upload_job(plan: JobPlan, overrides: tuple[str, ...] = (), *, allow_duplicate: bool = False) -> TrainingJob:
    """Check the account and upload a plan's files; see `submit`."""
    plan.check()
    job = _job_of(plan, overrides)
    with aws.translate_errors("Checking the AWS credentials"):
        aws.client("sts", job.region).get_caller_identity()
    if not allow_duplicate:
        duplicate = find_running_duplicate(plan)
        if duplicate is not None:
            raise AlreadyRunning(duplicate)
    check_bucket(plan.settings)
    s3 = aws.client("s3", job.region)
    version = _check_experiment(s3, job, plan)
    experiment = {"job": job.name, "root": job.root, "submitted": job.submitted, **job.identity}
    with aws.translate_errors(f"Uploading to {job.root}"):
        make_default_bucket(s3, plan.settings)
        aws.write_json(s3, f"{aws.parent_uri(job.checkpoints)}/{EXPERIMENT}", experiment, **version)
        with ThreadPoolExecutor(aws.MAX_THREADS) as threads:
            list(threads.map(lambda one: s3.upload_file(str(one[0].source), *aws.split_uri(one[1])), plan.uploads))
        aws.write_json(s3, f"{job.root}/{RECORD}", asdict(job))
    return job


def delete_upload(job: TrainingJob) -> None:
    with aws.translate_errors(f"Deleting the uploaded files in {job.root}"):
        aws.delete_folder(aws.client("s3", job.region), job.root)


def _job_of(plan: JobPlan, overrides: tuple[str, ...]) -> TrainingJob:
    assert plan.request is not None and plan.settings.region is not None
    return TrainingJob(
        name=plan.name,
        region=plan.settings.region,
        root=f"{request.root_uri(plan.settings)}/{plan.name}",
        output=f"{plan.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{plan.name}/output",
        checkpoints=plan.checkpoints,
        recipe=str(plan.recipe.path.resolve()),
        overrides=overrides,
        folder=str(plan.recipe.output_dir.resolve()),
        digest=plan.digest,
        identity=json.loads(json.dumps(plan.identity)),
        submitted=time.time(),
    )


def find_running_duplicate(plan: JobPlan) -> TrainingJob | None:
    """A job of the account that has the same recipe and name, and is in progress."""
    client = aws.client("sagemaker", plan.settings.region)
    base = request.base_name(plan.recipe, plan.settings)
    with aws.translate_errors("Looking for jobs in progress"):
        pages = client.get_paginator("list_training_jobs").paginate(NameContains=base, StatusEquals="InProgress")
        for summary in (summary for page in pages for summary in page["TrainingJobSummaries"]):
            tags = client.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
            if {"Key": request.RECIPE_TAG, "Value": plan.digest} in tags:
                return find_job(summary["TrainingJobName"], plan.settings.region)
    return None


def _check_experiment(s3: Any, job: TrainingJob, plan: JobPlan) -> dict[str, str]:
    """Refuse checkpoints of another recipe; return the conditions of writing experiment.json.

    Raises:
        InputError: with the differences.
    """
    if plan.settings.checkpoints is None:
        return {}
    with aws.translate_errors(f"Reading {EXPERIMENT} of {job.checkpoints}"):
        earlier, version = aws.read_json_version(s3, f"{aws.parent_uri(job.checkpoints)}/{EXPERIMENT}")
        if earlier is None:
            if plan.resumes:
                raise _checkpoints_deleted(job.checkpoints)
            if aws.list_folder(s3, job.checkpoints):
                raise InputError(
                    f"{job.checkpoints} is not empty, and no {EXPERIMENT} next to it names its run. Use an "
                    "empty folder, or `resume JOB` for a job of this project.",
                    kind="unknown-checkpoints",
                    key="checkpoints",
                )
            return version
    if earlier.get("deleted"):
        raise _checkpoints_deleted(job.checkpoints)
    differences = recipe_differences(job.identity, earlier)
    if differences:
        listed = "\n".join(f"  {line}" for line in differences)
        raise InputError(
            f"The checkpoints in {job.checkpoints} belong to a different run ({earlier.get('job')}):\n{listed}\nUndo "
            "these changes, or submit a new job.",
            kind="checkpoints-of-another-run",
            key="checkpoints",
        )
    return version


def _checkpoints_deleted(checkpoints: str) -> InputError:
    return InputError(
        f"The checkpoints in {checkpoints} were deleted by `cleanup`. Start a new job with `submit`.",
        kind="no-checkpoints",
    )


def recipe_differences(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """The differences between two runs that make their checkpoints incompatible, one phrase each."""
    identities = []
    for run in (now, earlier):
        launcher = "plain" if run["launcher"] in ("python", "ddp", "cpu") else str(run["launcher"])
        recipe = {key: value for key, value in run["recipe"].items() if key not in RESUME_MAY_CHANGE}
        identities.append(Identity(recipe, run["processes"] or 0, launcher, ""))
    return identities[0].differences(identities[1])


def check_resumable(job: TrainingJob) -> None:
    """Refuse to resume a job that is running or completed, or whose checkpoints were deleted.

    Raises:
        InputError: for one of these reasons.
    """
    status = job.describe()["TrainingJobStatus"]
    if status not in DONE:
        raise InputError(
            f"{job.name} is still in progress ({status}): two jobs must not write the same checkpoints. Stop it first.",
            kind="job-in-progress",
        )
    if status == "Completed":
        raise InputError(
            f"{job.name} is completed, so nothing is left to resume. `fetch {job.name}` downloads its results.",
            kind="job-completed",
        )
    with aws.translate_errors(f"Reading {EXPERIMENT} of {job.checkpoints}"):
        uri = f"{aws.parent_uri(job.checkpoints)}/{EXPERIMENT}"
        if aws.read_json(aws.client("s3", job.region), uri) is None:
            raise _checkpoints_deleted(job.checkpoints)
