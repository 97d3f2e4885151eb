"""Finds what must not travel to a bucket: tokens of well-known shapes, and values of keys that say they are secret.

What is said names the file and the line, and never the value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

# Shapes that their makers document for scanners such as this; each by the text that it begins with, which is looked for
# first, since that is many times quicker.
_SHAPES = {
    "a Hugging Face token": ("hf_", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    "an AWS access key": ("A", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    "a GitHub token": ("gh", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}")),
    "a fine-grained GitHub token": ("github_pat_", re.compile(r"\bgithub_pat_[A-Za-z0-9_]{50,}")),
    "a private key": ("-----BEGIN", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    "a Slack token": ("xox", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}")),
    "an API key": ("sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{32,}")),
}
_SECRET_WORDS = ("secret", "token", "passw", "api_key", "apikey", "access_key", "accesskey", "credential")
_SECRET_KEY = re.compile(
    r"""(?ix) (?: secret | token | passw(?:or)?d | api_?key | access_?key | credential ) [\w.-]*
    ["']? \s* [:=] \s* ["']? (?P<value> [A-Za-z0-9+/_=.~!@#$%^&*-]{16,} )"""
)
# A word or a name has fewer bits a character than what a generator of tokens makes.
_LEAST_BITS = 3.5
_LARGEST = 5 * 2**20  # characters of a file that are read; a secret is kept in a small one


def secrets_in(path: Path, shown: str, *, shapes_only: bool = False) -> list[str]:
    """A sentence for each line of a text file that holds a secret.

    Args:
        shown: how the file is called in the sentence.
        shapes_only: leave out what only looks random, as identifiers in data often do.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST)
    if b"\0" in content[:8192]:
        return []
    found = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
        what = next((name for name, (start, shape) in _SHAPES.items() if start in line and shape.search(line)), None)
        if what is None and not shapes_only and _has_secret_value(line):
            what = "what looks like a password or a token"
        if what is not None:
            found.append(
                f"{shown}, line {number}: {what}. Everything that travels is readable by whoever may read the bucket: "
                "take it out, and put it into AWS Secrets Manager (sagemaker: {hf_token_secret_arn: …})."
            )
    return found


def _has_secret_value(line: str) -> bool:
    lowered = line.lower()
    if not any(word in lowered for word in _SECRET_WORDS):
        return False
    return any(_is_random(match["value"]) for match in _SECRET_KEY.finditer(line))


def _is_random(text: str) -> bool:
    """Whether text has letters, digits, and as many bits a character as a generated token."""
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return bits >= _LEAST_BITS
