"""Checks of environments: their tools, the chat template that renders them, their rows and their reward."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

from rlvr.config.reward_location import is_remote
from rlvr.config.schema import hint
from rlvr.dataset_columns import column_values
from rlvr.environments.loading import COLUMN
from rlvr.environments.messages import training_template
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents
from rlvr.scoring.environment_reward import ENVIRONMENT, ENVIRONMENTS

TOOL_MODEL = "Qwen/Qwen3-0.6B"  # whose chat template renders tools


def check_use(components: RunComponents) -> Iterator[Problem]:
    """Keys and rewards that need an environment, and what does not work with one."""
    environments = components.environments or ()
    asking = [
        reward for reward in components.all_rewards if ENVIRONMENTS in inspect.signature(reward.function).parameters
    ]
    if not environments:
        for reward in asking:
            message = (
                f"The reward {reward.name} asks for environments. Add a section environment, or remove the reward."
            )
            yield Problem(message, "missing-environment", f"rewards.{reward.name}")
        return
    for reward in asking:
        if is_remote(reward.where):
            message = f"The reward {reward.name} asks for environments, which can't leave this machine. Remove `where`."
            yield Problem(message, "conflicting-keys", f"rewards.{reward.name}.where")
    rewarding = [environment.name for environment in environments if environment.has_reward]
    if not rewarding and any(reward.name == ENVIRONMENT for reward in asking):
        message = (
            "rewards: no environment of this recipe has a method get_reward, so the reward environment is always 0. "
            "Remove it, or add the method."
        )
        yield Problem(message, "missing-reward", f"rewards.{ENVIRONMENT}")
    if rewarding and not asking:
        message = f"The reward of {' and '.join(rewarding)} is not used. Add `- name: {ENVIRONMENT}` to rewards."
        yield Problem(message, "unused-reward", "rewards", level="warning")


def check_tools(components: RunComponents) -> Iterator[Problem]:
    """The prompt describes each tool by its type hints and its docstring."""
    from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

    for environment in components.environments or ():
        if not environment.tools:
            message = (
                f"The environment {environment.name} has no tool for the model. Add a method with type hints and a "
                "docstring. Names of tools do not begin with _."
            )
            yield Problem(message, "invalid-tool", environment.name)
        for tool in environment.tools:
            try:
                environment.tool_schema(tool)
            except (DocstringParsingException, TypeHintParsingException) as error:
                message = (
                    f"The tool {tool} of the environment {environment.name} can't be described to the model: "
                    f"{str(error).rstrip('.')}. Give it type hints, and a docstring in Google's style, which describes "
                    "each argument under Args:."
                )
                yield Problem(message, "invalid-tool", environment.name)


def check_template(components: RunComponents) -> Iterator[Problem]:
    """The chat template must render tools, and TRL must be able to read calls of it."""
    if not components.environments:
        return
    from trl.chat_template_utils import supports_tool_calling

    model, tokenizer = components.settings["model_name_or_path"], copy.deepcopy(components.tokenizer)
    assert tokenizer is not None
    if not supports_tool_calling(tokenizer):
        message = (
            f"The chat template of {model} can't render tools. Use a model with such a template, like {TOOL_MODEL}."
        )
        yield Problem(message, "no-tool-template", "model_name_or_path")
        return
    try:
        training_template(tokenizer)
    except ValueError:
        message = (
            f"TRL can't read tool calls in the chat template of {model}: it knows Qwen2.5, Qwen3, Llama 3.1 and "
            f"others. Use such a model ({TOOL_MODEL}), or give the tokenizer a response_template."
        )
        yield Problem(message, "no-tool-template", "model_name_or_path")


def check_rows(components: RunComponents) -> Iterator[Problem]:
    """Prompts must be chat messages, and the column `environment` must name environments of the recipe."""
    task, environments = components.task, components.environments
    if not environments or task is None:
        return
    if not task.is_chat:
        message = (
            f"The task {components.recipe.task_name} has prompts of plain text, but environments need chat messages. "
            "Set its option for chat prompts (mostly style: chat)."
        )
        yield Problem(message, "not-chat", "task")
    labels = [environment.label for environment in environments]
    if COLUMN not in task.train.column_names:
        if len(labels) > 1:
            message = (
                f"The recipe has the environments {', '.join(labels)}, but the rows have no column {COLUMN} that says "
                "which one each row has. Add it, or keep one environment."
            )
            yield Problem(message, "missing-column", COLUMN)
        return
    for row, label in enumerate(column_values(task.train, COLUMN)):
        if label is not None and label not in labels:
            message = f"Row {row} has the environment {label!r}, which the recipe has not. {hint(str(label), labels)}"
            yield Problem(message, "unknown-environment", COLUMN, row=row)
            return
