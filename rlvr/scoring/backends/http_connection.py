"""HTTP clients of reward servers: handshake, requests, replies and backoff."""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

from rlvr.errors import Problem
from rlvr.scoring.backends.base import differing_file
from rlvr.scoring.outage_notices import OutageNotice
from rlvr.scoring.reward import Reward
from rlvr.scoring.reward_key import VARIABLE, client_key, default_file
from rlvr.scoring.source_files import digest_of
from rlvr.workers.pool import OUT_OF_TIME

HANDSHAKE_TIMEOUT_S = 10.0
NO_SERVER = "no reward server answers"
CONNECT_TIMEOUT_S = 4.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.1, 2.0  # between attempts, doubled from one to the next
REJECTED_BACKOFF_S = 60.0  # of a server with another key or other rewards, while others may answer
DEFAULT_ROWS, DEFAULT_BODY_BYTES = 1024, 16 << 20  # of a request to servers that did not answer yet
DEAD_PEER_S = 20  # without an acknowledgement from the other end of a connection


class RequestFailed(Exception):
    """A request without a usable reply. The status is that of the reply, or 0. The message has no full stop."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(RequestFailed):
    """No reply, or one that asks to try again. Any request may be sent again, to this server or to another."""


class Rejected(RequestFailed):
    """The server will never serve this request."""


@dataclass(frozen=True)
class ServerInfo:
    """What a server says about itself (`/rewards`)."""

    rows: int  # of its largest request
    body_bytes: int
    environment_info: Mapping[str, str]
    differing: frozenset[str]  # names of rewards whose file is not the local one
    instance: str  # another one for each start of a server


class ServerConnection:
    """Client of one server; usable from any thread, and in forked processes."""

    def __init__(self, address: str, key: str | None) -> None:
        self.address = address
        self.info: ServerInfo | None = None  # None before the handshake, and after the server has restarted
        self.handshaking = threading.Lock()
        self.error = ""  # why the last request failed
        self.requests = 0  # in progress
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._client: tuple[int, httpx.Client] | None = None  # with the process that made it
        self._backoff_s = 0.0
        self._retry_at = 0.0

    def ask(self, path: str, body: bytes | None = None, *, end: float) -> Any:
        """Send a request and return its reply, decoded from JSON.

        Args:
            body: of a POST; None for a GET.
            end: by `time.monotonic`.

        Raises:
            Unavailable: there is no reply, or not in time.
            Rejected: the server refuses the request, or its address or certificate is wrong.
        """
        left_s = max(end - time.monotonic(), 0.01)
        timeout = httpx.Timeout(left_s, connect=min(CONNECT_TIMEOUT_S, left_s))
        method = "GET" if body is None else "POST"
        try:
            response = self._http().request(
                method, self.address + path, content=body, headers=self._headers, timeout=timeout
            )
        except (OSError, httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            cause = _root_cause(error)
            if self.info is None and isinstance(cause, ssl.SSLError) and (fix := _tls_fix(cause)):
                raise Rejected(f"{self.address} {fix}") from error
            raise Unavailable(f"{self.address}: {self._describe(error, cause)}") from error
        return self._decode(response)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and client[0] == os.getpid():
            client[1].close()

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None or self._client[0] != os.getpid():  # sockets can't be shared with a parent
                # Proxies of the environment are not for reward servers; SSL_CERT_FILE is read here, where TLS is used.
                context = ssl.create_default_context() if self.address.startswith("https:") else False
                transport = httpx.HTTPTransport(verify=context, trust_env=False, socket_options=_keepalive())
                self._client = (os.getpid(), httpx.Client(transport=transport, trust_env=False))
            return self._client[1]

    def _decode(self, response: httpx.Response) -> Any:
        try:
            data = json.loads(response.content)
        except (ValueError, RecursionError):
            data = None
        if response.status_code == 200 and data is not None:
            return data
        told = data if isinstance(data, dict) else {}  # /readyz has a status
        cause = str(told.get("detail") or told.get("status") or response.reason_phrase or "no JSON")[:500].rstrip(".")
        if response.status_code == 401:
            place = f"in {VARIABLE}" if os.environ.get(VARIABLE) else f"in {default_file()}"
            state = f"another one is {place}" if "Authorization" in self._headers else "none is set"
            cause = f"the key is missing or wrong. Set {VARIABLE} here to the server's; {state}"
        message = f"{self.address} replies {response.status_code}: {cause}"
        if response.status_code in (200, 408, 425, 429) or response.status_code >= 500:
            raise Unavailable(message, response.status_code)
        raise Rejected(message, response.status_code)

    def _describe(self, error: Exception, cause: BaseException) -> str:
        if isinstance(error, httpx.ConnectTimeout):
            return f"no connection within {CONNECT_TIMEOUT_S:g} s"
        if isinstance(error, httpx.TimeoutException):
            return "no reply in time"
        if isinstance(error, httpx.RemoteProtocolError) or isinstance(cause, ConnectionResetError):
            may_need_tls = self.info is None and self.address.startswith("http:")
            fix = " (if the server has a certificate, write https://)" if may_need_tls else ""
            return f"the connection broke before the reply{fix}"
        return (cause.strerror if isinstance(cause, OSError) else "") or str(error) or type(error).__name__

    def mark_failed(self, error: RequestFailed) -> None:
        """Send nothing for a while, which doubles with each failure in a row."""
        with self._lock:
            self.error = str(error)
            self._backoff_s = min(max(2 * self._backoff_s, MIN_BACKOFF_S), MAX_BACKOFF_S)
            backoff_s = REJECTED_BACKOFF_S if isinstance(error, Rejected) else self._backoff_s
            # Random, so that the clients of a restarted server do not all come back at the same moment.
            self._retry_at = time.monotonic() + backoff_s * random.Random().uniform(0.5, 1.0)

    def mark_alive(self) -> None:
        with self._lock:
            self.error = ""
            self._backoff_s = self._retry_at = 0.0

    def backoff_s(self) -> float:
        """Seconds until the next request may be sent."""
        return max(self._retry_at - time.monotonic(), 0.0)


class ServerSet:
    """Servers that have the same rewards; usable from any thread."""

    def __init__(self, addresses: Sequence[str], rewards: Sequence[Reward]) -> None:
        self.servers = [ServerConnection(address, client_key(address)) for address in addresses]
        self.rewards = list(rewards)
        self.rows, self.body_bytes = DEFAULT_ROWS, DEFAULT_BODY_BYTES  # of a request that all of them accept
        self.closed = False  # requests end without a reply
        self._warned: set[tuple[str, str]] = set()  # names and addresses of rewards that differ

    def close(self) -> None:
        self.closed = True
        for server in self.servers:
            server.close()

    def next(self) -> ServerConnection:
        """The server to ask next: with the shortest backoff, and the fewest requests in progress."""
        return min(self.servers, key=lambda server: (server.backoff_s(), server.requests))

    def errors(self) -> str:
        """Why servers did not answer last."""
        return "; ".join(server.error for server in self.servers if server.error) or OUT_OF_TIME

    def has_healthy_peer(self, server: ServerConnection) -> bool:
        """Whether another server answered last."""
        return any(peer.info is not None and not peer.error for peer in self.servers if peer is not server)

    def notice(self, end: float) -> OutageNotice:
        """The message that none of the servers answers, for a wait until `end`."""
        return OutageNotice(" or ".join(server.address for server in self.servers), end)

    def warnings(self) -> list[Problem]:
        """Rewards whose file on a server differs from the local one, each returned once."""
        found = []
        for reward in self.rewards:
            known = [(server.address, server.info) for server in self.servers if server.info is not None]
            differing = {(reward.name, address) for address, info in known if reward.name in info.differing}
            if new := sorted(differing - self._warned):
                self._warned |= differing
                found.append(differing_file(reward, [address for _, address in new]))
        return found

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
                digests = {str(reward["label"]): str(reward["digest"]) for reward in data["rewards"]}
                info = ServerInfo(
                    rows=int(data["limits"]["rows"]),
                    body_bytes=int(data["limits"]["body_bytes"]),
                    environment_info={str(name): str(value) for name, value in data["conditions"].items()},
                    differing=frozenset(one.name for one in self.rewards if digests.get(one.label) != digest_of(one)),
                    instance=str(data.get("instance")),
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Unavailable(f"{server.address} is no reward server, or one of another version") from error
            except RequestFailed as error:
                if error.status in (200, 404):
                    message = f"{server.address} is no reward server, or has one at another path"
                    raise Rejected(f"{message} (it replies {error.status})", error.status) from error
                raise
            if missing := next((reward.label for reward in self.rewards if reward.label not in digests), None):
                message = f"{server.address} has no reward {missing}, only {', '.join(digests) or 'none'}"
                raise Rejected(f"{message}. Start it with this recipe (--config)", 404)
            server.info = info
            infos = [server.info for server in self.servers if server.info is not None]
            self.rows, self.body_bytes = min(info.rows for info in infos), min(info.body_bytes for info in infos)
            server.mark_alive()


def _keepalive() -> list[tuple[int, int, int]]:
    """Socket options that end a connection whose peer is gone, also while a reply is awaited."""
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, DEAD_PEER_S // 2)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, DEAD_PEER_S // 4)),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_PEER_S),
    ]


def _root_cause(error: BaseException) -> BaseException:
    """The operating system's error behind an error of httpx."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _tls_fix(error: ssl.SSLError) -> str | None:
    """What to do about an address or a certificate that no retry would mend."""
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "Check the certificate's name and dates, or set SSL_CERT_FILE to the certificate of its authority"
        return f"has a certificate that isn't trusted here ({error.verify_message.rstrip('.')}). {fix}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return "does not speak TLS: write http:// in place of https://"
    return None
