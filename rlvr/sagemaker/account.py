"""The role and the bucket of an AWS account."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import InputError
from rlvr.sagemaker import aws, request


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


def check_bucket(settings: SageMakerSettings) -> None:
    """Check the recipe's bucket before anything is uploaded. The service checks the role and the quotas itself.

    Raises:
        InputError: you can't use the bucket, or it is in another region than the job.
    """
    bucket = settings.bucket
    if bucket is None:
        return
    with aws.translate_errors(f"Checking the bucket {bucket}"):
        answer = aws.client("s3", settings.region).head_bucket(Bucket=bucket)
    region = answer.get("BucketRegion") or settings.region
    if region != settings.region:
        raise InputError(
            f"The bucket {bucket} is in {region}, but the job runs in {settings.region}, and SageMaker reads only its "
            f"own region. Use a bucket in {settings.region}, or --region {region}.",
            kind="bucket-in-another-region",
            key="bucket",
        )


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
