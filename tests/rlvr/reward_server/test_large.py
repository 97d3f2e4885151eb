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
        ("/score", scores(rows=[None] * MANY), 413, "rows", "row numbers"),
        ("/score", scores(columns={"c": [1] * MANY}), 413, "columns.c", "a long column"),
        ("/score", scores(columns={f"c{i}": [1] for i in range(2000)}), 422, "2,000", "many columns"),
        ("/score", scores(rewards=[{"name": "answer_format", "reads": [1] * MANY}]), 422, "reads", "many column names"),
        ("/score", scores(rewards=[{"name": "answer_format", "options": {"x": "x" * 70_000}}]), 413, "options", "text"),
        ("/score", scores(rewards=[{"name": "answer_format", "seed": ["x" * 2000]}]), 422, "seed", "a seed"),
        ("/score", scores(trainer_state={"x": "x" * 2000}), 422, "trainer_state.x", "a state"),
        ("/get_reward", {"query": [1] * MANY, "prompts": [], "labels": []}, 413, "query", "OpenRLHF's protocol"),
        ("/judge", {"submissions": [{}] * MANY}, 413, "submissions", "many programs"),
        ("/judge", {"submissions": [{}] * 8000}, 422, "submissions.0.program", "many invalid programs"),
        ("/judge", {"submissions": [{"program": "", "tests": [1] * MANY}]}, 422, "tests.0", "many invalid tests"),
        ("/judge", {"submissions": [{f"k{i}": 1 for i in range(MANY)}]}, 422, "400,000", "many keys"),
        ("/check", {"name": "code_execution", "columns": {"c": [[]] * MANY}}, 413, "columns.c", "rows to check"),
    ],
)
def test_an_oversized_request_is_refused_with_little_memory(
    server: RewardServer, path: str, content: dict[str, Any], status: int, named: str, why: str
) -> None:
    before = peak_mb(server)
    got, reply = server.post(path, content)
    assert (got, named in reply["detail"]) == (status, True), (why, reply)
    assert len(reply["detail"]) < 2000 and peak_mb(server) - before < MAX_GROWTH_MB, why


def test_a_body_of_brackets_is_refused_before_parsing(server: RewardServer) -> None:
    before = peak_mb(server)
    status, reply = server.post("/score", scores(columns={"c": [[[]] * 6_000_000]}))
    assert (status, reply["kind"]) == (413, "too-large") and peak_mb(server) - before < MAX_GROWTH_MB


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


def test_items_of_one_by_one_calls_are_not_all_in_memory(server: RewardServer) -> None:
    rows = 2000
    before = peak_mb(server)
    content = scores(one_by_one=True, trainer_state={f"key {number}": "x" * 900 for number in range(100)})
    content |= {"prompts": ["p"] * rows, "completions": ["c"] * rows}
    status, reply = server.post("/score", content)
    assert status == 200 and reply["results"][0]["values"] == [0.0] * rows
    assert peak_mb(server) - before < 60, f"MB, of {rows} calls of 90 kB"
