"""Which rows of a batch travel in which Ray task, and a batch put together from what the tasks came to.

Completions of one prompt stay together, and so do rows that have the same completion and the same tests: what is
judged is then judged once in the whole batch. How a batch is shared out depends on the batch alone and not on the
cluster, so a reward that draws random numbers draws the same ones however many nodes there are, and whichever of them
are lost.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.scoring.failures import merged, reply_of
from rlvr.workers.pool import TaskResult

ROWS = 8  # of a task, at least: fewer would cost more than they are worth


def chunks_of(given: Mapping[str, Any], rows: int, alike: Sequence[str] = ()) -> list[list[int]]:
    """The rows of each task, ascending.

    Args:
        given: the columns of a batch.
        alike: columns by which rows with the same completion are known to have the same judgement; none if rows are
            not judged.
    """
    groups: dict[bytes, int] = {}
    joined: list[int] = []  # for each group the one that it belongs to, itself or an earlier one
    of_row: list[int] = []
    for prompt in given["prompts"]:
        key = _digest(prompt)
        if key not in groups:
            groups[key] = len(joined)
            joined.append(len(joined))
        of_row.append(groups[key])

    def root(group: int) -> int:
        while joined[group] != group:
            joined[group] = joined[joined[group]]
            group = joined[group]
        return group

    if alike:
        first: dict[tuple[bytes, ...], int] = {}
        known: dict[int, bytes] = {}  # tests by the megabyte are the same object for a whole group
        for row in range(rows):
            values = [given["completions"][row], *(given[name][row] for name in alike if name in given)]
            for value in values:
                if id(value) not in known:
                    known[id(value)] = _digest(value)
            one, other = sorted((root(of_row[row]), root(first.setdefault(_key(values, known), of_row[row]))))
            joined[other] = one
    members: dict[int, list[int]] = {}
    for row, group in enumerate(of_row):
        members.setdefault(root(group), []).append(row)
    chunks: list[list[int]] = []
    for group_rows in members.values():
        if not chunks or len(chunks[-1]) >= ROWS:
            chunks.append([])
        chunks[-1] += group_rows
    return [sorted(chunk) for chunk in chunks]


def together(found: Sequence[tuple[TaskResult, Sequence[int]]]) -> TaskResult:
    """What became of a call whose rows were shared out, from its parts and their rows."""
    in_order = sorted(found, key=lambda part: list(part[1]))
    whole = merged([(outcome, len(rows)) for outcome, rows in in_order])
    order = [row for _, rows in in_order for row in rows]
    reply = reply_of(whole)
    if reply is None or reply.kind or order == sorted(order):
        return whole
    places = sorted(range(len(order)), key=order.__getitem__)
    notes = [
        (what, name, [value[place] for place in places] if what == "extra" and len(value) == len(order) else value)
        for what, name, value in reply.notes
    ]
    reply = replace(reply, values=[reply.values[place] for place in places], notes=notes)
    return TaskResult("done", vars(reply))


def _key(values: Sequence[Any], known: Mapping[int, bytes]) -> tuple[bytes, ...]:
    return tuple(known[id(value)] for value in values)


def _digest(value: Any) -> bytes:
    try:
        data = json.dumps(value, default=repr, sort_keys=True).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        data = pickle.dumps(value)
    return hashlib.sha256(data).digest()
