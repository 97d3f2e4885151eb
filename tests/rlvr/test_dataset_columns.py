"""Values read many rows at a time are those of single rows."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset

from rlvr.data.exact_columns import make_dataset
from rlvr.dataset_columns import ROWS_AT_A_TIME, column_values, rows_at

COLUMNS = [
    (["105", None, "x"], "Arrow's own type"),
    ([1, 2.5, "7"], "ExactJson"),
    ([[{"call": [1], "expected": "8"}], [{"call": [2.5], "expected": 0.1}], []], "nested ExactJson"),
    ([[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}], []], "chat messages"),
]


@pytest.mark.parametrize(("values", "why"), COLUMNS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_column_and_its_rows_are_those_that_were_given(values: list[Any], why: str) -> None:
    rows = make_dataset({"value": values, "id": ["a", "b", "c"]})
    assert list(column_values(rows, "value")) == values == list(rows["value"]), why
    assert rows_at(rows, [2, 0, 2]) == [rows[2], rows[0], rows[2]], why


def test_a_column_is_read_in_parts_without_gaps() -> None:
    numbers = list(range(2 * ROWS_AT_A_TIME + 1))
    rows = Dataset.from_dict({"value": numbers})
    assert list(column_values(rows, "value")) == numbers
    assert list(column_values(rows.select(range(0)), "value")) == []
    selected = rows.select(reversed(numbers))
    assert list(column_values(selected, "value")) == numbers[::-1]
