"""While replies are awaited, all threads share one liveness probe of the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlvr.scoring.backends.http.connection import ServerConnection, Unavailable

THREADS = 16
PROBE_S = 0.5


class Slow(ThreadingHTTPServer):
    """Answers scores when it is allowed to, and at most so many questions whether it lives."""

    daemon_threads = True
    request_queue_size = 2 * THREADS

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.asked: list[float] = []
        self.allowed = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Slow

    def do_GET(self) -> None:
        self.server.asked.append(time.monotonic())
        if len(self.server.asked) > self.server.answers:
            self.server.allowed.wait(60)  # it has come to a standstill
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.allowed.wait(60)
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.scoring.backends.http.connection.PROBE_S", PROBE_S)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def test_a_server_that_takes_its_time_is_waited_for_and_asked_by_one_of_all_threads(
    threads: ThreadPoolExecutor,
) -> None:
    slow = Slow(answers=1000)
    line = ServerConnection(slow.url, None)
    begun = time.monotonic()
    waiting = [threads.submit(line.ask, "/score", b"{}", end=begun + 60) for _ in range(THREADS)]
    while len(slow.asked) < 3 and time.monotonic() < begun + 60:
        time.sleep(0.01)
    slow.allowed.set()
    assert [one.result() for one in waiting] == [{}] * THREADS
    times = (time.monotonic() - begun) / PROBE_S
    assert 3 <= len(slow.asked) <= 2 * times, f"and not {THREADS} in each of {times:.0f} times"
    slow.shutdown()
    slow.server_close()


def test_a_server_that_has_come_to_a_standstill_is_given_up_by_all_threads_at_once(
    threads: ThreadPoolExecutor,
) -> None:
    slow = Slow(answers=0)
    line = ServerConnection(slow.url, None)
    waiting = [threads.submit(line.ask, "/score", b"{}", end=time.monotonic() + 60) for _ in range(THREADS)]
    for one in waiting:
        with pytest.raises(Unavailable, match="no reply in time"):
            one.result()
    assert len(slow.asked) < THREADS, "not two by each thread, one after the other"
    slow.allowed.set()
    slow.shutdown()
    slow.server_close()
