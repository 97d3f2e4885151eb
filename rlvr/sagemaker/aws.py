"""AWS as this project uses it: clients, S3 by URI, and its errors as sentences that say what to do.

boto3 is imported when a client is first made.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr.errors import InputError

THREADS = 16  # that upload at once
_ROLE_HELP = "docs/sagemaker.md lists what it must be allowed to do."
# What to do about an error, by its code or by its class in botocore.
_ADVICE = {
    "NoCredentialsError": "No AWS credentials were found: run `aws configure` or `aws sso login`, or set AWS_PROFILE.",
    "PartialCredentialsError": "Half of the AWS credentials are missing: set both the key's id and its secret.",
    "NoRegionError": "No region: add --region us-east-1, or set AWS_DEFAULT_REGION.",
    "ProfileNotFound": "AWS_PROFILE names a profile that is not in your AWS configuration: mend or unset it.",
    "EndpointConnectionError": "AWS can't be reached: is the region spelt right, and is there a network?",
    "ConnectTimeoutError": "AWS can't be reached: is there a network?",
    "ExpiredToken": "Your AWS credentials have expired: run `aws sso login`, or renew them as you got them.",
    "ExpiredTokenException": "Your AWS credentials have expired: run `aws sso login`, or renew them as you got them.",
    "UnrecognizedClientException": "AWS doesn't know these credentials: run `aws configure` or `aws sso login` anew.",
    "InvalidClientTokenId": "AWS doesn't know these credentials: run `aws configure` anew.",
    "SignatureDoesNotMatch": "The secret access key doesn't belong to its id: run `aws configure` anew.",
    "AccessDenied": f"You may not do this. {_ROLE_HELP}",
    "AccessDeniedException": f"You may not do this. {_ROLE_HELP}",
    "ResourceLimitExceeded": "The quota is too small: `plan` names it and links to where more is asked for.",
    "ResourceInUse": "A job of this name is there already: names are used once. Wait a second and submit again.",
    "CapacityError": "AWS has no such hosts free: try again later, another instance type or another region.",
}


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns what boto3 raises into one sentence.

    Raises:
        InputError: with what was being done, what AWS said, and what to do where that is known.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise InputError("boto3 is not installed here: pip install -e '.[sagemaker]' -c constraints.txt") from error
    except Exception as error:
        module = type(error).__module__
        if not module.startswith(("botocore", "boto3", "s3transfer")):
            raise
        code = code_of(error)
        said = " ".join(str(error).split())
        raise InputError(f"{doing} failed: {said.rstrip('.')}. {_ADVICE.get(code, '')}".rstrip()) from error


def code_of(error: BaseException) -> str:
    """The code of an error that a service answered, or the name of its class."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return str(response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def client(service: str, region: str | None, attempts: int = 8) -> Any:
    """A client of a service, whose short outages are waited out.

    Args:
        attempts: how often a call is tried; 1 where its answer can be done without.

    Raises:
        InputError: boto3 is not installed.
    """
    # Another profile or endpoint is another account.
    variables = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    with explained(f"A client of {service}"):
        return _client(service, region, attempts, variables)


@functools.lru_cache(maxsize=32)
def _client(service: str, region: str | None, attempts: int, variables: tuple[tuple[str, str], ...]) -> Any:
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=THREADS,
        user_agent_extra="grpo-recipes",
    )
    return _session(variables).client(service, region_name=region, config=config)


@functools.lru_cache(maxsize=4)
def _session(variables: tuple[tuple[str, str], ...]) -> Any:
    """A session, which keeps the service models that it has read: they are megabytes of JSON."""
    import boto3

    return boto3.Session()


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an S3 URI."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def parent(uri: str) -> str:
    """The folder that a folder lies in; the bucket's top for one that lies there."""
    bucket, key = split_uri(uri.rstrip("/"))
    above = key.rpartition("/")[0]
    return f"s3://{bucket}/{above}" if above else f"s3://{bucket}"


def upload(s3: Any, source: Path, uri: str) -> None:
    bucket, key = split_uri(uri)
    s3.upload_file(str(source), bucket, key)


def download(s3: Any, uri: str, target: Path) -> None:
    bucket, key = split_uri(uri)
    target.parent.mkdir(parents=True, exist_ok=True)
    s3.download_file(bucket, key, str(target))


def write_json(s3: Any, uri: str, content: Any) -> None:
    bucket, key = split_uri(uri)
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(content, indent=2).encode())


def read_json(s3: Any, uri: str) -> Any:
    """The content of a JSON object; None where there is no such object."""
    bucket, key = split_uri(uri)
    try:
        return json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    except Exception as error:
        if code_of(error) in ("NoSuchKey", "404", "NoSuchBucket"):
            return None
        raise


def objects(s3: Any, uri: str) -> list[dict[str, Any]]:
    """Everything within a folder: `Key` and `Size`. Never what lies beside it under a longer name."""
    bucket, key = split_uri(uri.rstrip("/") + "/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    return [one for page in pages for one in page.get("Contents", [])]


def delete(s3: Any, uri: str) -> int:
    """Deletes everything within a folder; how many objects that were."""
    bucket, _ = split_uri(uri)
    keys = [{"Key": one["Key"]} for one in objects(s3, uri)]
    for start in range(0, len(keys), 1000):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[start : start + 1000], "Quiet": True})
    return len(keys)
