"""One reward server, as its client sees it: requests over connections that are kept, and what became of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import selectors
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CONNECT_S = 5.0
LARGEST_ANSWER = 256 << 20
SHORTEST_REST_S, LONGEST_REST_S = 0.1, 5.0  # between attempts, doubled from one to the other
LOST_S = 15.0  # after which a machine that answers nothing at all, not even for its kernel, is given up
PROBE_S = 5.0  # while an answer is waited for: how often it is looked whether there is still somebody to give it
MOST_SILENT = 2  # of these looks in a row that nobody answered
SURE_AFTER = 3  # times in a row that TLS was found where plain HTTP is cut off


class Unavailable(Exception):
    """No answer, or one that says to try again; anything may be asked again, here or elsewhere.

    Attributes:
        after_s: when the server wants to be asked again.
    """

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Rejected(Exception):
    """An answer that says that this request will never be served; without a full stop, as a part of a sentence.

    Attributes:
        status: of HTTP; 0 where it did not come to that.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself (`/rewards`).

    Attributes:
        digests: of the files that its rewards are written in, by their names.
        rows, body_bytes: that a request may have.
        conditions: what its rewards' scores depend on beside their arguments, such as the sandbox there.
    """

    digests: dict[str, str]
    rows: int
    body_bytes: int
    conditions: dict[str, str]


class Server:
    """One server; usable from any thread.

    Attributes:
        address: as the recipe has it.
        told: what it says of itself; None until it was asked.
        fault: why it was last not to be had; "" if it was.
    """

    def __init__(self, address: str, key: str | None) -> None:
        self.address = address
        self.told: ServerInfo | None = None
        self.fault = ""
        self._url = urlsplit(address)
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._all: set[http.client.HTTPConnection] = set()
        self._rest_s = 0.0
        self._rests_until = 0.0
        self._speaks_tls = 0
        self._probing = threading.Lock()
        self._heard = 0.0  # when it last answered anything
        self._probe = (0.0, False)  # when it was last looked for, and whether it was there

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        end: float,
    ) -> Any:
        """What the server answers to a request, as plain data.

        Args:
            body: of a POST; None for a GET.
            key: that makes it safe to ask twice.
            end: by `time.monotonic`, when nobody waits any more.

        Raises:
            Unavailable: it can't be had, or does not answer in time.
            Rejected: it refuses.
        """
        connection = self._connection()
        headers = {**self._headers, **({"Idempotency-Key": key} if key is not None else {})}
        try:
            if connection.sock is None:
                connection.timeout = max(min(CONNECT_S, end - time.monotonic()), 0.01)
                connection.connect()
                assert connection.sock is not None
                _watch(connection.sock)
            connection.sock.settimeout(max(end - time.monotonic(), 0.01))
            # A server may answer before it has read all, and close: then there is an answer to be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("GET" if body is None else "POST", self._url.path + path, body, headers)
                self._wait(connection.sock, end)
            answer = connection.getresponse()
            content = _read(connection, answer, end)
            self._heard = time.monotonic()
            self._speaks_tls = 0
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            if self.told is None and (mistake := _mistake(error) or self._scheme_mistaken(error, end)):
                raise Rejected(f"{self.address} {mistake}", 0) from error
            raise Unavailable(f"{self.address}: {_words(error)}") from error
        except BaseException:
            self._drop(connection)
            raise
        if answer.will_close:
            self._drop(connection)
        else:
            with self._lock:
                self._idle.append(connection)
        return self._understood(answer, content)

    def _wait(self, line: socket.socket, end: float) -> None:
        """Until an answer begins; a server that has come to a standstill is not waited for.

        Raises:
            TimeoutError: there is none in time, or nobody to give one.
        """
        silent, looked = 0, time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(line, selectors.EVENT_READ)
            while (left := end - time.monotonic()) > 0 and silent < MOST_SILENT:
                if selector.select(min(left, PROBE_S)):
                    return
                silent = 0 if self._lives(looked) else silent + 1
                looked = time.monotonic()
        raise TimeoutError

    def _lives(self, since: float) -> bool:
        """Whether it has answered anything since then. If not it is asked, by one for all threads that wait for it."""
        with self._probing:
            if self._heard > since:
                return True
            if self._probe[0] < since:
                self._probe = (time.monotonic(), self._answers())
            return self._probe[1]

    def _answers(self) -> bool:
        connection = self._made(PROBE_S)
        try:
            connection.request("GET", f"{self._url.path}/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _scheme_mistaken(self, error: Exception, end: float) -> str | None:
        """Why plain HTTP is cut off, if that is because TLS is spoken there: seen so often that it is no chance."""
        cut_off = isinstance(error, http.client.BadStatusLine | ConnectionResetError)
        left = min(end - time.monotonic(), PROBE_S)
        if self._url.scheme == "https" or not cut_off or left <= 0:
            return None
        self._speaks_tls = self._speaks_tls + 1 if self._shakes_hands(left) else 0
        return "speaks TLS: write https:// in place of http://" if self._speaks_tls >= SURE_AFTER else None

    def _shakes_hands(self, timeout_s: float) -> bool:
        host = self._url.hostname or ""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told or believed
        try:
            with socket.create_connection((host, self._url.port or 80), timeout_s) as line:
                context.wrap_socket(line, server_hostname=host).close()
        except (OSError, ValueError):
            return False
        return True

    def _understood(self, answer: http.client.HTTPResponse, content: bytes) -> Any:
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = None
        if answer.status == 200 and said is not None:
            return said
        detail = said.get("detail") if isinstance(said, dict) else None
        what = f"answers {answer.status}: {str(detail or answer.reason or 'no JSON')[:500].rstrip('.')}"
        if answer.status == 401:
            here = "another one is set" if "Authorization" in self._headers else "none is set"
            what = f"answers 401: the key is missing or wrong. Set GRPO_REWARDS_KEY here to the server's; {here}"
        message = f"{self.address} {what}"
        if answer.status in (200, 408, 425, 429) or answer.status >= 500:
            after = answer.headers.get("Retry-After", "")
            raise Unavailable(message, float(after) if after.isdigit() and len(after) < 5 else None)
        raise Rejected(message, answer.status)

    # ------------------------------------------------------------------------------------------------------------------
    # Resting

    def failed(self, error: Unavailable) -> None:
        """It is left alone for a while, and for longer if it fails again."""
        with self._lock:
            self.fault = str(error)
            self._rest_s = min(max(2 * self._rest_s, SHORTEST_REST_S), LONGEST_REST_S)
            wanted = error.after_s if error.after_s is not None else self._rest_s
            # Not all clients of a server that comes back are to come back at the same moment.
            self._rests_until = time.monotonic() + min(wanted, 10 * LONGEST_REST_S) * random.Random().uniform(0.5, 1.0)

    def succeeded(self) -> None:
        with self._lock:
            self.fault = ""
            self._rest_s = self._rests_until = 0.0

    def rest_at_most(self, seconds: float) -> None:
        """It is not left alone for longer than that from now on."""
        with self._lock:
            self._rests_until = min(self._rests_until, time.monotonic() + seconds)

    def rests_s(self) -> float:
        """Seconds for which it is to be left alone."""
        return max(self._rests_until - time.monotonic(), 0.0)

    # ------------------------------------------------------------------------------------------------------------------
    # Connections

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.sock is not None and not _closed_there(connection.sock):
                    return connection
                self._all.discard(connection)
                connection.close()
            made = self._made(CONNECT_S)
            self._all.add(made)
            return made

    def _made(self, timeout_s: float) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, self._url.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, self._url.port, timeout=timeout_s)

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._all.discard(connection)
        connection.close()

    def close(self) -> None:
        """Ends all connections, and the waiting for answers on them."""
        with self._lock:
            connections, self._all, self._idle = list(self._all), set(), []
        for connection in connections:
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


def _watch(line: socket.socket) -> None:
    """Has the kernel find out that the other machine is gone, while nothing is being said."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2), ("TCP_USER_TIMEOUT", int(1000 * LOST_S)),
    ):  # fmt: skip
        option = getattr(socket, name, None)  # Linux has them all
        if option is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)


