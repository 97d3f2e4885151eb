"""A submitted job: how it is started, found again from anywhere, stopped and gone on with.

What is known of a job is written down twice when it is submitted, as job.json in the run's folder and beside its files
in S3, so that it can be followed from where it was submitted or from anywhere. `experiment.json` beside the checkpoints
says what they were made of, and a job of another recipe is refused there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlvr.artifacts import directory
from rlvr.artifacts.identity import RESUME_MAY_CHANGE, Identity
from rlvr.errors import InputError
from rlvr.sagemaker import aws, request
from rlvr.sagemaker import quotas as quota
from rlvr.sagemaker.plan import JobPlan
from rlvr.sagemaker.role import trust_faults

RECORD = "job.json"
EXPERIMENT = "experiment.json"
DONE = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True)
class Job:
    """What is known of a job.

    Attributes:
        root: the folder in S3 that holds what is the job's own.
        output, checkpoints: S3 URIs.
        recipe, overrides: the file that it was submitted with, and the words of the command line.
        folder: the run's folder on the machine that submitted it.
        digest, identity: what the run is; see rlvr/sagemaker/request.py and Plan.identity.
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

    @property
    def link(self) -> str:
        """The job's page in the console."""
        return f"https://{self.region}.console.aws.amazon.com/sagemaker/home?region={self.region}#/jobs/{self.name}"

    def describe(self) -> dict[str, Any]:
        """What the service says of it.

        Raises:
            InputError: there is no such job, or it may not be seen.
        """
        with aws.explained(f"Asking for the job {self.name}"):
            return dict(aws.client("sagemaker", self.region).describe_training_job(TrainingJobName=self.name))


# ----------------------------------------------------------------------------------------------------------------------
# Submitting


def submit(plan: JobPlan, overrides: tuple[str, ...] = (), *, another: bool = False) -> Job:
    """Uploads what a plan says and starts its job.

    Args:
        overrides: the words that the plan was made with, to be written down.
        another: start it although a job of the same recipe is in progress.

    Raises:
        InputError: the plan or the account has a fault, with a line for each; then nothing was uploaded. Or the service
            refused the request; then what was uploaded is deleted again.
        AlreadyRunning: a job of the same recipe is in progress.
    """
    plan.check()
    assert plan.request is not None and plan.settings.region is not None  # a plan without faults has both
    job = _job_of(plan, overrides)
    with aws.explained("Asking AWS who you are"):
        aws.client("sts", job.region).get_caller_identity()
    if not another:
        twin = running_twin(plan)
        if twin is not None:
            raise AlreadyRunning(twin)
    faults = account_faults(plan)
    if faults:
        raise InputError("\n".join(faults))
    s3 = aws.client("s3", job.region)
    _check_experiment(s3, job, plan)
    with aws.explained(f"Uploading to {job.root}"):
        _make_bucket(s3, plan)
        with ThreadPoolExecutor(aws.THREADS) as threads:
            list(threads.map(lambda one: aws.upload(s3, one[0].source, one[1]), plan.uploads))
        aws.write_json(s3, f"{job.root}/{RECORD}", asdict(job))
        aws.write_json(s3, f"{aws.parent(job.checkpoints)}/{EXPERIMENT}", {"job": job.name, **job.identity})
    try:
        with aws.explained(f"Submitting {job.name}"):
            aws.client("sagemaker", job.region).create_training_job(**plan.request)
    except BaseException:
        with aws.explained(f"Deleting what was uploaded to {job.root}"):
            aws.delete(s3, job.root)
        raise
    write_record(job, plan.recipe.output_dir)
    return job


