"""No client keeps the server from answering others: chunks, large bodies, abandoned requests; and shutdown ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from rlvr.reward_server.idempotency import PendingRequest
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard
from rlvr.reward_server.request_body import load_json, parsed_size
from rlvr.workers.pool import Caller
from tests.support.reward_servers import RewardServer

KEY = "a-key-of-the-tests-0123"
TESTS = [{"input": "", "output": "1"}]
ENDLESS = {"submissions": [{"program": "while True: pass", "tests": TESTS, "limits": {"time_s": 50, "wall_s": 60}}]}


def post(server: RewardServer, path: str, content: Any) -> tuple[int, Any]:
    return server.post(path, content, Authorization=f"Bearer {KEY}")


def replies_meanwhile(server: RewardServer, is_over: Callable[[int], bool]) -> int:
    """How often /healthz replies, one request after the other, until it is over."""
    replies = 0
    while not is_over(replies):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        replies += 1
    return replies


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with RewardServer("--rewards", "answer_format", "--workers", "1", env={"GRPO_REWARDS_KEY": KEY}) as started:
        yield started


# A process of its own: in this one, 32 threads would hold up the measurement.
ATTACK = r"""
import socket, sys, threading, time

def attack():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    connection.sendall(b"1\r\nx\r\n" * 10_000)
        except OSError:
            time.sleep(0.01)  # it was closed: connect again

for _ in range(32):
    threading.Thread(target=attack, daemon=True).start()
