"""How often a model solves each row of data: measured once, kept in a file as it comes, shown as a histogram.

scripts/filter_by_pass_rate.py measures; nothing here knows of a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.append_log import AppendLog, AppendLogError, read_append_log
from rlvr.errors import InputError

BINS = ("never", *(f"{low} … {low + 10} %" for low in range(0, 100, 10)), "always")


@dataclass(frozen=True)
class Rate:
    """What was measured for one row: `right` of `scored` completions. What can't be scored is in neither."""

    right: int
    scored: int

    @property
    def share(self) -> float | None:
        return self.right / self.scored if self.scored else None


@dataclass(frozen=True)
class Bounds:
    """Rows whose pass rate is at least `low` and at most `high` are kept."""

    low: float
    high: float

    def keep(self, rate: Rate) -> bool:
        return rate.share is not None and self.low <= rate.share <= self.high


def rate_of(values: Sequence[float | None]) -> Rate:
    """The rate of a row, from what the metric said of its completions; at least 1 is right."""
    scored = [value for value in values if value is not None]
    return Rate(sum(value >= 1.0 for value in scored), len(scored))


def row_key(row: Mapping[str, Any]) -> str:
    """Stands for a row in the file of rates: the same row has the same key, wherever in the data it is."""
    text = json.dumps(row, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class RateFile:
    """Rates by row, in a file that is only ever appended to: its first line holds the settings, every other a row.

    Raises:
        InputError: the file was made with other settings, or is none of ours.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.known: dict[str, Rate] = {}
        try:
            recorded, lines = read_append_log(path)
            self.known = {line["key"]: Rate(line["right"], line["scored"]) for line in lines}
            there = path.exists() and path.stat().st_size > 0
        except (AppendLogError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} is no file of measured rates ({error}). Remove it, or name another --output."
            ) from error
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror}. Name another --output.") from error
        if there and recorded is None:
            raise InputError(f"{path} breaks off in its first line. Remove it, or name another --output.")
        self._check(recorded or settings, settings)
        try:
            self._log = AppendLog(path, settings)
        except BlockingIOError as error:
            raise InputError(f"{path} is being written to by another process. Name another --output.") from error
        except OSError as error:
            raise InputError(f"{path} can't be written: {error.strerror}. Name another --output.") from error

    def _check(self, recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        differing = [name for name in {**recorded, **settings} if recorded.get(name) != settings.get(name)]
        if differing:
            said = "; ".join(f"{name} {recorded.get(name)!r}, now {settings.get(name)!r}" for name in differing)
            raise InputError(
                f"{self.path} was measured with other settings ({said}), and the two must not be mixed. Name another "
                "--output, or remove the file to measure anew."
            )

    def add(self, keys: Sequence[str], rates: Sequence[Rate]) -> None:
        """Writes rows down for good."""
        self.known.update(zip(keys, rates, strict=True))
        self._log.append(
            [{"key": key, "right": rate.right, "scored": rate.scored} for key, rate in zip(keys, rates, strict=True)]
        )

    def __enter__(self) -> RateFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()


def histogram(rates: Sequence[Rate], bounds: Bounds) -> str:
    """Rows by pass rate, with those that are kept counted apart."""
    counts, kept = [0] * len(BINS), [0] * len(BINS)
    for rate in rates:
        if rate.share is not None:
            place = 0 if rate.share == 0 else len(BINS) - 1 if rate.share == 1 else 1 + int(10 * rate.share)
            counts[place] += 1
            kept[place] += bounds.keep(rate)
    most = max(*counts, 1)
    table = [
        [
            name,
            f"{count:,}",
            f"{100 * count / max(sum(counts), 1):.1f} %",
            f"{keep:,}",
            f"{'█' * round(20 * count / most):<20}",
        ]
        for name, count, keep in zip(BINS, counts, kept, strict=True)
    ]
    return console.table(["solved", "rows", "share", "kept", " " * 20], table)
