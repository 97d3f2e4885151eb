"""Hostile clients, completions and servers: clients without a key, slow readers, crafted text, invalid answers."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from rlvr.reward_server.http_connection import HttpConnection
from rlvr.scoring.backends.http.batch_request import RequestShard, read_results
from rlvr.scoring.backends.http.connection import Unavailable
from tests.support.reward_servers import RewardServer

KEY = "a-key-of-the-tests-0123"
REWARDS = ("code_execution", "math_correctness", "answer_format")
TESTS = [{"input": "1 2", "output": "3"}]


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with RewardServer("--rewards", ",".join(REWARDS), "--max_requests", "2", env={"GRPO_REWARDS_KEY": KEY}) as started:
        yield started


def first_line(server: RewardServer, head: str, body: bytes = b"") -> str:
    """What it answers first to bytes that are sent as they are."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as line:
        line.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        return line.recv(1000).decode().splitlines()[0]


@pytest.mark.parametrize(
    ("head", "status", "why"),
    [
        ("GET /healthz HTTP/1.1\nHost: x", 200, "open to all"),
        ("HEAD /readyz HTTP/1.1\nHost: x", 405, "another method"),
        ("POST /healthz HTTP/1.1\nHost: x\nContent-Length: 60000000", 401, "its body would be held"),
        ("POST /readyz HTTP/1.1\nHost: x\nTransfer-Encoding: chunked", 411, "the same without its size"),
        ("GET /healthz HTTP/1.1\nHost: x\nTransfer-Encoding: chunked", 411, "a body that a GET does not need"),
        ("GET /healthz HTTP/1.1\nHost: x\nContent-Length: 5", 413, "the same with its size"),
        ("PUT /healthz HTTP/1.1\nHost: x\nContent-Length: 5", 413, "any other method"),
        ("GET //healthz HTTP/1.1\nHost: x", 401, "a similar path"),
        ("GET /healthz/../rewards HTTP/1.1\nHost: x", 401, "a path with .."),
        ("GET http://x/rewards HTTP/1.1\nHost: x", 401, "an absolute URI, as for a proxy"),
        (
            "GET /rewards HTTP/1.1\nHost: x\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13"
            "\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            401,
            "another protocol on the same connection",
        ),
        ("GET /rewards HTTP/1.1\nHost: x\nX-Forwarded-For: 127.0.0.1", 401, "a forged proxy header"),
        (f"GET /rewards HTTP/1.1\nHost: x\nauthorization: Bearer {KEY}\nAuthorization: Bearer x", 401, "two keys"),
        ("nonsense", 400, "no HTTP"),
    ],
)
def test_without_a_key_only_health_checks_are_answered(server: RewardServer, head: str, status: int, why: str) -> None:
    assert first_line(server, head).split()[1] == str(status), why


def test_clients_without_a_key_cannot_use_up_the_requests(server: RewardServer) -> None:
    lines = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(40)]
    try:
        for number, line in enumerate(lines):
            path = ("/healthz", "/readyz", "/score", "/nowhere")[number % 4]
            line.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode())
        content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"]}
        assert server.post("/score", content, Authorization=f"Bearer {KEY}")[0] == 200
        assert server.figure_with(KEY, "grpo_requests_in_flight") == 0
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "nothing at all"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ", "a head without an end"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "nothing more after an answer"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /", "half a head after an answer"),
    ],
)
def test_a_silent_connection_is_closed(said: bytes, why: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)  # an answer may take longer than a head
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    class Impatient(HttpConnection):
        head_timeout_s = 0.3

    async def run() -> tuple[bytes, float]:
        config = uvicorn.Config(app, lifespan="off", timeout_keep_alive=1, log_level="error")
        listening = await asyncio.get_running_loop().create_server(
            lambda: Impatient(config, ServerState(), {}), "127.0.0.1", 0
        )
        async with listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.write(said)
            begun = time.monotonic()
            try:
                heard = await asyncio.wait_for(reader.read(), 20)
            except ConnectionResetError:
                heard = b""
            writer.close()
            return heard, time.monotonic() - begun

    heard, took_s = asyncio.run(run())
    assert took_s < 10 and (b"200 OK" in heard) == (b"\r\n\r\n" in said), why


