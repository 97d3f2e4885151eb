"""Function calls: read from a completion, checked against the schemas of tools, and compared with reference calls.

A call has a name and arguments. A completion states its calls in one of the forms of chat templates:

- messages with `tool_calls`;
- <tool_call>{"name": …, "arguments": {…}}</tool_call> for each call (Hermes, Qwen), with any text around the tags;
- JSON, alone or in one code block: a call or a list of calls; `parameters` is another name of `arguments` (Llama 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product, takewhile
from typing import Any

from rlvr.verifiers.completion_text import completion_text, own_turn
from rlvr.verifiers.json_value import (
    InvalidJson,
    InvalidSchema,
    comparable,
    find_json,
    from_column,
    parse_json,
    schema_fault,
    validation_fault,
)

_TAG = re.compile(r"</?tool_call>")
_MISSING = object()
MAX_READINGS = 100  # of a reference with alternatives that are tried under the schema

Tools = Mapping[str, Mapping[str, Any]]  # the JSON Schema of each function's arguments, by name


@dataclass(frozen=True)
class Call:
    """A call of a function.

    In a reference with alternatives, each argument is the list of its acceptable values, and so is each value within an
    object, if it is a list. "" in a list means that the argument or the key may be left out.
    """

    name: str
    arguments: dict[str, Any]


def stated_calls(completion: Any) -> list[Call]:
    """Read the calls that a completion makes in its own turn.

    Raises:
        InvalidJson: it makes none, or one is malformed.
    """
    messages = completion if isinstance(completion, list) else [{"content": completion}]
    calls: list[Call] = []
    for message in messages:
        if isinstance(message, dict) and message.get("role", "assistant") == "assistant":
            calls += map(_call, message.get("tool_calls") or [])
            calls += _tagged_calls(own_turn(completion_text([message])))
    return calls or read_calls(parse_json(find_json(completion_text(completion))))


def _tagged_calls(text: str) -> list[Call]:
    tags = list(_TAG.finditer(text))
    if [tag[0] for tag in tags] != ["<tool_call>", "</tool_call>"] * (len(tags) // 2):
        raise InvalidJson("has tags <tool_call> that are not in pairs")
    return [
        _call(parse_json(text[start.end() : end.start()])) for start, end in zip(tags[::2], tags[1::2], strict=True)
    ]


def read_calls(value: Any) -> list[Call]:
    """Read a call or a list of calls: JSON text or a value.

    Raises:
        InvalidJson: it is none, or malformed.
    """
    value = from_column(value)
    return [_call(item) for item in (value if isinstance(value, list) else [value])]


def _call(value: Any) -> Call:
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidJson("has a call without a name")
    given = [function[key] for key in ("arguments", "parameters") if function.get(key) is not None]
    arguments = from_column(given[0]) if given else {}
    if len(given) > 1 or not isinstance(arguments, dict):
        raise InvalidJson(f"has a call of {function['name'][:100]!r} whose arguments are no object")
    return Call(function["name"], arguments)


def read_tools(value: Any) -> Tools:
    """Read the tools of a row: JSON text or a list, as chat templates take them.

    Raises:
        InvalidJson: a tool is malformed.
        InvalidSchema: its parameters are no JSON Schema.
    """
    tools: dict[str, Mapping[str, Any]] = {}
    content = from_column(value)
    for tool in content if isinstance(content, list) else [content]:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidJson("has a tool without a name")
        parameters = function.get("parameters") or {}
        if fault := schema_fault(parameters) if isinstance(parameters, dict) else "is no object":
            raise InvalidSchema(f"of {function['name']!r} {fault}")
        tools[function["name"]] = parameters
    return tools


def call_fault(call: Call, tools: Tools) -> str | None:
    """Return what is wrong with a call: unknown function or argument, or a schema's violation; None if nothing is."""
    if call.name not in tools:
        return f"there is no function {call.name[:100]!r}"
    parameters = tools[call.name]
    known = parameters.get("properties") or {}
    unknown = [name for name in call.arguments if name not in known]
    if unknown and not parameters.get("additionalProperties"):
        return f"the function {call.name} has no argument {unknown[0][:100]!r}"
    try:
        fault = validation_fault(parameters, call.arguments)
    except InvalidSchema as error:
        return f"the schema of {call.name} {error}"
    return f"the arguments of {call.name} are invalid: {fault}" if fault else None


