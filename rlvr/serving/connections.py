"""A connection to the server, on which nobody may keep silent for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0  # for all of a request but its body, which the gate has a limit for (rlvr/serving/gate.py)


class Connection(H11Protocol):
    """Uvicorn's own waits for ever for a client that connects and says nothing, or not all of its head.

    Such clients need no key, and would use up the numbers that a process can have for its connections.
    """

    head_s = HEAD_S
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if not self._is_asked():
            self._await_head()
        super().data_received(data)
        if self._is_asked():
            self._have_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)

    def _is_asked(self) -> bool:
        """Whether a request is being read or answered, of which the head is there."""
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.head_s, self._give_up)

    def _have_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self._is_asked():
            self.transport.abort()
