"""Copied parts of the prompt: each line, each sentence and each quoted part as a completion.

A copy that says more than the answer can earn because the answer stands in it. It may also be right by chance, such as
a sentence that ends in a number. So the same copies are scored with another row's gold. What they earn there, they earn
by guessing, because the prompt does not depend on that gold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.formatting import one_line
from rlvr.reward_audit.correctness import WORKS
from rlvr.reward_audit.target import Target, short_answers
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read
from rlvr.verifiers.completion_text import completion_text

MOST_PARTS = 40  # of a prompt; the last ones, because examples come first
MOST_COPIES = 0.25  # share of the rows, beyond guessing: twice the standard error of a share of 16 rows
MOST_COPIED = 0.1  # share of a run's right completions, beyond guessing
QUOTE = 100  # characters of an example
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_CHOICE = re.compile(r"\(?(\w{1,2})[).:\]]\s+(.+)")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|«([^»\n]+)»|`([^`\n]+)`|(?<!\w)'([^'\n]+)'(?!\w)")


@dataclass(frozen=True)
class Copying:
    """What copies of the prompt earn.

    Attributes:
        copies: share of the rows in which a part of the prompt that says more than the answer earns nearly as much as a
            right answer.
        guessing: share of the rows in which a part of the prompt does so with the gold of another row.
        example: such a part; "" without any.
        right, copied: right completions of a run, and how many of them stand in their prompt and say more than the
            answer.
    """

    copies: float
    guessing: float
    example: str
    right: int = 0
    copied: int = 0

    @property
    def breaks(self) -> bool:
        return self.copies - self.guessing > MOST_COPIES or self.copied > (self.guessing + MOST_COPIED) * self.right

    def sentences(self) -> list[str]:
        """What the copies earn, if that breaks the reward."""
        if not self.breaks:
            return []
        lines = []
        if self.copies > self.guessing:
            lines.append(
                f"A copied part of the prompt, such as {one_line(self.example, QUOTE)!r}, earns as much as a right "
                f"answer in {100 * self.copies:.0f} % of the rows; by guessing in {100 * self.guessing:.0f} %."
            )
        if self.copied:
            lines.append(f"{self.copied:,} of {self.right:,} right completions of the run copy their prompt.")
        return [*lines, "Refuse an answer that says more than the reference answer."]


def try_copies(
    target: Target, right: Sequence[float], forms: Sequence[tuple[str, str]] = (("", ""),)
) -> Copying | None:
    """Score parts of the prompts, bare and in forms; None if no column of the data says what is right.

    Args:
        right: what a right answer earns in each row of the target.
        forms: what stands around a copy: before, after.
    """
    rows = [row for row, other in enumerate(target.other) if other is not None]
    if not target.answer_columns or not rows:
        return None
    texts = [
        (f"{before}{part}{after}", row)
        for row in rows
        for part in parts(target.seen[row].prompt)
        if says_more(part, _answers(target, row))
        for before, after in forms
    ]
    own = [trial for trial in target.try_rendered(texts) if trial.total >= WORKS * right[trial.scored_with]]
    other = [
        trial for trial in target.try_rendered(texts, exchanged=True) if trial.total >= WORKS * right[trial.scored_with]
    ]
    return Copying(
        copies=len({trial.made_for for trial in own}) / len(rows),
        guessing=len({trial.made_for for trial in other}) / len(rows),
        example=own[0].text if own else "",
    )


def count_copied(rows: Sequence[Mapping[str, Any]], metric: Reward) -> tuple[int, int]:
    """Count the right completions of a run, and those that stand in their own prompt and say more than the answer.

    Args:
        rows: of a run's files of completions, with the column of the metric. Those without an answer in text are left
            out.
    """
    right = copied = 0
    for row in rows:
        answers = [row[name] for name in columns_read(metric) if isinstance(row.get(name), str)]
        if not answers or (row.get(metric.label) or 0.0) < 1.0:
            continue
        text = completion_text(row["completion"]).strip()
        right += 1
        prompt = row["prompt"]
        shown = prompt if isinstance(prompt, str) else "\n".join(str(message.get("content")) for message in prompt)
        copied += text in shown and says_more(text, answers)
    return right, copied


def parts(prompt: str) -> list[str]:
    """The lines, sentences and quoted parts of a prompt, each once, without the spaces around them."""
    quoted = ["".join(groups) for groups in _QUOTED.findall(prompt)]
    found = [text.strip() for text in (*prompt.splitlines(), *_SENTENCE_END.split(prompt), *quoted)]
    return list(dict.fromkeys(text for text in found if text))[-MOST_PARTS:]


def says_more(text: str, answers: Sequence[str]) -> bool:
    """Whether a text is none of the answers. Punctuation and case do not count, nor does one half of "B) a bridge"."""
    listed = _CHOICE.fullmatch(text)
    said = {_words(text), *(map(_words, listed.groups()) if listed else ())}
    return bool(_words(text)) and said.isdisjoint(map(_words, answers))


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _answers(target: Target, row: int) -> list[str]:
    columns = [str(target.rows[row][name]) for name in target.answer_columns]
    return [*columns, *short_answers(target.rows[row], target.answer_columns), target.references[row] or ""]
