"""Check the role, bucket and quotas of an AWS account before anything is uploaded."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import Problem
from rlvr.sagemaker import aws, quotas, request

SERVICE = "sagemaker.amazonaws.com"


def account_problems(settings: SageMakerSettings) -> list[Problem]:
    """What the account lacks for a job. A check that AWS does not permit is left to the service."""
    return [*_role_problems(settings), *_bucket_problems(settings), *_quota_problems(settings)]


def current_role() -> str | None:
    """The ARN of the role whose credentials are in use, as on a SageMaker notebook; None if they are not a role's."""
    try:
        arn = aws.client("sts", None, max_attempts=1).get_caller_identity()["Arn"]
        match = re.match(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<name>[^/]+)/", arn)
        if match is None:
            return None
        with contextlib.suppress(Exception):  # reading the role may be forbidden; only it knows the role's path
            return str(aws.client("iam", None, max_attempts=1).get_role(RoleName=match["name"])["Role"]["Arn"])
        return f"arn:{match['partition']}:iam::{match['account']}:role/{match['name']}"
    except Exception:  # no credentials or no network
        return None


def _role_problems(settings: SageMakerSettings) -> list[Problem]:
    role = str(settings.role)
    try:
        answer = aws.client("iam", settings.region, max_attempts=2).get_role(RoleName=role.rpartition("/")[2])
    except Exception as error:
        if aws.error_code(error) != "NoSuchEntity":
            return []
        message = f"There is no role {role}. Check the account number, or create the role as docs/sagemaker.md shows."
        return [Problem(message, kind="role-not-found", key="role")]
    return trust_problems(role, answer["Role"])


def trust_problems(role: str, description: Mapping[str, Any]) -> list[Problem]:
    """Check that SageMaker may assume a role.

    Only a certain refusal is a problem: the service judges policies with conditions.

    Args:
        description: the `Role` of IAM's GetRole.
    """
    document = description.get("AssumeRolePolicyDocument")
    statements = document.get("Statement") if isinstance(document, Mapping) else None
    if not statements:
        return []
    listed = [statements] if isinstance(statements, Mapping) else statements
    if any(statement.get("Effect") == "Allow" and _names_sagemaker(statement) for statement in listed):
        return []
    message = (
        f"SageMaker may not assume the role {role}: its trust policy does not allow sts:AssumeRole to {SERVICE}. Use "
        "another role, or docs/sagemaker/trust-policy.json: aws iam update-assume-role-policy --role-name "
        f"{role.rpartition('/')[2]} --policy-document file://policies/trust-policy.json"
    )
    return [Problem(message, kind="role-not-trusted", key="role")]


def _names_sagemaker(statement: Mapping[str, Any]) -> bool:
    if "NotPrincipal" in statement:
        return True
    principal = statement.get("Principal")
    if not isinstance(principal, Mapping):
        return bool(principal == "*")
    services = principal.get("Service", [])
    return principal.get("AWS") == "*" or SERVICE in ([services] if isinstance(services, str) else services)


def _bucket_problems(settings: SageMakerSettings) -> list[Problem]:
    s3 = aws.client("s3", settings.region)
    bucket = str(request.bucket_of(settings))
    try:
        answer = s3.head_bucket(Bucket=bucket)
    except Exception as error:
        code = aws.error_code(error)
        if code in ("404", "NoSuchBucket"):
            if settings.bucket is None:
                return []  # `make_default_bucket` creates it
            kind = "bucket-not-found"
            message = (
                f"There is no bucket {bucket}. Create it with `aws s3 mb s3://{bucket} --region {settings.region}`, or "
                "leave bucket out to use the account's default SageMaker bucket."
            )
        elif code in ("403", "AccessDenied"):
            kind = "bucket-access-denied"
            message = f"You may not use the bucket {bucket}: it may be another account's. Name your own (--bucket)."
        elif code in ("301", "PermanentRedirect"):
            kind = "bucket-in-another-region"
            message = f"The bucket {bucket} is not in {settings.region}. Use a bucket of that region."
        else:
            with aws.translate_errors(f"Checking the bucket {bucket}"):
                raise
        return [Problem(message, kind=kind, key="bucket")]
    region = answer.get("BucketRegion") or settings.region
    if region == settings.region:
        return []
    message = (
        f"The bucket {bucket} is in {region}, but the job runs in {settings.region}, and SageMaker reads only its own "
        f"region. Use a bucket in {settings.region}, or --region {region}."
    )
    return [Problem(message, kind="bucket-in-another-region", key="bucket")]


def _quota_problems(settings: SageMakerSettings) -> list[Problem]:
    try:
        pages = aws.client("service-quotas", settings.region, max_attempts=1).get_paginator("list_service_quotas")
        listed = [quota for page in pages.paginate(ServiceCode="sagemaker") for quota in page["Quotas"]]
    except Exception:  # the caller may not list quotas: the service checks them when the job is submitted
        return []
    return quotas.quota_problems(quotas.required_quotas(settings), listed, settings.region)


def make_default_bucket(s3: Any, settings: SageMakerSettings) -> None:
    """Create the account's default SageMaker bucket, as the SDK does, if the recipe names no bucket."""
    if settings.bucket is not None:
        return
    bucket = str(request.bucket_of(settings))
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=str(request.account_of(settings.role)))
    except Exception as error:
        if aws.error_code(error) not in ("404", "NoSuchBucket"):
            raise
        location = {} if settings.region == "us-east-1" else {"LocationConstraint": settings.region}
        s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": location} if location else {}))
