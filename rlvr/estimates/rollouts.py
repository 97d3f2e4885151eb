"""How many completions and tokens a run makes, and how quick its rewards must be."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.estimates.setup import Setup
from rlvr.formatting import count


@dataclass(frozen=True)
class Rollouts:
    """The rollout plan.

    Attributes:
        prompts: different prompts of a generation.
        group: completions of each.
        steps: updates in all.
        generations: in all, without the further rounds of dynamic sampling.
        mine: completions of a generation that one process makes and scores.
        tokens: of all completions at most, and of the prompts that they begin with at most.
        budget_s: seconds that the rewards of a generation may take.
        rounds: further generations a step at most (dynamic sampling).
    """

    prompts: int
    group: int
    steps: int
    generations: int
    mine: int
    tokens: tuple[int, int]
    budget_s: float
    rounds: int

    @property
    def completions(self) -> int:
        return self.generations * self.prompts * self.group

    @property
    def rate(self) -> float:
        """Completions a second that the reward workers of one process must score together, to keep to the budget."""
        return self.mine / self.budget_s

    def lines(self) -> list[str]:
        """The plan in words."""
        more = f", and up to {self.rounds} further generations a step" if self.rounds else ""
        made, read = self.tokens
        return [
            f"{count(self.prompts, 'prompt')} x {self.group} completions, {count(self.steps, 'update')}: "
            f"{self.completions:,} completions in {count(self.generations, 'generation')}{more}",
            f"at most {_short(made)} tokens generated, after at most {_short(read)} tokens of prompts",
            f"rewards: a process scores {count(self.mine, 'completion')} a generation; {self.rate:.2g} a second keep "
            f"to reward_batch_timeout_s = {self.budget_s:g}",
        ]


def rollouts(setup: Setup, *, steps: int, budget_s: float) -> Rollouts:
    """The rollout plan of a run of so many updates."""
    generations = -(-steps * setup.accumulation // setup.cycle)
    completions = generations * setup.completions
    return Rollouts(
        prompts=setup.completions // setup.group,
        group=setup.group,
        steps=steps,
        generations=generations,
        mine=setup.generated,
        tokens=(completions * setup.completion_tokens, completions * setup.prompt_tokens),
        budget_s=budget_s,
        rounds=int(setup.settings.get("dynamic_sampling") or 0),
    )


def _short(number: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