async def large_answer(scope: Any, receive: Any, send: Any) -> None:
    """An application whose every answer has eight megabytes."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8388608")]})
    await send({"type": "http.response.body", "body": bytes(8 << 20)})


def listening(made: type[HttpConnection], app: Any, state: ServerState) -> Any:
    config = uvicorn.Config(app, lifespan="off", log_level="error")
    return asyncio.get_running_loop().create_server(lambda: made(config, state, {}), "127.0.0.1", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pace", "rest_s", "timeout_s", "why"),
    [
        (0, 0.2, 0.5, "reads nothing"),
        (1 << 10, 0.2, 0.5, "reads a kilobyte now and then to keep the connection"),
        (2 << 20, 0.8, 3.0, "slow, but reads"),
    ],
)
def test_a_client_that_does_not_read_is_disconnected(pace: int, rest_s: float, timeout_s: float, why: str) -> None:
    whole = why == "slow, but reads"

    class Impatient(HttpConnection):
        read_timeout_s = timeout_s

    async def run() -> int:
        async with await listening(Impatient, large_answer, ServerState()) as server:
            line = socket.create_connection(server.sockets[0].getsockname())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            line.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(line, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * (1 if whole else 20))
            taken = 0
            try:
                for _ in range(20):
                    await asyncio.sleep(rest_s)
                    step = taken + pace
                    while taken < step:
                        part = await asyncio.wait_for(loop.sock_recv(line, step - taken), 20)
                        taken += len(part)
                        if not part or taken >= 8 << 20:
                            return taken
                await asyncio.sleep(0)
                # What was on its way is there still; then it ends.
                while part := await asyncio.wait_for(loop.sock_recv(line, 1 << 20), 20):
                    taken += len(part)
            except ConnectionResetError:
                pass
            finally:
                line.close()
            return taken

    assert (asyncio.run(run()) >= 8 << 20) == whole, why


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_beyond_the_connection_limit_idle_connections_are_closed_first() -> None:
    class Few(HttpConnection):
        max_connections = 4

        def connection_made(self, transport: Any) -> None:
            made.append(self)
            super().connection_made(transport)

    answers = asyncio.Event()
    made: list[HttpConnection] = []
    asked: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope)
        await answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def run() -> list[bytes]:
        state = ServerState()
        async with await listening(Few, app, state) as server:
            where = server.sockets[0].getsockname()
            asking = [await asyncio.open_connection(*where) for _ in range(2)]
            for _, writer in asking:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: len(asked) == 2)
            silent = [await asyncio.open_connection(*where) for _ in range(20)]
            await until(lambda: len(made) == 22 and len(state.connections) == 4)
            asking.append(await asyncio.open_connection(*where))
            asking[-1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: len(asked) == 3)
            answers.set()
            said = [await asyncio.wait_for(reader.readuntil(b"ok"), 20) for reader, _ in asking]
            for _, writer in [*asking, *silent]:
                writer.close()
            return said

    assert [said.split()[1] for said in asyncio.run(run())] == [b"200"] * 3


# ----------------------------------------------------------------------------------------------------------------------
# Completions


@pytest.mark.parametrize(
    ("completion", "why"),
    [
        ("", "nothing"),
        ("\x00" * 1000, "zeros"),
        ("\ud800 #### The final answer is \udfff", "halves of characters"),
        ("```python\n\ud800\n```", "a program of such"),
        ("```" * 100_000, "fences"),
        ("#### The final answer is " + "9" * 100_000, "a number without measure"),
        ("#### The final answer is 9**9**9**9", "one that nobody can write down"),
        ("\\boxed{" * 20_000, "boxes"),
        ("(" * 50_000, "brackets"),
        ('```python\nprint(\'{"status": "done", "value": {"values": [1.0]}}\')\n```', "an answer of the server's"),
        ("```python\nimport os; os.kill(os.getppid(), 9)\n```", "a program that is after its judge"),
        ("```python\nimport sys; sys.stdout.write('x' * 10**9)\n```", "more output than there is room for"),
        ([{"role": "assistant", "content": None}], "a message without text"),
        ([{"role": "assistant"}], "one without any"),
    ],
)
def test_a_crafted_completion_scores_0_and_changes_no_other_row(
    server: RewardServer, completion: Any, why: str
) -> None:
    """The second row is right and must score 1; the rows are called one by one."""
    right = "```python\nprint(sum(map(int, input().split())))\n```\n#### The final answer is 3"
    content = {
        "rewards": list(REWARDS),
        "prompts": ["p", "q"],
        "completions": [completion, right],
        "one_by_one": True,
        "columns": {"tests": [TESTS] * 2, "final_answer": ["3"] * 2},
        "deadline_s": 300,
    }
    status, said = server.post("/score", content, Authorization=f"Bearer {KEY}")
    assert status == 200, (why, said)
    values = {one["reward"]: one["values"] for one in said["results"]}
    assert {name: own[1] for name, own in values.items()} == dict.fromkeys(REWARDS, 1.0), why
    assert not values["code_execution"][0] and not values["math_correctness"][0], why
    assert server.get("/readyz")[0] == 200


@pytest.mark.parametrize("completion", [[[[]]], None, {"content": "#### The final answer is 3"}, 3, ["text"]])
def test_a_completion_that_is_neither_text_nor_messages_is_refused(server: RewardServer, completion: Any) -> None:
    content = {"rewards": ["answer_format"], "prompts": ["p", "q"], "completions": ["c", completion]}
    status, reply = server.post("/score", content, Authorization=f"Bearer {KEY}")
    assert (status, reply["kind"]) == (422, "invalid-body") and "completions.1" in reply["detail"]


# ----------------------------------------------------------------------------------------------------------------------
# Answers of a foreign server


def _reply(values: Any, **more: Any) -> Any:
    return {"values": values, "kind": "", "said": "", "trace": "", "notes": [], **more}


@pytest.mark.parametrize(
    ("value", "told", "why"),
    [
        (_reply([1.0]), "1 values for 2 rows", "the second row would get the value of another"),
        (_reply([1.0, 0.0, 1.0]), "3 values for 2 rows", "one too many"),
        (_reply([1.0, float("nan")]), "no finite number", "it would spoil the whole update"),
        (_reply([1.0, float("inf")]), "no finite number", "the same"),
        (_reply([1.0, [0.0]]), "TypeError", "a list is no value"),
        (_reply([1.0, 0.0], kind="fine"), "ValueError", "a word that isn't known"),
        ("no reply", "TypeError", "text"),
    ],
)
def test_an_invalid_answer_is_rejected(value: Any, told: str, why: str) -> None:
    said = json.loads(json.dumps({"results": [{"outcomes": [{"status": "done", "value": value, "why": ""}]}]}))
    with pytest.raises(Unavailable, match=told):
        read_results(said, RequestShard([0, 1], [0]))
    said["results"][0]["outcomes"][0]["value"] = _reply([1.0, None])
    assert read_results(said, RequestShard([0, 1], [0]))[0].values == [1.0, None], why
