"""Large requests: refused cheaply, and memory stays in proportion to the body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.reward_servers import RewardServer

MANY = 400_000
MAX_GROWTH_MB = 300  # of memory that a request of a few megabytes may add
PROGRAM = {"program": "", "tests": [{"input": "", "output": ""}]}
ROWS = 400  # that refer to a megabyte each


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    tests = tmp_path_factory.mktemp("large") / "tests.jsonl"
    tests.write_text(json.dumps({"id": "large", "tests": [{"input": "x" * 1_000_000, "output": "3"}]}) + "\n")
    with RewardServer("--rewards", "code_execution,answer_format", "--tests", tests) as started:
        yield started


def scores(**more: Any) -> dict[str, Any]:
    return {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["c"], **more}


def peak_mb(server: RewardServer) -> float:
    """Peak memory of any process of the server."""
    found = [server.process.pid]
    for pid in found:
        found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    lines = [line for pid in found for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return max(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.mark.parametrize(
    ("path", "content", "status", "named", "why"),
    [
        ("/score", scores(prompts=["p"] * MANY, completions=["c"] * MANY), 413, "400,000 rows", "many rows"),
        ("/score", scores(columns={"c": [1] * MANY}), 422, "400000 entries in c", "a long column"),
        ("/get_reward", {"query": [1] * MANY, "prompts": [], "labels": []}, 422, "query", "many wrong texts"),
        ("/judge", {"submissions": [PROGRAM] * 10_000}, 413, "10,000 rows", "many programs"),
        ("/judge", {"submissions": [{}] * MANY}, 422, "submissions.0.program", "many invalid programs"),
        ("/judge", {"submissions": [{"program": "", "tests": [1] * MANY}]}, 422, "tests.0", "many invalid tests"),
        ("/check", {"name": "code_execution", "columns": {"tests": [[]] * MANY}}, 413, "rows", "rows to check"),
    ],
)
def test_an_oversized_request_is_refused_with_little_memory(
    server: RewardServer, path: str, content: dict[str, Any], status: int, named: str, why: str
) -> None:
    before = peak_mb(server)
    got, reply = server.post(path, content)
    assert (got, named in reply["detail"]) == (status, True), (why, reply)
    assert len(reply["detail"]) < 2000 and peak_mb(server) - before < MAX_GROWTH_MB, why


@pytest.mark.parametrize("path", ["/score", "/judge"])
def test_a_stored_row_is_held_once_for_many_references(server: RewardServer, path: str) -> None:
    before = peak_mb(server)
    if path == "/score":
        right = "```python\nprint(3)\n```"
        content = scores(rewards=["code_execution"], columns={"tests": [{"id": "large"}] * ROWS})
        content |= {"prompts": ["p"] * ROWS, "completions": [right] * (ROWS - 1) + ["none"]}
        status, reply = server.post(path, content)
        assert status == 200 and reply["results"][0]["values"] == [1.0] * (ROWS - 1) + [0.0]
    else:
        status, reply = server.post(path, {"submissions": [{"program": "print(3)", "id": "large"}] * ROWS})
        assert status == 200 and [one["score"] for one in reply["judgements"]] == [1.0] * ROWS
    assert peak_mb(server) - before < ROWS / 2, f"MB, of {ROWS} rows that refer to one"
