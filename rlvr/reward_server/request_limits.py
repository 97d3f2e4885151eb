"""Errors that are answers to a request, and the limits of a request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response


class RequestError(Exception):
    """A request that is refused, with a message for its sender. Functions that work on a request raise it.

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


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server. The flags of the command have the same names."""

    max_body_mb: int = 64
    max_rows: int = 8192  # completions, or programs, of one request
    max_requests: int = 128  # in progress; further ones get 429
    max_deadline_s: float = 900.0  # work on one request, whatever the request allows
    max_test_time_s: float = 60.0  # the largest limits of a test that a client may set
    max_test_memory_mb: float = 4096.0
    allow_weak_sandbox: bool = False  # whether clients may run programs unconfined
    read_timeout_s: float = 60.0  # in which a body must arrive

    @property
    def body_bytes(self) -> int:
        return self.max_body_mb << 20

    def check_rows(self, count: int) -> None:
        """Check the number of a request's rows."""
        if count > self.max_rows:
            message = f"The request has {count:,} rows, but the limit is {self.max_rows:,}. Send fewer."
            raise RequestError(413, message, kind="too-large")

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Check that options, or entries of columns, do not loosen the server's limits."""
        if options.get("allow_weak_sandbox") and not self.allow_weak_sandbox:
            message = f"{name}: clients cannot set allow_weak_sandbox. Start the server with --allow_weak_sandbox."
            raise RequestError(422, message, kind="weak-sandbox")
        factor = max(_numbers(options.get("time_factor")), default=1.0)
        # A row without a limit gets the judge's default of 2 s, which time_factor scales, too.
        check_limit(name, "time_s", factor * max(_numbers(options.get("time_s")), default=2.0), self.max_test_time_s)
        check_limit(name, "memory_mb", options.get("memory_mb"), self.max_test_memory_mb)


def check_limit(name: str, key: str, value: Any, limit: float) -> None:
    """Check a number, or each number of a column."""
    largest = max(_numbers(value), default=0.0)
    if not largest <= limit:
        message = f"{name}: {key} is {largest:g}, but this server allows a test at most {limit:g} (see its --help)."
        raise RequestError(422, message, kind="limit-exceeded")


def _numbers(value: Any) -> Sequence[float]:
    values = value if isinstance(value, list | tuple) else [value]
    return [math.inf if abs(entry) > 1e300 else float(entry) for entry in values if isinstance(entry, int | float)]
