"""Find secrets in files before they are uploaded, and in a request before it is sent.

Two kinds are found: tokens of well-known shapes, and random-looking values of keys such as `password`. A problem names
file and line, or the request's key, never the value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import Problem

# Token shapes that their issuers document for scanners. Each has a plain prefix, which is searched first because that
# is much faster.
_TOKEN_SHAPES = {
    "a Hugging Face token": ("hf_", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    "an AWS access key": ("A", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    "a GitHub token": ("gh", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}")),
    "a fine-grained GitHub token": ("github_pat_", re.compile(r"\bgithub_pat_[A-Za-z0-9_]{50,}")),
    "a private key": ("-----BEGIN", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    "a Slack token": ("xox", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}")),
    "an API key": ("sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{32,}")),
    "a URL with a password": ("://", re.compile(r"://[^/\s:@{}$<>]+:[^/\s:@{}$<>]+@")),
}
# In a request, also texts that are too common in files.
_REQUEST_SHAPES = _TOKEN_SHAPES | {
    "a URL with a password or a token": ("://", re.compile(r"://(?:[^/\s:@]*:(?!\d+/)\S+|[^/\s:@]{20,})@")),
    "a URL with a token": (
        "=", re.compile(r"(?i)://\S+[?&](?:[\w-]*(?:token|signature|secret|password|api_?key)|sig)=[^&\s]{6,}"),
    ),
}  # fmt: skip
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:api|access|private|secret)_?key)$"
)
_SECRET_WORDS = ("secret", "token", "passw", "api_key", "apikey", "access_key", "accesskey", "credential")
_SECRET_KEY = re.compile(
    r"""(?ix) (?: secret | token | passw(?:or)?d | api_?key | access_?key | credential ) [\w.-]*
    ["']? \s* [:=] \s* ["']? (?P<value> [A-Za-z0-9+/_=.~!@#$%^&*-]{16,} )"""
)
_MIN_BITS = 3.5  # entropy per character; words and names have less than generated tokens
_MAX_BYTES = 5 * 2**20  # read of a file; secrets are in small files


def find_secrets(path: Path, label: str, *, shapes_only: bool = False) -> list[Problem]:
    """One problem for each line of a text file that holds a secret.

    Args:
        label: the file's name in messages.
        shapes_only: skip values that only look random, as identifiers in data often do.
    """
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES)
    if b"\0" in content[:8192]:
        return []
    problems = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
        secret = _find_token(line)
        if secret is None and not shapes_only and _has_secret_value(line):
            secret = "probably a password or a token"
        if secret is not None:
            message = (
                f"{label}, line {number}: {secret}. All readers of the bucket could read it. Remove it, and store it "
                "in AWS Secrets Manager (sagemaker: {hf_token_secret_arn: …})."
            )
            problems.append(Problem(message, kind="secret-in-upload", path=label, line=number))
    return problems


def find_secrets_in_request(request: Any, key: str = "") -> list[Problem]:
    """One problem for each text of a request that holds a token. All who may describe the job can read them."""
    if isinstance(request, Mapping) and set(request) == {"Key", "Value"}:  # a tag
        return find_secrets_in_request({request["Key"]: request["Value"]}, key)
    if isinstance(request, Mapping):
        return [one for name, item in request.items() for one in find_secrets_in_request(item, f"{key}.{name}")]
    if isinstance(request, list):
        return [one for number, item in enumerate(request) for one in find_secrets_in_request(item, f"{key}[{number}]")]
    secret = _find_token(request, _REQUEST_SHAPES) if isinstance(request, str) else None
    if secret is None and request and _SECRET_NAME.search(key):
        secret = "a secret, by its name"
    if secret is None:
        return []
    message = (
        f"{key.lstrip('.')} of the job's request holds {secret}, which all who may describe the job could read. Remove "
        "it. A token of the Hugging Face hub belongs into AWS Secrets Manager (sagemaker: {hf_token_secret_arn: …})."
    )
    return [Problem(message, kind="secret-in-request", key=key.lstrip("."))]


def _find_token(text: str, shapes: Mapping[str, tuple[str, re.Pattern[str]]] = _TOKEN_SHAPES) -> str | None:
    return next((name for name, (start, shape) in shapes.items() if start in text and shape.search(text)), None)


def _has_secret_value(line: str) -> bool:
    lowered = line.lower()
    if not any(word in lowered for word in _SECRET_WORDS):
        return False
    return any(_is_random(match["value"]) for match in _SECRET_KEY.finditer(line))


def _is_random(text: str) -> bool:
    """Whether text has letters, digits, and the entropy of a generated token."""
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return bits >= _MIN_BITS