def reference_fault(calls: Sequence[Call], tools: Tools | None, alternatives: bool) -> str | None:
    """Return why no completion can make the reference calls, or None."""
    if not calls:
        return "there is no call, so an empty completion would be right"
    for call in calls:
        if alternatives and not all(isinstance(values, list) and values for values in call.arguments.values()):
            return f"an argument of {call.name} is no list of acceptable values"
        readings = list(islice(_readings(call.arguments), MAX_READINGS)) if alternatives else [call.arguments]
        if not readings:
            return f"a list of acceptable values in an argument of {call.name} is empty"
        if tools is not None:
            faults = list(takewhile(bool, (call_fault(Call(call.name, reading), tools) for reading in readings)))
            if len(faults) == len(readings) < MAX_READINGS:
                return faults[0]
    return None


def _readings(alternative: Any) -> Iterator[Any]:
    """Yield the values that an alternative stands for; each step tries at most `MAX_READINGS`."""
    if isinstance(alternative, dict):
        pools = [list(islice(_choices(values), MAX_READINGS)) for values in alternative.values()]
        for values in product(*pools):
            yield {name: value for name, value in zip(alternative, values, strict=True) if value is not _MISSING}
    elif isinstance(alternative, list):
        yield from map(list, product(*(list(islice(_readings(item), MAX_READINGS)) for item in alternative)))
    else:
        yield alternative


def _choices(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, list) else [values]:
        if value == "" and isinstance(values, list):
            yield _MISSING
        yield from _readings(value)


def row_fault(calls: Any, tools: Any, alternatives: bool) -> str | None:
    """Return what is wrong with a row of the data and how to mend it, or None."""
    try:
        known = None if tools is None else read_tools(tools)
    except InvalidJson as error:
        return f"its tools: the text {error}. Write a list of tools with name and parameters, as JSON text."
    except InvalidSchema as error:
        return f"its tools: the schema {error}. Write the parameters as a JSON Schema with properties."
    try:
        fault = reference_fault(read_calls(calls), known, alternatives)
    except InvalidJson as error:
        return f"its calls: the text {error}. Write a list of calls with name and arguments, as JSON text."
    return f"its calls: {fault}. Correct or remove the row." if fault else None


def calls_agree(
    calls: Sequence[Call], references: Sequence[Call], tools: Tools | None, *, ordered: bool, alternatives: bool
) -> bool:
    """Whether as many calls are the reference calls, each with one of its own, in their order if `ordered`."""
    agree = [[_call_agrees(call, gold, tools or {}, alternatives) for gold in references] for call in calls]
    if ordered:
        return all(agree[number][number] for number in range(len(calls)))
    caller_of: dict[int, int] = {}  # reference -> call: a bipartite matching, by augmenting paths

    def assign(number: int, tried: set[int]) -> bool:
        for gold, agrees in enumerate(agree[number]):
            if agrees and gold not in tried:
                tried.add(gold)
                if gold not in caller_of or assign(caller_of[gold], tried):
                    caller_of[gold] = number
                    return True
        return False

    return all(assign(number, set()) for number in range(len(calls)))


def _call_agrees(call: Call, gold: Call, tools: Tools, alternatives: bool) -> bool:
    properties = tools.get(gold.name, {}).get("properties") or {}
    return call.name == gold.name and all(
        _argument_agrees(name, call, gold, properties, alternatives) for name in call.arguments | gold.arguments
    )


def _argument_agrees(name: str, call: Call, gold: Call, properties: Mapping[str, Any], alternatives: bool) -> bool:
    declared = properties.get(name)
    default = declared.get("default", _MISSING) if isinstance(declared, dict) else _MISSING
    if name not in gold.arguments:
        return comparable(call.arguments[name]) == comparable(default)
    given, expected = call.arguments.get(name, default), gold.arguments[name]
    if not alternatives:
        return comparable(given) == comparable(expected)
    return (name not in call.arguments and "" in expected) or _is_one_of(given, expected)


def _is_one_of(given: Any, values: Any) -> bool:
    if not isinstance(values, list):
        return _agrees(given, values)
    return (given is _MISSING and "" in values) or any(_agrees(given, value) for value in values)


def _agrees(given: Any, alternative: Any) -> bool:
    """Whether a value, or `_MISSING`, is one that an alternative stands for."""
    if isinstance(alternative, dict):
        return (
            isinstance(given, dict)
            and given.keys() <= alternative.keys()
            and all(_is_one_of(given.get(key, _MISSING), values) for key, values in alternative.items())
        )
    if isinstance(alternative, list):
        return isinstance(given, list) and len(given) == len(alternative) and all(map(_agrees, given, alternative))
    return not isinstance(given, dict | list) and comparable(given) == comparable(alternative)
