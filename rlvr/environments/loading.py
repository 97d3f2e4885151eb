"""Load environments by the names in a recipe. An environment is a class that TRL's `environment_factory` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.config.specs import EnvironmentSpec
from rlvr.errors import InputError
from rlvr.scoring.registry import check_options, companion_function, find_plugin
from rlvr.scoring.reward import label_of

COLUMN = "environment"  # of the data: which environment a row has, or None


@dataclass(frozen=True)
class Environment:
    """An environment's class with its options.

    Attributes:
        name: as the recipe writes it.
        label: the value of the column `environment` that selects it.
        tools: names of the methods that the model may call.
        play_reference: the function of that name in the environment's file, or None. Called with an environment after
            its `reset` and with the row's columns, it solves the task by calling tools. It returns False for a row
            without a reference.
        count_killed_call: the function of that name, or None. Called with an environment and a tool's name after a
            call of the tool was killed and undone.
    """

    name: str
    label: str
    cls: type
    options: dict[str, Any]
    tools: tuple[str, ...]
    has_reward: bool
    play_reference: Callable[..., Any] | None
    count_killed_call: Callable[[Any, str], None] | None

    def build(self) -> Any:
        return self.cls(**self.options)

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Descriptions of the tools, as a chat template gets them."""
        return [self.tool_schema(tool) for tool in self.tools]

    def tool_schema(self, tool: str) -> dict[str, Any]:
        """The description of a tool, from its type hints and its docstring.

        Raises:
            DocstringParsingException, TypeHintParsingException: of transformers; one of the two is wrong.
        """
        from transformers.utils import get_json_schema

        schema: dict[str, Any] = get_json_schema(getattr(object.__new__(self.cls), tool))
        return schema


def load_environment(spec: EnvironmentSpec) -> Environment:
    """Load an environment.

    Raises:
        InputError: there is no such class or option, or the class is no environment.
    """
    cls, where = find_plugin("environment", "environments", spec.name, own_class=True)
    # As GRPOTrainer lists them (trl/trainer/grpo_trainer.py, __init__).
    methods = dict(inspect.getmembers(cls, inspect.isfunction)) if inspect.isclass(cls) else {}
    if not isinstance(cls, type) or "reset" not in methods:
        raise InputError(
            f"The environment {spec.name} ({where}) has no method reset. Add def reset(self, **row) -> str | None, "
            "which begins a rollout and may return text for the prompt.",
            kind="not-an-environment",
            key=spec.name,
        )
    parameters = inspect.signature(cls).parameters
    check_options("environment", spec.name, where, spec.options, parameters)
    try:
        inspect.signature(cls).bind(**spec.options)
    except TypeError as error:
        message = f"The environment {spec.name} ({where}): {error}. Give it under options: in the recipe."
        raise InputError(message, kind="missing-option", key=spec.name) from error
    return Environment(
        name=spec.name,
        label=label_of(spec.name),
        cls=cls,
        options=spec.options,
        tools=tuple(name for name in methods if name not in ("reset", "get_reward") and not name.startswith("_")),
        has_reward="get_reward" in methods,
        play_reference=companion_function(cls, "play_reference"),
        count_killed_call=companion_function(cls, "count_killed_call"),
    )


def load_environments(specs: Sequence[EnvironmentSpec]) -> tuple[Environment, ...]:
    """Load the environments of a recipe.

    Raises:
        InputError: as `load_environment`, or the column `environment` could not tell two apart.
    """
    environments = tuple(load_environment(spec) for spec in specs)
    labels = [environment.label for environment in environments]
    for label in labels:
        if labels.count(label) > 1:
            message = f"Two environments are called {label}, the name that a row selects one by. Rename one of them."
            raise InputError(message, kind="duplicate-environment", key="environment")
    return environments
