"""AWS clients, S3 objects by URI, and AWS errors as `InputError`.

boto3 is imported when the first client is made.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlvr.errors import InputError

MAX_THREADS = 16  # parallel requests
# Kind and fix of errors, by their codes or the names of their botocore classes.
_FIXES = (
    ("NoCredentialsError", "aws-credentials", "No AWS credentials found: run `aws configure` or `aws sso login`."),
    ("PartialCredentialsError", "aws-credentials", "Set both the access key id and the secret access key."),
    ("ProfileNotFound", "aws-credentials", "AWS_PROFILE names a profile that your AWS configuration lacks."),
    ("ExpiredToken ExpiredTokenException", "aws-credentials", "Run `aws sso login`, or renew the credentials."),
    (
        "UnrecognizedClientException InvalidClientTokenId SignatureDoesNotMatch",
        "aws-credentials",
        "The access key is wrong or deleted. Run `aws configure` or `aws sso login`.",
    ),
    ("NoRegionError", "no-region", "Add --region us-east-1, or set AWS_DEFAULT_REGION."),
    (
        "EndpointConnectionError ConnectTimeoutError ReadTimeoutError ConnectionClosedError ProxyConnectionError "
        "HTTPClientError InternalError InternalFailure InternalServerError ServiceUnavailable RequestTimeout SlowDown "
        "Throttling ThrottlingException 500 502 503 504",
        "aws-unreachable",
        "Check the network, and the region's spelling.",
    ),
    (
        "PreconditionFailed ConditionalRequestConflict NoSuchKey",
        "changed-meanwhile",
        "Another command changed it at the same time. Try again.",
    ),
    (
        "AccessDenied AccessDeniedException",
        "aws-access-denied",
        "Your policy lacks this action: see docs/sagemaker/caller-policy.json.",
    ),
    # Answers to HeadBucket have the status in place of a code.
    ("404", "bucket-not-found", "Create it, or leave bucket out to use the account's default SageMaker bucket."),
    ("403", "bucket-access-denied", "It may be another account's. Name your own (--bucket)."),
    ("ResourceLimitExceeded", "quota-too-small", "`plan` links to the console that raises it."),
    ("ResourceInUse", "job-name-taken", "A job name can be used only once. Wait a second and submit again."),
    ("CapacityError", "no-capacity", "Try again later, or use another instance type or region."),
)
_KINDS = {code: (kind, fix) for codes, kind, fix in _FIXES for code in codes.split()}
# The service answers a missing job with the code ValidationException, so only the message tells.
_NOT_FOUND = ("resource not found", "could not find training job")


@contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Turn boto3's exceptions into `InputError`.

    Args:
        action: what is being done, for the message, such as "Submitting the job".

    Raises:
        InputError: with the action, AWS's message and the fix if one is known. Kind "aws-not-found" if the job or the
            resource does not exist.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise InputError(
            "boto3 is not installed: pip install -e '.[sagemaker]' -c constraints.txt", kind="missing-package"
        ) from error
    except Exception as error:
        if not type(error).__module__.startswith(("botocore", "boto3", "s3transfer")):
            raise
        kind, fix = _KINDS.get(error_code(error), ("aws-error", ""))
        message = " ".join(str(error).split()).rstrip(".")
        if any(words in message.lower() for words in _NOT_FOUND):
            kind = "aws-not-found"
        raise InputError(f"{action} failed: {message}. {fix}".rstrip(), kind=kind) from error


def error_code(error: BaseException) -> str:
    """The code that a service answered, or the name of the exception's class."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return str(response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def client(service: str, region: str | None, max_attempts: int = 8) -> Any:
    """A cached boto3 client that retries short outages.

    Args:
        max_attempts: use 1 or 2 for calls whose answer is optional.

    Raises:
        InputError: boto3 is not installed, or no region is known.
    """
    # The cache key contains the AWS variables, because another profile or endpoint is another account.
    variables = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    with translate_errors(f"Creating a client of {service}"):
        return _cached_client(service, region, max_attempts, variables)


@functools.lru_cache(maxsize=32)
def _cached_client(service: str, region: str | None, max_attempts: int, variables: tuple[tuple[str, str], ...]) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": max_attempts, "mode": "standard"},
        max_pool_connections=MAX_THREADS,
        user_agent_extra="grpo-recipes",
    )
    return boto3.Session().client(service, region_name=region, config=config)


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an S3 URI."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def parent_uri(uri: str) -> str:
    """The parent folder of an S3 folder; the bucket itself for a top-level folder."""
    bucket, key = split_uri(uri.rstrip("/"))
    folder = key.rpartition("/")[0]
    return f"s3://{bucket}/{folder}" if folder else f"s3://{bucket}"


def write_json(s3: Any, uri: str, content: Any, **conditions: str) -> None:
    """Write a JSON object.

    Args:
        conditions: of S3, such as IfMatch. If they don't hold, nothing is written (kind "changed-meanwhile").
    """
    bucket, key = split_uri(uri)
    with translate_errors(f"Writing {uri}"):
        s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(content, indent=2).encode(), **conditions)


def read_json(s3: Any, uri: str) -> Any:
    """The content of a JSON object; None if the object does not exist."""
    return read_json_version(s3, uri)[0]


def read_json_version(s3: Any, uri: str) -> tuple[Any, dict[str, str]]:
    """The content of a JSON object, and the conditions by which `write_json` replaces this version only."""
    bucket, key = split_uri(uri)
    try:
        answer = s3.get_object(Bucket=bucket, Key=key)
        return json.loads(answer["Body"].read()), {"IfMatch": answer["ETag"]}
    except Exception as error:
        if error_code(error) in ("NoSuchKey", "404", "NoSuchBucket"):
            return None, {"IfNoneMatch": "*"}
        raise


def list_folder(s3: Any, uri: str) -> list[dict[str, Any]]:
    """`Key` and `Size` of all objects in a folder. A sibling whose name only starts the same is not listed."""
    bucket, key = split_uri(uri.rstrip("/") + "/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    return [entry for page in pages for entry in page.get("Contents", [])]


def delete_folder(s3: Any, uri: str) -> int:
    """Delete all objects in a folder; return their number."""
    bucket, _ = split_uri(uri)
    keys = [{"Key": entry["Key"]} for entry in list_folder(s3, uri)]
    for start in range(0, len(keys), 1000):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[start : start + 1000], "Quiet": True})
    return len(keys)
