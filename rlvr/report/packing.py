"""Pack completions into the page for its browser.

A long run has more completions than a page can hold. The page then holds whole groups, so that the completions of a
prompt can be compared: held-out rows, then evenly spaced groups of training. The page states how many completions it
holds.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rlvr.environments.transcript import SECONDS, STOPPED, cut, fit, is_conversation, tool_seconds, turns
from rlvr.formatting import is_number, shorten
from rlvr.report.rollouts import TRAINED, Rollout, RunRollouts, other_columns
from rlvr.report.run_reader import RunRecord

# Characters of all completions, of one, and of a prompt; compressed bytes of all.
MAX_CHARACTERS, COMPLETION_LIMIT, PROMPT_LIMIT = 24_000_000, 8000, 6000
MAX_BYTES = 10_000_000
EVALUATION_TITLES = {"formatted": "in the required format", "lenient": "right in any format"}


@dataclass(frozen=True)
class PackedRollouts:
    """The completions in the page."""

    data: str  # JSON, compressed with gzip, in base64: no character has a meaning in HTML
    shown: int  # number of completions in it


def pack(run: RunRecord, rollouts: RunRollouts, limit: int = MAX_CHARACTERS) -> PackedRollouts | None:
    """Choose and compress the completions for the page; None without completions."""
    if not rollouts.items:
        return None
    chosen = _choose(rollouts.items, limit)
    data = _compressed(run, rollouts, chosen)
    while len(data) > MAX_BYTES:
        limit = int(0.85 * min(limit, _characters(chosen)) * MAX_BYTES / len(data))
        chosen = _choose(rollouts.items, limit)
        data = _compressed(run, rollouts, chosen)
    return PackedRollouts(base64.b64encode(data).decode("ascii"), len(chosen))


def _characters(items: Sequence[Rollout]) -> int:
    prompts = {item.group: min(len(item.group), PROMPT_LIMIT) for item in items}
    return sum(min(len(item.text), COMPLETION_LIMIT) + 100 for item in items) + sum(prompts.values())


def _choose(items: Sequence[Rollout], limit: int) -> list[Rollout]:
    """Choose as many groups as fit, in the order of the stages. Held-out rows get at most a quarter."""
    items = sorted(items, key=attrgetter("key"))
    if _characters(items) <= limit:
        return items
    groups: dict[tuple[int, str], list[Rollout]] = {}
    for item in items:
        groups.setdefault((max(item.stage, TRAINED), item.group), []).append(item)  # base and trained together
    held_out = _spread([group for (stage, _), group in groups.items() if stage == TRAINED], limit // 4)
    training = [group for (stage, _), group in groups.items() if stage != TRAINED]
    return sorted([*held_out, *_spread(training, limit - _characters(held_out))], key=attrgetter("key"))


def _spread(groups: Sequence[Sequence[Rollout]], limit: int) -> list[Rollout]:
    """Choose evenly spaced groups, with the first and the last one, that have at most `limit` characters."""
    number = len(groups)
    while True:
        places = [place * (len(groups) - 1) // max(number - 1, 1) for place in range(number)]
        chosen = [item for place in places for item in groups[place]]
        if (characters := _characters(chosen)) <= limit:
            return chosen
        number = int(0.95 * number * limit / characters)


def _compressed(run: RunRecord, rollouts: RunRollouts, chosen: Sequence[Rollout]) -> bytes:
    examples = {item.group: item for item in reversed(chosen)}
    prompt_index = {group: index for index, group in enumerate(examples)}

    def several(item: Rollout) -> bool:
        return is_conversation(item.row["completion"])

    content = {
        "rewards": rollouts.rewards,
        "weights": [run.weights.get(name) for name in rollouts.rewards],
        "metric": run.metric if run.metric in rollouts.rewards else "",
        "prompts": [
            [(role, shorten(text, PROMPT_LIMIT)) for role, text in turns(item.row.get("prompt"))]
            for item in examples.values()
        ],
        "stage": [item.stage for item in chosen],
        "number": [item.number for item in chosen],
        "prompt": [prompt_index[item.group] for item in chosen],
        "text": ["" if several(item) else shorten(item.text, COMPLETION_LIMIT) for item in chosen],
        "turns": [fit(item.turns, COMPLETION_LIMIT) if several(item) else 0 for item in chosen],
        "values": [[_rounded(value) for value in item.rewards] for item in chosen],
        "total": [_rounded(item.total) for item in chosen],
        "right": [None if item.right is None else int(item.right) for item in chosen],
        "advantage": [_rounded(item.row.get("advantage")) for item in chosen],
        "tokens": [_rounded(item.row.get("tokens")) for item in chosen],
        "cut": [cut(item.row) for item in chosen],
        "columns": [_shown_columns(item, rollouts.rewards) for item in chosen],
    }
    # ASCII, because UTF-8 can't encode a lone surrogate; gzip makes up for the length.
    return gzip.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii"), 6, mtime=0)


def _shown_columns(item: Rollout, rewards: Sequence[str]) -> list[tuple[str, str]]:
    """The other columns, with the titles of the accuracy table for those of an evaluation."""
    titles = EVALUATION_TITLES if item.stage < 0 else {}
    others = other_columns(item.row, rewards)
    if SECONDS not in item.row:
        return [(titles.get(name, name), value) for name, value in others]
    shown = [(titles.get(name, name), value) for name, value in others if name not in (STOPPED, SECONDS)]
    seconds = tool_seconds(item.row)
    return shown if seconds is None else [*shown, ("time in tools", f"{seconds:.3g} s")]


def _rounded(value: Any) -> float | None:
    return float(f"{value:.4g}") if is_number(value) else None
