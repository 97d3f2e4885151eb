"""Call rewards on reward servers (`where: http://host:port`, several separated by commas).

One server gets a batch whole, as a worker would. Several share its rows: groups stay together, and the next free server
takes the next shard. Rewards of one worker group travel in one request, so that a program that two of them judge is
judged once. The request of a server that fails goes to another one, or to the same one when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlvr.config.reward_location import addresses
from rlvr.errors import Problem
from rlvr.scoring.backends.base import RewardBackend, merge_environments
from rlvr.scoring.backends.http_connection import NO_SERVER, Rejected, ServerSet, Unavailable
from rlvr.scoring.backends.http_request import BatchRequest
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call_result import CallResult
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import StartError, WorkerError

NOT_READY = (429, 503)  # a server that starts or is busy
POLL_S = 0.02


class HttpRewardBackend(RewardBackend):
    """Sends calls to reward servers (rlvr/reward_server)."""

    service = "reward server"
    encoding: Encoding = "json"
    per_worker_group = True
    calls_together = True

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        self._servers = ServerSet(addresses(where), rewards)

    def launch(self) -> None:
        self._servers.closed = False

    def start(self) -> None:
        servers = self._servers.servers
        started = time.monotonic()
        end = started + self.start_timeout_s
        notice = self._servers.notice(end)
        waits = self.waits_for_service
        while not any(server.info for server in servers):
            for server in servers:
                if not server.backoff_s():
                    try:
                        self._servers.handshake(server, end)
                    except Unavailable as error:
                        server.mark_failed(error)
                        waits |= error.status in NOT_READY
                    except Rejected as error:
                        notice.cancel()
                        raise StartError(f"the reward server {error}", "server-refused") from error
            if any(server.info for server in servers):
                notice.recovered()
                return
            if self._servers.closed or time.monotonic() >= end or not waits:
                notice.cancel()
                self.mark_outage(started)
                raise WorkerError(f"{NO_SERVER} ({self._servers.errors()})", "no-server")
            notice.failed(self._servers.errors())
            time.sleep(max(POLL_S, min(min(server.backoff_s() for server in servers), end - time.monotonic())))

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        started, request = time.monotonic(), BatchRequest(self._servers, calls, timeout_s, end)
        results = request.run()
        if any(shard.results is not None for shard in request.shards):
            self._outage_since = None
        if any(shard.results is None and not shard.rejected for shard in request.shards):
            self.mark_outage(started)
        return results

    def environment_info(self) -> dict[str, str]:
        infos = [server.info.environment_info for server in self._servers.servers if server.info is not None]
        return merge_environments(infos, "reward servers")

    def warnings(self) -> list[Problem]:
        return self._servers.warnings()

    def close(self) -> None:
        self._servers.close()
