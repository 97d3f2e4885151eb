"""Requests are refused by key, size, number and speed; repeated requests run once; shutdown finishes requests."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rlvr.reward_server.idempotency import IdempotencyCache, PendingRequest
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard
from rlvr.workers.pool import Caller
from scripts import serve_rewards
from tests.support.reward_servers import RewardServer, recipe_of

KEY = "a-key-of-the-tests-0123"
REWARDS = '''
import os, time

def notes_calls(completions, *, until: str = "/", **kwargs):
    """Adds a line to the file that the first completion names, so that calls can be counted."""
    with open(completions[0], "a") as file:
        file.write("called\\n")
    while not os.path.exists(until):
        time.sleep(0.02)
    return [1.0] * len(completions)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("middleware")
    (made / "rewards_of_a_test.py").write_text(REWARDS, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RewardServer]:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    limits = ("--host", "0.0.0.0", "--max_body_mb", "1", "--max_rows", "50", "--max_requests", "3", "--workers", "2")
    with RewardServer("--config", recipe, *limits, env={"GRPO_REWARDS_KEY": KEY}) as started:
        yield started


def call(folder: Path, file: Path, until: Path = Path("/")) -> dict[str, Any]:
    """A request for one row, whose reward returns as soon as a file is there."""
    reward = {"name": f"{folder}/rewards_of_a_test.py:notes_calls", "options": {"until": str(until)}}
    return {"rewards": [reward], "prompts": ["p"], "completions": [str(file)]}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def held(**more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}", **more}


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
        (("--key_file", "/nowhere/key"), {}, "/nowhere/key", "a missing key file must not mean no key"),
        (("--host", "203.0.113.1"), {"GRPO_REWARDS_KEY": KEY}, "203.0.113.1", "an address of another machine"),
        (("--workers", "0"), {}, "--workers", "no process"),
        (("--shutdown_timeout_s", "-1"), {}, "--shutdown_timeout_s", "a time before the signal"),
        (("--shutdown_timeout_s", "nan"), {}, "--shutdown_timeout_s", "no number"),
        (("--max_test_time_s", "0"), {}, "--max_test_time_s", "no program could run"),
        (("--tests", "/nowhere/tests.jsonl"), {}, "/nowhere/tests.jsonl", "a missing file"),
        (("--label_column", "gold"), {}, "gold", "a column that no reward reads"),
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
        (b"", 400, "invalid-json", "JSON", "empty"),
        (b"[" * 100_000, 400, "invalid-json", "", "nested too deeply"),
        (b'{"rewards": ["x"], "prompts": "\xff"}', 400, "invalid-json", "", "not UTF-8"),
        ({"rewards": [], "prompts": [], "completions": []}, 422, "invalid-body", "rewards", "no reward"),
        ({"rewards": ["x"], "prompts": [], "completions": [], "colums": {}}, 422, "invalid-body", "colums", "a typo"),
        ({"rewards": ["x"], "prompts": [], "completions": []}, 404, "unknown-reward", "'x'", "not served"),
        ({"rewards": ["rewards/code_quality.py"], "prompts": [], "completions": []}, 404, "unknown-reward", "", "file"),
        ({"rewards": ["os.system"], "prompts": ["id"], "completions": ["id"]}, 404, "unknown-reward", "", "function"),
        ({"rewards": ["x"], "prompts": ["a"], "completions": []}, 422, "length-mismatch", "prompts", "two lengths"),
        ({"rewards": ["x"], "prompts": ["a"] * 51, "completions": ["a"] * 51}, 413, "too-large", "51", "many rows"),
        (
            {"rewards": ["x"], "prompts": [], "completions": [], "columns": {"log_metric": []}},
            422,
            "reserved-column",
            "log_metric",
            "an argument that the trainer gives",
        ),
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
        statuses.append(server.post("/score", call(folder, file, folder / "go on"), **held())[0])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    figures = ("workers_busy", "calls_waiting")
    wait_for(lambda: [server.figure_with(KEY, f"grpo_{name}") for name in figures] == [2, 1])
    assert server.post("/score", call(folder, folder / "refused"), **held())[0] == 429
    assert int(server.headers["retry-after"]) >= 1
    (folder / "go on").touch()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 3 and len(file.read_text().split()) == 3
    assert not (folder / "refused").exists()
    assert server.post("/score", call(folder, folder / "refused"), **held())[0] == 200, "accepted later"


def test_a_repeated_request_is_run_once(server: RewardServer, folder: Path) -> None:
    file = folder / "repeated"
    content = call(folder, file, folder / "both")
    key = held(Idempotency_Key="one")
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(server.post("/score", content, **key))) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: server.figure_with(KEY, "grpo_requests_in_flight") == 2 and file.exists())
    (folder / "both").touch()
    for thread in threads:
        thread.join()
    answers.append(server.post("/score", content, **key))
    assert answers[0][0] == 200 and answers == [answers[0]] * 3
    assert len(file.read_text().split()) == 1, "two at the same time, and one that came later"
    status, reply = server.post("/score", call(folder, file), **key)
    assert (status, reply["kind"]) == (422, "idempotency-key")
    assert server.post("/score", content, **held(Idempotency_Key="two"))[0] == 200
    assert len(file.read_text().split()) == 2, "another key is another request"
    assert server.post("/score", content, **held(Idempotency_Key="x" * 300))[0] == 400


def test_a_retry_after_a_broken_connection_gets_the_first_runs_answer(server: RewardServer, folder: Path) -> None:
    file = folder / "hung up"
    body = json.dumps(call(folder, file, folder / "hung up, go on")).encode()
    with socket.create_connection(("127.0.0.1", server.port), 60) as line:
        head = (
            f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: again\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        line.sendall(head.encode() + body)
        wait_for(file.exists)
    threading.Timer(0.5, (folder / "hung up, go on").touch).start()
    status, reply = server.post("/score", body, **held(Idempotency_Key="again"))
    assert status == 200 and reply["results"][0]["values"] == [1.0] and len(file.read_text().split()) == 1


def test_a_client_that_disconnects_in_mid_request_frees_its_memory(server: RewardServer) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), 60) as line:
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 900\r\n\r\n"
            line.sendall(head.encode() + b"{")
    wait_for(lambda: server.figure_with(KEY, "grpo_requests_in_flight") == 0)
    assert server.figure_with(KEY, "grpo_bytes_in_flight") == 0


@pytest.mark.slow
def test_shutdown_finishes_requests_in_progress_and_refuses_new_ones(folder: Path) -> None:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    with RewardServer("--config", recipe) as server:
        answers: list[Any] = []
        content = call(folder, folder / "ending", folder / "ending, go on")
        thread = threading.Thread(target=lambda: answers.append(server.post("/score", content)))
        thread.start()
        wait_for((folder / "ending").exists)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "Ending: 1 requests" in server.said())
        assert server.get("/readyz") == (503, {"status": "ending"})
        assert server.post("/score", content)[0] == 503 and int(server.headers["retry-after"]) >= 1
        (folder / "ending, go on").touch()
        thread.join()
        assert answers[0][0] == 200
        assert server.process.wait(30) == 0
        assert len((folder / "ending").read_text().split()) == 1


@pytest.mark.slow
def test_workers_end_with_a_killed_server(folder: Path) -> None:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    with RewardServer("--config", recipe) as server:
        assert server.post("/score", call(folder, folder / "killed"))[0] == 200
        below = _below(server.process.pid)
        assert below
        server.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def _below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_below(int(child))]
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Without a server


def test_responses_are_kept_within_limits_and_failures_not_at_all() -> None:
    async def run() -> None:
        cache = IdempotencyCache(max_bytes=100, keep_s=1.0)

        async def add(key: str, response: Response) -> bool:
            """Whether the request was new."""
            pending, is_new = cache.begin(key, b"", lambda: pending_request(response))
            await pending.response
            await asyncio.sleep(0)
            return is_new

        for number in range(20):
            await add(str(number), Response(b"x" * 30))
        assert cache.bytes == 90 and not await add("19", Response())
        for _ in range(2):
            assert await add("busy", Response(b"busy", 503)), "a failure is not kept"
        await asyncio.sleep(1.05)
        assert await add("19", Response()) and cache.bytes == 0, "forgotten in time"
        assert await add("large", Response(b"x" * 101)) and cache.bytes == 0

    asyncio.run(run())


def pending_request(response: Response) -> PendingRequest:
    async def respond() -> Response:
        return response

    return PendingRequest(asyncio.create_task(respond()), Caller())


@pytest.mark.parametrize(
    ("limits", "pause_s", "why"),
    [
        (ServerLimits(read_timeout_s=0.05), 0.03, "each part arrives soon, but not all of them"),
        (ServerLimits(silence_s=0.05), 60.0, "no part arrives"),
    ],
)
def test_a_slow_or_silent_request_gets_408(limits: ServerLimits, pause_s: float, why: str) -> None:
    async def run() -> None:
        guard = RequestGuard(limits, Metrics(), None)
        guard.ready = True

        def work(body: bytearray, caller: Caller) -> Response:
            raise AssertionError("it is not to be reached")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            response = await guard.answer(Request(scope, receive), work)
            await response(scope, receive, send)

        reply: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(pause_s)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: Any) -> None:
            reply.append(message)

        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "path": "/score", "method": "POST", "headers": headers}
        await guard.protect(app)(scope, receive, send)
        assert reply[0]["status"] == 408 and guard.in_flight == 0, why

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({}, 200, "a program"),
        ({"Host": "localhost:1"}, 200, "a name of this machine"),
        ({"Host": "[::1]:1"}, 200, "in IPv6"),
        ({"Host": "evil.example"}, 421, "DNS rebinding"),
        ({"Host": "127.0.0.1.evil.example"}, 421, "a similar name"),
        ({"Content-Type": "text/plain"}, 415, "a page may send it without a preflight request"),
        ({"Content-Type": ""}, 415, "no content type"),
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
