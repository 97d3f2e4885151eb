"""Limits of a reward server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.reward_server.request_error import RequestError


@dataclass(frozen=True)
class ServerLimits:
    """Limits on a request, and on all requests together.

    Attributes:
        body_bytes: body of one request.
        rows: completions, or programs, of one request.
        requests: requests in progress; further ones get 429.
        deadline_s: work on one request, whatever the request allows.
        read_timeout_s: time in which a body must arrive.
        test_time_s, test_memory_mb: the largest limits of a test that a client may set.
        weak_sandbox: whether clients may run programs unconfined.
    """

    body_bytes: int = 64 << 20
    rows: int = 8192
    requests: int = 128
    deadline_s: float = 900.0
    read_timeout_s: float = 60.0
    test_time_s: float = 60.0
    test_memory_mb: float = 4096.0
    weak_sandbox: bool = False

    def check_rows(self, count: int) -> None:
        """Check the number of a request's rows.

        Raises:
            RequestError: there are too many.
        """
        if count > self.rows:
            message = f"The request has {count:,} rows, but the limit is {self.rows:,}. Send fewer."
            raise RequestError(413, message, kind="too-large")

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Check that options do not loosen the server's limits.

        Args:
            name: the reward, for the message.
            options: options and columns; every entry of a column is checked.

        Raises:
            RequestError: an option exceeds a limit.
        """
        if options.get("allow_weak_sandbox") and not self.weak_sandbox:
            message = f"{name}: clients cannot set allow_weak_sandbox. Start the server with --allow_weak_sandbox."
            raise RequestError(422, message, kind="weak-sandbox")
        factor = max(_numbers(options.get("time_factor")), default=1.0)
        # A row without a limit gets the judge's default of 2 s, which time_factor scales, too.
        check_limit(name, "time_s", factor * max(_numbers(options.get("time_s")), default=2.0), self.test_time_s)
        check_limit(name, "memory_mb", options.get("memory_mb"), self.test_memory_mb)


def check_limit(name: str, key: str, value: Any, limit: float) -> None:
    """Check a number, or each number of a column.

    Raises:
        RequestError: it exceeds the limit.
    """
    largest = max(_numbers(value), default=0.0)
    if not largest <= limit:
        message = f"{name}: {key} is {largest:g}, but this server allows a test at most {limit:g} (see its --help)."
        raise RequestError(422, message, kind="limit-exceeded")


def _numbers(value: Any) -> Sequence[float]:
    values = value if isinstance(value, list | tuple) else [value]
    return [math.inf if abs(entry) > 1e300 else float(entry) for entry in values if isinstance(entry, int | float)]
