"""Reward a turn that makes the reference calls of functions, and no others: 1 or 0.

    tools: '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]'
    calls: '[{"name": "weather", "arguments": {"city": "Oslo"}}]'                            # columns of a row

<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call> earns 1; `rlvr.verifiers.function_calls` names
the other forms. Arguments are compared as JSON values: 1 equals 1.0, text is compared exactly. An argument that is left
out has the default of its schema, if it has one. An additional or repeated call, an unknown function and an unknown
argument earn 0.

Exploits: none is known, but a prompt that contains the reference calls can be copied. Free text in arguments (a search
query) has many right values: list them with `alternatives`, or leave such rows out.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError
from rlvr.verifiers.function_calls import call_fault, calls_agree, read_calls, read_tools, reference_fault, stated_calls
from rlvr.verifiers.json_value import InvalidJson, InvalidSchema


def function_call(
    prompts: list[Any],
    completions: list[Any],
    *,
    calls: list[Any],
    tools: list[Any] | None = None,
    ordered: bool = False,
    alternatives: bool = False,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the calls that the model's own turn makes with the column `calls`.

    Args:
        completions: strings, or lists of chat messages, with or without `tool_calls`.
        calls: the reference calls of each row, as JSON text or a list of {"name", "arguments"}.
        tools: an optional column or option: the tools, as JSON text or a list of {"name", "parameters": a JSON Schema},
            or of {"type": "function", "function": {…}}.
        ordered: require the order of the reference calls.
        alternatives: each reference argument is the list of its acceptable values; "" in it means that the argument may
            be left out (as in the Berkeley Function Calling Leaderboard).

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: a column's length is wrong, or a row's calls or tools are malformed (with the row).
    """
    _check_length("calls", calls, len(completions))
    rows_tools = _tools_of_rows(tools, len(completions))
    rewards: list[float | None] = []
    for row, completion in enumerate(completions):
        if fault := _row_fault(calls[row], rows_tools[row], alternatives):
            message = f"Reward function_call, row {row} of the batch: {fault}"
            raise InputError(message, kind="invalid-row", key="calls", row=row)
        rewards.append(_score(completion, calls[row], rows_tools[row], ordered, alternatives)[0])
    return rewards


def validate_rows(
    *, calls: list[Any], tools: list[Any] | None = None, alternatives: bool = False, **kwargs: Any
) -> list[str | None]:
    """Return for each row what is wrong with its calls or its tools, or None. Called once before training."""
    rows_tools = _tools_of_rows(tools, len(calls))
    return [_row_fault(gold, row_tools, alternatives) for gold, row_tools in zip(calls, rows_tools, strict=True)]


def explain(
    completion: Any, *, calls: Any, tools: Any = None, ordered: bool = False, alternatives: bool = False, **kwargs: Any
) -> list[str]:
    """Explain the reward of `function_call`, one sentence a step; the last one is the reward.

    Args: as `function_call`, for one row.
    """
    if fault := _row_fault(calls, tools, alternatives):
        raise InputError(f"Reward function_call: {fault}", kind="invalid-row", key="calls")
    reward, steps = _score(completion, calls, tools, ordered, alternatives)
    return [*steps, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------


def _score(completion: Any, gold: Any, tools: Any, ordered: bool, alternatives: bool) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    try:
        made = stated_calls(completion)
    except InvalidJson as error:
        return 0.0, [f"The own turn makes no call that can be read: it {error}."]
    expected = read_calls(gold)
    known = None if tools is None else read_tools(tools)
    steps = [f"The own turn makes {len(made)} of {len(expected)} calls."]
    if len(made) != len(expected):
        return 0.0, steps
    for call in made:
        if known is not None and (fault := call_fault(call, known)):
            return 0.0, [*steps, f"A call is invalid: {fault}."]
    if not calls_agree(made, expected, known, ordered=ordered, alternatives=alternatives):
        return 0.0, [*steps, "They differ from the reference calls in a name, an argument or the order."]
    return 1.0, [*steps, "They are the reference calls."]


def _row_fault(gold: Any, tools: Any, alternatives: bool) -> str | None:
    """Return what is wrong with a row and how to mend it, or None."""
    try:
        known = None if tools is None else read_tools(tools)
    except InvalidJson as error:
        return f"its tools: the text {error}. Write a list of tools with name and parameters, as JSON text."
    except InvalidSchema as error:
        return f"its tools: the schema {error}. Write the parameters as a JSON Schema with properties."
    try:
        fault = reference_fault(read_calls(gold), known, alternatives)
    except InvalidJson as error:
        return f"its calls: the text {error}. Write a list of calls with name and arguments, as JSON text."
    return f"its calls: {fault}. Correct or remove the row." if fault else None


def _tools_of_rows(tools: Any, count: int) -> list[Any]:
    """Return the column `tools`, or the option as a column: its entries are objects, not lists or text."""
    if not isinstance(tools, list) or (tools and isinstance(tools[0], dict)):
        return [tools] * count
    _check_length("tools", tools, count)
    return tools


def _check_length(name: str, column: list[Any], count: int) -> None:
    if len(column) != count:
        message = f"Reward function_call: the column {name} has {len(column)} entries for {count} rows. Pass one each."
        raise InputError(message, kind="length-mismatch", key=name)
