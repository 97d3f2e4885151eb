"""Record how often a model solves each row of data, and show a histogram.

scripts/filter_by_pass_rate.py measures the rates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlvr import console
from rlvr.append_log import AppendLog, AppendLogError, read_append_log
from rlvr.errors import InputError

BINS = ("never", *(f"{low} … {low + 10} %" for low in range(0, 100, 10)), "always")


@dataclass(frozen=True)
class PassRate:
    """Result of one row: `right` of `scored` completions. Completions that cannot be scored count in neither."""

    right: int
    scored: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> PassRate:
        """The rate of a row, from the metric of its completions; 1 or more is right."""
        return cls(sum(value is not None and value >= 1.0 for value in values), len(values) - list(values).count(None))

    @property
    def share(self) -> float | None:
        return self.right / self.scored if self.scored else None


class PassRateBounds(NamedTuple):
    """Keep rows with a pass rate from `low` to `high`."""

    low: float
    high: float

    def keep(self, rate: PassRate) -> bool:
        return rate.share is not None and self.low <= rate.share <= self.high


def row_key(row: Mapping[str, Any]) -> str:
    """Return the key of a row in the file of rates, which does not depend on its position."""
    text = json.dumps(row, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class PassRateFile:
    """Append-only file of rates: its first line has the settings, every other line a row.

    Raises:
        InputError: the file has other settings or another format, or cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.known: dict[str, PassRate] = {}
        try:
            recorded, lines = read_append_log(path)
            self.known = {line["key"]: PassRate(line["right"], line["scored"]) for line in lines}
        except (AppendLogError, KeyError, TypeError) as error:
            raise _file_error(path, f"it is no file of measured rates ({error})") from error
        except OSError as error:
            raise _file_error(path, f"it cannot be read: {error.strerror}") from error
        if recorded is None and path.exists() and path.stat().st_size > 0:
            raise _file_error(path, "its first line is incomplete")
        self._check(recorded or settings, settings)
        try:
            self._log = AppendLog(path, settings)
        except BlockingIOError as error:
            raise _file_error(path, "another process is writing to it") from error
        except OSError as error:
            raise _file_error(path, f"it cannot be written: {error.strerror}") from error

    def _check(self, recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        differing = [name for name in {**recorded, **settings} if recorded.get(name) != settings.get(name)]
        if differing:
            changes = "; ".join(f"{name} {recorded.get(name)!r}, now {settings.get(name)!r}" for name in differing)
            raise InputError(
                f"{self.path} was measured with other settings ({changes}). Name another --output, or remove the file "
                "to measure again.",
                kind="settings-mismatch",
                path=self.path,
                key=differing[0],
            )

    def add(self, keys: Sequence[str], rates: Sequence[PassRate]) -> None:
        """Append rows to the file."""
        self.known.update(zip(keys, rates, strict=True))
        self._log.append([{"key": key, **asdict(rate)} for key, rate in zip(keys, rates, strict=True)])

    def __enter__(self) -> PassRateFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()


def _file_error(path: Path, problem: str) -> InputError:
    message = f"Cannot use {path} for pass rates: {problem}. Remove it, or name another --output."
    return InputError(message, kind="unusable-file", path=path)


def histogram(rates: Sequence[PassRate], bounds: PassRateBounds) -> str:
    """Format a histogram of rows by pass rate, with the number of kept rows."""
    counts, kept = [0] * len(BINS), [0] * len(BINS)
    for rate in rates:
        if rate.share is not None:
            bin_index = 0 if rate.share == 0 else len(BINS) - 1 if rate.share == 1 else 1 + int(10 * rate.share)
            counts[bin_index] += 1
            kept[bin_index] += bounds.keep(rate)
    highest, total = max(*counts, 1), max(sum(counts), 1)
    rows = [
        [name, f"{count:,}", f"{100 * count / total:.1f} %", f"{keep:,}", f"{'█' * round(20 * count / highest):<20}"]
        for name, count, keep in zip(BINS, counts, kept, strict=True)
    ]
    return console.table(["solved", "rows", "share", "kept", " " * 20], rows)
