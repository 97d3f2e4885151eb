"""The reward for JSON that is valid under a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rewards.json_schema import json_schema, validate_rows
from tests.support.cases import cases

ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "price": {"type": "number"}, "tags": {"type": "array"}},
    "required": ["name", "price"],
    "additionalProperties": False,
}
RIGHT = '{"name": "pen", "price": 2, "tags": ["a", true]}'


@pytest.mark.parametrize(
    ("completion", "form", "reward", "why"),
    [
        (RIGHT, "any", 1.0, "the reference"),
        (f"Exercise 3:\n\n```json\n{RIGHT}\n```", "block", 1.0, "a header above the block"),
        (f"As asked.\n\n**Problem:**\n```\n{RIGHT}\n```\nProblem:\n```\n1\n```", "any", 1.0, "an invented one behind"),
        (f"{RIGHT}\nExample:\n```json\n{RIGHT.replace('2', '3')}\n```", "any", 1.0, "a value above the header"),
        (f"{RIGHT.replace('2', '3')}\nExample:\n```json\n{RIGHT}\n```", "any", 0.0, "another value above the header"),
        (f'Step 1 is "a".\n\nExample:\n```json\n{RIGHT}\n```', "any", 1.0, "numbers and quotes in text above it"),
        (f"7\n\nExample:\n```json\n{RIGHT}\n```", "any", 0.0, "a value that is no object above it"),
        (f"Sure.<|im_end|>user:\n```json\n{RIGHT}\n```", "any", 0.0, "a token on the header's line"),
        (f"Exercise 3:\nName a pen.\n```json\n{RIGHT}\n```", "any", 0.0, "an invented problem before"),
        (f"Sure.<|im_end|>\nUser:\n```json\n{RIGHT}\n```", "any", 0.0, "the turn has ended before"),
        (f"Example:\n{RIGHT}", "any", 0.0, "a header without a block"),
        ('{"tags": ["a", true], "price": 2.0, "name": "p\\u0065n"}', "any", 1.0, "the same value"),
        (f"```json\n{RIGHT}\n```", "any", 1.0, "a block"),
        (f"Here:\n```\n{RIGHT}\n```\nDone.", "any", 1.0, "text around the block"),
        (f"```json\n{RIGHT}\n```", "plain", 0.0, "a block is not plain"),
        (RIGHT, "block", 0.0, "no block"),
        (f"Here: {RIGHT}", "any", 0.0, "text around it without a block"),
        (f"```json\n{RIGHT}\n```\n```json\n{RIGHT}\n```", "any", 0.0, "two blocks"),
        (f"```python\n{RIGHT}\n```", "any", 0.0, "a block of code"),
        (f"```json\n{RIGHT}", "any", 0.0, "a block that is not closed"),
        (f"{RIGHT}{RIGHT}", "any", 0.0, "two values"),
        (f"[{RIGHT}]", "any", 0.0, "a list of it"),
        (RIGHT.replace("2", '2, "price": 2'), "any", 0.0, "an equal key"),
        (RIGHT.replace("2", '"2"'), "any", 0.0, "another type"),
        (RIGHT.replace("true", "1"), "any", 0.0, "1 is not true"),
        (RIGHT.replace("2", "3"), "any", 0.0, "another value"),
        (RIGHT.replace("pen", "pеn"), "any", 0.0, "a Cyrillic letter"),
        ('{"name": "", "price": 0}', "any", 0.0, "valid and empty"),
        (RIGHT.replace("2", "NaN"), "any", 0.0, "no number"),
        (RIGHT.replace("2", "1e999"), "any", 0.0, "a number beyond floats"),
        (RIGHT.replace("2", "9" * 5000), "any", 0.0, "a huge number"),
        (RIGHT.replace('"a"', "[" * 100 + "]" * 100), "any", 0.0, "deep"),
        ("[" * 200_000, "any", 0.0, "deeper than Python's stack"),
        (RIGHT.replace('"a"', '"' + "a" * 200_000 + '"'), "any", 0.0, "huge"),
        (RIGHT.replace('"a"', ",".join(["{}"] * 21_000)), "any", 0.0, "too many values"),
    ],
)
def test_only_the_value_of_the_reference_earns_the_reward(completion: str, form: Any, reward: float, why: str) -> None:
    options: dict[str, Any] = {"match_reference": True, "form": form}
    assert json_schema([""], [completion], schema=[json.dumps(ITEM)], reference=[RIGHT], **options) == [reward], why


def test_without_the_reference_every_valid_value_earns_the_reward() -> None:
    completions = ['{"name": "", "price": 0}', "{}", RIGHT, "null"]
    assert json_schema([""] * 4, completions, schema=ITEM) == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        (RIGHT, 1.0, "all four leaves"),
        (RIGHT.replace("2", "3"), 0.75, "three of four"),
        ('{"name": "pen", "price": 0}', 0.25, "one of four"),
        (RIGHT.replace("true", "true, 1, 2, 3, 4"), 0.5, "more leaves earn less"),
        ('{"name": "", "price": 0}', 0.0, "none"),
        ('{"name": "pen"}', 0.0, "not valid"),
        ('{"name": "pen", "price": 2, "tags": {"a": true}}', 0.0, "not valid"),
    ],
)
def test_a_value_that_differs_may_earn_its_share_of_leaves(completion: str, reward: float, why: str) -> None:
    options = {"match_reference": True, "partial": True}
    assert json_schema([""], [completion], schema=ITEM, reference=[RIGHT], **options) == [reward], why


MANY = [[number] * 3 for number in range(2500)]


@pytest.mark.parametrize(
    ("items", "one_more", "schema"),
    [
        ([{"a": number} for number in range(7000)], {"a": 7.0}, {"uniqueItems": True}),
        (MANY[:-1000:-1], [0.0, 0, 1], {"items": {"enum": MANY}}),
        ([1, 1.0, "1"], True, {"items": {"enum": [1, "1"]}}),
    ],
)
def test_equal_values_of_a_long_list_are_found_at_once(items: list[Any], one_more: Any, schema: Any) -> None:
    assert json_schema([""] * 2, [json.dumps(items), json.dumps([*items, one_more])], schema=schema) == [1.0, 0.0]


@pytest.mark.parametrize(("schema", "why"), cases(__file__, "a row whose schema"))
def test_a_row_whose_schema_is_none_is_refused_and_not_scored(schema: Any, why: str) -> None:
    rows = [json.dumps(ITEM), schema if isinstance(schema, str | None) else json.dumps(schema)]
    assert [bool(fault) for fault in validate_rows(schema=rows)] == [False, True], why
    assert json_schema(["", ""], [RIGHT, RIGHT], schema=rows) == [1.0, None]


@pytest.mark.parametrize("gold", [None, "{", "{}", '{"name": "pen"}', {"name": "pen", "price": float("nan")}])
def test_a_reference_that_is_not_valid_is_refused(gold: Any) -> None:
    assert validate_rows(schema=[json.dumps(ITEM)], reference=[gold]) == [None]
    columns: dict[str, Any] = {"schema": [json.dumps(ITEM)] * 2, "reference": [RIGHT, gold]}
    assert [bool(fault) for fault in validate_rows(**columns, match_reference=True)] == [False, True]
    assert json_schema(["", ""], [RIGHT, RIGHT], **columns, match_reference=True) == [1.0, None]


def test_a_schema_for_all_rows_is_refused_at_the_first() -> None:
    assert validate_rows(schema={"type": 7}) != [None]
    assert validate_rows() != [None]


def draft(number: str, **schema: Any) -> dict[str, Any]:
    return {"$schema": f"http://json-schema.org/draft-{number}/schema#", **schema}


NODES = {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}}
NAMED = {"x": {"id": "#n", "type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (
            draft("07", definitions=NODES, **{"$ref": "#/definitions/node"}),
            {"next": {"next": {}}},
            {"next": {"next": 1}},
        ),
        (draft("03", extends={"properties": {"a": {"required": True}}}), {"a": 1}, {"b": 1}),
        (draft("03", extends={"properties": {"a": {"$ref": "#n"}}}, properties=NAMED), {"a": 1}, {"a": "1"}),
        (draft("03", extends=[{"minItems": 1}, {"maxItems": 2}]), [1], [1, 2, 3]),
        (draft("06", dependencies={"a": {"maxProperties": 2}, "b": ["c"]}), {"b": 1, "c": 1}, {"b": 1}),
        (draft("03", dependencies={"a": {}, "b": "c"}, properties=NAMED), {"b": 1, "c": 1}, {"b": 1, "a": 1}),
        ({"pattern": "^\\p{Lu}\\p{Ll}+$"}, "Ärger", "ärger"),
        ({"patternProperties": {"^\\p{IsGreek}": {"type": "null"}}}, {"b": 1, "β": None}, {"β": 1}),
    ],
)
def test_older_drafts_and_patterns_of_unicode_are_read(schema: Any, valid: Any, invalid: Any) -> None:
    assert json_schema([""] * 2, [json.dumps(valid), json.dumps(invalid)], schema=schema) == [1.0, 0.0]


NODE = {"properties": {"a": {"$ref": "#/$defs/node"}}, "anyOf": [{"properties": {"a": {"$ref": "#/$defs/node"}}}]}
SLOW = "^(x|xx)+$"


@pytest.mark.parametrize(
    ("schema", "completion", "why"),
    [
        ({"pattern": SLOW}, f'"{"x" * 60}!"', "a text"),
        ({"not": {"pattern": SLOW}}, f'"{"x" * 60}!"', "an inversion does not make it valid"),
        ({"patternProperties": {SLOW: {}}, "additionalProperties": {}}, f'{{"{"x" * 60}!": 1}}', "a key"),
        ({"$defs": {"node": NODE}, "$ref": "#/$defs/node"}, '{"a": ' * 30 + "{}" + "}" * 30, "branches that recur"),
        ({"items": {"not": {"anyOf": [{"const": 1}] * 99}}}, f"[{'2, ' * 9000}2]", "many branches"),
    ],
)
def test_a_value_that_needs_exponential_time_is_not_valid(
    schema: Any, completion: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr.verifiers.json_validator.DEADLINE_S", 0.2)
    assert json_schema([""], [completion], schema=schema) == [0.0], why


def test_keys_are_matched_by_name_and_pattern() -> None:
    schema = {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
    completions = ['{"a": 1, "x1": "s"}', '{"x1": 1}', '{"b": 1}']
    assert json_schema([""] * 3, completions, schema=schema) == [1.0, 0.0, 0.0]
    assert json_schema([""] * 2, ['{"b": 1}', '{"b": "s"}'], schema={"additionalProperties": {"type": "string"}}) == [
        0.0,
        1.0,
    ]


def test_a_schema_that_loops_on_a_value_scores_no_row() -> None:
    schema = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert json_schema([""] * 2, ['{"a": 1}', '{"b": 1}'], schema=schema) == [None, 1.0]
