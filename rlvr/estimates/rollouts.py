"""Count the completions and tokens of a run, and the speed that its rewards need."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.estimates.run_setup import RunSetup
from rlvr.formatting import count


@dataclass(frozen=True)
class RolloutPlan:
    """The rollouts of a run with `steps` updates; `timeout_s` limits the rewards of a generation."""

    setup: RunSetup
    steps: int
    timeout_s: float

    @property
    def generations(self) -> int:
        """All generations, without the further rounds of dynamic sampling."""
        return -(-self.steps * self.setup.accumulation // self.setup.cycle)

    @property
    def completions(self) -> int:
        return self.generations * self.setup.completions

    @property
    def rate(self) -> float:
        """Completions a second that the workers of one process must score to meet the timeout."""
        return self.setup.generated / self.timeout_s

    def lines(self) -> list[str]:
        """Format the plan for the terminal."""
        setup, rounds = self.setup, int(self.setup.settings.get("dynamic_sampling") or 0)
        more = f", and up to {rounds} further generations a step" if rounds else ""
        tokens = _short(self.completions * setup.completion_tokens)
        prompt_tokens = _short(self.completions * setup.prompt_tokens)
        in_rounds = []
        if setup.rounds > 1 and not setup.vllm:
            in_rounds = [
                f"transformers makes a generation in {setup.rounds} rounds of at most {setup.at_once} completions per "
                "GPU, as many as fit"
            ]
        return [
            f"{count(setup.completions // setup.group, 'prompt')} x {setup.group} completions, "
            f"{count(self.steps, 'update')}: {self.completions:,} completions in "
            f"{count(self.generations, 'generation')}{more}",
            *in_rounds,
            f"at most {tokens} tokens generated, after at most {prompt_tokens} tokens of prompts",
            f"rewards: a process scores {count(setup.generated, 'completion')} a generation; {self.rate:.2g} a second "
            f"meet reward_batch_timeout_s = {self.timeout_s:g}",
        ]


def _short(number: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
