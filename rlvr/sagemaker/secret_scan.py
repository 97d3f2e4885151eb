"""Find secrets in files before they are uploaded for a job, and in a job's request before it is sent.

A problem names file and line, or the request's key, never the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr.artifacts import secret_scan
from rlvr.errors import Problem

# In a request, also texts that are too common in files.
_REQUEST_SHAPES = secret_scan.TOKEN_SHAPES | {
    "a URL with a password or a token": ("://", re.compile(r"://(?:[^/\s:@]*:(?!\d+/)\S+|[^/\s:@]{20,})@")),
    "a URL with a token": (
        "=",
        re.compile(r"(?i)://\S+[?&#](?:[\w-]*(?:token|signature|secret|password|api_?key)|sig)=[^&\s]{6,}"),
    ),
}
_MAX_BYTES = 5 * 2**20  # read of a file; secrets are in small files
_HUB_VARIABLES = re.compile(r"(?i)(?:HF|HUGGING_?FACE)\w*TOKEN$")
_OWN_KEY = "Set the key of the section for it: sagemaker: {%s: ARN of its secret in AWS Secrets Manager}."
_OTHERS = (
    "The job's role can get permissions in AWS without a key. Code of the job can read other secrets from AWS Secrets "
    "Manager."
)


def _advice(secret: str, key: str = "") -> str:
    """Where a secret belongs instead, by what it is and by the end of its key."""
    if secret == "a Hugging Face token" or _HUB_VARIABLES.search(key):
        return _OWN_KEY % "hf_token_secret_arn"
    return _OWN_KEY % "rewards_key_secret_arn" if key.endswith("GRPO_REWARDS_KEY") else _OTHERS


def find_secrets(path: Path, label: str, *, shapes_only: bool = False) -> Iterator[Problem]:
    """One problem for each line of a file that holds a secret.

    Args:
        label: the file's name in messages.
        shapes_only: as in `secrets_in`.
    """
    with path.open("rb") as file:
        text = secret_scan.read_text(file.read(_MAX_BYTES))
    for line, what in secret_scan.secrets_in(text, shapes_only=shapes_only):
        message = f"{label}, line {line}: {what}. All readers of the bucket could read it. Remove it. {_advice(what)}"
        yield Problem(message, kind="secret-in-upload", path=label, line=line)


def find_secrets_in_request(request: Any, key: str = "") -> list[Problem]:
    """One problem for each text of a request that holds a token. All who may describe the job can read them."""
    if isinstance(request, Mapping) and set(request) == {"Key", "Value"}:  # a tag
        return find_secrets_in_request({request["Key"]: request["Value"]}, key)
    if isinstance(request, Mapping):
        return [one for name, item in request.items() for one in find_secrets_in_request(item, f"{key}.{name}")]
    if isinstance(request, list):
        return [one for number, item in enumerate(request) for one in find_secrets_in_request(item, f"{key}[{number}]")]
    secret = secret_scan.find_token(request, _REQUEST_SHAPES) if isinstance(request, str) else None
    if secret is None and request and secret_scan.is_secret_name(key):
        secret = "a secret, by its name"
    if secret is None:
        return []
    message = (
        f"{key.lstrip('.')} of the job's request holds {secret}, which all who may describe the job could read. Remove "
        f"it. {_advice(secret, key)}"
    )
    return [Problem(message, kind="secret-in-request", key=key.lstrip("."))]
