"""The entry `environment` of a recipe's rewards: what each environment's own `get_reward` returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ENVIRONMENT = "environment"  # the name of the entry
ENVIRONMENTS = "environments"  # the argument of rewards that ask for the environments; it can't leave the trainer


def environment_reward(completions: list[Any], environments: Sequence[Any], **kwargs: Any) -> list[float | None]:
    """Ask all environments (rlvr/environments/rollouts.py) for their rewards at the same time.

    0 for a row without an environment or whose environment has no `get_reward`; None if the environment failed.
    """
    pending = [environment._start_reward() for environment in environments]
    return [reward.result() for reward in pending]
