"""A batch is shared out so that what belongs together stays together, and put together as it was."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlvr.scoring.backends.ray_cluster.sharding import ROWS, chunks_of, together
from rlvr.scoring.call import CallResult
from rlvr.workers.pool import TaskResult

rows_of_a_batch = st.lists(st.tuples(st.sampled_from("pqrstuvwxyz"), st.sampled_from("abc"), st.integers(0, 3)))


def columns(batch: list[tuple[str, str, int]]) -> dict[str, list[Any]]:
    return {
        "prompts": [[{"role": "user", "content": prompt}] for prompt, _, _ in batch],
        "completions": [completion for _, completion, _ in batch],
        "tests": [[{"input": "", "output": str(number)}] for _, _, number in batch],
    }


@given(rows_of_a_batch)
def test_every_row_is_in_one_chunk_with_its_group_and_with_what_has_the_same_judgement(
    batch: list[tuple[str, str, int]],
) -> None:
    chunks = chunks_of(columns(batch), len(batch), ["tests", "a column that is not there"])
    assert sorted(row for chunk in chunks for row in chunk) == list(range(len(batch)))
    place = {row: number for number, chunk in enumerate(chunks) for row in chunk}
    for row, (prompt, *rest) in enumerate(batch):
        for other, (prompt_of_other, *rest_of_other) in enumerate(batch[:row]):
            if prompt == prompt_of_other or rest == rest_of_other:
                assert place[row] == place[other]


@given(rows_of_a_batch)
def test_chunks_are_as_small_as_groups_allow(batch: list[tuple[str, str, int]]) -> None:
    chunks = chunks_of(columns(batch), len(batch))
    assert all(chunk == sorted(chunk) for chunk in chunks)
    assert all(len(chunk) >= ROWS for chunk in chunks[:-1])
    for chunk in chunks:
        last = [row for row in chunk if batch[row][0] == batch[chunk[-1]][0]]
        prompts = dict.fromkeys(batch[row][0] for row in chunk)
        sizes = [sum(batch[row][0] == prompt for row in chunk) for prompt in prompts]
        assert last and sum(sizes) - min(sizes) < ROWS + max(sizes)


@given(rows_of_a_batch)
def test_equal_values_are_known_whatever_object_holds_them(batch: list[tuple[str, str, int]]) -> None:
    given_once = columns(batch)
    assert chunks_of(given_once, len(batch), ["tests"]) == chunks_of(copy.deepcopy(given_once), len(batch), ["tests"])


def reply(rows: list[int]) -> TaskResult:
    notes = [("extra", "seen", [f"row {row}" for row in rows]), ("metric", "mean", float(rows[0]))]
    return TaskResult("done", asdict(CallResult([float(row) for row in rows], notes=notes)))


def test_values_and_logged_columns_are_put_in_the_order_of_the_rows() -> None:
    whole = together([(reply(rows), rows) for rows in ([2, 5], [0, 3, 4], [1])])
    assert whole.value["values"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert whole.value["notes"] == [
        ("extra", "seen", [f"row {row}" for row in range(6)]),
        ("metric", "mean", (2.0 * 2 + 0.0 * 3 + 1.0) / 6),
    ]


def test_a_part_that_went_wrong_is_what_became_of_the_whole() -> None:
    lost = TaskResult("unavailable", why="gone")
    assert together([(reply([1, 2]), [1, 2]), (lost, [0, 3])]) == lost
