"""The reward for making the reference calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rewards.function_call import function_call, validate_rows
from tests.support.cases import cases

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}, "unit": {"type": "string"}},
    "required": ["city"],
}
TOOLS: list[dict[str, Any]] = [
    {"name": "weather", "description": "Tell the weather.", "parameters": PARAMETERS},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}},
]
TIME: dict[str, Any] = {"name": "time", "arguments": {}}


def weather(**arguments: Any) -> dict[str, Any]:
    return {"name": "weather", "arguments": arguments}


OSLO = weather(city="Oslo", days=2)


def tagged(*calls: Any) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def structured(*calls: dict[str, Any], content: str = "") -> list[dict[str, Any]]:
    return [
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"type": "function", "function": one} for one in calls],
        }
    ]


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        (tagged(OSLO, TIME), 1.0, "Hermes and Qwen"),
        (f"Let me see.\n{tagged(TIME, OSLO)}", 1.0, "another order, text before"),
        (json.dumps([OSLO, TIME]), 1.0, "a list"),
        (f"```json\n{json.dumps([OSLO, TIME])}\n```", 1.0, "a list in a block"),
        (json.dumps([{"name": "weather", "parameters": OSLO["arguments"]}, {"name": "time"}]), 1.0, "Llama's name"),
        (structured(OSLO, TIME), 1.0, "messages"),
        (structured({**OSLO, "arguments": json.dumps(OSLO["arguments"])}, TIME), 1.0, "arguments as text"),
        (structured(OSLO, content=tagged(TIME)), 1.0, "a message and its text"),
        ([*structured(OSLO), {"role": "tool", "content": "rain"}, *structured(TIME)], 1.0, "two turns"),
        (tagged(TIME, weather(city="Oslo", days=2.0)), 1.0, "2 equals 2.0"),
        (tagged(OSLO), 0.0, "one is missing"),
        (tagged(OSLO, OSLO), 0.0, "one twice"),
        (tagged(OSLO, TIME, TIME), 0.0, "one too many"),
        (tagged(OSLO, TIME, {"name": "stop", "arguments": {}}), 0.0, "an unknown one too many"),
        (tagged({**OSLO, "name": "Weather"}, TIME), 0.0, "another name"),
        (tagged(weather(city="Oslo"), TIME), 0.0, "the default is another value"),
        (tagged(weather(city="oslo", days=2), TIME), 0.0, "another text"),
        (tagged(weather(city="Oslo", days="2"), TIME), 0.0, "another type"),
        (tagged(weather(city="Oslo", days=2, unit="C"), TIME), 0.0, "one argument more"),
        (tagged(weather(city="Oslo", days=2, verified=True), TIME), 0.0, "an unknown one"),
        (tagged({**OSLO, "parameters": {}}, TIME), 0.0, "arguments twice"),
        (tagged({**OSLO, "arguments": ["Oslo", 2]}, TIME), 0.0, "arguments in a list"),
        (tagged([OSLO, TIME]), 0.0, "a list within tags"),
        (f"<tool_call>{tagged(OSLO)}</tool_call>{tagged(TIME)}", 0.0, "nested tags"),
        (tagged(OSLO, TIME) + "<tool_call>", 0.0, "a tag that is not closed"),
        (f"<think>{tagged(OSLO, TIME)}</think>", 0.0, "in thoughts"),
        (json.dumps([[OSLO, TIME]]), 0.0, "a list of lists"),
        ("I call weather and time.", 0.0, "prose"),
    ],
)
def test_only_the_reference_calls_earn_the_reward(completion: Any, reward: float, why: str) -> None:
    columns = {"calls": json.dumps([OSLO, TIME]), "tools": json.dumps(TOOLS)}
    rows = {name: [value] for name, value in columns.items()}
    assert function_call([""], [completion], **rows) == [reward], why


@pytest.mark.parametrize(("gold", "made", "options", "reward", "why"), cases(__file__, "alternatives"))
def test_order_defaults_and_alternatives(
    gold: Any, made: Any, options: dict[str, Any], reward: float, why: str
) -> None:
    assert function_call([""], [tagged(*made)], calls=[gold], tools=TOOLS, **options) == [reward], why


@pytest.mark.parametrize(
    ("calls", "tools", "why"),
    [
        ("[{", TOOLS, "no JSON"),
        (None, TOOLS, "none"),
        ("[]", TOOLS, "an empty completion would be right"),
        ([{"arguments": {}}], TOOLS, "no name"),
        ([{"name": "stop"}], TOOLS, "an unknown function"),
        ([weather()], TOOLS, "a required argument is missing"),
        ([weather(city="Oslo", days="two")], TOOLS, "another type"),
        ([OSLO], [{"parameters": PARAMETERS}], "a tool without a name"),
        ([OSLO], "{", "tools that are no JSON"),
        ([OSLO], [{"name": "weather", "parameters": {"city": {"type": "str"}}}], "no JSON Schema"),
        ([OSLO], [{"name": "weather", "parameters": {"$ref": "http://127.0.0.1:9/s"}}], "never fetched"),
    ],
)
def test_a_row_whose_calls_no_completion_can_make_is_refused_and_not_scored(calls: Any, tools: Any, why: str) -> None:
    columns = {"calls": [[OSLO], calls], "tools": [json.dumps(TOOLS), json.dumps(tools) if tools != "{" else tools]}
    assert [bool(fault) for fault in validate_rows(**columns)] == [False, True], why
    assert function_call(["", ""], [tagged(OSLO)] * 2, **columns) == [1.0, None]


def test_without_tools_the_calls_alone_are_compared() -> None:
    assert function_call([""] * 2, [tagged(OSLO), tagged(TIME)], calls=[[OSLO]] * 2) == [1.0, 0.0]


DRINK = {"size": ["large", "L"], "milk": ["oat", ""], "shots": [2], "extras": [["syrup"], []]}
ORDER = {"drinks": [[DRINK, {"size": ["small"]}]], "at": [{"table": 4, "seat": [{"row": [1, 2]}]}], "note": [""]}
CAFE = [
    {
        "name": "order",
        "parameters": {
            "properties": {
                "drinks": {"items": {"properties": {"size": {"enum": ["small", "L"]}, "extras": {"type": "array"}}}},
                "at": {"type": "object", "required": ["table"]},
                "note": {"type": "integer"},
            }
        },
    }
]
LARGE: dict[str, Any] = {"size": "L", "milk": "oat", "shots": 2.0, "extras": []}
SEAT: dict[str, Any] = {"table": 4, "seat": {"row": 2}}


@pytest.mark.parametrize(
    ("drinks", "at", "reward", "why"),
    [
        ([LARGE, {"size": "small"}], SEAT, 1.0, "a value of each list"),
        ([{**LARGE, "extras": ["syrup"]}, {"size": "small"}], SEAT, 1.0, "a value that is a list"),
        ([{"size": "L", "shots": 2, "extras": []}, {"size": "small"}], SEAT, 1.0, "a key left out"),
        ([{"size": "L", "milk": "oat", "extras": []}, {"size": "small"}], SEAT, 0.0, "a key that may not be left out"),
        ([{**LARGE, "size": "small"}, {"size": "small"}], SEAT, 0.0, "a value of another list"),
        ([{**LARGE, "size": ["L"]}, {"size": "small"}], SEAT, 0.0, "a list of values"),
        ([{**LARGE, "ice": True}, {"size": "small"}], SEAT, 0.0, "another key"),
        ([{"size": "small"}, LARGE], SEAT, 0.0, "another order"),
        ([LARGE], SEAT, 0.0, "an item less"),
        ([LARGE, {"size": "small"}], {**SEAT, "table": 5}, 0.0, "a value that stands for itself"),
        ([LARGE, {"size": "small"}], {**SEAT, "seat": {"row": 3}}, 0.0, "another value further inside"),
        ([LARGE, {"size": "small"}], {**SEAT, "seat": 2}, 0.0, "no object"),
        ([LARGE, {"size": "small"}], {"seat": {"row": 2}}, 0.0, "a value that is no list can't be left out"),
        (DRINK, SEAT, 0.0, "the reference itself"),
    ],
)
def test_values_in_objects_have_alternatives_too(drinks: Any, at: Any, reward: float, why: str) -> None:
    made = {"name": "order", "arguments": {"drinks": drinks, "at": at}}
    gold = [{"name": "order", "arguments": ORDER}]
    assert function_call([""], [tagged(made)], calls=[gold], tools=CAFE, alternatives=True) == [reward], why


@pytest.mark.parametrize(
    ("change", "fault", "why"),
    [
        ({}, "", "valid with other values than the first, and with a key left out"),
        ({"note": [{"a": [], "b": [1]}]}, "empty", "an object whose key has no value"),
        ({"note": []}, "no list", "an argument without a value"),
        ({"note": 5}, "no list", "an argument that is no list"),
        ({"drinks": [[]], "note": [5, "5"], "at": [{"seat": [1]}, 4.5, {}]}, "table", "no object is valid"),
        ({"drinks": [[{"size": ["M", "XL"]}]]}, "'M'", "nor in an object"),
        (
            {"note": ["n"], **{f"a{number}": [{"x": [1, 2], "y": [[{"z": [1, 2]}] * 99]}] for number in range(9)}},
            "",
            "very many",
        ),
    ],
)
def test_a_row_is_refused_if_no_alternatives_fit_the_tools(change: dict[str, Any], fault: str, why: str) -> None:
    tools = json.loads(json.dumps(CAFE))
    tools[0]["parameters"]["additionalProperties"] = True
    calls = [{"name": "order", "arguments": {**ORDER, **change}}]
    (found,) = validate_rows(calls=[calls], tools=[tools], alternatives=True)
    assert fault in (found or "") and bool(found) == bool(fault), (why, found)
