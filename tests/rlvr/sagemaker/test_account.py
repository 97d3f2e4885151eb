"""The role of an account."""

from __future__ import annotations

import pytest

from rlvr.sagemaker import aws
from rlvr.sagemaker.account import current_role

REGION = "us-east-1"


@pytest.mark.slow
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
