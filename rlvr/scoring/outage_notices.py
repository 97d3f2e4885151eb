"""Messages about services that do not answer: few lines, and none twice.

Several rewards may wait for the same server, each in its own thread. So the state is kept by the service's name. Only
the main process prints.
"""

from __future__ import annotations

import os
import threading
import time

from rlvr import console

FIRST_AFTER_S = 5.0  # of waiting; services that start at the same time as the run are up by then
REPEAT_AFTER_S = 60.0
FAILING_AFTER_S = 2.0  # of failures of one server while others answer

_lock = threading.Lock()
_awaited: dict[str, float] = {}  # when "Waiting for …" was last printed, by service
_failing_since: dict[str, float] = {}  # by address
_reported: dict[str, bool] = {}  # servers that were reported as failing and are not back; whether for good


class OutageNotice:
    """One wait for a service.

    Args:
        service: its name or address.
        end: by `time.monotonic`, when the wait ends.
    """

    def __init__(self, service: str, end: float) -> None:
        self.service = service
        self.end = end
        self._since: float | None = None

    def failed(self, cause: str) -> None:
        """Note a failed attempt; print after a while. The cause begins with the service's name."""
        now = time.monotonic()
        with _lock:
            if self._since is None:
                self._since = now
            too_early = now - self._since < FIRST_AFTER_S
            if too_early or now - _awaited.get(self.service, -REPEAT_AFTER_S) < REPEAT_AFTER_S or now >= self.end:
                return
            _awaited[self.service] = now
        left = f" (up to {console.duration(self.end - now)} more)" if self.end - now < 86400 else ""
        console.info(f"Waiting for {cause}{left}")

    def recovered(self) -> None:
        """Note an answer; print if "Waiting for …" was printed."""
        self._since = None
        if self.cancel():
            console.info(f"{self.service} is there.")

    def cancel(self) -> bool:
        """Forget the wait, so that another one prints anew; return whether it was printed."""
        return _awaited.pop(self.service, None) is not None


def server_failed(address: str, cause: str, *, for_good: bool = False) -> None:
    """Note that a server has failed while others answer; print after a while.

    Args:
        cause: with the address.
        for_good: no retry will succeed, so print at once.
    """
    now = time.monotonic()
    with _lock:
        too_early = now - _failing_since.setdefault(address, now) < FAILING_AFTER_S
        if _reported.get(address, False) or (not for_good and (too_early or address in _reported)):
            return
        _reported[address] = for_good
    console.error(f"warning: a reward server fails, and the others do its work: {cause}.")


def server_answered(address: str) -> None:
    """Note an answer; print if the server was reported as failing."""
    if _failing_since.pop(address, None) is not None and _reported.pop(address, None) is not None:
        console.error(f"The reward server {address} is back.")


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
