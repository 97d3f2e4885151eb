"""What a person is told of machines that are waited for: few lines, and none twice.

Several rewards may wait for the same server, each in a thread of its own, so what was said is kept by the machine's
name and not by who has waited. Only the main process speaks.
"""

from __future__ import annotations

import os
import threading
import time

from rlvr import console

FIRST_S = 5.0  # of waiting in vain before it is said; most that start at the same time are there by then
EVERY_S = 60.0  # and how often again
FAILING_S = 2.0  # for which a server fails, while others answer, before it is said
AGAIN_S = 600.0  # before it is said of the same one again: it may come and go

_lock = threading.Lock()
_waited: dict[str, float] = {}  # for whom it was said that they are waited for, and when
_failing: dict[str, float] = {}  # since when servers fail, by their addresses
_failed: dict[str, bool] = {}  # those of which it was said, and not yet that they are back; whether for good
_said: dict[str, float] = {}  # when it was last said


class Waiting:
    """One wait for somebody to be there.

    Args:
        name: of whom.
        end: by `time.monotonic`, when it is given up.
    """

    def __init__(self, name: str, end: float) -> None:
        self.name = name
        self.end = end
        self._begun: float | None = None

    def in_vain(self, why: str) -> None:
        """Nobody was there just now.

        Args:
            why: with the name in it.
        """
        now = time.monotonic()
        with _lock:
            if self._begun is None:
                self._begun = now
            if now - self._begun < FIRST_S or now - _waited.get(self.name, -EVERY_S) < EVERY_S or now >= self.end:
                return
            _waited[self.name] = now
        left = f" (up to {console.duration(self.end - now)} more)" if self.end - now < 86400 else ""
        console.info(f"Waiting for {why}{left}")

    def over(self) -> None:
        """Somebody is there."""
        self._begun = None
        if _waited:  # asked without the lock, since it is so after each answer
            with _lock:
                said = _waited.pop(self.name, None) is not None
            if said:
                console.info(f"{self.name} is there.")

    def given_up(self) -> None:
        """Whoever waited says so; another wait is told of anew."""
        with _lock:
            _waited.pop(self.name, None)


def fails(address: str, why: str, *, for_good: bool = False) -> None:
    """A server has failed while others answer.

    Args:
        why: with the address in it.
        for_good: whether it is known that no other attempt will be better.
    """
    now = time.monotonic()
    with _lock:
        since = _failing.setdefault(address, now)
        early = now - since < FAILING_S or now - _said.get(address, -AGAIN_S) < AGAIN_S
        if _failed.get(address, False) or (not for_good and (early or address in _failed)):
            return
        _failed[address] = for_good
        _said[address] = now
    console.error(f"warning: a reward server fails, and the others do its work: {why}.")


def answers(address: str) -> None:
    """A server has answered."""
    if address in _failing:  # asked without the lock, since it is so after each answer
        with _lock:
            _failing.pop(address, None)
            said = _failed.pop(address, None) is not None
        if said:
            console.error(f"The reward server {address} is back.")


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
