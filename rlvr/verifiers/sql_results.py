"""Read and compare the results of queries."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_ENDS_IN_ORDER_BY = re.compile(r"\border\s+by\b[^()]*(\([^()]*\)[^()]*)*;?\s*\Z", re.IGNORECASE)
Row = tuple[Any, ...]


def read_rows(result: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows of a result of sql_queries.py."""
    return tuple(tuple(_value(value) for value in row) for row in result["rows"])


def _value(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


def is_ordered(sql: str) -> bool:
    """Whether the order of a query's rows counts: it ends in ORDER BY."""
    return bool(_ENDS_IN_ORDER_BY.search(sql))


def same_rows(rows: Sequence[Row], gold: Sequence[Row], *, ordered: bool) -> bool:
    """Whether two results have the same rows, each as often; in the same order if `ordered`."""
    keys, gold_keys = [_key(row) for row in rows], [_key(row) for row in gold]
    return keys == gold_keys if ordered else Counter(keys) == Counter(gold_keys)


def _key(row: Row) -> Row:
    """Return a row in which numbers that differ by rounding alone are equal: SQLite may sum in any order."""
    return tuple(_rounded(value) if isinstance(value, float) and math.isfinite(value) else value for value in row)


def _rounded(value: float) -> int | float:
    rounded = value if value.is_integer() else float(f"{value:.9e}")
    return int(rounded) if rounded.is_integer() else rounded
