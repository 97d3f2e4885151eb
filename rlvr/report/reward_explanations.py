"""Why a completion got its rewards: the words of each reward's own `explain`, for a bounded number of completions.

Explaining runs a reward's code on what a model wrote, so it happens in workers that can be killed. Only rewards of the
shelf (rewards/NAME.py) are asked: making a report of a run directory from elsewhere must not import what it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rlvr.formatting import is_number, mapping
from rlvr.report.run_facts import entries

if TYPE_CHECKING:
    from rlvr.scoring.reward import Reward
    from rlvr.workers.pool import WorkerPool

DEADLINE_S, BUDGET_S = 10.0, 12.0  # a completion, and all of them; a worker's first one imports its verifier
MOST_LINES, MOST_LINE = 12, 300


def explain(recipe: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, list[str]]]:
    """For each row, the lines of each reward that has something to say, by its short name.

    A reward that needs a column which the row lacks, that is no file of rewards/, or that fails, says nothing.
    """
    known = [
        {"name": entry["name"], "weight": entry.get("weight", 1.0), "options": dict(mapping(entry.get("options")))}
        for entry in entries(recipe.get("rewards"))
        if re.fullmatch(r"[A-Za-z]\w*", str(entry.get("name"))) and is_number(entry.get("weight", 1.0))
    ]
    if not known or not rows:
        return [{} for _ in rows]
    items = [json.dumps({"rewards": known, "row": dict(row)}, default=str).encode() for row in rows]
    outcomes = _pool().map(items, timeout_s=DEADLINE_S, batch_timeout_s=BUDGET_S)
    return [outcome.value if outcome.status == "done" else {} for outcome in outcomes]


@cache
def _pool() -> WorkerPool:
    from rlvr.workers.pool import WorkerPool

    return WorkerPool("rlvr.report.reward_explanations:explain_item", processes=2)


# ── In a worker ─────────────────────────────────────────────────────────────────────────────────────────────────────


def explain_item(item: bytes) -> dict[str, list[str]]:
    from rlvr.rescoring import scores as rescoring

    content = json.loads(item)
    row, rewards = content["row"], _rewards(json.dumps(content["rewards"]))
    found = {}
    for reward in rewards:
        if all(row.get(column) is not None for column in set(reward.columns) - {"prompt", "prompts", "completion"}):
            said = rescoring.explanation(row, reward, rewards)
            if said.lines:
                found[reward.label] = [line[:MOST_LINE] for line in said.lines[:MOST_LINES]]
    return found


@cache
def _rewards(specs: str) -> list[Reward]:
    from rlvr.config.recipe import RewardSpec
    from rlvr.errors import InputError
    from rlvr.scoring.registry import load_reward

    found = []
    for spec in json.loads(specs):
        try:
            found.append(load_reward(RewardSpec(**spec)))
        except InputError:  # a reward that the shelf no longer has: it has no words either
            continue
    return found
