"""A connection to the server, on which nobody may keep silent for ever, and of which there are not too many."""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0  # for all of a request but its body, which the gate has a limit for (rlvr/reward_server/middleware.py)
UNREAD_S = 20.0  # in which a client takes so many bytes of an answer, or is cut off
PACE = 1 << 20


def room() -> int:
    """How many connections there may be, so that files, workers and programs can still be opened."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 4096 if files < 0 or files > 4608 else max(files - 512, files // 2)


class Connection(H11Protocol):
    """Uvicorn's own waits for ever for a client that says nothing, or not all of its head, or does not read.

    Such clients need no key, and would use up the numbers that a process can have for its connections.
    """

    head_s = HEAD_S
    unread_s = UNREAD_S
    most = room()
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _left = 0  # bytes that it had not taken when it was last looked
    _dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # to be told of every byte that is not taken
        self._make_room()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if not self._is_asked():
            self._await_head()
        super().data_received(data)
        if self._is_asked():
            self._have_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._dropped = True
        self._have_head()
        self._have_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        self._have_read()
        super().resume_writing()

    def _is_asked(self) -> bool:
        """Whether a request is being read or answered, of which the head is there."""
        return self.cycle is not None and not self.cycle.response_complete

    # ------------------------------------------------------------------------------------------------------------------

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
            self._drop()

    # ------------------------------------------------------------------------------------------------------------------

    def _await_reading(self) -> None:
        self._left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.unread_s, self._look)

    def _have_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self) -> None:
        taken = self._left - self.transport.get_write_buffer_size()
        if taken < PACE or self.transport.is_closing():
            self._drop()
        else:
            self._await_reading()

    # ------------------------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Of too many connections one goes on which nobody waits for anything, or does not take it."""
        if len(self.connections) > self.most:
            others = (one for one in self.connections if isinstance(one, Connection) and one is not self)
            next((one for one in others if one._is_idle()), self)._drop()

    def _is_idle(self) -> bool:
        return not self._dropped and (not self._is_asked() or self.flow.write_paused)

    def _drop(self) -> None:
        self._dropped = True
        self.transport.abort()
