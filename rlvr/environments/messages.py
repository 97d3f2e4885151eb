"""Messages of conversations with tools, as TRL has them: calls that are made, and rows of a table."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.environments.proxies import EnvironmentProxy, tools_of
from rlvr.environments.rollouts import ToolResult

MAX_NESTING = 50  # of lists and mappings in a tool call
Messages = list[dict[str, Any]]
# Parts of a message that a table keeps, all of them text.
_TEXTS = ("role", "name", "content", "reasoning_content", "thinking")


def start_calls(environment: EnvironmentProxy, calls: Sequence[Mapping[str, Any]]) -> Messages:
    """Make the calls of one turn as GRPOTrainer does, and return their messages; `resolve` puts the results in."""
    tools, messages = tools_of(environment), []
    for call in calls:
        content: Any
        name = call.get("function", call).get("name", "unknown")
        try:
            if call.get("type") != "function":
                raise ValueError(f"Unsupported tool call type: {call.get('type')}")
            if name not in tools:
                raise ValueError(f"Tool {name} not found.")
            content = tools[name](**call["function"]["arguments"])
        except Exception as error:  # arguments that the model made up
            content = str({"error": str(error)})
        messages.append({"role": "tool", "name": name, "content": content})
    return messages


def resolve(messages: Sequence[dict[str, Any]]) -> list[float | None]:
    """Put the texts of tool results into their messages, as soon as the tools have returned.

    Returns:
        The seconds of each call; None for one that reached no tool: the name or the arguments were wrong.
    """
    seconds: list[float | None] = []
    for message in messages:
        result = message["content"]
        if isinstance(result, ToolResult):
            message["content"] = result.text()
        seconds.append(round(result.seconds(), 3) if isinstance(result, ToolResult) else None)
    return seconds


def training_template(tokenizer: Any) -> str | None:
    """Give a tokenizer TRL's schema of tool calls if it has none, and return the chat template that TRL trains with.

    Returns:
        None for the tokenizer's own template.

    Raises:
        ValueError: TRL knows neither for this tokenizer.
    """
    from trl.chat_template_utils import (
        add_response_schema,
        get_training_chat_template,
        is_chat_template_prefix_preserving,
    )

    if not any(getattr(tokenizer, name, None) for name in ("response_template", "response_schema")):
        add_response_schema(tokenizer)
    return None if is_chat_template_prefix_preserving(tokenizer) else get_training_chat_template(tokenizer)


def limit_nesting(tokenizer: Any) -> None:
    """Let a tokenizer's parser of turns refuse what is nested so deeply that nothing after it could handle it.

    It raises ValueError, which TRL's `parse_response` expects. TRL does not expect RecursionError.
    """
    tokenizer.parse_response = functools.partial(_parse_shallow, tokenizer.parse_response)


def _parse_shallow(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        message = parse(*args, **kwargs)
    except RecursionError as error:
        raise ValueError("a tool call is nested too deeply") from error
    level = [message or {}]
    for _ in range(MAX_NESTING):
        level = [
            part
            for value in level
            for part in (value.values() if isinstance(value, dict) else value)
            if isinstance(part, dict | list)
        ]
        if not level:
            return message
    raise ValueError("a tool call is nested too deeply")


def as_table(completions: Sequence[Any]) -> list[Any]:
    """Conversations for a table: arguments of tools as JSON text, since a column of parquet has one type."""
    return [[_as_row(message) for message in messages] for messages in completions]


def _as_row(message: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: message[name] for name in _TEXTS if isinstance(message.get(name), str)}
    calls = [call.get("function", call) for call in message.get("tool_calls") or []]
    if calls:
        row["tool_calls"] = [
            {"type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
            for call in calls
        ]
    return row
