"""A tiny policy that learns from the total reward alone, as training would: what does it converge to?

It chooses an opening, a form, its content and a closing, each by the choice before it: logits for each choice, and for
each pair. The training is GRPO's: groups of texts for one row, advantages within the group, and the gradient of the
log-probabilities. No such text solves a problem, so what the policy learns is what the rewards pay for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr.red_team.attacks import (
    CONTENTS,
    EVERY_FORM,
    FORMS,
    INSTRUCTION,
    NEXT_PROBLEMS,
    NUMBERS,
    PADDING,
    PRAISE,
    PROGRAMS,
    Text,
    prompt,
    render,
)
from rlvr.red_team.target import Budget, Target

GROUP = 8  # texts for one row
GROUPS = 4  # rows per step
LEARNING_RATE = 0.5
MIN_STEPS = 4  # fewer show nothing
AROUND: tuple[Text, ...] = (
    (),
    ("<think>So be it.</think>\n",),
    (PADDING,),
    (INSTRUCTION,),
    (PRAISE,),
    (prompt, "\n"),
    (NEXT_PROBLEMS, "\n"),
    (NUMBERS, "\n"),
)


@dataclass(frozen=True)
class Learned:
    """What the policy converged to.

    Attributes:
        text: its most probable text.
        probability: of the text.
        steps: of training.
        reward_before, reward_after: mean total in the first and the last tenth of the steps.
    """

    text: Text
    probability: float
    steps: int
    reward_before: float
    reward_after: float


class Policy:
    """Four choices in a row. `biases` has the logits of each, `links` those by the choice before."""

    def __init__(self, forms: Sequence[tuple[str, str]], contents: Sequence[Text]) -> None:
        self.forms, self.contents = forms, contents
        sizes = [len(AROUND), len(forms), len(contents), len(AROUND)]
        self.biases = [np.zeros(size) for size in sizes]
        self.links = [np.zeros(pair) for pair in zip([1, *sizes], sizes, strict=False)]

    def text(self, path: Sequence[int]) -> Text:
        before, after = self.forms[path[1]]
        return (*AROUND[path[0]], before, *self.contents[path[2]], after, *AROUND[path[3]])

    def probabilities(self, slot: int, previous: int) -> np.ndarray:
        logits = self.biases[slot] + self.links[slot][previous]
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def sample(self, rng: np.random.Generator) -> list[int]:
        path = [0]
        for slot in range(len(self.biases)):
            shares = self.probabilities(slot, path[-1])
            path.append(int(rng.choice(len(shares), p=shares)))
        return path[1:]

    def most_probable(self) -> tuple[list[int], float]:
        path, probability = [0], 1.0
        for slot in range(len(self.biases)):
            shares = self.probabilities(slot, path[-1])
            path.append(int(shares.argmax()))
            probability *= float(shares.max())
        return path[1:], probability

    def update(self, paths: Sequence[Sequence[int]], advantages: np.ndarray) -> None:
        """One step along the gradient of the log-probabilities, weighted by the advantages."""
        steps = []
        for path, advantage in zip(paths, advantages, strict=True):
            for slot, (previous, choice) in enumerate(zip([0, *path], path, strict=False)):
                gradient = -self.probabilities(slot, previous)
                gradient[choice] += 1.0
                steps.append((slot, previous, LEARNING_RATE / GROUP * advantage * gradient))
        for slot, previous, step in steps:
            self.biases[slot] += step
            self.links[slot][previous] += step


def train_policy(target: Target, budget: Budget, seed: int = 0) -> Learned | None:
    """Train until the budget is spent; None if it allows too few steps."""
    rng = np.random.default_rng(seed)
    answers: list[Text] = [(answer,) for answer in target.frequent[:5]]
    policy = Policy([*FORMS, *target.reference_forms(), EVERY_FORM], [*CONTENTS.values(), *answers, *PROGRAMS.values()])
    rewards: list[float] = []
    while not budget.is_spent:
        rows = [int(row) for row in rng.integers(len(target.rows), size=GROUPS) for _ in range(GROUP)]
        paths = [policy.sample(rng) for _ in rows]
        texts = [(render(policy.text(path), target.seen[row]), row) for path, row in zip(paths, rows, strict=True)]
        totals = np.array([trial.total for trial in target.try_rendered(texts)]).reshape(GROUPS, GROUP)
        spread = totals.std(axis=1, keepdims=True)
        policy.update(paths, ((totals - totals.mean(axis=1, keepdims=True)) / (spread + 1e-4)).ravel())
        rewards.append(float(totals.mean()))
    if len(rewards) < MIN_STEPS:
        return None
    path, probability = policy.most_probable()
    tenth = max(1, len(rewards) // 10)
    before, after = sum(rewards[:tenth]) / tenth, sum(rewards[-tenth:]) / tenth
    return Learned(policy.text(path), probability, len(rewards), before, after)
