"""Errors that are answers to a request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response


class RequestError(Exception):
    """A request that is refused, with a message for its sender.

    Attributes:
        status: HTTP status. A client may retry after 429 and 503.
        kind: short stable slug, such as "unknown-reward".
    """

    def __init__(self, status: int, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def response(self) -> Response:
        headers = {}
        if self.status in (429, 503):
            headers["retry-after"] = "1"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status in (401, 408, 413, 421, 429, 503):
            headers["connection"] = "close"  # the rest of the body is not read
        return json_response({"detail": str(self), "kind": self.kind}, self.status, headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Not starlette's JSONResponse: it rejects NaN, which a function may log, and lone surrogates.
    return Response(json.dumps(content), status, headers, "application/json")


def check_length(name: str, values: Sequence[Any], expected: int, of: str) -> None:
    """Check that a list has one entry for each row.

    Raises:
        RequestError: it has not.
    """
    if len(values) != expected:
        message = f"{expected} {of}, but {len(values)} entries in {name}. Give one each."
        raise RequestError(422, message, kind="length-mismatch")
