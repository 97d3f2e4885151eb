"""Splits do not share a question, and a limit draws the same rows as a smaller one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.splits import hold_out, limit_rows, question_key


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2)), st.floats(0, 0.9), st.text(max_size=3))
def test_held_out_rows_share_no_question_with_the_rest(questions: list[str], fraction: float, seed: str) -> None:
    rows = [{"question": question, "id": index} for index, question in enumerate(questions)]
    rest, held = hold_out(rows, fraction, seed, lambda row: question_key(row["question"]))
    assert sorted([*rest, *held], key=lambda row: row["id"]) == rows
    assert not {row["question"] for row in rest} & {row["question"] for row in held}
    assert len(held) >= round(fraction * len(rows))


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 50), st.text(max_size=5))
def test_a_larger_limit_adds_to_a_smaller_one(count: int, one: int, other: int, seed: str) -> None:
    small, large = (limit_rows(list(range(count)), limit, seed) for limit in sorted((one, other)))
    assert len(small) == min(one, other, count) and len(large) == min(max(one, other), count)
    assert set(small) <= set(large) and large == sorted(large)
