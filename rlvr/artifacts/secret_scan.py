"""Find secrets in files: tokens of well-known shapes, and random-looking values of keys such as `password`.

A secret is named by its kind and line; its value is never part of a result.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

# Token shapes that their issuers document for scanners. Each has a plain prefix, which is searched first because that
# is much faster.
TOKEN_SHAPES: dict[str, tuple[str, re.Pattern[str]]] = {
    "a Hugging Face token": ("hf_", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    "an AWS access key": ("A", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    "a GitHub token": ("gh", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}")),
    "a fine-grained GitHub token": ("github_pat_", re.compile(r"\bgithub_pat_[A-Za-z0-9_]{50,}")),
    "a GitLab token": ("glpat-", re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}")),
    "a private key": ("-----BEGIN", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    "a Slack token": ("xox", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}")),
    "a Slack webhook": ("hooks.slack", re.compile(r"\bhooks\.slack(?:-gov)?\.com/[a-z]+/\w+/[\w/]{20,}")),
    "a Discord webhook": ("/api/webhooks/", re.compile(r"\bdiscord(?:app)?\.com/api/webhooks/[0-9]+/[\w-]{20,}")),
    "a JSON Web Token": ("eyJ", re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}")),
    "a bearer token": ("earer ", re.compile(r"\b[Bb]earer [A-Za-z0-9._~+/-]{20,}")),
    "an API key": ("sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{32,}")),
    "a URL with a password": ("://", re.compile(r"://[^/\s:@{}$<>]+:[^/\s:@{}$<>]+@")),
}
# How the name of a secret ends: DBPASSWORD, api-token, apiKey; the short words only behind another word (WANDB_KEY, not
# KEY, PWD or COMPASS). A number may follow.
_SECRET_NAME = (
    r"(?i:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|(?:api|access|private|secret)[_-]?key"
    r"|[a-z0-9][_-](?:key|pass|pwd|pat))(?:[_-]?[0-9]+)?"
)
_ENDS_AS_SECRET = re.compile(f"{_SECRET_NAME}$")
_VALUE = r"A-Za-z0-9+/_=.~!@#$%^&*\-"
# No call and no index: token = read_token_of_user1(…).
_ASSIGNMENT = re.compile(rf"""{_SECRET_NAME}["']?\s*[:=]\s*["']?(?P<value>[{_VALUE}]{{16,}})(?![{_VALUE}([])""")
_SECRET_WORDS = ("token", "secret", "pass", "key", "credential", "authorization", "pwd", "_pat", "-pat")
_MIN_BITS = 3.5  # entropy per character; words and names have less than generated tokens


def read_text(content: bytes) -> str:
    """Return the text of a file: UTF-8, UTF-16, or what can be read in a binary file; `\\u0068` as its character."""
    if b"\0" in content:
        # UTF-16 has a NUL byte with each ASCII character. Numbers in the headers of weights have several in a row.
        content = b" ".join(re.findall(rb"[\t\r\n -~]{4,}|\n", re.sub(rb"(?<!\0)\0(?!\0)", b"", content)))
    text = content.decode("utf-8", errors="replace")
    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|/)", lambda escape: chr(int(escape[1], 16)) if escape[1] else "/", text)


def secrets_in(text: str, *, shapes_only: bool = False) -> Iterator[tuple[int, str]]:
    """Yield each line (from 1) that holds a secret, and what it is.

    Args:
        shapes_only: skip values that only look random, as identifiers in data often do.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        secret = find_token(line)
        if secret is None and not shapes_only and _has_secret_value(line):
            secret = "probably a password or a token"
        if secret is not None:
            yield number, secret


def find_token(text: str, shapes: Mapping[str, tuple[str, re.Pattern[str]]] = TOKEN_SHAPES) -> str | None:
    """The name of the first shape that the text holds."""
    return next((name for name, (start, shape) in shapes.items() if start in text and shape.search(text)), None)


def is_secret_name(name: str) -> bool:
    """Whether a variable or a key of this name holds a secret, by the end of its name."""
    return _ENDS_AS_SECRET.search(name) is not None


def _has_secret_value(line: str) -> bool:
    lowered = line.lower()
    if not any(word in lowered for word in _SECRET_WORDS):
        return False
    return any(_is_random(match["value"]) for match in _ASSIGNMENT.finditer(line))


def _is_random(text: str) -> bool:
    """Whether text has letters, digits, and the entropy of a generated token."""
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return bits >= _MIN_BITS
