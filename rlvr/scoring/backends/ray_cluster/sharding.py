"""Split a batch into Ray tasks.

The completions of one prompt stay together, and so do rows with the same completion and the same tests: a program is
then judged once in the whole batch. The split depends on the batch alone and not on the cluster. So a reward that draws
random numbers draws the same ones with any number of nodes, and whichever of them are lost.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

MIN_ROWS = 8  # per task: sending fewer costs more than they are worth


def split_batch(columns: Mapping[str, Any], rows: int, same_judgement: Sequence[str] = ()) -> list[list[int]]:
    """Split rows into tasks; the rows of each are ascending.

    Args:
        same_judgement: columns that, with the completion, determine a judgement; none if rows are not judged.
    """
    groups: dict[bytes, int] = {}
    parent: list[int] = []  # union-find over groups: each points to itself or to an earlier group
    group_of_row: list[int] = []
    for prompt in columns["prompts"]:
        digest = _digest(prompt)
        if digest not in groups:
            groups[digest] = len(parent)
            parent.append(len(parent))
        group_of_row.append(groups[digest])

    def root(group: int) -> int:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    if same_judgement:
        first_group: dict[tuple[bytes, ...], int] = {}
        digests: dict[int, bytes] = {}  # by identity: the rows of a group share one object with megabytes of tests
        for row in range(rows):
            values = [columns["completions"][row], *(columns[name][row] for name in same_judgement if name in columns)]
            for value in values:
                if id(value) not in digests:
                    digests[id(value)] = _digest(value)
            key = tuple(digests[id(value)] for value in values)
            one, other = sorted((root(group_of_row[row]), root(first_group.setdefault(key, group_of_row[row]))))
            parent[other] = one
    rows_of_root: dict[int, list[int]] = {}
    for row, group in enumerate(group_of_row):
        rows_of_root.setdefault(root(group), []).append(row)
    shards: list[list[int]] = []
    for group_rows in rows_of_root.values():
        if not shards or len(shards[-1]) >= MIN_ROWS:
            shards.append([])
        shards[-1] += group_rows
    return [sorted(shard) for shard in shards]


def _digest(value: Any) -> bytes:
    try:
        data = json.dumps(value, default=repr, sort_keys=True).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        data = pickle.dumps(value)
    return hashlib.sha256(data).digest()
