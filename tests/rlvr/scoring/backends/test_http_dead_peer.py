"""A server that vanishes without closing its connections is noticed, in mid-request and on a kept connection."""

from __future__ import annotations

import ctypes
import http.server
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlvr.scoring.backends import http_connection
from rlvr.scoring.backends.http_connection import ServerConnection, Unavailable

SO_ATTACH_FILTER = 26  # of Linux


def vanish(peer: socket.socket) -> None:
    """Drop everything that arrives at a socket, as a network would whose other end is gone."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes
    peer.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


class Puppet(http.server.ThreadingHTTPServer):
    """A server that keeps connections open, and vanishes from all that it has when the test says so.

    Attributes:
        asked: paths of the requests.
        hold: answers to POST requests wait for this.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        self.peers: list[socket.socket] = []
        puppet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                puppet.peers.append(self.request)
                super().setup()

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                puppet.asked.append(self.path)
                if self.command == "POST":
                    puppet.hold.wait()
                body = json.dumps({"path": self.path}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *arguments: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    started = Puppet()
    yield started
    started.hold.set()
    started.shutdown()
    started.socket.close()


@pytest.fixture
def client(puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerConnection]:
    monkeypatch.setattr(http_connection, "DEAD_PEER_S", 2)
    opened = ServerConnection(f"http://127.0.0.1:{puppet.server_port}", None)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "why"),
    [(False, "the request is lost on a connection that was kept"), (True, "the server vanishes while it works")],
)
def test_a_connection_that_died_is_noticed(puppet: Puppet, client: ServerConnection, sent: bool, why: str) -> None:
    """As when a firewall forgets a connection, or a server's machine is gone."""
    end = time.monotonic() + 60
    client.ask("/rewards", end=end)
    if sent:
        puppet.hold.clear()
        threading.Timer(0.5, lambda: [vanish(peer) for peer in puppet.peers]).start()
    else:
        vanish(puppet.peers[0])
    begun = time.monotonic()
    with pytest.raises(Unavailable):
        client.ask("/score", b"{}", end=end)
    assert time.monotonic() - begun < 20, why
    puppet.hold.set()
    assert client.ask("/score", b"{}", end=end) == {"path": "/score"}, "on a new connection"
