"""Errors that are answers to a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RequestError(Exception):
    """A request that is refused, with a message for its sender.

    Attributes:
        status: HTTP status.
        kind: short stable slug, such as "unknown-reward".
        retry_after_s: seconds until a retry makes sense; None: never.
    """

    def __init__(self, status: int, message: str, *, kind: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s

    def content(self) -> dict[str, str]:
        """The JSON body of the answer."""
        return {"detail": str(self), "kind": self.kind}

    def headers(self) -> dict[str, str]:
        if self.retry_after_s is None:
            return {}
        return {"retry-after": str(max(1, round(self.retry_after_s)))}


def check_length(name: str, values: Sequence[Any], expected: int, of: str) -> None:
    """Check that a list has one entry for each row.

    Raises:
        RequestError: it has not.
    """
    if len(values) != expected:
        message = f"{expected} {of}, but {len(values)} entries in {name}. Give one each."
        raise RequestError(422, message, kind="length-mismatch")
