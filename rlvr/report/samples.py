"""Choose a few example completions of a run by fixed rules.

Models and data sets wrote these texts: escape them before showing them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.formatting import COMPLETION_LIMIT, PROMPT_LIMIT, shorten

MAX_EXAMPLES = 3


@dataclass(frozen=True)
class ShownAnswer:
    """One completion: its label, its text, its rewards by name, and whether it is right (None: unknown)."""

    label: str
    text: str
    rewards: tuple[tuple[str, str], ...]
    right: bool | None = None
    cut_off: bool = False


@dataclass(frozen=True)
class Example:
    """A prompt, as (role, text) pairs (an empty role for plain text), and answers to it."""

    prompt: tuple[tuple[str, str], ...]
    answers: tuple[ShownAnswer, ...]
    expected: str = ""


@dataclass(frozen=True)
class ChangedProblems:
    """Held-out problems whose answers became right, or wrong: their number, and the first few."""

    count: int
    examples: tuple[Example, ...]


def training_answers(folder: Path) -> list[tuple[int, Example]]:
    """The step and an example of the first and the last logged training step.

    The example is the best and the worst completion of the step's first group with different rewards, or of its first
    group if there is none.
    """
    files = {
        int(match[1]): path
        for path in sorted(folder.glob("completions_*.parquet"))
        if (match := re.fullmatch(r"completions_(\d+)\.parquet", path.name))
    }
    examples: list[tuple[int, Example]] = []
    for order in (sorted(files), sorted(files, reverse=True)):
        # A killed run may leave a file half-written.
        for step in order:
            rows = [row for row in _read(files[step]) if {"prompt", "completion"} <= row.keys()]
            if rows:
                examples.append((step, _of_a_step(rows)))
                break
    return examples[:1] if len(examples) == 2 and examples[0][0] == examples[1][0] else examples


def changed_answers(folder: Path) -> tuple[ChangedProblems, ChangedProblems] | None:
    """Held-out problems that only the trained model solved, and that only base solved; None without both files."""
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
    """Read a parquet file; no rows if it is missing or unreadable."""
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


def _changed(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> ChangedProblems:
    examples = []
    for base, trained in pairs[:MAX_EXAMPLES]:
        gold = base.get("final_answer")
        answers = (_answer("base", base), _answer("trained", trained))
        examples.append(Example(_prompt(base["prompt"]), answers, "" if gold is None else shorten(str(gold), 300)))
    return ChangedProblems(len(pairs), tuple(examples))


def _answer(label: str, row: Mapping[str, Any]) -> ShownAnswer:
    # TRL writes one column a reward, an evaluation rewards/NAME. Text columns are logged by rewards.
    no_rewards = ("step", "row", "tokens", "difficulty")
    rewards = tuple(
        (name.removeprefix("rewards/"), f"{value:.2f}".replace("-", "−"))
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in no_rewards
    )
    text = "\n".join(text for _, text in messages(row["completion"]))
    return ShownAnswer(label, shorten(text, COMPLETION_LIMIT), rewards, row.get("correct"), row.get("ended") is False)


def _prompt(prompt: Any) -> tuple[tuple[str, str], ...]:
    return tuple((role, shorten(text, PROMPT_LIMIT)) for role, text in messages(prompt))


def messages(content: Any) -> list[tuple[str, str]]:
    """Split a prompt or a completion into (role, text) pairs. Plain text has no role."""
    if isinstance(content, list):
        messages = [item for item in content if isinstance(item, dict)]
        return [(str(item.get("role") or ""), _text(item.get("content"))) for item in messages]
    return [("", _text(content))]


def _text(content: Any) -> str:
    """The text of a message, or of the parts of a multimodal message."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)