class AlreadyRunning(InputError):
    """A job of the same recipe is in progress; `job` is what is known of it."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"{job.name} trains this very recipe and is in progress, so no second job was started. Follow it with "
            f"`follow {job.name}`; for another one beside it add --another."
        )
        self.job = job


def _job_of(plan: JobPlan, overrides: tuple[str, ...]) -> Job:
    assert plan.request is not None and plan.settings.region is not None
    return Job(
        name=plan.name,
        region=plan.settings.region,
        root=f"s3://{request.bucket_of(plan.settings)}/{plan.settings.prefix.strip('/')}/{plan.name}",
        output=f"{plan.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{plan.name}/output",
        checkpoints=plan.checkpoints,
        recipe=str(plan.recipe.path.resolve()),
        overrides=overrides,
        folder=str(plan.recipe.output_dir.resolve()),
        digest=plan.digest,
        identity=json.loads(json.dumps(plan.identity)),
        submitted=time.time(),
    )


def running_twin(plan: JobPlan) -> Job | None:
    """A job of the same recipe that is in progress: the one that this machine submitted last, or any of the account."""
    known = read_record(plan.recipe.output_dir / RECORD)
    if known is not None and known.digest == plan.digest and known.region == plan.settings.region:
        try:
            if known.describe()["TrainingJobStatus"] not in DONE:
                return known
        except InputError:
            pass  # of another account, or long gone
    client = aws.client("sagemaker", plan.settings.region)
    base = request.base_name(plan.recipe, plan.settings)
    with aws.explained("Looking for jobs in progress"):
        pages = client.get_paginator("list_training_jobs").paginate(NameContains=base, StatusEquals="InProgress")
        for summary in (one for page in pages for one in page["TrainingJobSummaries"]):
            tags = client.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
            if {"Key": request.RECIPE_TAG, "Value": plan.digest} in tags:
                return find(summary["TrainingJobName"], plan.settings.region)
    return None


def account_faults(plan: JobPlan) -> list[str]:
    """What the account lacks for a plan. What one may not ask is left for the service to say."""
    settings = plan.settings
    faults = []
    role = str(settings.role)
    try:
        found = aws.client("iam", settings.region, attempts=2).get_role(RoleName=role.rpartition("/")[2])
        faults += trust_faults(role, found["Role"])
    except Exception as error:
        if aws.code_of(error) == "NoSuchEntity":
            faults.append(
                f"There is no role {role}. docs/sagemaker.md has the commands that make one; or see that the account's "
                "number in it is yours."
            )
    s3 = aws.client("s3", settings.region)
    bucket = str(request.bucket_of(settings))
    try:
        found = s3.head_bucket(Bucket=bucket)
        where = found.get("BucketRegion") or settings.region
        if where != settings.region:
            faults.append(
                f"The bucket {bucket} is in {where}, but the job would run in {settings.region}, and SageMaker reads "
                f"from "
                f"its own region only. Take a bucket there, or --region {where}."
            )
    except Exception as error:
        code = aws.code_of(error)
        if code in ("404", "NoSuchBucket"):
            if settings.bucket is not None:
                faults.append(
                    f"There is no bucket {bucket}: make it with `aws s3 mb s3://{bucket} --region {settings.region}`, "
                    f"or "
                    "leave bucket out, and the account's own for SageMaker is taken."
                )
        elif code in ("403", "AccessDenied"):
            faults.append(
                f"The bucket {bucket} is another account's, or you may not use it. Name one of yours (--bucket)."
            )
        elif code in ("301", "PermanentRedirect"):
            faults.append(f"The bucket {bucket} is in another region than {settings.region}. Take a bucket there.")
        else:
            with aws.explained(f"Looking at the bucket {bucket}"):
                raise
    return faults + _quota_faults(plan)


def _quota_faults(plan: JobPlan) -> list[str]:
    try:
        pages = aws.client("service-quotas", plan.settings.region, attempts=1).get_paginator("list_service_quotas")
        found = [one for page in pages.paginate(ServiceCode="sagemaker") for one in page["Quotas"]]
    except Exception:  # it may not be asked: then the service says it, when the job is submitted
        return []
    return quota.quota_faults(quota.quotas_of(plan.settings), found, plan.settings.region)


def _make_bucket(s3: Any, plan: JobPlan) -> None:
    """Makes the account's own bucket for SageMaker, as the SDK would, where it isn't there yet."""
    settings = plan.settings
    if settings.bucket is not None:
        return
    bucket = str(request.bucket_of(settings))
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=str(request.account_of(settings.role)))
    except Exception as error:
        if aws.code_of(error) not in ("404", "NoSuchBucket"):
            raise
        place = {} if settings.region == "us-east-1" else {"LocationConstraint": settings.region}
        s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": place} if place else {}))


# ----------------------------------------------------------------------------------------------------------------------
# Going on with a job's checkpoints


def _check_experiment(s3: Any, job: Job, plan: JobPlan) -> None:
    """Refuses checkpoints that another recipe has written.

    Raises:
        InputError: with what differs.
    """
    if plan.settings.checkpoints is None:
        return
    with aws.explained(f"Reading what the checkpoints in {job.checkpoints} are of"):
        earlier = aws.read_json(s3, f"{aws.parent(job.checkpoints)}/{EXPERIMENT}")
        if earlier is None:
            if aws.objects(s3, job.checkpoints):
                raise InputError(
                    f"{job.checkpoints} holds something, but no {EXPERIMENT} beside it says of which run. Take an "
                    f"empty "
                    "folder, or `resume JOB` for a job of this project."
                )
            return
    differences = differences_of(job.identity, earlier)
    if differences:
        listed = "\n".join(f"  {line}" for line in differences)
        raise InputError(
            f"The checkpoints in {job.checkpoints} are of a run that differs from this one ({earlier.get('job')}), so "
            f"it "
            f"can't go on from them:\n{listed}\nUndo that, or submit it as a job of its own."
        )


def differences_of(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """What of a run differs from an earlier one in a way that its checkpoints can't bear, a phrase each."""
    identities = []
    for one in (now, earlier):
        launcher = "plain" if one["launcher"] in ("python", "ddp", "cpu") else str(one["launcher"])
        recipe = {key: value for key, value in one["recipe"].items() if key not in RESUME_MAY_CHANGE}
        identities.append(Identity(recipe, one["processes"] or 0, launcher, ""))
    return identities[0].differences(identities[1])


