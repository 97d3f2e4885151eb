"""The reward servers of one recipe: handshake, health, and the messages about those that do not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from rlvr.scoring.backends.http.connection import Rejected, ServerConnection, ServerInfo, Unavailable
from rlvr.scoring.call import digest_of
from rlvr.scoring.outage_notices import OutageNotice
from rlvr.scoring.reward import Reward
from rlvr.scoring.reward_key import client_key
from rlvr.workers.pool import OUT_OF_TIME

_log = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
NO_SERVER = "no reward server answers"


class ServerSet:
    """Servers that have the same rewards; usable from any thread."""

    def __init__(self, addresses: Sequence[str], rewards: Sequence[Reward]) -> None:
        self.servers = [ServerConnection(address, client_key(address)) for address in addresses]
        self.rewards = list(rewards)
        self.closed = False  # requests end without a reply
        self._outage_since: float | None = None

    def close(self) -> None:
        self.closed = True
        for server in self.servers:
            server.close()

    def errors(self) -> str:
        """Why servers did not answer last."""
        return "; ".join(server.error for server in self.servers if server.error) or OUT_OF_TIME

    def has_healthy_peer(self, server: ServerConnection) -> bool:
        """Whether another server answered last."""
        return any(peer.info is not None and not peer.error for peer in self.servers if peer is not server)

    def notice(self, end: float) -> OutageNotice:
        """The message that none of the servers answers, for a wait until `end`."""
        return OutageNotice(" or ".join(server.address for server in self.servers), end)

    def outage_s(self) -> float:
        """Seconds since any server last answered; 0 if the last batch had its answers."""
        return time.monotonic() - self._outage_since if self._outage_since is not None else 0.0

    def mark_outage(self, since: float) -> None:
        self._outage_since = self._outage_since or since

    def mark_alive(self, server: ServerConnection) -> None:
        server.mark_alive()
        self._outage_since = None

    def handshake(self, server: ServerConnection, end: float) -> None:
        """Ask a server for its rewards and limits, unless they are known.

        Raises:
            Unavailable: it is not reachable, or not ready.
            Rejected: the key is wrong, or the server does not have all rewards.
        """
        with server.handshaking:
            if server.info is not None:
                return
            end = min(end, time.monotonic() + HANDSHAKE_TIMEOUT_S)
            try:
                server.ask("/readyz", end=end)
                data = server.ask("/rewards", end=end)
                digests = {str(reward["name"]): str(reward["digest"]) for reward in data["rewards"]}
                info = ServerInfo(
                    rows=int(data["limits"]["rows"]),
                    body_bytes=int(data["limits"]["body_bytes"]),
                    environment_info={str(name): str(value) for name, value in data["conditions"].items()},
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Unavailable(f"{server.address} is no reward server, or one of another version") from error
            for reward in self.rewards:
                if reward.name not in digests:
                    served = ", ".join(digests) or "none"
                    message = f"{server.address} has no reward {reward.name}; it serves: {served}"
                    raise Rejected(f"{message}. Start it with this recipe (--config)", 404)
            for reward in self.rewards:
                if digests[reward.name] != digest_of(reward):
                    _log.warning(
                        "Reward %s on %s differs from the local file (hash mismatch). The server's version is used.",
                        reward.name, server.address,
                    )  # fmt: skip
            server.info = info
            server.mark_alive()
