"""Servers that die, restart or are busy cost time but no row."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scored, Scorer
from tests.conftest import Command
from tests.support.reward_servers import REPOSITORY, RewardServer, accept, recipe_of

REWARDS = '''
import os, time

def slow(completions, *, seconds: float = 0.0, **kwargs):
    """A value of each completion, after a while a row; a row is noted when it is begun."""
    values = []
    for completion in completions:
        name, _, folder = completion.partition(" ")
        with open(os.path.join(folder, "begun"), "a") as file:
            file.write(name + "\\n")
        time.sleep(seconds)
        values.append(float(name))
    return values
'''


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outages")
    (folder / "slowly.py").write_text(REWARDS, encoding="utf-8")
    return recipe_of(folder / "recipe.yaml", [f"{folder}/slowly.py:slow"])


@pytest.fixture(scope="module")
def server(recipe: Path) -> Iterator[RewardServer]:
    with RewardServer("--config", recipe, "--max_requests", "2") as started:
        yield started


def scorer(recipe: Path, *urls: str, seconds: float = 0.0, **settings: Any) -> Scorer:
    spec = RewardSpec(f"{recipe.parent}/slowly.py:slow", options={"seconds": seconds}, where=",".join(urls))
    return Scorer(load_rewards([spec]), **settings)


def score(scoring: Scorer, folder: Path, rows: int) -> Scored:
    return scoring.score([f"p{row}" for row in range(rows)], [f"{row} {folder}" for row in range(rows)], {})


def when(condition: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """Does something as soon as something else has happened."""

    def wait() -> None:
        end = time.monotonic() + 60
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def begun(folder: Path) -> list[str]:
    file = folder / "begun"
    return file.read_text().split() if file.exists() else []


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody answers."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{line.getsockname()[1]}"


@pytest.mark.slow
def test_a_server_that_dies_during_a_batch_costs_only_time(server: RewardServer, recipe: Path, tmp_path: Path) -> None:
    with RewardServer("--config", recipe) as other, scorer(recipe, other.url, server.url, seconds=0.3) as scoring:
        score(scoring, tmp_path, 2)
        (tmp_path / "begun").unlink()
        thread = when(lambda: len(begun(tmp_path)) >= 4, other.kill)
        scored = score(scoring, tmp_path, 12)
        thread.join()
    assert scored.values == [[float(row)] for row in range(12)] and not scored.failures
    assert set(begun(tmp_path)) == {str(row) for row in range(12)}


@pytest.mark.slow
def test_a_request_with_a_lost_reply_is_sent_again(recipe: Path, tmp_path: Path, server: RewardServer) -> None:
    """Between the two stands somebody who loses the first answer to a request for scores."""
    with _Losing(server.port) as line, scorer(recipe, line.url, seconds=0.1) as scoring:
        scored = score(scoring, tmp_path, 3)
        assert line.lost == 1
    assert scored.values == [[0.0], [1.0], [2.0]] and not scored.failures


@pytest.mark.slow
def test_a_busy_server_is_asked_again_until_it_has_room(recipe: Path, server: RewardServer, tmp_path: Path) -> None:
    scored: list[Scored] = []

    def ask(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        with scorer(recipe, server.url, seconds=0.1) as scoring:
            scoring.connect()
            together.wait(60)
            scored.append(score(scoring, folder, 3))

    together = threading.Barrier(8)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.values for one in scored] == [[[0.0], [1.0], [2.0]]] * 8
    assert all(begun(tmp_path / str(number)) == ["0", "1", "2"] for number in range(8)), "each row once"
    assert server.figure('grpo_requests_refused_total{reason="too many"}') > 0


def test_an_unreachable_server_is_skipped(recipe: Path, server: RewardServer, tmp_path: Path, nobody: str) -> None:
    with scorer(recipe, nobody, server.url) as scoring:
        scored = score(scoring, tmp_path, 6)
    assert scored.values == [[float(row)] for row in range(6)] and not scored.failures


@pytest.mark.slow
def test_a_server_that_is_gone_is_waited_for_as_long_as_the_batch_may_take(recipe: Path, tmp_path: Path) -> None:
    with RewardServer("--config", recipe) as server, scorer(recipe, server.url, batch_timeout_s=6.0) as scoring:
        assert score(scoring, tmp_path, 2).values == [[0.0], [1.0]]
        server.kill()
        start = time.monotonic()
        scored = score(scoring, tmp_path, 2)
        assert 1.0 < time.monotonic() - start < 60 and scored.values == [[None], [None]]
        assert scored.failures[0].status == "unavailable" and server.url in scored.failures[0].message
        assert scored.outage_s > 1.0 and score(scoring, tmp_path, 2).outage_s > scored.outage_s + 1.0, "an outage lasts"
        server.start()
        scored = score(scoring, tmp_path, 2)
        assert (scored.values, scored.outage_s) == ([[0.0], [1.0]], 0.0), "and it is there again"


def test_a_server_of_another_recipe_is_reported_at_once(server: RewardServer) -> None:
    start = time.monotonic()
    with Scorer(load_rewards([RewardSpec("code_execution", where=server.url)])) as scoring:
        scored = scoring.score(["p"], ["c"], {"tests": [None]})
    assert time.monotonic() - start < 60 and scored.values == [[None]]
    assert "--config" in scored.failures[0].message


@pytest.mark.slow
def test_a_batch_that_is_larger_than_a_request_may_be_goes_in_several(recipe: Path, tmp_path: Path) -> None:
    with RewardServer("--config", recipe, "--max_rows", "5") as server, scorer(recipe, server.url) as scoring:
        scored = score(scoring, tmp_path, 12)
        assert scored.values == [[float(row)] for row in range(12)] and not scored.failures
        assert server.figure('grpo_requests_total{path="/score",status="200"}') == 3


class _Losing:
    """Passes requests on to a server, and breaks the connection instead of handing over the first scores."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lost = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        accept(self.listening, self._pass_on)

    def _pass_on(self, line: socket.socket) -> None:
        with line, socket.create_connection(("127.0.0.1", self.port)) as server:
            scores = False

            def back() -> None:
                while data := server.recv(1 << 16):
                    if scores and not self.lost:
                        self.lost += 1
                        line.shutdown(socket.SHUT_RDWR)
                        return
                    line.sendall(data)

            threading.Thread(target=back, daemon=True).start()
            while data := line.recv(1 << 16):
                scores = scores or b"POST /score" in data
                server.sendall(data)

    def __enter__(self) -> _Losing:
        return self

    def __exit__(self, *exception: object) -> None:
        self.listening.close()


