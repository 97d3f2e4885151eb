"""Tables whose values come back as they were given, also where a column has values of several types.

Arrow columns have one type: 1 beside 2.5 becomes 1.0, and dictionaries get each other's keys. `datasets.Json` keeps
mixed types, but takes text such as "105" for JSON, keeps nine digits of a number, and reads numbers inexactly. A right
answer would then be compared with another gold.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow
from datasets import Dataset, Features, Json
from datasets.features.features import register_feature
from datasets.table import InMemoryTable


@dataclass
class ExactJson(Json):
    """A column of JSON values, encoded and decoded by Python's own module."""

    _type: str = field(default="ExactJson", init=False, repr=False)

    def encode_example(self, example_data: Any) -> str | None:
        return None if example_data is None else json.dumps(example_data)

    def decode_example(self, example_data: str | None, token_per_repo_id: object = None) -> Any:
        return None if example_data is None else json.loads(example_data)


# Tables made of others look their features up by name. The function is experimental, and
# tests/rlvr/data/test_exact_columns.py guards it. All of this can go once `datasets.Json` returns what it was given.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    register_feature(ExactJson, "ExactJson")


def make_dataset(columns: Mapping[str, Sequence[Any]]) -> Dataset:
    """A table with these columns, which all have the same length.

    Raises:
        TypeError, ValueError: a value is of no type that Arrow or JSON have.
    """
    arrays = {name: _as_array(list(values)) for name, values in columns.items()}
    types = [(name, array.type) for name, array in arrays.items() if array is not None]
    features = Features.from_arrow_schema(pyarrow.schema(types))
    for name, array in arrays.items():
        if array is None:
            feature = ExactJson()
            features[name] = feature
            encoded = [feature.encode_example(value) for value in columns[name]]
            arrays[name] = pyarrow.array(encoded, type=feature.pa_type)
    schema = Features({name: features[name] for name in columns}).arrow_schema
    return Dataset(InMemoryTable(pyarrow.table(arrays, schema=schema)))


def as_exact_json(rows: Dataset, column: str) -> Dataset:
    """The table with this column as `ExactJson`, so that tables with other types of it can follow."""
    feature = ExactJson()
    encoded = [feature.encode_example(value) for value in rows[column]]
    return rows.remove_columns(column).add_column(column, encoded, feature=feature)


def _as_array(values: list[Any]) -> pyarrow.Array | None:
    """The column in Arrow's own types; None if it would not come back the same."""
    try:
        array = pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return None
    if pyarrow.types.is_floating(array.type) or pyarrow.types.is_nested(array.type):
        returned = array.to_pylist()
        if not all(map(_is_same, values, returned)):
            return None
    return array


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other)
