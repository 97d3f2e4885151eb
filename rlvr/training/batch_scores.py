"""What the rewards gave the completions of one generation, on all ranks, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class BatchScores:
    """The scores of a generation's completions, in the order that TRL gathers them in from the ranks."""

    values: torch.Tensor  # (completions, rewards), NaN where a row is masked or a reward doesn't apply to its task
    weights: torch.Tensor  # (rewards,)
    labels: Sequence[str]  # of the rewards
    tasks: Sequence[str | None] = field(default_factory=list)  # of a mixture: each completion's

    def masked(self) -> torch.Tensor:
        """(completions,) whether a row is left out of the update."""
        return self.values.isnan().all(dim=1)

    def totals(self) -> torch.Tensor:
        """(completions,) weighted rewards; NaN where a row is masked."""
        totals = (self.values * self.weights.to(self.values.device)).nansum(dim=1)
        return totals.masked_fill(self.masked(), torch.nan)

    def metrics(self, tasks: Sequence[str]) -> Iterator[tuple[str, float]]:
        """What TRL doesn't log: extremes of the total and of each reward, and each task's share and mean total."""
        totals = self.totals()
        named = {f"rewards/{label}": self.values[:, index] for index, label in enumerate(self.labels)}
        for name, values in {"reward": totals, **named}.items():
            known = values[~values.isnan()]
            if len(known):  # else every row is masked, or the reward applies to none of these tasks
                yield f"{name}/min", known.min().item()
                yield f"{name}/max", known.max().item()
        for label in tasks:
            own = torch.tensor([task == label for task in self.tasks], device=totals.device)
            yield f"tasks/{label}/share", own.float().mean().item()
            scored = totals[own & ~totals.isnan()]
            if len(scored):
                yield f"tasks/{label}/reward", scored.mean().item()


def duplicate_fraction(texts: Sequence[str], group: int) -> float:
    """The fraction of completions that repeat an earlier one of their group.

    Args:
        texts: at least one completion, whole groups one after another.
        group: completions a group.
    """
    groups = [texts[start : start + group] for start in range(0, len(texts), group)]
    return 1 - sum(len(set(own)) for own in groups) / len(texts)
