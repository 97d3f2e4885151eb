"""What is read of an account: the role, and the project's jobs of all users."""

from __future__ import annotations

import dataclasses

import pytest

from rlvr.errors import InputError
from rlvr.sagemaker import aws, cleanup, request
from rlvr.sagemaker.account import current_role
from rlvr.sagemaker.job import TrainingJob, find_in_account

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


def test_a_jobs_folder_is_deleted_only_if_it_has_a_job_record(account: str) -> None:
    root = job_in_the_account("mine-20260101-000000", OURS)
    unmarked = job_in_the_account("other-20260101-000000", OURS, recorded=False)
    with pytest.raises(InputError, match="other-20260101-000000"):
        find_in_account("other-20260101-000000", REGION)
    (resources,) = cleanup.find_resources([find_in_account("mine-20260101-000000", REGION)])
    assert [uri for uri, _, _ in resources.folders] == [root]
    cleanup.delete_resources(resources)
    s3 = aws.client("s3", REGION)
    assert aws.list_folder(s3, root) == [] and len(aws.list_folder(s3, unmarked)) == 1


def test_without_credentials_looking_for_a_job_names_the_fix(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InputError) as caught:
        find_in_account("mine-20260101-000000", REGION)
    assert caught.value.kind == "aws-credentials" and "aws configure" in str(caught.value)
