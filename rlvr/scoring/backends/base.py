"""The protocol of a reward backend: workers, the training process, reward servers, a Ray cluster.

To add a backend, write a class like these and enter it in `rlvr.config.reward_location.BACKENDS`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rlvr.errors import Problem
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call_result import CallResult
from rlvr.scoring.reward import Reward, file_of


class RewardBackend(Protocol):
    """Calls some rewards of a recipe; usable from any thread.

    A backend is made as `Backend(where, rewards, start_timeout_s=…)`. Subclass this protocol for the defaults below:
    then only `__init__` and `call` have to be written.

    Attributes:
        service: the remote service that it calls, for messages about outages; "" if nothing remote is involved.
        encoding: in which columns must be sent; "" if they are not sent.
        per_worker_group: whether each worker group (`WORKER_GROUP` in the rewards' files), and each other reward, has a
            backend of its own. Else all rewards of one `where` share a backend.
        calls_together: whether it gets the calls of all its rewards at once. Else it gets one reward after the other,
            and each reward has an equal share of the batch's time.
        start_timeout_s: seconds that `start` may wait.
        waits_for_service: whether `start` waits for a service that can't be reached. If it answers that it is not
            ready yet, `start` waits in any case.
    """

    service: str = ""
    encoding: Encoding = ""
    per_worker_group: bool = False
    calls_together: bool = False
    start_timeout_s: float
    waits_for_service: bool = True
    _outage_since: float | None = None

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None: ...

    def launch(self) -> None:
        """Begin to start, without waiting.

        Raises:
            WorkerError: it can't start now. The scorer tries again with the first batch.
        """

    def start(self) -> None:
        """Wait until calls are possible; return at once if they are.

        Raises:
            StartError: it can't start, and waiting would not help.
            WorkerError: it did not start in time.
        """

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        """Call reward functions, and return the results in the order of the calls.

        Args:
            calls: of one batch: either calls for the whole batch, or calls of one reward for single rows.
            timeout_s: seconds for one call.
            end: by `time.monotonic`, when the batch times out. Calls that are not done by then are "unavailable", with
                the message `rlvr.workers.pool.OUT_OF_TIME`. With any other message, the scorer calls once more.
        """
        ...

    def environment_info(self) -> dict[str, str]:
        """What scores depend on where rewards are called, such as the sandbox; known after `start`."""
        return {}

    def warnings(self) -> list[Problem]:
        """Rewards that differ where they are called, each returned once; known after `start`."""
        return []

    def outage_s(self) -> float:
        """Seconds since a remote service last answered; 0 if it answered the last calls."""
        return time.monotonic() - self._outage_since if self._outage_since is not None else 0.0

    def mark_outage(self, since: float) -> None:
        """Note that a remote service has not answered since then, by `time.monotonic`."""
        self._outage_since = self._outage_since or since

    def close(self) -> None:
        """End processes and connections, and calls that wait for them."""


def differing_file(reward: Reward, places: Iterable[str]) -> Problem:
    """The warning that other machines score with another file than the local one."""
    message = (
        f"The reward {reward.label} differs at {', '.join(places)}, where completions are scored. Copy "
        f"{file_of(reward.function)} there, and restart a reward server."
    )
    return Problem(message, "differing-reward", f"rewards.{reward.name}", level="warning")


def merge_environments(infos: Iterable[Mapping[str, str]], place: str) -> dict[str, str]:
    """The different values of several machines, by the name with its place, such as "sandbox of the Ray nodes"."""
    values: dict[str, set[str]] = {}
    for info in infos:
        for name, value in info.items():
            values.setdefault(f"{name} of the {place}", set()).add(value)
    return {name: " / ".join(sorted(distinct)) for name, distinct in values.items()}
