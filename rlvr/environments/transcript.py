"""Show conversations with tools as texts with labels: messages, calls and results, in their order.

Models and tools wrote the texts: escape them before showing them. Labels are safe, but for the roles of a data set.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr.formatting import mapping, shorten

# Columns that describe a conversation (docs/environments.md, "Messages").
STOPPED, SECONDS = "stopped", "tool_seconds"
_CUT = {
    "iterations": "cut off by max_tool_calling_iterations",
    "length": "cut off by max_completion_length",
}
_ONE_LINE = 100  # characters of a call on one line
_LEAST_SHARE = 60  # characters of a text that always remain
Turn = tuple[str, str]  # a label, such as a role, and a text


def turns(content: Any) -> list[Turn]:
    """Split a prompt or a completion into labels and texts. Plain text has the label "".

    In a completion of several messages, those of the model are numbered: "turn 2, assistant", "turn 2, call".
    """
    if not isinstance(content, list):
        return [("", _text(content))]
    messages = [item for item in content if isinstance(item, dict)]
    numbered = is_conversation(messages) and messages[0].get("role") == "assistant"
    turn, count = "", 0
    pairs: list[Turn] = []
    for message in messages:
        role, text, calls = str(message.get("role") or ""), _text(message.get("content")), list(_calls(message))
        thoughts = message.get("reasoning_content") or message.get("thinking")
        if role == "assistant" and numbered:
            count += 1
            turn = f"turn {count}, "
            role = turn + role
        elif role == "tool":
            role = f"result of {_name(message)}"
        if isinstance(thoughts, str) and thoughts:
            pairs.append((f"{role}, thinking", thoughts))
        if text or not (calls or thoughts):
            pairs.append((role, text))
        pairs += [(f"{turn}call", _call_text(name, arguments)) for name, arguments in calls]
    return pairs


def as_text(content: Any) -> str:
    """A prompt or a completion as one text: messages with their labels, and anything that is neither as JSON."""
    messages = isinstance(content, list) and content
    if messages and all(isinstance(item, dict) and item.keys() & {"role", "content"} for item in messages):
        return labelled(turns(content))
    return content if isinstance(content, str) else as_json(content)


def labelled(pairs: Sequence[Turn]) -> str:
    """One text; later lines are indented, so that none looks like a label."""
    return "\n".join(f"[{label or '?'}] {text}".replace("\n", "\n  ") for label, text in pairs)


def is_conversation(content: Any) -> bool:
    """Whether a completion has several messages, or calls."""
    messages = content if isinstance(content, list) else []
    return len(messages) > 1 or any(isinstance(item, dict) and item.get("tool_calls") for item in messages)


def cut(row: Mapping[str, Any]) -> str:
    """Why a completion was cut off; empty if it was not."""
    return _CUT.get(str(row.get(STOPPED)), "cut off" if row.get("ended") is False else "")


def tool_seconds(row: Mapping[str, Any]) -> float | None:
    """The seconds of all calls that reached a tool; None if they are unknown."""
    try:
        seconds = [value for value in json.loads(row.get(SECONDS) or "[]") if value is not None]
        return float(sum(seconds)) if seconds else None
    except (TypeError, ValueError, RecursionError):
        return None


def fit(pairs: Sequence[Turn], limit: int) -> list[Turn]:
    """Shorten the longest texts, so that all together have about `limit` characters."""
    left, share = limit, limit
    for rank, length in enumerate(sorted(len(text) for _, text in pairs)):
        share = max(left // (len(pairs) - rank), _LEAST_SHARE)
        left -= min(length, share)
    return [(label, shorten(text, share)) for label, text in pairs]


def without_nulls(content: Any) -> Any:
    """Messages without the empty fields that a table adds, since all rows of a column have the same fields."""
    if not isinstance(content, list):
        return content
    return [
        {name: value for name, value in item.items() if value is not None or name in ("role", "content")}
        if isinstance(item, dict)
        else item
        for item in content
    ]


def with_arguments(content: Any) -> Any:
    """Messages with the arguments of calls as objects, as rewards get them; a table has them as JSON text."""
    if not is_conversation(content):
        return content
    return [_with_arguments(item) if isinstance(item, dict) and item.get("tool_calls") else item for item in content]


def _with_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**mapping(call["function"]), "arguments": _arguments(call["function"])}}
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
        else call
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = mapping(mapping(call).get("function", call))
        yield str(function.get("name")), _arguments(function)


def _arguments(function: Mapping[str, Any]) -> Any:
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except (ValueError, RecursionError):
            pass
    return arguments


def _call_text(name: str, arguments: Any) -> str:
    """`run(code="print(1)")`, or a block for each argument if one has several lines or all are long."""
    if not isinstance(arguments, dict):
        return f"{name}({_text(arguments)})"
    line = f"{name}({', '.join(f'{key}={as_json(value)}' for key, value in arguments.items())})"
    if len(line) <= _ONE_LINE and not any(isinstance(value, str) and "\n" in value for value in arguments.values()):
        return line
    blocks = [f"  {key}:\n{textwrap.indent(_text(value), '    ')}" for key, value in arguments.items()]
    return "\n".join([name, *blocks])


def _name(message: Mapping[str, Any]) -> str:
    name = str(message.get("name"))
    return name if re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII) else "a tool"


def _text(content: Any) -> str:
    """The text of a message, or of the parts of a multimodal message; anything else as JSON."""
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return content if isinstance(content, str) else "" if content is None else as_json(content)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "(nested too deeply to be read)"
