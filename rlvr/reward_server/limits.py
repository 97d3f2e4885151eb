"""What one request may ask of the server, and all of them together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Refused(Exception):
    """A request that is not served, in a sentence for whoever sent it.

    Attributes:
        status: of HTTP.
        retry_after_s: when it is worth trying again; None: it isn't.
    """

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class ServerLimits:
    """Limits of the server.

    Attributes:
        body_bytes: of one request.
        held_bytes: of all requests that are being read or answered.
        rows: completions, or programs, of one request.
        requests: at the same time; more are told to come back.
        deadline_s: that a request may be worked on, whatever it asks for.
        reading_s: within which a request must have arrived.
        test_time_s, test_memory_mb: that a client may allow a program for a test.
        weak_sandbox: whether a client may have programs run that can't be confined.
    """

    body_bytes: int = 64 << 20
    held_bytes: int = 256 << 20
    rows: int = 8192
    requests: int = 128
    deadline_s: float = 900.0
    reading_s: float = 60.0
    test_time_s: float = 60.0
    test_memory_mb: float = 4096.0
    weak_sandbox: bool = False

    def refuse_options(self, name: str, given: Mapping[str, Any]) -> None:
        """Refuses what would loosen the limits of this server.

        Args:
            name: of the reward, or "The submission"; for the message.
            given: options and columns; of a column every entry is looked at.

        Raises:
            Refused: with what is too much.
        """
        if given.get("allow_weak_sandbox") and not self.weak_sandbox:
            raise Refused(
                422, f"{name}: allow_weak_sandbox is for whoever starts the server (--allow-weak-sandbox), not for a "
                "client."
            )  # fmt: skip
        factor = max(_numbers(given.get("time_factor")), default=1.0)
        for key, most, unit in (("time_s", self.test_time_s, "s"), ("memory_mb", self.test_memory_mb, "MB")):
            # Without a limit in the row the judge's own holds, which the factor stretches, too.
            asked = max(_numbers(given.get(key)), default=2.0 if key == "time_s" else 0.0)
            asked *= factor if key == "time_s" else 1.0
            if not asked <= most:
                raise Refused(
                    422, f"{name}: {key} is {asked:g}, but this server allows a test {most:g} {unit} at most "
                    f"(--most-{'test-time-s' if key == 'time_s' else 'test-memory-mb'})."
                )  # fmt: skip


def _numbers(value: Any) -> Sequence[float]:
    values = value if isinstance(value, list | tuple) else [value]
    return [math.inf if abs(entry) > 1e300 else float(entry) for entry in values if isinstance(entry, int | float)]
