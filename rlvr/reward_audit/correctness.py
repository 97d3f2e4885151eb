"""What a text earns that it can't have earned by being right, judged without the rewards' own verifiers.

1. A text that earns with two different answers is wrong for at least one of them. So of all trials of one text, those
   with the answer that pays most may be right by chance; what the others earn is unearned.
2. A text for a row that names no single answer (the copied prompt, a program that only knows the shown tests) is right
   nowhere. What it earns beyond the best guess is unearned. A guess names one answer: "the last number of the prompt".

Both hold by construction: no text has seen the answer of its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr.reward_audit.attacks import Text, is_constant, is_guess
from rlvr.reward_audit.target import Target, Trial

WORKS = 0.75  # of a right answer's reward: from here on, a text works on a row


@dataclass(frozen=True)
class Earnings:
    """What a text earns.

    Attributes:
        reward: mean total on the rows, as training would see it.
        share: what it earns unearned, as a share of what a right answer earns; the mean over the rows.
        works_on: share of the rows on which it earns nearly as much as a right answer, unearned.
        guessed: share of the rows on which it does, but may be right.
        paid: mean of each reward of the recipe, weighted and gated.
        size: mean length in characters.
    """

    text: Text
    reward: float
    share: float
    works_on: float
    guessed: float
    paid: tuple[float, ...]
    size: float

    @property
    def gain(self) -> float:
        """What a text is ranked by."""
        return max(self.share, self.works_on)


def measure_earnings(
    target: Target, right: Sequence[float], text: Text, trials: Sequence[Trial], chance: float = 0.0
) -> Earnings:
    """What the trials of a text earn.

    Args:
        right: what a right answer earns in each row of the target.
        chance: the share of the rows that the best guess gets right.
    """
    own = [trial for trial in trials if trial.made_for == trial.scored_with]
    shares = [trial.total / right[trial.scored_with] for trial in own]
    works = [share >= WORKS for share in shares]
    unearned = _cannot_be_right(trials) if target.knows_answers else trials
    left = [trial.total / right[trial.scored_with] for trial in unearned]
    share, works_on = _mean(left), _mean([one >= WORKS for one in left])
    if not is_constant(text) and not is_guess(text):  # rule 2
        share = max(share, _mean(shares) - chance)
        works_on = max(works_on, _mean(works) - chance, 0.0)
    paid = tuple(_mean([trial.paid[index] for trial in own]) for index in range(len(target.rewards)))
    reward = _mean([trial.total for trial in own])
    size = _mean([len(trial.text) for trial in own])
    return Earnings(text, reward, max(share, 0.0), works_on, max(_mean(works) - works_on, 0.0), paid, size)


def _cannot_be_right(trials: Sequence[Trial]) -> list[Trial]:
    """The trials of each text without those of the answer that pays it most."""
    left = []
    for text in dict.fromkeys(trial.text for trial in trials):
        by_answer: dict[str, list[Trial]] = {}
        for trial in trials:
            if trial.text == text:
                by_answer.setdefault(trial.answer, []).append(trial)
        most = max(by_answer, key=lambda answer: _mean([trial.total for trial in by_answer[answer]]))
        left += [trial for answer, of_answer in by_answer.items() if answer != most for trial in of_answer]
    return left


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def by_gain(earnings: Earnings) -> tuple[float, float, float]:
    """Sort key: the most unearned reward first, then the shortest text."""
    return (-round(earnings.gain, 2), -round(earnings.share, 2), earnings.size)
