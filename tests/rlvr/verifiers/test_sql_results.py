"""Whether the order of a query's rows counts, and which results are equal."""

from __future__ import annotations

import time

import pytest

from rlvr.verifiers.sql_results import is_ordered, same_rows


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY abs(coalesce(a, 0)), id", True),
        ("SELECT a FROM t ORDER BY max(min(a, (b + 1)), 2) DESC LIMIT 3;", True),
        ("SELECT a FROM t oRDER\n\t bY a", True),
        ("SELECT a FROM t ORDER /* down */ BY -- the first\n a", True),
        ("SELECT ')' FROM t ORDER BY a", True),
        ("SELECT 1 -- (\nORDER BY a", True),
        ("SELECT 'it''s (', a FROM t ORDER BY a", True),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("WITH w AS (SELECT 1) SELECT a FROM (SELECT a FROM t) ORDER BY a", True),
        ("SELECT a FROM t", False),
        ("SELECT a FROM t WHERE b = 'order by'", False),
        ("SELECT a FROM t WHERE b = 'it''s order by a'", False),
        ('SELECT "order" by FROM t', False),
        ("SELECT [order by a] FROM t", False),
        ("SELECT a AS `order by` FROM t", False),
        ("SELECT a FROM t -- order by a", False),
        ("SELECT a FROM t /* order by a */", False),
        ("SELECT a FROM t /* 'x' order by a", False),
        ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY abs(a)) FROM t", False),
        ("SELECT * FROM (SELECT a FROM t WHERE b IN (1, (2)) ORDER BY a) WHERE a > 1", False),
        ("WITH w AS (SELECT a FROM t ORDER BY max(a, (0))) SELECT a FROM w", False),
        ("SELECT border FROM t, by", False),
    ],
)
def test_the_order_counts_if_order_by_stands_outside_of_brackets(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) == ordered


@pytest.mark.parametrize("part", ["order by ((", "order by (a) (", "'", "[", '"`', "/* ", "--", "/*/", "o ", "("])
def test_a_query_is_read_in_linear_time(part: str) -> None:
    started = time.thread_time()
    is_ordered("SELECT " + part * (400_000 // len(part)))
    assert time.thread_time() - started < 2.0


def test_rows_are_compared_as_often_as_they_occur() -> None:
    assert same_rows([(1,), (2,), (1,)], [(1,), (1,), (2,)], ordered=False)
    assert not same_rows([(1,), (2,), (2,)], [(1,), (1,), (2,)], ordered=False)
