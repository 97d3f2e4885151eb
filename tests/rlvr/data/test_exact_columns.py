"""Values come out of a table as they went in."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from datasets import Dataset, Json, concatenate_datasets

from rlvr.data.exact_columns import ExactJson, as_exact_json, make_dataset
from rlvr.data.splits import to_datasets

LONG = 0.1234567890123456789

COLUMNS = [
    # values, whether Arrow has a type of its own for them
    (["105", 7, "007", "1e3", "true", "NaN", '"quoted"', None], False),
    ([1, 2.5], False),
    ([1, True], False),
    ([2**70, 1], False),
    (["x", 1.906335266628173e-168], False),
    ([["7"], [8]], False),
    ([["7"], "8"], False),
    ([{"a": "7"}, {"a": 8}], False),
    ([{"a": 1}, {"b": 2}], False),
    ([{}, {"a": 1}], False),
    ([[{"call": [1], "expected": "8"}], [{"call": [2.5], "expected": LONG}]], False),
    ([[{"call": [{"a": 1}], "expected": 1}], [{"call": [{"b": 1}], "expected": 1}]], False),
    ([1, 2, None], True),
    ([1.5, LONG, None], True),
    (["105", "x", None], True),
    ([None, None], True),
    ([[], [1]], True),
    ([[{"role": "user", "content": "x"}]], True),
]


@pytest.mark.parametrize(("values", "is_typed"), COLUMNS, ids=str)
def test_values_come_back_as_they_are(values: list[Any], is_typed: bool) -> None:
    number = list(range(len(values)))
    table = make_dataset({"x": values, "number": number})
    assert (table.features["x"] != ExactJson()) == is_typed
    made_of_it = [
        table,
        table.select(number),
        table.select_columns("x"),
        pickle.loads(pickle.dumps(table)),
        table.add_column("other", ["t"] * len(values)),
        concatenate_datasets([table, table]).select(number),
        as_exact_json(table, "x"),
    ]
    for rows in made_of_it:
        assert repr(rows["x"][:]) == repr([row["x"] for row in rows]) == repr(values)


def test_splits_have_one_type_without_changing_each_other() -> None:
    """A row of the test split must not make other values of those in training."""
    splits = to_datasets(train=[{"x": "105"}, {"x": "007"}], validation=[], test=[{"x": 7, "y": 1}])
    assert splits["train"][:] == {"x": ["105", "007"], "y": [None, None]} and splits["test"][:] == {"x": [7], "y": [1]}
    assert splits["train"].features == splits["validation"].features == splits["test"].features


def test_the_type_of_datasets_still_changes_values() -> None:
    """Otherwise ExactJson can go."""
    changed = Dataset.from_dict({"x": ["105", 7]}, on_mixed_types="use_json")
    assert changed.features["x"] == Json() and changed["x"][:] == [105, 7]
