"""Whether the host that leads the training is still there, for the other hosts of a job: an open connection.

A job ends when all its hosts have ended. A judge would serve for ever, so it holds a connection to the host of rank 0,
and ends when that connection does. The first that is said on it is a word that the job's hosts share: the key to its
judges, which so is neither in the job's environment nor in its logs. A job's network is its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from types import TracebackType

PORT = 29499


class LeaderHeartbeat:
    """While it is entered, other hosts can see that this one is there.

    Args:
        word: what they are told; None for a host that leads nothing: nothing is done then.

    Attributes:
        port: at which it is seen.
        left: set when a host that was connected is not any more.
    """

    def __init__(self, word: str | None) -> None:
        self.word = word
        self.port = PORT
        self.left = threading.Event()
        self._open: list[socket.socket] = []
        self._here: list[str] = []  # addresses of those that are connected
        self._change = threading.Condition()

    def wait_until_gone(self, addresses: Iterable[str], seconds: float) -> bool:
        """Waits until none of these hosts is connected any more; whether it came to that."""
        those = set(addresses)
        with self._change:
            return self._change.wait_for(lambda: not those & set(self._here), seconds)

    def __enter__(self) -> LeaderHeartbeat:
        if self.word is not None:
            listener = socket.create_server(("", PORT), backlog=64)
            self.port = listener.getsockname()[1]
            self._open.append(listener)
            threading.Thread(target=self._accept, args=[listener, self.word], daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._open:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)  # a thread waits on it, for which to close it alone would be no news
            held.close()

    def _accept(self, listener: socket.socket, word: str) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return  # closed
            self._open.append(connection)
            threading.Thread(target=self._hold, args=[connection, word], daemon=True).start()

    def _hold(self, connection: socket.socket, word: str) -> None:
        address = ""
        with contextlib.suppress(OSError):
            address = connection.getpeername()[0]
            with self._change:
                self._here.append(address)
            connection.sendall(f"{word}\n".encode())
            connection.recv(1)
        with self._change:
            if address in self._here:
                self._here.remove(address)
            self._change.notify_all()
        self.left.set()


class Watch:
    """Watches a host from now on.

    Attributes:
        word: what it said, once it is `met`.
        met: set once it has been reached.
        gone: set when it was reached, and isn't there any more.
    """

    word = ""

    def __init__(self, host: str) -> None:
        self.host = host
        self.met = threading.Event()
        self.gone = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.met.is_set():
            try:
                with socket.create_connection((self.host, PORT), timeout=10) as connection:
                    line = connection.makefile().readline()
                    if not line.endswith("\n"):
                        raise ConnectionError("it ended before it said anything")
                    self.word = line.strip()
                    self.met.set()
                    connection.settimeout(None)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    connection.recv(1)
            except OSError:
                if not self.met.is_set():
                    time.sleep(1)
        self.gone.set()
