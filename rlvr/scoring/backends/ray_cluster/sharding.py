"""Split a batch into Ray tasks.

The completions of one prompt stay together. The split depends on the batch alone and not on the cluster. So a reward
that draws random numbers draws the same ones with any number of nodes, and whichever of them are lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

MIN_ROWS = 8  # per task: sending fewer costs more than they are worth


def split_batch(prompts: Sequence[Any]) -> list[list[int]]:
    """Split the rows of a batch into tasks; the rows of each are ascending."""
    groups: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        groups.setdefault(json.dumps(prompt, default=repr, sort_keys=True), []).append(row)
    shards: list[list[int]] = []
    for rows in groups.values():
        if not shards or len(shards[-1]) >= MIN_ROWS:
            shards.append([])
        shards[-1] += rows
    return [sorted(shard) for shard in shards]
