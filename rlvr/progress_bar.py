"""How far something has come that takes minutes: a bar on a terminal, a line a minute in a log."""

from __future__ import annotations

import time

from rlvr import console

SAY_EVERY_S = 60.0


class Progress:
    """Counts rows; silent in all processes but the main one."""

    def __init__(self, description: str, rows: int) -> None:
        from tqdm import tqdm

        shown = console.is_main() and console.is_terminal()
        self._bar = tqdm(total=rows, desc=description, unit="row", leave=False, disable=not shown)
        self._description, self._rows, self._done, self._shown = description, rows, 0, shown
        self._skipped = 0
        self._began = self._said = time.monotonic()

    def skip(self, rows: int) -> None:
        """Counts rows that were done before, and say nothing about how fast it goes."""
        self._skipped = rows
        self._done += rows
        self._bar.update(rows)

    def update(self, rows: int) -> None:
        self._bar.update(rows)
        self._done += rows
        now = time.monotonic()
        if not self._shown and now - self._said > SAY_EVERY_S:
            self._said = now
            left = (now - self._began) / (self._done - self._skipped) * (self._rows - self._done)
            console.info(f"  {self._description}: {self._done:,} of {self._rows:,} rows, {console.duration(left)} left")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
