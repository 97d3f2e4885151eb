"""Hostile clients and completions: clients without a key, crafted text."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "status", "why"),
    [
        ("GET /healthz HTTP/1.1\nHost: x", 200, "open to all"),
        ("HEAD /readyz HTTP/1.1\nHost: x", 401, "another method"),
        ("POST /healthz HTTP/1.1\nHost: x\nContent-Length: 60000000", 401, "its body would be held"),
        ("GET /healthz HTTP/1.1\nHost: x\nTransfer-Encoding: chunked", 400, "a body without its size"),
        ("PUT /healthz HTTP/1.1\nHost: x\nContent-Length: 5", 401, "any other method"),
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
