"""A batch is split so that groups stay together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlvr.scoring.backends.ray_backend import MIN_ROWS, split_batch

prompts_of_a_batch = st.lists(st.sampled_from("pqrstuvwxyz").map(lambda text: [{"role": "user", "content": text}]))


@given(prompts_of_a_batch)
def test_every_row_is_in_one_shard_with_its_group_and_shards_are_small(prompts: list[list[dict[str, str]]]) -> None:
    shards = split_batch(prompts)
    assert sorted(row for shard in shards for row in shard) == list(range(len(prompts)))
    assert all(shard == sorted(shard) for shard in shards)
    texts = [{prompts[row][0]["content"] for row in shard} for shard in shards]
    assert sum(map(len, texts)) == len(set().union(*texts)), "no group is split"
    assert all(len(shard) >= MIN_ROWS for shard in shards[:-1])
    for shard, own in zip(shards, texts, strict=True):
        sizes = [sum(prompts[row][0]["content"] == text for row in shard) for text in own]
        assert len(shard) - min(sizes) < MIN_ROWS + max(sizes)
