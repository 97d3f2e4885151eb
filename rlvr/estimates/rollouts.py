"""Count the completions and tokens of a run, and the speed that its rewards need."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.estimates.run_setup import RunSetup
from rlvr.formatting import count


@dataclass(frozen=True)
class RolloutPlan:
    """The rollout plan.

    Attributes:
        prompts: different prompts of a generation.
        group: completions of each prompt.
        steps: all updates.
        generations: all generations, without the further rounds of dynamic sampling.
        per_process: completions of a generation that one process generates and scores.
        tokens: maximum tokens of all completions, and of their prompts.
        timeout_s: maximum seconds of the rewards of a generation.
        rounds: maximum further generations a step (dynamic sampling).
    """

    prompts: int
    group: int
    steps: int
    generations: int
    per_process: int
    tokens: tuple[int, int]
    timeout_s: float
    rounds: int

    @property
    def completions(self) -> int:
        return self.generations * self.prompts * self.group

    @property
    def rate(self) -> float:
        """Completions a second that the workers of one process must score to meet the timeout."""
        return self.per_process / self.timeout_s

    def lines(self) -> list[str]:
        """Format the plan for the terminal."""
        more = f", and up to {self.rounds} further generations a step" if self.rounds else ""
        generated, prompts = self.tokens
        return [
            f"{count(self.prompts, 'prompt')} x {self.group} completions, {count(self.steps, 'update')}: "
            f"{self.completions:,} completions in {count(self.generations, 'generation')}{more}",
            f"at most {_short(generated)} tokens generated, after at most {_short(prompts)} tokens of prompts",
            f"rewards: a process scores {count(self.per_process, 'completion')} a generation; {self.rate:.2g} a second "
            f"meet reward_batch_timeout_s = {self.timeout_s:g}",
        ]


def plan_rollouts(setup: RunSetup, *, steps: int, timeout_s: float) -> RolloutPlan:
    """Plan the rollouts of a run with that many updates."""
    generations = -(-steps * setup.accumulation // setup.cycle)
    completions = generations * setup.completions
    return RolloutPlan(
        prompts=setup.completions // setup.group,
        group=setup.group,
        steps=steps,
        generations=generations,
        per_process=setup.generated,
        tokens=(completions * setup.completion_tokens, completions * setup.prompt_tokens),
        timeout_s=timeout_s,
        rounds=int(setup.settings.get("dynamic_sampling") or 0),
    )


def _short(number: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
