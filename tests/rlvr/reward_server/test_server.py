"""Connections and shutdown: clients without the key delay no one, and the server ends in time."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from rlvr.reward_server import server as reward_server
from tests.support.processes import descendants, wait_until
from tests.support.reward_servers import RewardServer, waiting_call, waiting_recipe

KEY = "a-key-of-the-tests-0123"
TESTS = [{"input": "", "output": "1"}]
ENDLESS = {"submissions": [{"program": "while True: pass", "tests": TESTS, "limits": {"time_s": 50, "wall_s": 60}}]}
SCORE = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"]}


def post(server: RewardServer, path: str, content: Any) -> tuple[int, Any]:
    return server.post(path, content, Authorization=f"Bearer {KEY}")


def post_head(length: int, path: str = "/judge") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    """A server with room for 512 connections."""
    few = ("sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh")
    env = {"GRPO_REWARDS_KEY": KEY}
    with RewardServer("--rewards", "answer_format", "--workers", "1", env=env, within=few) as started:
        yield started


# A process of its own: in this one, its threads would hold up the measurement.
ATTACK = r"""
import socket, sys, threading, time

kind, count = sys.argv[2], int(sys.argv[3])
begin, more, rest_s = {
    "silent": (b"", b"", 1.0),
    "slow heads": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", b"x", 1.0),
    "bodies without a key": (b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n{", b"x", 1.0),
    "chunks of one byte": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                           b"1\r\nx\r\n" * 10_000, 0.0),
    "pipelined requests": (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1000, 0.05),
}[kind]

def attack():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
                connection.sendall(begin)
                while True:
                    connection.sendall(more)
                    time.sleep(rest_s)
        except OSError:
            time.sleep(0.05)  # it was closed: connect again

for _ in range(count):
    threading.Thread(target=attack, daemon=True).start()
print("started", flush=True)
time.sleep(120)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("silent", 900),
        ("slow heads", 900),
        ("bodies without a key", 200),
        ("chunks of one byte", 32),
        ("pipelined requests", 32),
    ],
)
def test_clients_without_the_key_delay_no_request_by_a_second(server: RewardServer, kind: str, count: int) -> None:
    command = [sys.executable, "-c", ATTACK, str(server.port), kind, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        try:
            assert attack.stdout is not None and attack.stdout.readline() == "started\n"
            time.sleep(1)
            times = []
            for _ in range(30):
                begun = time.monotonic()
                assert post(server, "/score", SCORE)[0] == 200
                times.append(time.monotonic() - begun)
            assert server.figure_with(KEY, "grpo_requests_in_flight") == 0
        finally:
            attack.kill()
    # A server that the attack blocks delays every request, a busy machine delays single ones.
    assert sorted(times)[len(times) * 3 // 4] < 1


async def large_answer(scope: Any, receive: Any, send: Any) -> None:
    """An application whose every answer has eight megabytes."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8388608")]})
    await send({"type": "http.response.body", "body": bytes(8 << 20)})


async def connect(within: ServerState) -> tuple[asyncio.Server, tuple[str, int]]:
    """Serve `large_answer` in this process, with one second for the head of a request."""
    config = uvicorn.Config(large_answer, lifespan="off", timeout_keep_alive=1, log_level="error")
    listener = reward_server._listen("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    serving = await loop.create_server(lambda: reward_server._Connection(config, within, {}), sock=listener)
    return serving, listener.getsockname()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "answered", "why"),
    [
        (b"", False, "nothing at all"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ", False, "a head without an end"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", True, "nothing more after an answer"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /", True, "half a head after an answer"),
    ],
)
def test_a_silent_or_slow_connection_is_closed(sent: bytes, answered: bool, why: str) -> None:
    async def run() -> tuple[bytes, float]:
        serving, address = await connect(ServerState())
        async with serving:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            begun = time.monotonic()
            received = asyncio.create_task(reader.read())
            while not received.done() and time.monotonic() < begun + 20:
                await asyncio.sleep(0.3)
                if not sent.endswith(b"\n"):
                    writer.write(b"x")  # does not prolong it
            writer.close()
            return await received, time.monotonic() - begun

    received, took_s = asyncio.run(run())
    assert took_s < 10 and (b"200 OK" in received) == answered, why


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_server, "UNREAD_TIMEOUT_S", 1)

    async def run() -> None:
        state = ServerState()
        serving, address = await connect(state)
        async with serving:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
                client.connect(address)
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                async with asyncio.timeout(60):
                    while not state.connections:
                        await asyncio.sleep(0.01)
                    while state.connections:
                        await asyncio.sleep(0.1)

    asyncio.run(run())


# ----------------------------------------------------------------------------------------------------------------------
# Clients that hang up, and shutdown


@pytest.mark.slow
def test_work_of_clients_that_hung_up_is_cancelled(server: RewardServer) -> None:
    for number in range(4):
        body = json.dumps(ENDLESS).replace("pass", f"pass # {number}").encode()
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(post_head(len(body)) + body)
            time.sleep(0.2)
    begun = time.monotonic()
    status, reply = post(server, "/judge", {"submissions": [{"program": "print(1)", "tests": TESTS}]})
    assert status == 200 and reply["judgements"][0]["score"] == 1.0
    assert time.monotonic() - begun < 100, "without cancellation it takes 200 s"


@pytest.mark.slow
def test_shutdown_finishes_requests_in_progress_and_refuses_new_ones(tmp_path: Path) -> None:
    with RewardServer("--config", waiting_recipe(tmp_path)) as server:
        answers: list[Any] = []
        content = waiting_call(tmp_path, tmp_path / "calls", tmp_path / "go on")
        thread = threading.Thread(target=lambda: answers.append(server.post("/score", content)))
        thread.start()
        wait_until((tmp_path / "calls").exists)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        with pytest.raises(ConnectionError):
            server.get("/readyz")
        (tmp_path / "go on").touch()
        thread.join()
        assert answers[0][0] == 200 and server.process.wait(30) == 0
        assert "Traceback" not in server.said() and server.said().endswith("Ended.\n")


@pytest.mark.slow
@pytest.mark.parametrize(("timeout_s", "signals", "why"), [(1, 1, "the time is over"), (100, 2, "a second signal")])
def test_shutdown_ends_although_a_program_is_judged(timeout_s: int, signals: int, why: str) -> None:
    with RewardServer("--judge_only", "--shutdown_timeout_s", str(timeout_s), env={"GRPO_REWARDS_KEY": KEY}) as server:
        replies: list[tuple[int, Any]] = []
        threads = [threading.Thread(target=lambda: replies.append(post(server, "/judge", ENDLESS))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.figure_with(KEY, "grpo_requests_in_flight") == 3)
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


@pytest.mark.slow
def test_shutdown_does_not_wait_for_a_body_that_does_not_arrive() -> None:
    with RewardServer("--judge_only", "--shutdown_timeout_s", "1", env={"GRPO_REWARDS_KEY": KEY}) as server:
        with socket.create_connection(("127.0.0.1", server.port), 60) as silent:
            silent.sendall(post_head(1000) + b"{")
            wait_until(lambda: server.figure_with(KEY, "grpo_requests_in_flight") == 1)
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
        assert time.monotonic() - begun < 20, "not until the client is silent for too long"
        assert "Ended." in server.said()


@pytest.mark.slow
def test_workers_end_with_a_killed_server(tmp_path: Path) -> None:
    with RewardServer("--config", waiting_recipe(tmp_path)) as server:
        assert server.post("/score", waiting_call(tmp_path, tmp_path / "calls"))[0] == 200
        below = descendants(server.process.pid)
        assert below
        server.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
