"""Detect the end of the leading host from the other hosts of a job, by an open TCP connection.

A job ends when all its hosts have ended. A judge would serve forever, so it keeps a connection to the host of rank 0
and ends when that connection closes. The first line on the connection is the key of the job's judges, so the key is
neither in the job's environment nor in its logs. Only the job's hosts share its network.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable

PORT = 29499


class LeaderHeartbeat:
    """Listen for the other hosts, on the leading host, while the context is open.

    Args:
        key: sent to each host that connects; None on a host that does not lead, where nothing listens.

    Attributes:
        port: the port that is listened on.
        peer_lost: set when a host that was connected has disconnected.
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.port = PORT
        self.peer_lost = threading.Event()
        self._sockets: list[socket.socket] = []
        self._connected: list[str] = []  # addresses
        self._changed = threading.Condition()

    def wait_for_disconnect(self, addresses: Iterable[str], timeout_s: float) -> bool:
        """Wait until none of these hosts is connected; return whether that happened in time."""
        hosts = set(addresses)
        with self._changed:
            return self._changed.wait_for(lambda: not hosts & set(self._connected), timeout_s)

    def __enter__(self) -> LeaderHeartbeat:
        if self.key is not None:
            listener = socket.create_server(("", PORT), backlog=64)
            self.port = listener.getsockname()[1]
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=[listener, self.key], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # close() alone would not wake the thread that reads it
            connection.close()

    def _accept(self, listener: socket.socket, key: str) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return  # closed
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=[connection, key], daemon=True).start()

    def _serve(self, connection: socket.socket, key: str) -> None:
        address = ""
        with contextlib.suppress(OSError):
            address = connection.getpeername()[0]
            with self._changed:
                self._connected.append(address)
            connection.sendall(f"{key}\n".encode())
            connection.recv(1)
        with self._changed:
            if address in self._connected:
                self._connected.remove(address)
            self._changed.notify_all()
        self.peer_lost.set()


class LeaderWatch:
    """Watch the leading host from another host.

    Attributes:
        key: the key that the leader sent; empty until `connected` is set.
        connected: set once the leader has answered.
        lost: set when the connection has closed after that.
    """

    key = ""

    def __init__(self, host: str) -> None:
        self.host = host
        self.connected = threading.Event()
        self.lost = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.connected.is_set():
            try:
                with socket.create_connection((self.host, PORT), timeout=10) as connection:
                    line = connection.makefile().readline()
                    if not line.endswith("\n"):
                        raise ConnectionError("the leader closed the connection before it sent the key")
                    self.key = line.strip()
                    self.connected.set()
                    connection.settimeout(None)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    connection.recv(1)
            except OSError:
                if not self.connected.is_set():
                    time.sleep(1)
        self.lost.set()
