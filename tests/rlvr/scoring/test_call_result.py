"""Results of shards and rows are merged in the order of the batch."""

from __future__ import annotations

from rlvr.scoring.call_result import CallResult, merge_shards


def shard(rows: list[int]) -> tuple[CallResult, list[int]]:
    notes = [("extra", "seen", [f"row {row}" for row in rows]), ("metric", "mean", float(rows[0]))]
    return CallResult([float(row) for row in rows], notes=notes), rows


def test_values_and_logged_columns_are_put_in_the_order_of_the_rows() -> None:
    merged = merge_shards([shard([2, 5]), shard([0, 3, 4]), shard([1])])
    assert merged.values == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert merged.notes == [
        ("extra", "seen", [f"row {row}" for row in range(6)]),
        ("metric", "mean", (2.0 * 2 + 0.0 * 3 + 1.0) / 6),
    ]


def test_a_failed_shard_fails_the_batch() -> None:
    lost = CallResult(status="unavailable", why="gone")
    assert merge_shards([shard([1, 2]), (lost, [0, 3])]) == lost
