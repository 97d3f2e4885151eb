"""The IAM policies of docs/sagemaker/: existing actions, no wildcards, and the least possible resources."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "docs" / "sagemaker").glob("*.json"))
TRUST = "trust-policy.json"

# Placeholders in the files; docs/sagemaker.md has the command that replaces them.
EXAMPLES = {"account": "111122223333", "region": "us-east-1", "bucket": "amzn-s3-demo-bucket"}
AMAZONS_IMAGES = "763104351884"  # the account that Amazon publishes its deep learning images from

# Actions that IAM can't limit to a resource, so that "*" is needed.
WITHOUT_RESOURCE = {
    "cloudwatch:PutMetricData",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ecr:GetAuthorizationToken",
    "sagemaker:ListTrainingJobs",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
}
# Permissions that are no operation of the service: s3:ListBucket is called for by ListObjectsV2, iam:PassRole by
# whoever hands a role on, those of ssmmessages by an agent that AWS starts in a job. The managed MLflow has no model in
# botocore; these are the REST calls of rlvr/tracking/mlflow_run.py.
NOT_OPERATIONS = {"s3:ListBucket", "iam:PassRole"}
NOT_OPERATIONS |= {action for action in WITHOUT_RESOURCE if action.startswith("ssmmessages:")}
MLFLOW_ACTION = re.compile(r"sagemaker-mlflow:(Create|Get|List|Log|Search|Set|Update)[A-Za-z]+")


def statements(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8"))["Statement"]


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


ACTIONS = sorted({action for file in FILES for statement in statements(file) for action in listed(statement["Action"])})


@cache
def operations(service: str) -> set[str]:
    import botocore.session

    return set(botocore.session.get_session().get_service_model(service).operation_names)


def test_the_page_names_all_policies() -> None:
    page = (REPOSITORY / "docs" / "sagemaker.md").read_text(encoding="utf-8")
    assert {file.name for file in FILES} == set(re.findall(r"[\w-]+-policy\.json", page))


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_exists_and_has_no_wildcard(action: str) -> None:
    service, _, name = action.partition(":")
    assert "*" not in action and "?" not in action
    if service == "sagemaker-mlflow":
        assert MLFLOW_ACTION.fullmatch(action)
    elif action not in NOT_OPERATIONS:
        assert name in operations(service)


@pytest.mark.parametrize("file", [file for file in FILES if file.name != TRUST], ids=lambda file: file.name)
def test_a_resource_is_a_wildcard_only_if_its_actions_allow_no_other(file: Path) -> None:
    for statement in statements(file):
        resources = listed(statement["Resource"])
        if "*" in resources:
            assert resources == ["*"] and set(listed(statement["Action"])) <= WITHOUT_RESOURCE, statement["Sid"]
        for resource in resources:
            if resource != "*":
                _, partition, _, region, account, what = resource.split(":", 5)
                assert partition == "aws" and not what.startswith("*"), resource
                assert region in ("", EXAMPLES["region"]), resource
                assert account in ("", EXAMPLES["account"], AMAZONS_IMAGES), resource


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_policy_is_short_and_passes_a_role_only_to_sagemaker_in_the_account(file: Path) -> None:
    """IAM counts characters without white space: 6,144 for a managed policy, 2,048 for a trust policy."""
    content = json.loads(file.read_text(encoding="utf-8"))
    assert len(json.dumps(content, separators=(",", ":"))) <= (2048 if file.name == TRUST else 6144)
    assert len({statement["Sid"] for statement in content["Statement"]}) == len(content["Statement"])
    for statement in content["Statement"]:
        assert statement["Effect"] == "Allow"
        if "iam:PassRole" in listed(statement["Action"]):
            assert listed(statement["Action"]) == ["iam:PassRole"]
            assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
            assert not re.search(r"[*?]", statement["Resource"])
        if file.name == TRUST:
            assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
            assert statement["Action"] == "sts:AssumeRole"
            assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": EXAMPLES["account"]}}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_s3_access_is_limited_to_one_prefix(file: Path) -> None:
    for statement in statements(file):
        actions = listed(statement["Action"])
        if "s3:ListBucket" in actions:
            # The caller also checks that the bucket and single files exist: for S3 that is listing without a prefix.
            how = "StringLikeIfExists" if file.name == "caller-policy.json" else "StringLike"
            assert actions == ["s3:ListBucket"]
            assert all(prefix.rstrip("/*") for prefix in statement["Condition"][how]["s3:prefix"])
        for resource in listed(statement.get("Resource", [])):
            if resource.startswith("arn:aws:s3:::") and "/" in resource:
                assert re.fullmatch(rf"arn:aws:s3:::{EXAMPLES['bucket']}/[\w-]+/\*", resource)


def test_job_and_caller_access_the_same_prefix_and_logs() -> None:
    """The caller must be able to fetch and delete what the job writes."""

    def reached(name: str) -> set[str]:
        found = statements(REPOSITORY / "docs" / "sagemaker" / name)
        return {
            resource
            for statement in found
            for resource in listed(statement["Resource"])
            if ":s3:::" in resource or ":log-group:" in resource
        }

    assert reached("execution-role-policy.json") == reached("caller-policy.json")


# S3 operations whose permission has another name.
S3_PERMISSION = {
    "CreateBucket": None,  # only for the default bucket; the page has a command for it
    "DeleteObjects": "s3:DeleteObject",
    "HeadBucket": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
}
S3_TRANSFERS = {"upload_file": "s3:PutObject", "download_file": "s3:GetObject"}


def test_the_policies_allow_exactly_the_projects_aws_calls() -> None:
    """The calls of clients in rlvr/sagemaker/, found by their names. The SDK itself can't call AWS."""
    from botocore import xform_name

    known = {
        xform_name(operation): (prefix, operation)
        for prefix in ("iam", "logs", "s3", "sagemaker", "secretsmanager")
        for operation in operations(prefix)
        if operation != "Search"  # of sagemaker, and of every regular expression
    }
    called = set()
    for file in (REPOSITORY / "rlvr" / "sagemaker").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args else None
                pages = node.func.attr == "get_paginator" and isinstance(first, ast.Constant)
                name = str(first.value) if pages and isinstance(first, ast.Constant) else node.func.attr
                prefix, operation = known.get(name, ("", ""))
                if prefix == "s3":
                    called.add(S3_PERMISSION.get(operation, f"s3:{operation}"))
                elif prefix:
                    called.add(f"{prefix}:{operation}")
                called.add(S3_TRANSFERS.get(name))
    called.discard(None)
    assert {"sagemaker:CreateTrainingJob", "logs:GetLogEvents", "s3:PutObject", "s3:ListBucket"} <= called
    job, caller = set(actions_of("secret-policy.json")), set(actions_of("caller-policy.json"))
    assert called - job <= caller and job <= called
    # Needed without a call of their own: for a job with tags, an aborted upload, and a job's role.
    assert caller - called == {"sagemaker:AddTags", "s3:AbortMultipartUpload", "iam:PassRole"}


def actions_of(name: str) -> list[str]:
    return [
        action
        for statement in statements(REPOSITORY / "docs/sagemaker" / name)
        for action in listed(statement["Action"])
    ]
