"""Where reward functions are called. `BACKENDS` has one entry for each form of `where` in a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import signature

from rlvr.config.reward_location import BACKENDS
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.registry import worker_group
from rlvr.scoring.reward import Reward


def make_backends(rewards: Sequence[Reward], start_timeout_s: float) -> list[tuple[list[int], RewardBackend]]:
    """Make the backends of rewards, each with the indices of its rewards. The training process is the last one.

    Raises:
        InputError: a backend is not installed.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, reward in enumerate(rewards):
        where = _where(reward)
        alone = _backend_class(where).per_worker_group
        group = (worker_group(reward.function) or f"only {index}") if alone else ""
        groups.setdefault((where, group), []).append(index)
    return [
        (indices, _backend_class(where)(where, [rewards[index] for index in indices], start_timeout_s=start_timeout_s))
        for (where, _), indices in sorted(groups.items(), key=lambda item: item[0][0] == "trainer")
    ]


def _where(reward: Reward) -> str:
    if reward.spec is None or ENVIRONMENTS in signature(reward.function).parameters:
        return "trainer"  # only this process has the function or the environments
    return reward.where or "local"


def _backend_class(where: str) -> type[RewardBackend]:
    module, _, name = BACKENDS[where.partition(":")[0]].partition(":")
    backend: type[RewardBackend] = getattr(import_module(module), name)
    return backend
