"""Tasks are mixed by weight: no row is lost, each keeps its values, and none is trained on that another holds out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.mixture import interleave, mix
from rlvr.data.task import Task
from tests.support.input_errors import input_error


def task(*prompts: Any, test: tuple[Any, ...] = (), stop_strings: tuple[str, ...] = (), **columns: Any) -> Task:
    rows = Dataset.from_dict(
        {
            "prompt": [*prompts, *test],
            **{name: [value] * (len(prompts) + len(test)) for name, value in columns.items()},
        }
    )
    held_out = rows.select(range(len(prompts), len(rows)) if test else [])
    return Task(rows.select(range(len(prompts))), rows.select([]), held_out, stop_strings)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 10)), min_size=1, max_size=4),
    st.booleans(),
)
def test_an_epoch_has_every_row_and_each_task_its_share(parts: list[tuple[int, float]], weighted: bool) -> None:
    rows = {str(number): count for number, (count, _) in enumerate(parts)}
    weights = {str(number): weight for number, (_, weight) in enumerate(parts)} if weighted else None
    order, _ = interleave(rows, weights)
    assert set(order) == set(range(sum(rows.values())))
    assert interleave(rows, weights)[0] == order
    start, counts = 0, Counter(order)
    for label, count in rows.items():
        own = [counts[row] for row in range(start, start + count)]
        share = weights[label] / sum(weights.values()) if weights else count / sum(rows.values())
        assert max(own) - min(own) <= 1, "rows repeat equally often"
        assert abs(sum(own) - share * len(order)) <= len(rows), "but for rounding"
        start += count


def test_prompts_of_the_tasks_alternate() -> None:
    order, _ = interleave({"a": 30, "b": 10}, {"a": 3, "b": 1})
    assert all(sum(row >= 30 for row in order[start : start + 4]) == 1 for start in range(0, 40, 4))


def test_rows_have_the_label_and_the_columns_of_all_tasks_with_their_own_values() -> None:
    one = task("a", test=("c",), final_answer="7", difficulty=3, tests=[{"input": "1", "output": "2"}])
    other = task("b", test=("d",), difficulty="hard", tests=[{"assert": "x"}])
    mixed = mix({"one": one, "other": other})
    first, second = mixed.train
    assert first == {"prompt": "a", "task": "one", **one.train[0]}
    assert second == {"prompt": "b", "task": "other", "final_answer": None, **other.train[0]}
    assert [row["prompt"] for row in mixed.test] == ["c", "d"] and len(mixed.validation) == 0
    assert mixed.mixed["other"].test.column_names == [*other.test.column_names, "task"]


def test_a_row_that_another_task_holds_out_is_dropped_and_counted() -> None:
    mixed = mix({"one": task("a", "B  c", "d"), "other": task("e", test=("b c",))})
    assert mixed.train["prompt"][:] == ["a", "e", "d"]
    assert sum("holds out" in note for note in mixed.notes) == 1


CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("one", "other", "weights", "kind", "why"),
    [
        (task("a"), task(CHAT), None, "mixed-prompts", "text and messages"),
        (task("a", stop_strings=("\n",)), task("b"), None, "mixed-stop-strings", "only one ends at a line"),
        (task("a"), task("b", task="x"), None, "reserved-column", "the label needs the column"),
        (task("a"), task(test=("b",)), None, "no-rows", "nothing to train"),
        (task("a"), task("b", test=("a",)), None, "empty-data", "all is held out"),
        (task("a"), task("b"), {"one": 1.0, "other": 1e9}, "out-of-range", "the one row a billion times"),
    ],
)
def test_tasks_that_cannot_be_mixed_are_refused(
    one: Task, other: Task, weights: dict[str, float] | None, kind: str, why: str
) -> None:
    with input_error(kind, why=why):
        mix({"one": one, "other": other}, weights)