@pytest.mark.slow
def test_an_outage_that_lasts_ends_the_run_with_a_checkpoint_that_can_be_continued(
    command: Command, tmp_path: Path
) -> None:
    """The server is killed after the first step, and started again for the second start of the same command."""
    recipe = "recipes/demo-arithmetic.yaml"
    with RewardServer("--config", recipe) as server:
        words = ["--config", recipe, "--output_dir", str(tmp_path / "run"), "--report_to", "none"]
        words += ["--evaluation", "null", "--max_steps", "4", "--save_strategy", "steps", "--save_steps", "100"]
        words += ["--per_device_train_batch_size", "16", "--reward_batch_timeout_s", "10", "--reward_timeout_s", "5"]
        words += ["--reward_outage_timeout_s", "3"]
        for name in ("math_correctness", "answer_format"):
            words += [f"--rewards.{name}.where", server.url]
        metrics = tmp_path / "run" / "metrics.jsonl"
        thread = when(lambda: metrics.exists() and metrics.read_text().count("\n") >= 1, server.kill)
        program = command("run_grpo.py", *words)
        first = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        thread.join()
        assert first.returncode == 75, first.stdout + first.stderr
        assert "no reward server has answered" in first.stdout
        server.start()
        environment = {**os.environ, "WITHOUT_REPORT": "1"}
        second = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=environment)
        assert second.returncode == 0, second.stdout + second.stderr
    assert len(list((tmp_path / "run" / "completions").glob("*.parquet"))) == 4
