"""Reward servers behind the face of a pool of workers, so that a scorer treats both alike (rlvr/scoring/scorer.py).

    pool = ElsewherePool(["http://a:8000", "http://b:8000"], rewards)
    outcomes = pool.map([Errand(0, carried, names, state, seed)], timeout_s=30, batch_timeout_s=300)

One server gets a batch whole, as a worker here would. Several share its rows: groups of completions stay together, and
whoever is done takes the next rows. Rewards that are asked for at the same time travel in one request, so that a
program that two of them judge is judged once. What a server that fails was asked goes to another one, or to the same
one again when it is back: a request carries a key by which a server knows it, so nothing runs twice for an answer that
was lost.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http.batch_request import NO_SERVER, BatchRequest
from rlvr.scoring.backends.http.connection import Rejected, Server, ServerInfo, Unavailable
from rlvr.scoring.backends.http.sharding import PARTS, RequestShard, parts_of, shared_out
from rlvr.scoring.batch_encoding import EncodedBatch, EncodingError, RewardCall
from rlvr.scoring.call import digest_of
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import OUT_OF_TIME, StartError, TaskResult, WorkerError

_log = logging.getLogger(__name__)
START_S = 300.0  # for a server to be there at all: it may be a machine that boots at the same time


class HttpRewardBackend:
    """Has rewards called on servers; usable from any thread.

    Args:
        servers: their addresses.
        rewards: those that are called there.
        start_s: how long to wait for the first server to be there.
    """

    def __init__(
        self,
        servers: Sequence[str],
        rewards: Sequence[Reward],
        *,
        start_s: float = START_S,
    ) -> None:
        key = os.environ.get("GRPO_REWARDS_KEY", "").strip() or None
        self.servers = [Server(address, key) for address in servers]
        self.rewards = list(rewards)
        self.start_s = start_s
        self._lock = threading.Lock()
        self.closed = False
        self._warned: set[tuple[str, str]] = set()
        self._silent_since: float | None = None

    def check_columns(self, carried: EncodedBatch, names: Sequence[str]) -> None:
        """Whether columns of a batch can travel.

        Raises:
            CannotCarry: one of them can't; with what to do.
        """
        try:
            carried.check(names)
        except EncodingError as error:
            raise EncodingError(f"{error}. Give the reward `where: local` in the recipe.") from error

    def launch(self) -> None:
        """There is nothing to begin with: servers are started by others."""
        self.closed = False

    def start(self, workers: int | None = None) -> None:
        """Waits until a server is there that has these rewards; at once where one was before.

        Raises:
            StartError: the servers that are there don't serve them, or not for this key.
            WorkerError: none is there.
        """
        self.closed = False
        begun = time.monotonic()
        end = begun + self.start_s
        waiting = self.waiting(end)
        while not any(server.told for server in self.servers):
            for server in self.servers:
                if not server.rests_s():
                    try:
                        self.meet(server, end)
                    except Unavailable as error:
                        server.failed(error)
                    except Rejected as error:
                        waiting.given_up()
                        raise StartError(f"The reward server {error}.") from error
            if any(server.told for server in self.servers):
                waiting.over()
                break
            if self.closed or time.monotonic() >= end:
                waiting.given_up()
                self._missed(begun)
                raise WorkerError(f"{NO_SERVER} ({self.faults()})")
            waiting.in_vain(self.faults())
            time.sleep(max(0.02, min(min(server.rests_s() for server in self.servers), end - time.monotonic())))

    def environment_info(self) -> dict[str, str]:
        """What the servers say that scores depend on beside the rewards' arguments, by a short name."""
        found: dict[str, list[str]] = {}
        for server in self.servers:
            for name, value in (server.told.conditions if server.told is not None else {}).items():
                if value not in found.setdefault(f"{name} of the reward servers", []):
                    found[f"{name} of the reward servers"].append(value)
        return {name: " / ".join(sorted(values)) for name, values in found.items()}

    def validate_rows(self, reward: Reward, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """What a reward's own file has against rows of the data, asked where it will be called.

        Raises:
            InputError: what it has against all of them; or no server answers, or can't be asked this.
        """
        rows = max((len(values) for values in columns.values()), default=0)
        carried = EncodedBatch({name: list(values) for name, values in columns.items()}, rows)
        names = sorted(columns)
        try:
            self.start()
            carried.check(names)
        except (WorkerError, EncodingError) as error:
            raise InputError(f"The reward {reward.name} runs elsewhere: {str(error).rstrip('.')}.") from error
        assert reward.spec is not None
        asked = {"name": reward.spec.name, "options": dict(reward.spec.options)}
        faults: list[str | None] = []
        for portion in shared_out(carried, names, range(rows), self.servers, whole=True):
            texts = ",".join(f"{json.dumps(name)}:{carried.column(name, portion)}" for name in names)
            body = f'{json.dumps(asked)[:-1]},"columns":{{{texts}}}}}'.encode()
            faults += self._checked(body, time.monotonic() + max(self.start_s, 60.0))
        return faults

    def _checked(self, body: bytes, end: float) -> list[str | None]:
        while True:
            server = min((one for one in self.servers if one.told is not None), key=Server.rests_s)
            time.sleep(min(server.rests_s(), max(end - time.monotonic(), 0.0)))
            try:
                said = server.ask("/check", body, end=end)["faults"]
                return [None if fault is None else str(fault) for fault in said]
            except Unavailable as error:
                server.failed(error)
                if time.monotonic() >= end:
                    raise InputError(f"{NO_SERVER} ({error}).") from error
            except Rejected as error:
                raise InputError(f"The reward server {error}.") from error

    def silent_s(self) -> float:
        """Seconds for which calls have gone without an answer from any server; 0 if the last one had one."""
        return time.monotonic() - self._silent_since if self._silent_since is not None else 0.0

    def heard(self) -> None:
        """A server has answered."""
        self._silent_since = None

    def _missed(self, since: float) -> None:
        if self._silent_since is None:
            self._silent_since = since

    def close(self) -> None:
        self.closed = True
        for server in self.servers:
            server.close()

    def map(
        self,
        items: Sequence[RewardCall],
        *,
        timeout_s: float,
        batch_timeout_s: float | None = None,
        max_workers: int | None = None,
    ) -> list[TaskResult]:
        """What became of calls, in their order; as `rlvr.workers.pool.WorkerPool.map`.

        Args:
            items: all of one batch; either calls for all rows, or for single ones.
            max_workers: has no meaning here.
        """
        begun = time.monotonic()
        end = begun + (batch_timeout_s if batch_timeout_s is not None else math.inf)
        for server in self.servers:
            if batch_timeout_s is not None:  # else a server that rests since an earlier batch might not be asked at all
                server.rest_at_most(batch_timeout_s / 10)
        parts = parts_of(items, self.servers)
        work = BatchRequest(self, items, parts, timeout_s, end)
        work.run(self._hands(parts))
        if work.broken is not None:
            raise work.broken
        if any(part.outcomes is None and part.key not in work.rejected for part in work.parts):
            self._missed(begun)
        return work.outcomes()

    def _hands(self, parts: Sequence[RequestShard]) -> list[Server]:
        """Each server as often as it is given a request at a time; none more than there are requests for it."""
        return [server for server in self.servers for _ in range(min(PARTS, len(parts)) if parts else 0)]

    def waiting(self, end: float) -> outage_notices.Waiting:
        """A wait for any of the servers, of which a person is told if it takes long."""
        return outage_notices.Waiting(" or ".join(server.address for server in self.servers), end)

    def others_answer(self, server: Server) -> bool:
        """Whether another server is there, as far as is known."""
        return any(other.told is not None and not other.fault for other in self.servers if other is not server)

    def faults(self) -> str:
        """Why servers were last not to be had."""
        return "; ".join(server.fault for server in self.servers if server.fault) or OUT_OF_TIME

    def meet(self, server: Server, end: float) -> None:
        """Asks a server what it has, before it is asked for anything.

        Raises:
            Unavailable: it isn't there, or not ready.
            Rejected: the key is wrong, or it has not all of the rewards.
        """
        end = min(end, time.monotonic() + 10)
        try:
            server.ask("/readyz", end=end)
            said = server.ask("/rewards", end=end)
            digests = {str(one["name"]): str(one["digest"]) for one in said["rewards"]}
            limits = said["limits"]
            conditions = {str(name): str(value) for name, value in said["conditions"].items()}
            told = ServerInfo(digests, int(limits["rows"]), int(limits["body_bytes"]), conditions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"{server.address} is no reward server, or one of another version") from error
        for reward in self.rewards:
            assert reward.spec is not None
            if reward.spec.name not in told.digests:
                raise Rejected(
                    f"{server.address} has no reward {reward.spec.name}; it was started with: "
                    f"{', '.join(told.digests) or 'none'}. Start it with this recipe (--config)", 404,
                )  # fmt: skip
            self._compare(server, reward, told.digests[reward.spec.name])
        server.told = told
        server.succeeded()

    def _compare(self, server: Server, reward: Reward, digest: str) -> None:
        if digest == digest_of(reward) or (server.address, reward.name) in self._warned:
            return
        with self._lock:
            self._warned.add((server.address, reward.name))
        _log.warning(
            "The reward %s is another one at %s than here: its file differs. What counts is what is there.",
            reward.name, server.address,
        )  # fmt: skip
