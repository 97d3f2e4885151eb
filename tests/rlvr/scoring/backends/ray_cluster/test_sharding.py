"""A batch is split so that groups and equal judgements stay together."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlvr.scoring.backends.ray_cluster.sharding import MIN_ROWS, split_batch

rows_of_a_batch = st.lists(st.tuples(st.sampled_from("pqrstuvwxyz"), st.sampled_from("abc"), st.integers(0, 3)))


def columns(batch: list[tuple[str, str, int]]) -> dict[str, list[Any]]:
    return {
        "prompts": [[{"role": "user", "content": prompt}] for prompt, _, _ in batch],
        "completions": [completion for _, completion, _ in batch],
        "tests": [[{"input": "", "output": str(number)}] for _, _, number in batch],
    }


@given(rows_of_a_batch)
def test_every_row_is_in_one_shard_with_its_group_and_with_what_has_the_same_judgement(
    batch: list[tuple[str, str, int]],
) -> None:
    shards = split_batch(columns(batch), len(batch), ["tests", "a column that is not there"])
    assert sorted(row for shard in shards for row in shard) == list(range(len(batch)))
    place = {row: number for number, shard in enumerate(shards) for row in shard}
    for row, (prompt, *rest) in enumerate(batch):
        for other, (prompt_of_other, *rest_of_other) in enumerate(batch[:row]):
            if prompt == prompt_of_other or rest == rest_of_other:
                assert place[row] == place[other]


@given(rows_of_a_batch)
def test_shards_are_as_small_as_groups_allow(batch: list[tuple[str, str, int]]) -> None:
    shards = split_batch(columns(batch), len(batch))
    assert all(shard == sorted(shard) for shard in shards)
    assert all(len(shard) >= MIN_ROWS for shard in shards[:-1])
    for shard in shards:
        last = [row for row in shard if batch[row][0] == batch[shard[-1]][0]]
        prompts = dict.fromkeys(batch[row][0] for row in shard)
        sizes = [sum(batch[row][0] == prompt for row in shard) for prompt in prompts]
        assert last and sum(sizes) - min(sizes) < MIN_ROWS + max(sizes)


@given(rows_of_a_batch)
def test_equal_values_are_known_whatever_object_holds_them(batch: list[tuple[str, str, int]]) -> None:
    given_once = columns(batch)
    assert split_batch(given_once, len(batch), ["tests"]) == split_batch(
        copy.deepcopy(given_once), len(batch), ["tests"]
    )
