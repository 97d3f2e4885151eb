"""What is read of an account: the role, and the project's jobs of all users."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rlvr.errors import InputError
from rlvr.sagemaker import aws, cleanup, request
from rlvr.sagemaker.account import current_role
from rlvr.sagemaker.job import TrainingJob
from tests.conftest import REPOSITORY, Run

SCRIPT = REPOSITORY / "scripts" / "sagemaker.py"
REGION, BUCKET = "us-east-1", "grpo-test"
ROLE = "arn:aws:iam::123456789012:role/Trainer"


def test_on_a_sagemaker_notebook_the_current_role_is_the_notebooks(
    empty_account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert current_role() is None, "a user"
    iam = aws.client("iam", REGION)
    role = iam.create_role(RoleName="Studio", Path="/service-role/", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    assumed = aws.client("sts", REGION).assume_role(RoleArn=role, RoleSessionName="SageMaker")["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", assumed["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", assumed["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", assumed["SessionToken"])
    assert current_role() == role
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert current_role() is None, "no network"


# ----------------------------------------------------------------------------------------------------------------------
# The project's jobs in the account


@pytest.fixture
def account(empty_account: str) -> str:
    """An account with a bucket."""
    aws.client("s3", REGION).create_bucket(Bucket=BUCKET)
    return empty_account


def job_in_the_account(name: str, tags: dict[str, str], *, keep_alive_s: int = 0, recorded: bool = True) -> str:
    """A job that some machine submitted, with what it left in S3; its folder."""
    root = f"s3://{BUCKET}/grpo-recipes/{name}"
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"{root}/input/code"}}
    aws.client("sagemaker", REGION).create_training_job(
        TrainingJobName=name,
        RoleArn=ROLE,
        AlgorithmSpecification={"TrainingImage": "image:1", "TrainingInputMode": "File"},
        InputDataConfig=[{"ChannelName": "code", "DataSource": source}],
        OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/grpo-recipes"},
        CheckpointConfig={"S3Uri": f"{root}/checkpoints"},
        ResourceConfig={
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 30,
            "KeepAlivePeriodInSeconds": keep_alive_s,
        },
        StoppingCondition={"MaxRuntimeInSeconds": 60},
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    s3 = aws.client("s3", REGION)
    if recorded:
        record = TrainingJob(name, REGION, root, f"{root}/output", f"{root}/checkpoints", "recipe.yaml")
        aws.write_json(s3, f"{root}/job.json", dataclasses.asdict(record))
    aws.write_json(s3, f"{root}/checkpoints/x", {})
    return root


OURS = {request.TAG: "grpo-recipes"}


def test_only_jobs_with_the_projects_name_and_tag_are_listed(account: str) -> None:
    root = job_in_the_account("mine-20260101-000000", OURS)
    job_in_the_account("known-20260101-000000", OURS)
    job_in_the_account("theirs-20260101-000000", {"team": "x"})
    job_in_the_account("tagged", OURS)  # not as this project names its jobs
    (job,) = cleanup.list_account_jobs(REGION, ["known-20260101-000000"])
    assert (job.name, job.root) == ("mine-20260101-000000", root)


def test_a_listed_jobs_folder_is_deleted_only_if_it_has_a_job_record(account: str) -> None:
    root = job_in_the_account("mine-20260101-000000", OURS)
    unmarked = job_in_the_account("other-20260101-000000", OURS, recorded=False)
    (resources,) = cleanup.find_resources(cleanup.list_account_jobs(REGION))
    assert [uri for uri, _, _ in resources.folders] == [root]
    cleanup.delete_resources(resources)
    s3 = aws.client("s3", REGION)
    assert aws.list_folder(s3, root) == [] and len(aws.list_folder(s3, unmarked)) == 1


@pytest.mark.slow
def test_jobs_of_others_are_deleted_only_with_account(account: str, run_script: Run, tmp_path: Path) -> None:
    root = job_in_the_account("mine-20260101-000000", OURS)
    s3 = aws.client("s3", REGION)
    listed = run_script(SCRIPT, "cleanup", "--yes", cwd=tmp_path)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "Nothing to clean up" in listed.stdout
    assert run_script(SCRIPT, "cleanup", "--account", cwd=tmp_path).returncode == 2, "it asks first"
    assert len(aws.list_folder(s3, root)) == 2
    done = run_script(SCRIPT, "cleanup", "--account", "--yes", cwd=tmp_path)
    assert done.returncode == 0 and "deleted 2 objects" in done.stdout, done.stdout + done.stderr
    assert aws.list_folder(s3, root) == []


def test_without_credentials_listing_the_account_names_the_fix(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InputError) as caught:
        cleanup.list_account_jobs(REGION)
    assert caught.value.kind == "aws-credentials" and "aws configure" in str(caught.value)
