"""Reward a turn that makes the reference calls of functions, and no others: 1 or 0.

    tools: '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]'
    calls: '[{"name": "weather", "arguments": {"city": "Oslo"}}]'                            # columns of a row

<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call> scores 1. `rlvr.verifiers.function_calls`
lists the other forms. Arguments are compared as JSON values: 1 equals 1.0, and text must be equal. An argument that
is left out has the default of its schema, if there is a default. An additional or repeated call, an unknown function
and an unknown argument score 0.

Known weaknesses: a policy can copy reference calls that the prompt contains. Free text in arguments (a search query)
has many correct values. List these values with `alternatives`, or leave such rows out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.verifiers.function_calls import call_fault, calls_agree, read_calls, read_tools, row_fault, stated_calls
from rlvr.verifiers.json_value import InvalidJson


def function_call(
    prompts: list[Any],
    completions: list[Any],
    *,
    calls: list[Any],
    tools: list[Any] | None = None,
    ordered: bool = False,
    alternatives: bool = False,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the calls that the model's own turn makes with the column `calls`.

    Args:
        completions: strings, or lists of chat messages, with or without `tool_calls`.
        calls: the reference calls of each row, as JSON text or a list of {"name", "arguments"}.
        tools: an optional column or option: the tools, as JSON text or a list. A tool is {"name", "parameters": a JSON
            Schema} or {"type": "function", "function": {…}}. Without tools, no call is checked under a schema.
        ordered: require the order of the reference calls.
        alternatives: each reference argument is a list of acceptable values. Each list under a key of an object is such
            a list, too. "" in a list means that the argument or key may be left out. The Berkeley Function Calling
            Leaderboard has this form.

    Returns:
        1.0 or 0.0 for each completion. None if the row's calls or tools are malformed.
    """
    scored = [
        _score(*row, ordered, alternatives)
        for row in zip(completions, calls, _tools_of_rows(tools, len(calls)), strict=True)
    ]
    if log_extra is not None:
        log_extra("function_call/why", [why for _, why in scored])
    return [reward for reward, _ in scored]


def validate_rows(
    *, calls: list[Any], tools: list[Any] | None = None, alternatives: bool = False, **kwargs: Any
) -> list[str | None]:
    """Return for each row what is wrong with its calls or its tools, or None. Called before training."""
    return [row_fault(*row, alternatives) for row in zip(calls, _tools_of_rows(tools, len(calls)), strict=True)]


def _tools_of_rows(tools: Any, count: int) -> list[Any]:
    """Return the column `tools`, or the option as a column: its entries are objects, not lists or text."""
    is_column = isinstance(tools, list) and not (tools and isinstance(tools[0], dict))
    return tools if is_column else [tools] * count


def _score(completion: Any, gold: Any, tools: Any, ordered: bool, alternatives: bool) -> tuple[float | None, str]:
    if fault := row_fault(gold, tools, alternatives):
        return None, f"The row can't be scored: {fault}"
    expected, known = read_calls(gold), None if tools is None else read_tools(tools)
    try:
        made = stated_calls(completion)
    except InvalidJson as error:
        return 0.0, f"The own turn makes no call that can be read: it {error}."
    if len(made) != len(expected):
        return 0.0, f"The own turn makes {len(made)} of {len(expected)} calls."
    for call in made:
        if known is not None and (fault := call_fault(call, known)):
            return 0.0, f"A call is invalid: {fault}."
    if not calls_agree(made, expected, known, ordered=ordered, alternatives=alternatives):
        return 0.0, "The calls differ from the reference calls in a name, an argument or the order."
    return 1.0, "The calls are the reference calls."
