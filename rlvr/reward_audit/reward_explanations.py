"""Collect the rewards' explanations of some completions (what they pass to `log_extra`).

An explanation runs a reward's code on model output, so it runs in killable workers. Only rewards in rewards/NAME.py are
loaded: a report of a run directory from another machine must not import files that its recipe names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.formatting import is_number, mapping
from rlvr.reward_audit.reward_call import explanation
from rlvr.scoring.registry import load_reward
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import WorkerPool

TIMEOUT_S, BATCH_TIMEOUT_S = 10.0, 12.0  # a completion, and all; the first call of a worker imports its verifier
MAX_LINES, MAX_LINE_LENGTH = 12, 300


def explain(recipe: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, list[str]]]:
    """For each row, the lines of each reward's explanation, by the reward's short name.

    A reward has none if the row lacks one of its columns, if it does not apply to the row's task, if it is no file in
    rewards/, or if it fails.
    """
    listed = recipe.get("rewards")
    known = [
        {
            "name": entry.get("name"),
            "weight": entry.get("weight", 1.0),
            "options": dict(mapping(entry.get("options"))),
            "applies_to": entry.get("applies_to"),
        }
        for entry in map(mapping, listed if isinstance(listed, list) else [])
        if re.fullmatch(r"[A-Za-z]\w*", str(entry.get("name"))) and is_number(entry.get("weight", 1.0))
    ]
    if not known or not rows:
        return [{} for _ in rows]
    items = [json.dumps({"rewards": known, "row": dict(row)}, default=str).encode() for row in rows]
    results = _pool().map(items, timeout_s=TIMEOUT_S, batch_timeout_s=BATCH_TIMEOUT_S)
    return [result.value if result.status == "done" else {} for result in results]


@cache
def _pool() -> WorkerPool:
    return WorkerPool("rlvr.reward_audit.reward_explanations:explain_item", processes=2)


def explain_item(item: bytes) -> dict[str, list[str]]:
    """Explain the rewards of one row, in a worker."""
    content = json.loads(item)
    row, rewards = content["row"], _rewards(json.dumps(content["rewards"]))
    explanations = {}
    for reward in rewards:
        read = set(reward.columns) - {"prompt", "prompts", "completion"}
        if reward.applies(row.get("task")) and all(row.get(column) is not None for column in read):
            lines = explanation(row, reward, rewards).lines
            if lines:
                explanations[reward.label] = [line[:MAX_LINE_LENGTH] for line in lines[:MAX_LINES]]
    return explanations


@cache
def _rewards(specs: str) -> list[Reward]:
    rewards = []
    for spec in json.loads(specs):
        try:
            rewards.append(load_reward(RewardSpec(**spec)))
        except InputError:  # rewards/ no longer has it
            continue
    return rewards
