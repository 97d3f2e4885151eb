"""HTTP connection with timeouts for slow clients, and a limit on the number of connections."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlvr.reward_server.errors import RequestError

HEAD_TIMEOUT_S = 20.0  # for a request's head; middleware.py limits the body
READ_TIMEOUT_S = 20.0  # in which a client must read READ_BYTES of its answer
READ_BYTES = 1 << 20
MAX_HEAD_BYTES = 1 << 16


def connection_limit() -> int:
    """The number of connections that leaves file descriptors for files, workers and programs."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 4096 if descriptors < 0 or descriptors > 4608 else max(descriptors - 512, descriptors // 2)


class _Parser(h11.Connection):
    """h11's parser, which refuses bodies that could keep it busy without end.

    Uvicorn goes on parsing a body after it has answered. A chunk of one byte costs the parser as much as a large one,
    so a few connections without a key could stop the server.
    """

    refusal: RequestError | None = None

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            length = dict(event.headers).get(b"content-length", b"0")
            if any(name == b"transfer-encoding" for name, _ in event.headers):
                self.refusal = RequestError(
                    411, "Send the body with a Content-Length, not in chunks.", kind="length-required"
                )
            elif event.method != b"POST" and length != b"0":
                self.refusal = RequestError(413, "Only POST requests have a body here.", kind="too-large")
            if self.refusal is not None:
                raise h11.RemoteProtocolError(str(self.refusal))
        return event


class HttpConnection(H11Protocol):
    """Uvicorn's protocol, which by itself waits forever for a client that sends no complete head or does not read.

    Such clients need no key, and could use up all file descriptors.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    read_timeout_s = READ_TIMEOUT_S
    max_connections = connection_limit()
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0  # when the timer started
    _dropped = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: _Parser = _Parser(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser refuses, and close the connection."""
        response = (self.conn.refusal or RequestError(400, msg, kind="invalid-http")).response()
        response.headers["connection"] = "close"
        for event in (
            h11.Response(status_code=response.status_code, headers=response.raw_headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause_writing is then called for every unread byte
        self._enforce_limit()
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        if not self._has_request():
            self._start_head_timer()
        super().data_received(data)
        if self._has_request():
            self._stop_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._dropped = True
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        self._stop_read_timer()
        super().resume_writing()

    def _has_request(self) -> bool:
        """Whether a request with a complete head is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    # ------------------------------------------------------------------------------------------------------------------

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._check_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _check_head(self) -> None:
        self._head_timer = None
        if not self._has_request():
            self._drop()

    def _start_read_timer(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.read_timeout_s, self._check_read)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_read(self) -> None:
        read = self._unread_bytes - self.transport.get_write_buffer_size()
        if read < READ_BYTES or self.transport.is_closing():
            self._drop()
        else:
            self._start_read_timer()

    # ------------------------------------------------------------------------------------------------------------------

    def _enforce_limit(self) -> None:
        """If there are too many connections, drop one that is idle or whose client does not read; else this one."""
        if len(self.connections) > self.max_connections:
            others = (one for one in self.connections if isinstance(one, HttpConnection) and one is not self)
            next((one for one in others if one._is_idle()), self)._drop()

    def _is_idle(self) -> bool:
        return not self._dropped and (not self._has_request() or self.flow.write_paused)

    def _drop(self) -> None:
        self._dropped = True
        self.transport.abort()
