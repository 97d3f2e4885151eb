"""Environments as TRL sees them: classes with the same tools, whose methods call an object in a worker process."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rlvr.config.recipe import DEFAULT_SEED, Recipe
from rlvr.environments.loading import COLUMN, Environment
from rlvr.environments.rollouts import EnvironmentWorkers, Rollout, ToolResult


class Environments:
    """The environments of a recipe: `factories` for GRPOTrainer, and the rollouts of the current batch.

    Args:
        environments: as `load_environments` returns them for the recipe.
        by_column: whether the column `environment` of the rows selects the environment.
        rank: what random numbers depend on, with the recipe's seed, the step and the row.
    """

    def __init__(self, recipe: Recipe, environments: Sequence[Environment], *, by_column: bool, rank: int = 0) -> None:
        settings = recipe.settings
        self.workers = EnvironmentWorkers(
            recipe.environments,
            timeout_s=settings["tool_timeout_s"],
            budget_s=settings["tool_budget_s"],
            max_output=settings["max_tool_output"],
        )
        self.reward_timeout_s = settings["reward_timeout_s"]
        self._seed, self._rank = settings.get("seed", DEFAULT_SEED), rank
        self._by_column = by_column
        self._index = {environment.label: index for index, environment in enumerate(environments)}
        classes: dict[str | None, Callable[[], EnvironmentProxy]] = {
            environment.label: functools.partial(_proxy_class(environment), self) for environment in environments
        }
        classes[None] = functools.partial(EnvironmentProxy, self)
        self.factories = classes if by_column else classes[environments[0].label]
        self.rollouts: list[Rollout | None] = []
        self._unclaimed: deque[Rollout | None] = deque()

    def begin(
        self, rows: Sequence[Mapping[str, Any]], step: int, keys: Sequence[tuple[int, ...]] | None = None
    ) -> None:
        """Reset an environment for each row, all at the same time. TRL's calls of `reset` then find the results.

        Args:
            step: of training; random numbers depend on it,
            keys: and on these; by default on the rank and the row's number.
        """
        self.end()
        for key, row in zip(keys or [(self._rank, number) for number in range(len(rows))], rows, strict=True):
            label = row.get(COLUMN) if self._by_column else next(iter(self._index))
            columns = {name: value for name, value in row.items() if name != COLUMN} if self._by_column else row
            seed = (self._seed, step, *key)
            self.rollouts.append(None if label is None else self.workers.begin(self._index[label], columns, seed))
        self._unclaimed = deque(self.rollouts)

    def reset(
        self, rows: Sequence[Mapping[str, Any]], step: int, keys: Sequence[tuple[int, ...]] | None = None
    ) -> list[EnvironmentProxy]:
        """Reset an environment for each row, outside of GRPOTrainer; arguments as of `begin`."""
        self.begin(rows, step, keys)
        proxies = []
        for row in rows:
            proxies.append(self.factories[row.get(COLUMN)]() if isinstance(self.factories, dict) else self.factories())
            proxies[-1].reset()
        return proxies

    def claim(self) -> Rollout | None:
        """The rollout of the next row, in the order of `begin`; None for a row without an environment."""
        return self._unclaimed.popleft()

    def end(self) -> None:
        """Drop the objects of the last batch."""
        for rollout in self.rollouts:
            if rollout is not None:
                rollout.end()
        self.rollouts = []

    def failures(self) -> list[str]:
        """For each row why its environment failed; empty text where it did not."""
        return [rollout.failed if rollout is not None else "" for rollout in self.rollouts]

    def seconds(self) -> float:
        """The seconds of all tool calls."""
        return sum(sum(rollout.seconds) for rollout in self.rollouts if rollout is not None)

    def failed_calls(self) -> int:
        """Tool calls that failed in a worker."""
        return sum(rollout.failures for rollout in self.rollouts if rollout is not None)


class EnvironmentProxy:
    """The environment of one rollout. This class itself is that of rows without an environment: it has no tools.

    Public attributes of the environment's object can be read, as TRL's reward functions do (`environment.score`).
    """

    _has_reward = False
    _tools: tuple[str, ...] = ()

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._rollout: Rollout | None = None

    def reset(self, **row: Any) -> str | None:
        """Begin the rollout of the next row."""
        self._rollout = self._environments.claim()
        return None if self._rollout is None else self._rollout.observation()

    def __getattr__(self, name: str) -> Any:
        rollout = self.__dict__.get("_rollout")
        if name.startswith("_") or rollout is None:
            raise AttributeError(name)
        if name == "get_reward" and self._has_reward:
            return lambda: self._start_reward().result()
        return rollout.attribute(name)

    def _start_reward(self) -> Future[Any]:
        if self._rollout is None or not self._has_reward:
            no_reward: Future[Any] = Future()
            no_reward.set_result(0.0)
            return no_reward
        return self._rollout.reward(self._environments.reward_timeout_s)


def tools_of(environment: EnvironmentProxy) -> dict[str, Callable[..., ToolResult]]:
    """The tools of an environment by name, in the order in which a prompt shows them."""
    return {name: getattr(environment, name) for name in environment._tools}


def _proxy_class(environment: Environment) -> type[EnvironmentProxy]:
    """A class with the tools of an environment: TRL renders names, signatures and docstrings into the prompt."""
    tools = {name: _proxy_method(getattr(environment.cls, name)) for name in environment.tools}
    members = {
        **tools,
        "_has_reward": environment.has_reward,
        "_tools": environment.tools,
        "__doc__": environment.cls.__doc__,
    }
    return type(environment.cls.__name__, (EnvironmentProxy,), members)


def _proxy_method(method: Callable[..., Any]) -> Callable[..., ToolResult]:
    signature = inspect.signature(method)

    def call(self: EnvironmentProxy, *args: Any, **kwargs: Any) -> ToolResult:
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)  # TypeError: TRL makes it a tool message
        del arguments[next(iter(signature.parameters))]
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
        assert self._rollout is not None
        return self._rollout.call(method.__name__, arguments)

    return functools.update_wrapper(call, method)
