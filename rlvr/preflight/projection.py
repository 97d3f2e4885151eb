"""Project the hours of a whole run from its first generations, as rlvr/preflight/profile.py measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What is done once for a generation, whatever the number of its updates. The rest of its time is for updates.
ONCE = {
    "generation": "generation",
    "tools": "tools",
    "rewards": "rewards",
    "old_log_probabilities": "old log-probabilities",
}


@dataclass(frozen=True)
class Generation:
    """A generation with its updates.

    Attributes:
        steps: optimizer steps that were made.
        seconds: from its first step to the next generation.
        phases: seconds of each of `ONCE`.
        tokens: that the model wrote, on all processes.
        completions: on all processes.
        longest, longest_prompt: tokens.
        cut_off: share of the completions.
    """

    steps: int
    seconds: float
    phases: dict[str, float]
    tokens: float
    completions: int
    longest: float
    longest_prompt: float
    cut_off: float

    @property
    def update(self) -> float:
        """Seconds of the updates, with what lies between them."""
        return max(self.seconds - sum(self.phases.values()), 0.0)

    def whole(self, steps: int, stretch: Stretch) -> float:
        """Seconds with all `steps` updates, of which some may not have been made."""
        update = self.update * steps / self.steps + self.phases["old_log_probabilities"]
        return (
            self.phases["generation"] * stretch.generation
            + self.phases["tools"]
            + self.phases["rewards"]
            + update * stretch.update
        )


@dataclass(frozen=True)
class Stretch:
    """How many times longer phases take if all completions reach the maximum."""

    generation: float = 1.0
    update: float = 1.0


def stretch_to(maximum: int, generation: Generation, *, vllm: bool, sorted_rows: bool) -> Stretch:
    """How the phases grow if all completions have `maximum` tokens.

    transformers generates until the longest completion ends, so only the longest one counts. vLLM fills the places of
    completions that have ended, so all tokens count. A micro-batch is about as wide as the longest prompt and
    completion. If its completions have similar lengths, it is about as wide as the mean completion.
    """
    mean = generation.tokens / generation.completions
    completion = mean if sorted_rows else generation.longest
    return Stretch(
        max(maximum / max(mean if vllm else generation.longest, 1.0), 1.0),
        max((generation.longest_prompt + maximum) / max(generation.longest_prompt + completion, 1.0), 1.0),
    )


@dataclass(frozen=True)
class Part:
    """A part of a run: seconds at the measured lengths, and if all completions reached the maximum."""

    name: str
    seconds: float
    at_maximum: float


def project_training(generations: Sequence[Generation], steps: int, of_each: int, stretch: Stretch) -> Part:
    """Project all updates from the last generation. The first one counts once, since it may be slower.

    Args:
        generations: that were measured, at least one.
        steps: optimizer steps of the run.
        of_each: optimizer steps of each generation.
    """
    first, last = generations[0], generations[-1]
    number = steps / of_each

    def seconds(stretch: Stretch) -> float:
        if number <= 1:
            return last.whole(steps, stretch)
        return first.whole(of_each, stretch) + (number - 1) * last.whole(of_each, stretch)

    return Part(f"{round(number):,} generations, {steps:,} updates", seconds(Stretch()), seconds(stretch))


def project_evaluation(measured: Part, answers: int, rows: int, times: int, samples: int) -> Part:
    """Project all evaluations of a run, which have `rows` rows together, and the samples before training.

    Args:
        measured: greedy answers to some held-out rows, as many as `answers`.
    """
    factor = (rows + samples) / answers
    sampled = f", and {samples:,} samples" if samples else ""
    name = f"{times} evaluations, {rows:,} rows{sampled}"
    return Part(name, measured.seconds * factor, measured.at_maximum * factor)
