"""A handful of completions from a run directory, chosen by rule and not by eye.

Everything here was written by a model or by a data set: whoever shows it must escape it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.formatting import COMPLETION_LIMIT, PROMPT_LIMIT, shorten

MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Answer:
    """One completion: who gave it, its text, its rewards by name, and whether it is right (None: not said)."""

    who: str
    text: str
    rewards: tuple[tuple[str, str], ...]
    right: bool | None = None
    cut_off: bool = False


@dataclass(frozen=True)
class Example:
    """A prompt, as (role, text) pairs with an empty role for plain text, and answers to it."""

    prompt: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    expected: str = ""


@dataclass(frozen=True)
class Changed:
    """Held-out problems whose answer changed sides: how many, and the first few of them."""

    count: int
    examples: tuple[Example, ...]


def training_answers(folder: Path) -> list[tuple[int, Example]]:
    """The step and an example of the first and of the last training step that were logged.

    The example is the first group of the step whose completions differ in their reward (the first group at all if none
    does), with its best and its worst completion.
    """
    files = {
        int(match[1]): path
        for path in sorted(folder.glob("completions_*.parquet"))
        if (match := re.fullmatch(r"completions_(\d+)\.parquet", path.name))
    }
    found = []
    for order in (sorted(files), sorted(files, reverse=True)):
        # A file that a killed run left half written is passed over.
        for step in order:
            rows = [row for row in _read(files[step]) if {"prompt", "completion"} <= row.keys()]
            if rows:
                found.append((step, _of_a_step(rows)))
                break
    return found[:1] if len(found) == 2 and found[0][0] == found[1][0] else found


def changed_answers(folder: Path) -> tuple[Changed, Changed] | None:
    """Held-out problems that base got wrong and trained right, and the other way round; None without both files."""
    base, trained = (
        {row["row"]: row for row in _read(folder / f"evaluation_{name}.parquet") if _is_evaluated(row)}
        for name in ("base", "trained")
    )
    if not base or not trained:
        return None
    pairs = [(base[row], trained[row]) for row in sorted(base.keys() & trained.keys())]
    pairs = [pair for pair in pairs if pair[0]["prompt"] == pair[1]["prompt"]]
    gained = [pair for pair in pairs if pair[0]["correct"] is False and pair[1]["correct"] is True]
    lost = [pair for pair in pairs if pair[0]["correct"] is True and pair[1]["correct"] is False]
    return _changed(gained), _changed(lost)


def _read(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file; none where it is missing or unreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException):
        return []


def _is_evaluated(row: Mapping[str, Any]) -> bool:
    return {"row", "prompt", "completion", "correct"} <= row.keys()


def _of_a_step(rows: Sequence[Mapping[str, Any]]) -> Example:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(repr(row["prompt"]), []).append(row)

    def advantage(row: Mapping[str, Any]) -> float:
        return row.get("advantage") or 0.0

    group = next(
        (group for group in groups.values() if max(map(advantage, group)) > min(map(advantage, group))),
        next(iter(groups.values())),
    )
    best, worst = max(group, key=advantage), min(group, key=advantage)
    if advantage(best) == advantage(worst):
        answers = tuple(_answer(f"completion {number}", row) for number, row in enumerate(group[:2], start=1))
    else:
        answers = (
            _answer(f"best of {len(group)}", best),
            _answer(f"worst of {len(group)}", worst),
        )
    return Example(_prompt(group[0]["prompt"]), answers)


def _changed(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Changed:
    examples = []
    for base, trained in pairs[:MOST_EXAMPLES]:
        gold = base.get("final_answer")
        answers = (_answer("base", base), _answer("trained", trained))
        examples.append(Example(_prompt(base["prompt"]), answers, "" if gold is None else shorten(str(gold), 300)))
    return Changed(len(pairs), tuple(examples))


def _answer(who: str, row: Mapping[str, Any]) -> Answer:
    # TRL writes one column a reward, an evaluation calls it rewards/NAME; text columns are a reward's own logging.
    other = ("step", "row", "tokens", "difficulty")
    rewards = tuple(
        (name.removeprefix("rewards/"), f"{value:.2f}".replace("-", "−"))
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in other
    )
    text = "\n".join(text for _, text in messages(row["completion"]))
    return Answer(who, shorten(text, COMPLETION_LIMIT), rewards, row.get("correct"), row.get("ended") is False)


def _prompt(prompt: Any) -> tuple[tuple[str, str], ...]:
    return tuple((role, shorten(text, PROMPT_LIMIT)) for role, text in messages(prompt))


def messages(content: Any) -> list[tuple[str, str]]:
    """A prompt or a completion as (role, text) pairs: plain text has no role."""
    if isinstance(content, list):
        messages = [item for item in content if isinstance(item, dict)]
        return [(str(item.get("role") or ""), _text(item.get("content"))) for item in messages]
    return [("", _text(content))]


def _text(content: Any) -> str:
    """The text of a message: as it is, or from the parts of a multimodal one."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)