def check_resumable(job: Job) -> None:
    """Finds a job that there is nothing to go on from.

    Raises:
        InputError: it is still in progress, or it is done.
    """
    status = job.describe()["TrainingJobStatus"]
    if status not in DONE:
        raise InputError(
            f"{job.name} is still in progress ({status}): two jobs must not write the same checkpoints. Stop it first."
        )
    if status == "Completed":
        raise InputError(
            f"{job.name} is completed, so there is nothing to go on with. `fetch {job.name}` gets its results."
        )


def stop(job: Job) -> str:
    """Asks the service to stop a job; what to expect then."""
    status = job.describe()["TrainingJobStatus"]
    if status in DONE:
        return f"{job.name} is over already: {status}."
    with aws.explained(f"Stopping {job.name}"):
        aws.client("sagemaker", job.region).stop_training_job(TrainingJobName=job.name)
    return (
        f"{job.name} is being stopped: it ends the step at hand and saves a checkpoint, for which it has two minutes. "
        f"`resume {job.name}` goes on from there."
    )


# ----------------------------------------------------------------------------------------------------------------------
# Finding a job again


def write_record(job: Job, folder: Path) -> None:
    """Writes job.json; that of an earlier job keeps its name beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = read_record(folder / RECORD)
    if earlier is not None and earlier.name != job.name:
        (folder / RECORD).replace(folder / f"job-{earlier.name}.json")
    directory.write_json(folder / RECORD, asdict(job))


def read_record(path: Path) -> Job | None:
    """The job of a job.json; None where there is none, or none that can be read."""
    try:
        return _job_from(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _job_from(content: Mapping[str, Any]) -> Job:
    return Job(**{**content, "overrides": tuple(content.get("overrides", ()))})


def find(word: str, region: str | None = None) -> Job:
    """The job that a word on the command line means: its name, its job.json, or a folder with one.

    Raises:
        InputError: there is no such job.
    """
    path = Path(word)
    for file in (path, path / RECORD):
        if file.is_file():
            job = read_record(file)
            if job is None:
                raise InputError(f"{file} is no {RECORD} of this project.")
            return job
    if "/" in word or word.endswith(".json"):
        raise InputError(
            f"There is no {word} with a {RECORD}. Give a job's name, its {RECORD}, or the folder of its run."
        )
    for file in sorted(Path("runs").glob("*/job*.json")):
        job = read_record(file)
        if job is not None and job.name == word:
            return job
    return _from_service(word, region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"))


def is_missing(error: InputError) -> bool:
    """Whether it says that there is no such job, and not that it can't be seen."""
    return any(words in str(error).lower() for words in ("resource not found", "could not find training job"))


def _from_service(name: str, region: str | None) -> Job:
    client = aws.client("sagemaker", region)
    try:
        with aws.explained(f"Looking for the job {name} in {client.meta.region_name}"):
            found = client.describe_training_job(TrainingJobName=name)
            code = next((one for one in found["InputDataConfig"] if one["ChannelName"] == "code"), None)
            if code is None:
                raise InputError(f"The job {name} is not of this project.")
            root = code["DataSource"]["S3DataSource"]["S3Uri"].partition("/input/code")[0]
            record = aws.read_json(aws.client("s3", client.meta.region_name), f"{root}/{RECORD}")
    except InputError as error:
        if is_missing(error):
            raise InputError(
                f"There is no job {name} in {client.meta.region_name}: is its name whole, and is it that region "
                f"(--region)?"
            ) from error
        raise
    if record is None:
        raise InputError(
            f"The job {name} was not submitted by this project, or was cleaned up: there is no {root}/{RECORD}."
        )
    return _job_from(record)