def _closed_there(line: socket.socket) -> bool:
    """Whether the other side has closed a connection that was kept."""
    try:
        line.setblocking(False)
        return line.recv(1, socket.MSG_PEEK) == b""
    except (BlockingIOError, ssl.SSLWantReadError, ValueError):  # an encrypted line can't be peeked at
        return False
    except OSError:
        return True


def _read(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, end: float) -> bytes:
    parts, size = [], 0
    while part := answer.read1(1 << 20):
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER:
            raise http.client.HTTPException(f"its answer is longer than {LARGEST_ANSWER >> 20} MB")
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
    length = answer.headers.get("Content-Length", "")
    if length.isdigit() and int(length) != size:
        raise http.client.IncompleteRead(b"", int(length) - size)
    answer.close()  # by which the connection knows that it may be used again
    return b"".join(parts)


# By OpenSSL's numbers, where it is not the authority that is unknown.
_BAD_CERTIFICATES = {
    9: "Its time has not begun: set the clocks",
    10: "Renew it",
    62: "Write the name that it is made out to",
    64: "Write the name that it is made out to",
}


def _mistake(error: Exception) -> str | None:
    """What is wrong with an address or a certificate, if that is why: no wait would mend it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _BAD_CERTIFICATES.get(
            error.verify_code,
            "If it is the right one, set SSL_CERT_FILE to the file with the certificate of whoever has signed it",
        )
        return f"has a certificate that isn't trusted here ({error.verify_message.rstrip('.')}). {advice}"
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "answers, but not by TLS: write http:// in place of https://"
    return None


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the connection broke before the answer was there"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or type(error).__name__