time.sleep(60)
"""


@pytest.mark.slow
def test_chunks_of_one_byte_do_not_stop_the_server(server: RewardServer) -> None:
    with subprocess.Popen([sys.executable, "-c", ATTACK, str(server.port)]) as attack:
        end = time.monotonic() + 60
        try:
            assert replies_meanwhile(server, lambda replies: replies == 50 or time.monotonic() > end) == 50
        finally:
            attack.kill()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_open_paths_close_the_connection(server: RewardServer, path: str) -> None:
    assert server.get(path)[0] == 200 and server.headers["connection"] == "close"


def test_a_body_of_small_objects_is_refused_before_it_is_parsed(server: RewardServer) -> None:
    body = b'{"rewards": [{"name": "answer_format"}], "columns": {"x": [[%s{}]]}}' % (b'{"a":1},' * 4_000_000)
    replies: list[tuple[int, Any]] = []
    threads = [threading.Thread(target=lambda: replies.append(post(server, "/score", body))) for _ in range(3)]
    for thread in threads:
        thread.start()
    meanwhile = replies_meanwhile(server, lambda _: not any(thread.is_alive() for thread in threads))
    assert [(status, reply["kind"]) for status, reply in replies] == [(413, "too-large")] * 3
    assert meanwhile > 20


@pytest.mark.slow
def test_others_are_answered_while_a_large_body_is_parsed(server: RewardServer) -> None:
    rows = 2000
    tests = [{"input": "3 4 5\n1 2 3\n", "output": "12 some output\n"}] * 250
    content = {"rewards": ["answer_format"], "prompts": ["p"] * rows, "completions": ["c"] * rows}
    body = json.dumps({**content, "columns": {"x": [tests] * rows}}).encode()
    assert len(body) > 20_000_000
    replies: list[tuple[int, Any]] = []
    thread = threading.Thread(target=lambda: replies.append(post(server, "/score", body)))
    thread.start()
    meanwhile = replies_meanwhile(server, lambda _: not thread.is_alive())
    assert replies[0][0] == 200 and meanwhile > 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@given(JSON, st.sampled_from([None, 1]), st.booleans(), st.integers(0, 200), st.sampled_from('[]{},:"x1 '))
def test_json_is_read_in_steps_as_in_one(value: Any, indent: int | None, ascii: bool, place: int, put: str) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert load_json(f" {text}\n") == value
    damaged = text[:place] + put + text[place:]
    try:
        expected = json.loads(damaged)
    except ValueError:
        with pytest.raises(ValueError):
            load_json(damaged)
    else:
        assert load_json(damaged) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"a": 1}] * 5_000, "objects"),
        ([{"input": "1 2 3 4 5", "output": "15"}] * 5_000, "tests"),
        ([[]] * 5_000, "lists"),
        ([1000] * 5_000, "numbers"),
        (["x" * 50] * 5_000, "texts"),
    ],
)
def test_the_memory_of_a_parsed_body_is_estimated(value: Any, why: str) -> None:
    import tracemalloc

    body = json.dumps(value).encode()
    tracemalloc.start()
    parsed = load_json(body.decode())
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert parsed and 0.5 < parsed_size(bytearray(body)) / used < 3, why


@pytest.mark.slow
def test_work_of_clients_that_hung_up_is_cancelled(server: RewardServer) -> None:
    for number in range(4):
        body = json.dumps(ENDLESS).replace("pass", f"pass # {number}").encode()
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = (
                f"POST /judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
            time.sleep(0.2)
    begun = time.monotonic()
    status, reply = post(server, "/judge", {"submissions": [{"program": "print(1)", "tests": TESTS}]})
    assert status == 200 and reply["judgements"][0]["score"] == 1.0
    assert time.monotonic() - begun < 100, "without cancellation it takes 200 s"


@pytest.mark.parametrize(("returns", "why"), [(False, "no client waits any more"), (True, "a client repeats it")])
def test_work_is_cancelled_when_no_client_comes_back(returns: bool, why: str) -> None:
    async def respond() -> Response:
        await asyncio.Event().wait()
        return Response()

    async def run() -> bool:
        pending = PendingRequest(asyncio.create_task(respond()), Caller(), patience_s=0.1, waiting=1)
        pending.leave()
        assert not pending.caller.cancelled.is_set()
        pending.waiting += returns
        for _ in range(1000 if not returns else 20):
            if pending.caller.cancelled.is_set():
                break
            await asyncio.sleep(0.02)
        pending.response.cancel()
        return pending.caller.cancelled.is_set()

    assert asyncio.run(run()) != returns, why


def test_one_client_cannot_take_the_last_requests() -> None:
    async def run() -> None:
        guard = RequestGuard(ServerLimits(requests=8), Metrics(), None)
        guard.ready = True
        go_on = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await go_on.wait()
            await Response()(scope, receive, send)

        statuses: dict[str, list[int]] = {"many": [], "one": []}

        async def ask(client: str) -> None:
            headers = [(b"host", b"localhost"), (b"client-id", client.encode())]

            async def send(message: Any) -> None:
                statuses[client] += [message["status"]] if "status" in message else []

            scope = {"type": "http", "path": "/score", "method": "POST", "headers": headers}
            await guard.protect(app)(scope, asyncio.Event().wait, send)

        asking = [asyncio.create_task(ask("many")) for _ in range(8)]
        await asyncio.sleep(0)
        asking.append(asyncio.create_task(ask("one")))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*asking)
        assert sorted(statuses["many"]) == [200] * 7 + [429] and statuses["one"] == [200]
        assert guard.in_flight == 0

    asyncio.run(run())


@pytest.mark.slow
def test_shutdown_does_not_wait_for_a_body_that_does_not_arrive() -> None:
    with RewardServer("--judge_only", "--shutdown_timeout_s", "1", env={"GRPO_REWARDS_KEY": KEY}) as server:
        with socket.create_connection(("127.0.0.1", server.port), 60) as silent:
            head = f"POST /judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 1000\r\n\r\n{{"
            silent.sendall(head.encode())
            while server.figure_with(KEY, "grpo_requests_in_flight") < 1:
                time.sleep(0.02)
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert silent.recv(1000).startswith(b"HTTP/1.1 503")
            assert server.process.wait(60) == 0
        assert time.monotonic() - begun < 10, "not until the client is silent for too long"
        assert "Traceback" not in server.said() and "Ended." in server.said()


@pytest.mark.slow
@pytest.mark.parametrize(("grace_s", "signals", "why"), [(1, 1, "the time is over"), (100, 2, "a second signal")])
def test_shutdown_ends_although_a_program_is_judged(grace_s: int, signals: int, why: str) -> None:
    with RewardServer("--judge_only", "--shutdown_timeout_s", str(grace_s), env={"GRPO_REWARDS_KEY": KEY}) as server:
        replies: list[tuple[int, Any]] = []
        threads = [threading.Thread(target=lambda: replies.append(post(server, "/judge", ENDLESS))) for _ in range(3)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while server.figure_with(KEY, "grpo_requests_in_flight") < 3 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        begun = time.monotonic()
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert server.process.wait(60) == 0
        assert time.monotonic() - begun < 40, why  # before the program ends
        for thread in threads:
            thread.join()
        assert [status for status, _ in replies] == [503] * 3
        assert "Traceback" not in server.said() and "Ended." in server.said()
