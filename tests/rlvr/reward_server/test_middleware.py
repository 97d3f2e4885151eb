"""A request is let in or refused: by its key, its size, how many there are, and whether it was asked before."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.reward_server.idempotency import Answer, IdempotencyCache
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.middleware import RequestGuard
from rlvr.reward_server.server import read_key
from scripts import serve_rewards
from tests.support.reward_servers import RewardServer, recipe_of

KEY = "a-key-of-the-tests-0123"
REWARDS = '''
import time

def notes_calls(completions, *, seconds: float = 0.0, **kwargs):
    """Adds a line to the file that the first completion names, so that calls can be counted."""
    with open(completions[0], "a") as file:
        file.write("called\\n")
    time.sleep(seconds)
    return [1.0] * len(completions)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gate")
    (made / "rewards_of_a_test.py").write_text(REWARDS, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RewardServer]:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    limits = ("--host", "0.0.0.0", "--most-body-mb", "1", "--most-rows", "50", "--most-requests", "3", "--workers", "2")
    with RewardServer("--config", recipe, *limits, env={"GRPO_REWARDS_KEY": KEY}) as started:
        yield started


def call(folder: Path, file: Path, seconds: float = 0.0) -> dict[str, Any]:
    reward = {"name": f"{folder}/rewards_of_a_test.py:notes_calls", "options": {"seconds": seconds}}
    return {"rewards": [reward], "prompts": ["p"], "completions": [str(file)]}


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
def test_without_the_key_nothing_is_told(server: RewardServer, header: str | None, status: int, why: str) -> None:
    given = {"Authorization": header} if header is not None else {}
    assert [server.get(path, **given)[0] for path in ("/rewards", "/metrics", "/docs", "/openapi.json")] == [status] * 4
    assert server.post("/score", {}, **given)[0] == (401 if status == 401 else 422), why
    assert server.get("/healthz") == (200, {"status": "ok"}), "whoever looks after the machine needs none"
    assert KEY not in server.said()


@pytest.mark.parametrize(
    ("words", "env", "told", "why"),
    [
        (("--host", "0.0.0.0"), {}, "must hold a key", "every machine could ask"),
        (("--host", "::"), {}, "must hold a key", "the same in IPv6"),
        (("--host", "example.invalid"), {}, "must hold a key", "a name may be anything"),
        ((), {"GRPO_REWARDS_KEY": "short"}, "16 or more characters", "it could be guessed"),
        (("--key-file", "/nowhere/key"), {}, "can't be read", "a key that was meant is not left out silently"),
        (("--host", "203.0.113.1"), {"GRPO_REWARDS_KEY": KEY}, "Can't listen on 203.0.113.1", "not this machine's"),
        (("--workers", "0"), {}, "at least 1", "nobody would work"),
        (("--tests", "/nowhere/tests.jsonl"), {}, "can't be read", "a file that isn't there"),
        (("--label-column", "gold"), {}, "no reward reads it", "a column that isn't read"),
    ],
)
def test_a_server_that_would_be_open_or_wrong_does_not_start(
    words: tuple[str, ...],
    env: dict[str, str],
    told: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert serve_rewards.main(["--rewards", "answer_format", "--port", "0", *words]) == 2, why
    said = capsys.readouterr()
    assert told in said.err and not said.out, why


def test_a_key_file_that_others_can_read_is_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    assert serve_rewards.main(["--judge-only", "--port", "0", "--key-file", str(file)]) == 2
    said = capsys.readouterr().err
    assert "chmod 600" in said and KEY not in said


def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_sent(server: RewardServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as line:
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {1 << 30}\r\n\r\n"
        line.sendall(head.encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_body_without_an_end_is_refused_while_it_is_read(server: RewardServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as line:
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.sendall(head.encode())
        sent = 0
        with pytest.raises(OSError):  # it closes, and does not read on
            while sent < 64 << 20:
                sent += line.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
    assert sent < 16 << 20, "the kernel's own buffers, and no more"
    assert server.figure_with(KEY, 'grpo_requests_refused_total{reason="too large"}') >= 1


@pytest.mark.parametrize(
    ("content", "status", "told", "why"),
    [
        (b"{", 400, "JSON", "no JSON"),
        (b"", 400, "JSON", "nothing at all"),
        (b"[" * 100_000, 400, "", "nested beyond any measure"),
        (b'{"rewards": ["x"], "prompts": "\xff"}', 400, "", "no text"),
        ({"rewards": [], "prompts": [], "completions": []}, 422, "rewards", "no reward"),
        ({"rewards": ["x"], "prompts": [], "completions": [], "colums": {}}, 422, "colums", "a key that isn't known"),
        ({"rewards": ["x"], "prompts": [], "completions": []}, 404, "no reward 'x'", "a reward that isn't served"),
        ({"rewards": ["rewards/code_quality.py"], "prompts": [], "completions": []}, 404, "started with", "a file"),
        ({"rewards": ["os.system"], "prompts": ["id"], "completions": ["id"]}, 404, "started with", "a function"),
        ({"rewards": ["x"], "prompts": ["a"], "completions": []}, 422, "0 completions, but 1", "lists of two lengths"),
        ({"rewards": ["x"], "prompts": ["a"] * 51, "completions": ["a"] * 51}, 413, "51 entries", "too many rows"),
        (
            {"rewards": ["x"], "prompts": [], "completions": [], "columns": {"log_metric": []}}, 422, "log_metric",
            "what a function would be given by the trainer",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said_in_a_sentence(
    server: RewardServer, content: Any, status: int, told: str, why: str
) -> None:
    found, said = server.post("/score", content, **held())
    assert (found, told in said["detail"]) == (status, True), (why, said)
    assert len(said["detail"]) < 2000 and "Traceback" not in server.said(), why


def test_what_is_too_much_is_told_to_come_back_and_has_cost_nothing(server: RewardServer, folder: Path) -> None:
    file, statuses = folder / "busy", []

    def ask() -> None:
        statuses.append(server.post("/score", call(folder, file, 3.0), **held())[0])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while server.figure_with(KEY, "grpo_calls_waiting") < 1 and time.monotonic() < end:
        time.sleep(0.02)
    assert [server.figure_with(KEY, f"grpo_{name}") for name in ("workers_busy", "calls_waiting")] == [2, 1]
    assert server.post("/score", call(folder, folder / "refused"), **held())[0] == 429
    assert int(server.headers["retry-after"]) >= 1
    for thread in threads:
        thread.join()
    assert statuses == [200] * 3 and len(file.read_text().split()) == 3
    assert not (folder / "refused").exists()
    assert server.post("/score", call(folder, folder / "refused"), **held())[0] == 200, "and later there is room"


def test_a_request_that_is_repeated_is_not_run_twice(server: RewardServer, folder: Path) -> None:
    file = folder / "repeated"
    content = call(folder, file, 0.5)
    key = held(Idempotency_Key="one")
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(server.post("/score", content, **key))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(server.post("/score", content, **key))
    assert answers[0][0] == 200 and answers == [answers[0]] * 3
    assert len(file.read_text().split()) == 1, "two at the same time, and one that came later"
    status, said = server.post("/score", call(folder, file), **key)
    assert status == 422 and "another request" in said["detail"]
    assert server.post("/score", content, **held(Idempotency_Key="two"))[0] == 200
    assert len(file.read_text().split()) == 2, "another key is another request"
    assert server.post("/score", content, **held(Idempotency_Key="x" * 300))[0] == 400


def test_work_whose_client_hung_up_is_there_when_it_asks_again(server: RewardServer, folder: Path) -> None:
    file = folder / "hung up"
    body = json.dumps(call(folder, file, 1.0)).encode()
    with socket.create_connection(("127.0.0.1", server.port), 20) as line:
        head = (
            f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: again\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        line.sendall(head.encode() + body)
        end = time.monotonic() + 30
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.02)
    status, said = server.post("/score", body, **held(Idempotency_Key="again"))
    assert status == 200 and said["results"][0]["values"] == [1.0] and len(file.read_text().split()) == 1


def test_a_client_that_hangs_up_in_the_middle_of_its_request_leaves_nothing_behind(server: RewardServer) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), 20) as line:
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 900\r\n\r\n"
            line.sendall(head.encode() + b"{")
    end = time.monotonic() + 30
    while server.figure_with(KEY, "grpo_requests_in_flight") and time.monotonic() < end:
        time.sleep(0.02)
    assert server.figure_with(KEY, "grpo_requests_in_flight") == 0
    assert server.figure_with(KEY, "grpo_bytes_in_flight") == 0


def test_a_server_that_is_told_to_end_finishes_what_it_does_and_refuses_the_rest(folder: Path) -> None:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    with RewardServer("--config", recipe) as server:
        answers: list[Any] = []
        content = call(folder, folder / "ending", 2.0)
        thread = threading.Thread(target=lambda: answers.append(server.post("/score", content)))
        thread.start()
        end = time.monotonic() + 30
        while not (folder / "ending").exists() and time.monotonic() < end:
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        while "Ending: 1 requests" not in server.said() and time.monotonic() < end:
            time.sleep(0.02)
        assert server.get("/readyz") == (503, {"status": "ending"})
        assert server.post("/score", content)[0] == 503 and int(server.headers["retry-after"]) >= 1
        thread.join()
        assert answers[0][0] == 200
        assert server.process.wait(30) == 0
        assert len((folder / "ending").read_text().split()) == 1


def test_nothing_is_left_of_a_server_that_was_killed(folder: Path) -> None:
    recipe = recipe_of(folder / "recipe.yaml", [f"{folder}/rewards_of_a_test.py:notes_calls"])
    with RewardServer("--config", recipe) as server:
        assert server.post("/score", call(folder, folder / "killed"))[0] == 200
        below = _below(server.process.pid)
        assert below
        server.kill()
        end = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{pid}").exists() for pid in below)


def _below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_below(int(child))]
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Without a server


def test_answers_are_kept_within_bounds_and_failures_not_at_all() -> None:
    async def run() -> None:
        repeats = IdempotencyCache(most_bytes=100, keep_s=0.2)
        for number in range(20):
            repeats.begin(str(number), b"")
            repeats.end(str(number), Answer(200, (), b"x" * 30))
        assert repeats.bytes == 90 and repeats.begin("19", b"")[1] is False and repeats.begin("0", b"")[1] is True
        repeats.end("0", Answer(503, (), b"busy"))
        assert repeats.begin("0", b"")[1] is True, "to be tried again"
        repeats.fail("0")
        await asyncio.sleep(0.25)
        assert repeats.begin("19", b"")[1] is True and repeats.bytes == 0, "forgotten in time"
        repeats.begin("large", b"")
        repeats.end("large", Answer(200, (), b"x" * 101))
        assert repeats.bytes == 0

    asyncio.run(run())


def test_a_request_that_arrives_too_slowly_is_given_up() -> None:
    async def run() -> None:
        async def app(*arguments: Any) -> None:
            raise AssertionError("it is not to be reached")

        gate = RequestGuard(app, ServerLimits(reading_s=0.05), Metrics(), None)
        gate.ready = True
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.03)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: Any) -> None:
            said.append(message)

        headers = [(b"host", b"localhost")]
        await gate({"type": "http", "path": "/score", "method": "POST", "headers": headers}, receive, send)
        assert said[0]["status"] == 408 and gate.in_flight == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({}, 200, "as a program asks"),
        ({"Host": "localhost:1"}, 200, "a name of this machine"),
        ({"Host": "[::1]:1"}, 200, "in IPv6"),
        ({"Host": "evil.example"}, 421, "a page whose name was made to lead here"),
        ({"Host": "127.0.0.1.evil.example"}, 421, "one that looks alike"),
        ({"Content-Type": "text/plain"}, 415, "what a page may send to anybody without being asked"),
        ({"Content-Type": ""}, 415, "the same, of no kind"),
    ],
)
def test_without_a_key_no_web_page_gets_in(
    keyless: RewardServer, headers: dict[str, str], status: int, why: str
) -> None:
    content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"]}
    assert keyless.post("/score", content, **headers)[0] == status, why


@pytest.fixture(scope="module")
def keyless() -> Iterator[RewardServer]:
    with RewardServer("--rewards", "answer_format") as started:
        yield started


def test_the_key_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_REWARDS_KEY", KEY)
    assert read_key(None) == KEY and "GRPO_REWARDS_KEY" not in os.environ and read_key(None) is None
