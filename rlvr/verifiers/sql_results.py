"""Read and compare the results of queries."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# Comments, strings and quoted names (each to the end if it is not closed), words, and brackets.
_TOKEN = re.compile(r"""--.*|/\*(?s:.*?)(?:\*/|\Z)|'[^']*'?|"[^"]*"?|`[^`]*`?|\[[^\]]*\]?|[\w$:@]+|[()]""")
Row = tuple[Any, ...]


def read_rows(result: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows of a result of sql_queries.py."""
    return tuple(tuple(_value(value) for value in row) for row in result["rows"])


def _value(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


def is_ordered(sql: str) -> bool:
    """Whether the order of a query's rows counts: it has ORDER BY outside of all brackets."""
    depth, before = 0, ""
    for token in _TOKEN.findall(sql.lower()):
        if token.startswith(("--", "/*")):
            continue
        depth += (token == "(") - (token == ")")
        if depth == 0 and (before, token) == ("order", "by"):
            return True
        before = token
    return False


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
