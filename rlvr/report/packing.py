"""Pack completions into the page for its browser.

A long run has more completions than a page can hold. The page then holds whole groups, so that the completions of a
prompt can be compared: first held-out rows, then a group of every step in turn, until the page is full. The page states
how many completions it holds.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from rlvr.environments.transcript import SECONDS, STOPPED, call_seconds, cut, fit, is_conversation, turns
from rlvr.formatting import is_number, shorten
from rlvr.report.rollouts import BASE, TRAINED, Rollout, RunRollouts, other_columns
from rlvr.report.run_reader import RunRecord
from rlvr.reward_audit import reward_explanations

# Characters of all completions, of one, and of a prompt; compressed bytes of all.
MAX_CHARACTERS, COMPLETION_LIMIT, PROMPT_LIMIT = 24_000_000, 8000, 6000
MAX_BYTES = 10_000_000
MAX_EXPLAINED = 400
Item = TypeVar("Item")
GroupKey = tuple[int, str]  # the stage and the prompt
Explanations = Mapping[tuple[int, int], Mapping[str, Sequence[str]]]
EVALUATION_TITLES = {"formatted": "in the required format", "lenient": "right in any format"}


@dataclass(frozen=True)
class PackedRollouts:
    """The completions in the page."""

    data: str  # JSON, compressed with gzip, in base64: no character has a meaning in HTML
    shown: int  # number of completions in it
    all: int  # number in the run directory
    explained: int  # number of those shown with an explanation of their rewards
    notes: tuple[str, ...]


def pack(run: RunRecord, rollouts: RunRollouts, limit: int = MAX_CHARACTERS) -> PackedRollouts | None:
    """Choose and compress the completions for the page; None without completions."""
    if not rollouts.items:
        return None
    chosen = _choose(rollouts.items, limit)
    explanations = _explain(run, chosen)
    data = _compressed(run, rollouts, chosen, explanations)
    while len(data) > MAX_BYTES:
        limit = int(0.85 * min(limit, _characters(chosen)) * MAX_BYTES / len(data))
        chosen = _choose(rollouts.items, limit)
        data = _compressed(run, rollouts, chosen, explanations)
    explained = sum(bool(explanations.get(item.key)) for item in chosen)
    return PackedRollouts(
        base64.b64encode(data).decode("ascii"), len(chosen), len(rollouts.items), explained, rollouts.notes
    )


def _size(item: Rollout) -> int:
    return min(len(item.text), COMPLETION_LIMIT) + 100


def _characters(items: Sequence[Rollout]) -> int:
    prompts = {item.group: min(len(item.group), PROMPT_LIMIT) for item in items}
    return sum(map(_size, items)) + sum(prompts.values())


def _choose(items: Sequence[Rollout], limit: int) -> list[Rollout]:
    """Choose as many groups as fit, in the order of the stages."""
    if _characters(items) <= limit:
        return sorted(items, key=attrgetter("key"))
    groups: dict[GroupKey, list[Rollout]] = {}
    for item in items:
        groups.setdefault((item.stage, item.group), []).append(item)
    left, taken = limit, set[GroupKey]()
    for share, candidates in ((0.25, _held_out(groups)), (1.0, _in_turn(groups))):
        reserve = left - int(share * left)
        for names in candidates:
            new = [name for name in names if name not in taken]
            cost = sum(min(len(name[1]), PROMPT_LIMIT) + sum(map(_size, groups[name])) for name in new)
            if left - cost < reserve:
                break
            left -= cost
            taken.update(new)
    return sorted((item for name in taken for item in groups[name]), key=attrgetter("key"))


def _held_out(groups: Mapping[GroupKey, Sequence[Rollout]]) -> Iterator[list[GroupKey]]:
    for prompt in dict.fromkeys(prompt for stage, prompt in groups if stage < 0):
        yield [(stage, prompt) for stage in (BASE, TRAINED) if (stage, prompt) in groups]


def _in_turn(groups: Mapping[GroupKey, Sequence[Rollout]]) -> Iterator[list[GroupKey]]:
    """Yield the first group of every step, then the second, and so on. Steps far apart come first."""
    of_step: dict[int, list[str]] = {}
    for stage, prompt in groups:
        if stage >= 0:
            of_step.setdefault(stage, []).append(prompt)
    steps = sorted(of_step)
    order = sorted(range(len(steps)), key=lambda place: int(f"{place:032b}"[::-1], 2))
    if steps:  # both ends come first
        order = [0, len(steps) - 1, *(place for place in order if place not in (0, len(steps) - 1))]
    for group in _interleave([[(steps[place], prompt) for prompt in of_step[steps[place]]] for place in order]):
        yield [group]


def _interleave(queues: Sequence[Sequence[Item]]) -> Iterator[Item]:
    """Yield the first item of every queue, then the second, and so on."""
    for turn in itertools.zip_longest(*queues):
        yield from (item for item in turn if item is not None)


def _explain(run: RunRecord, chosen: Sequence[Rollout]) -> dict[tuple[int, int], dict[str, list[str]]]:
    """Explain the rewards of some chosen completions: the first of each stage, then the second, and so on."""
    by_stage: dict[int, list[Rollout]] = {}
    for item in chosen:
        if len(item.text) <= COMPLETION_LIMIT:
            by_stage.setdefault(item.stage, []).append(item)
    training = sorted(stage for stage in by_stage if stage >= 0)
    spread = sorted({training[place * (len(training) - 1) // 24] for place in range(25)}) if training else []
    shown: list[Rollout] = []
    for stages, share in (([BASE, TRAINED], MAX_EXPLAINED // 2), (spread, MAX_EXPLAINED)):
        queues = [by_stage[stage] for stage in stages if stage in by_stage]
        shown += itertools.islice(_interleave(queues), share - len(shown))
    explanations = reward_explanations.explain(run.recipe, [item.row for item in shown])
    return {item.key: lines for item, lines in zip(shown, explanations, strict=True)}


def _compressed(run: RunRecord, rollouts: RunRollouts, chosen: Sequence[Rollout], explanations: Explanations) -> bytes:
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
        "why": [explanations.get(item.key) or 0 for item in chosen],
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
    seconds = [value for value in call_seconds(item.row) if value is not None]
    return [*shown, ("time in tools", f"{sum(seconds):.3g} s")] if seconds else shown


def _rounded(value: Any) -> float | None:
    return float(f"{value:.4g}") if is_number(value) else None
