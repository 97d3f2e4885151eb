"""Large requests: refused cheaply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import descendants
from tests.support.reward_servers import RewardServer

MANY = 400_000
MAX_GROWTH_MB = 300  # of memory that a request of a few megabytes may add
PROGRAM = {"program": "", "tests": [{"input": "", "output": ""}]}


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with RewardServer("--rewards", "code_execution,answer_format") as started:
        yield started


def scores(**more: Any) -> dict[str, Any]:
    return {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"], **more}


def peak_mb(server: RewardServer) -> float:
    """Peak memory of any process of the server."""
    found = [server.process.pid, *descendants(server.process.pid)]
    lines = [line for pid in found for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return max(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "content", "status", "named", "why"),
    [
        ("/score", scores(prompts=["p"] * MANY, completions=["c"] * MANY), 413, "400,000 rows", "many rows"),
        ("/score", scores(columns={"c": [1] * MANY}), 422, "400000 entries in c", "a long column"),
        ("/judge", {"submissions": [PROGRAM] * 10_000}, 413, "10,000 rows", "many programs"),
        ("/judge", {"submissions": [{}] * MANY}, 422, "submissions.0.program", "many invalid programs"),
        ("/judge", {"submissions": [{"program": "", "tests": [1] * MANY}]}, 422, "tests.0", "many invalid tests"),
    ],
)
def test_an_oversized_request_is_refused_with_little_memory(
    server: RewardServer, path: str, content: dict[str, Any], status: int, named: str, why: str
) -> None:
    before = peak_mb(server)
    got, reply = server.post(path, content)
    assert (got, named in reply["detail"]) == (status, True), (why, reply)
    assert len(reply["detail"]) < 2000 and peak_mb(server) - before < MAX_GROWTH_MB, why
