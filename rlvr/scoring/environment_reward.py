"""The entry `environment` of a recipe's rewards: what each environment's own `get_reward` returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

ENVIRONMENT = "environment"  # the name of the entry
ENVIRONMENTS = "environments"  # the argument of rewards that ask for the environments; it can't leave the trainer


class PendingReward(Protocol):
    """A reward that a worker computes."""

    def value(self) -> float | None: ...


class RewardingEnvironment(Protocol):
    """The environment of one rollout, as the trainer has it (rlvr/environments/rollouts.py)."""

    def _start_reward(self) -> PendingReward: ...


def environment_reward(
    completions: list[Any], environments: Sequence[RewardingEnvironment], **kwargs: Any
) -> list[float | None]:
    """Ask all environments for their rewards at the same time.

    0 for a row without an environment or whose environment has no `get_reward`; None if the environment failed.
    """
    pending = [environment._start_reward() for environment in environments]
    return [reward.value() for reward in pending]
