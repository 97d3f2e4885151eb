"""Limits on a request, and on all requests together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.reward_server.errors import RequestError


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server.

    Attributes:
        body_bytes: body of one request.
        parsed_bytes: memory that one body needs when it is parsed.
        total_bytes: bodies, raw and parsed, and answers of all requests in progress.
        rows: completions, or programs, of one request.
        requests: requests in progress; further ones get 429.
        deadline_s: work on one request, whatever the request allows.
        read_timeout_s: time in which a request must arrive, and its answer must be read.
        silence_s: time in which the next part of a request must arrive.
        test_time_s, test_memory_mb: the largest limits of a test that a client may set.
        weak_sandbox: whether clients may run programs unconfined.
    """

    body_bytes: int = 64 << 20
    parsed_bytes: int = 256 << 20
    total_bytes: int = 512 << 20
    rows: int = 8192
    requests: int = 128
    deadline_s: float = 900.0
    read_timeout_s: float = 60.0
    silence_s: float = 20.0
    test_time_s: float = 60.0
    test_memory_mb: float = 4096.0
    weak_sandbox: bool = False

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Check that options do not loosen the server's limits.

        Args:
            name: the reward or submission, for the message.
            options: options and columns; every entry of a column is checked.

        Raises:
            RequestError: an option exceeds a limit.
        """
        if options.get("allow_weak_sandbox") and not self.weak_sandbox:
            raise RequestError(
                422,
                f"{name}: clients cannot set allow_weak_sandbox. Start the server with --allow_weak_sandbox.",
                kind="weak-sandbox",
            )
        factor = max(_numbers(options.get("time_factor")), default=1.0)
        # A row without a limit gets the judge's default of 2 s, which time_factor scales, too.
        self.check_time(name, "time_s", factor * max(_numbers(options.get("time_s")), default=2.0))
        self._check(name, "memory_mb", options.get("memory_mb"), self.test_memory_mb, "--max_test_memory_mb")

    def check_time(self, name: str, key: str, value: Any) -> None:
        """Check one option that is a time.

        Raises:
            RequestError: it exceeds the limit.
        """
        self._check(name, key, value, self.test_time_s, "--max_test_time_s")

    def _check(self, name: str, key: str, value: Any, limit: float, flag: str) -> None:
        largest = max(_numbers(value), default=0.0)
        if not largest <= limit:
            message = f"{name}: {key} is {largest:g}, but this server allows at most {limit:g} ({flag})."
            raise RequestError(422, message, kind="limit-exceeded")


def _numbers(value: Any) -> Sequence[float]:
    values = value if isinstance(value, list | tuple) else [value]
    return [math.inf if abs(entry) > 1e300 else float(entry) for entry in values if isinstance(entry, int | float)]
