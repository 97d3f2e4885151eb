"""Requests are refused by key, size, number and speed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.reward_server.guard import RequestGuard
from rlvr.reward_server.request_limits import ServerLimits
from rlvr.reward_server.service import RewardService
from scripts import serve_rewards
from tests.support.cases import cases
from tests.support.processes import wait_until
from tests.support.reward_servers import RewardServer, waiting_call, waiting_recipe

KEY = "a-key-of-the-tests-0123"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("middleware")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RewardServer]:
    limits = ("--host", "0.0.0.0", "--max_body_mb", "1", "--max_rows", "50", "--max_requests", "3", "--workers", "2")
    with RewardServer("--config", waiting_recipe(folder), *limits, env={"GRPO_REWARDS_KEY": KEY}) as started:
        yield started


def held(**more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}", **more}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "status", "why"),
    [
        (None, 401, "no key"),
        (f"Bearer {KEY}x", 401, "a wrong one"),
        (f"Bearer {KEY[:-1]}", 401, "one that is nearly right"),
        (f"Basic {KEY}", 401, "another scheme"),
        ("Bearer", 401, "none after the word"),
        ("Bearer \xff", 401, "bytes that are no text"),
        (f"bearer  {KEY} ", 200, "the right one, with spaces that don't matter"),
    ],
)
def test_a_wrong_key_is_refused(server: RewardServer, header: str | None, status: int, why: str) -> None:
    given = {"Authorization": header} if header is not None else {}
    assert [server.get(path, **given)[0] for path in ("/rewards", "/metrics", "/openapi.json")] == [status] * 3
    assert server.post("/score", {}, **given)[0] == (401 if status == 401 else 422), why
    assert server.get("/healthz") == (200, {"status": "ok"}), "health checks need no key"
    assert KEY not in server.said()


@pytest.mark.parametrize(
    ("words", "env", "named", "why"),
    [
        (("--no_key", "--host", "0.0.0.0"), {}, "--no_key", "every machine could send requests"),
        (("--no_key", "--host", "::"), {}, "--no_key", "the same in IPv6"),
        (("--no_key", "--host", "example.invalid"), {}, "--no_key", "a name may be any address"),
        ((), {"GRPO_REWARDS_KEY": "short"}, "secrets.token_urlsafe", "it could be guessed"),
        ((), {"GRPO_JUDGE_SLOTS": "0"}, "GRPO_JUDGE_SLOTS", "no program could be judged"),
        (("--key_file", "/nowhere/key"), {}, "/nowhere/key", "a missing key file must not mean no key"),
        (("--host", "203.0.113.1"), {"GRPO_REWARDS_KEY": KEY}, "203.0.113.1", "an address of another machine"),
        (("--workers", "0"), {}, "--workers", "no process"),
        (("--shutdown_timeout_s", "-1"), {}, "--shutdown_timeout_s", "a time before the signal"),
        (("--shutdown_timeout_s", "nan"), {}, "--shutdown_timeout_s", "no number"),
        (("--max_test_time_s", "0"), {}, "--max_test_time_s", "no program could run"),
    ],
)
def test_a_server_with_wrong_or_unsafe_settings_does_not_start(
    words: tuple[str, ...],
    env: dict[str, str],
    named: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in ({"GRPO_REWARDS_KEY": KEY} | env).items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(SystemExit):  # of argparse
        assert serve_rewards.main(["--rewards", "answer_format", "--port", "0", *words]) == 2, why
    output = capsys.readouterr()
    assert named in output.err and not output.out, why


def test_a_key_file_that_other_users_can_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    assert serve_rewards.main(["--judge_only", "--port", "0", "--key_file", str(file)]) == 2
    errors = capsys.readouterr().err
    assert "chmod 600" in errors and KEY not in errors


def test_a_large_content_length_is_refused_before_the_body_is_sent(server: RewardServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as line:
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {1 << 30}\r\n\r\n"
        line.sendall(head.encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("content", "status", "kind", "named", "why"),
    [
        (b"{", 400, "invalid-json", "JSON", "truncated"),
        (b"", 422, "invalid-body", "JSON", "empty"),
        (b"[" * 100_000, 400, "invalid-json", "", "nested too deeply"),
        (b'{"rewards": ["x"], "prompts": "\xff"}', 400, "invalid-json", "", "not UTF-8"),
        ({"rewards": ["x"], "prompts": ["a"] * 51, "completions": ["a"] * 51}, 413, "too-large", "51", "many rows"),
        *cases(__file__, "refused"),
    ],
)
def test_an_invalid_request_is_refused_with_its_cause(
    server: RewardServer, content: Any, status: int, kind: str, named: str, why: str
) -> None:
    answered, reply = server.post("/score", content, **held())
    assert (answered, reply["kind"], named in reply["detail"]) == (status, kind, True), (why, reply)
    assert len(reply["detail"]) < 2000 and "Traceback" not in server.said(), why


@pytest.mark.slow
def test_excess_requests_get_429_and_are_not_run(server: RewardServer, folder: Path) -> None:
    file, statuses = folder / "busy", []

    def ask() -> None:
        statuses.append(server.post("/score", waiting_call(folder, file, folder / "go on"), **held())[0])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    figures = ("workers_busy", "calls_waiting")
    wait_until(lambda: [server.figure_with(KEY, f"grpo_{name}") for name in figures] == [2, 1])
    assert server.post("/score", waiting_call(folder, folder / "refused"), **held())[0] == 429
    assert int(server.headers["retry-after"]) >= 1
    (folder / "go on").touch()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 3 and len(file.read_text().split()) == 3
    assert not (folder / "refused").exists()
    assert server.post("/score", waiting_call(folder, folder / "refused"), **held())[0] == 200, "accepted later"


def test_a_client_that_disconnects_in_mid_request_leaves_no_request(server: RewardServer) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), 60) as line:
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 900\r\n\r\n"
            line.sendall(head.encode() + b"{")
    wait_until(lambda: server.figure_with(KEY, "grpo_requests_in_flight") == 0)


def test_a_slow_request_gets_408() -> None:
    async def run() -> int:
        service = RewardService([], ServerLimits(read_timeout_s=0.05))
        service.ready = True
        statuses: list[int] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError("it is not to be reached")

        async def receive() -> Any:
            await asyncio.sleep(0.03)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        scope: dict[str, Any] = {"type": "http", "path": "/score", "method": "POST", "client": None}
        scope["headers"] = [(b"host", b"localhost")]
        await RequestGuard(app, service, None)(scope, receive, send)
        assert service.metrics.page().count(b"grpo_requests_in_flight 0.0") == 1
        return statuses[0]

    assert asyncio.run(run()) == 408


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({}, 200, "a program"),
        ({"Host": "localhost:1"}, 200, "a name of this machine"),
        ({"Host": "[::1]:1"}, 200, "in IPv6"),
        ({"Host": "evil.example"}, 421, "DNS rebinding"),
        ({"Host": "127.0.0.1.evil.example"}, 421, "a similar name"),
        ({"Content-Type": "text/plain"}, 422, "a page may send it without a preflight request"),
        ({"Content-Type": ""}, 422, "no content type"),
    ],
)
def test_without_a_key_web_pages_are_refused(
    keyless: RewardServer, headers: dict[str, str], status: int, why: str
) -> None:
    content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"]}
    assert keyless.post("/score", content, **headers)[0] == status, why


@pytest.fixture(scope="module")
def keyless() -> Iterator[RewardServer]:
    with RewardServer("--rewards", "answer_format") as started:
        yield started
