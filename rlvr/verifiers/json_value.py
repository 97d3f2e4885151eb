"""JSON that a model wrote: read strictly, compared by value, validated by a schema.

Refused are duplicate keys, NaN and Infinity, numbers beyond 64-bit floats, and values too large or nested too deeply.
Values are equal regardless of the order of keys; 1 equals 1.0, and true does not equal 1. json_validator.py says what
holds for schemas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Literal

from rlvr.verifiers.completion_text import is_header, own_turn, without_thinking

MAX_CHARACTERS = 100_000
MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 308  # larger integers are no 64-bit floats

Form = Literal["any", "plain", "block"]


class InvalidJson(ValueError):
    """A text is no JSON, or is refused; the message continues "the answer …"."""


class InvalidSchema(ValueError):
    """A schema is none; the message continues "the schema …"."""


def find_json(text: str, form: Form = "any") -> str:
    """Return the text of the one JSON value of the model's own turn.

    Args:
        text: of a completion. A header right above a code block, such as "Example:", introduces the block.
        form: "plain": the turn is nothing but the value. "block": the value is in the only code block (```json or ```),
            with any text around it. "any": a block if the turn has one.
    """
    turn = own_turn(text)
    header, _, rest = without_thinking(text)[len(turn) :].partition("\n")
    introduces = is_header(header) and header.rstrip(" *_").endswith(":") and rest.lstrip().startswith("```")
    if introduces and not any(map(_begins_value, turn.split("\n"))):
        turn = own_turn(rest)
    lines = turn.split("\n")
    fences = [number for number, line in enumerate(lines) if line.lstrip(" \t").startswith("```")]
    if form == "plain" or (form == "any" and not fences):
        return turn.strip()
    infos = [lines[number].strip()[3:].strip().lower() for number in fences[:2]]
    if len(fences) != 2 or infos[0] not in ("json", "") or infos[1]:
        raise InvalidJson("has not exactly one code block of JSON")
    return "\n".join(lines[fences[0] + 1 : fences[1]])


def _begins_value(line: str) -> bool:
    """Whether a line may begin a JSON value, or is one."""
    try:
        return "{" in line or "[" in line or bool([json.loads(line)])
    except (ValueError, RecursionError):
        return False


def parse_json(text: str) -> Any:
    """Parse a text that is one JSON value.

    Raises:
        InvalidJson: it is none, or it is refused.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidJson(f"is longer than {MAX_CHARACTERS:,} characters")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError:
        raise InvalidJson(f"is nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"is not JSON ({error.msg}, line {error.lineno}, column {error.colno})") from None
    _check_size(value)
    return value


def from_column(value: Any) -> Any:
    """Return the value of a column or an option, which is JSON text or the value itself.

    Raises:
        InvalidJson: as `parse_json`.
    """
    if isinstance(value, str):
        return parse_json(value)
    try:
        return parse_json(json.dumps(value))
    except (TypeError, RecursionError):
        raise InvalidJson("is no JSON") from None


def comparable(value: Any) -> Hashable:
    """Return a hashable form of a JSON value; those of equal values are equal."""
    if isinstance(value, dict):
        return "object", frozenset((key, comparable(item)) for key, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(comparable, value))
    if isinstance(value, bool):
        return "boolean", value
    number_or_text: Hashable = value
    return number_or_text


def share_of_leaves(value: Any, reference: Any) -> float:
    """Return the share of leaves that two values have in common, of the leaves of the larger one.

    A leaf is a scalar, or an empty object or list, with the keys and positions that lead to it.
    """
    ours, theirs = (dict(_leaves(root, ())) for root in (value, reference))
    common = sum(1 for path, leaf in ours.items() if path in theirs and comparable(leaf) == comparable(theirs[path]))
    return common / max(len(ours), len(theirs))


def _leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if not isinstance(value, dict | list) or not value:
        yield path, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(item, (*path, key))


def schema_fault(schema: Any) -> str | None:
    """Return what is wrong with a schema (JSON text or a value), as the rest of a sentence; None if it is one."""
    try:
        validation_fault(schema, None)  # a schema that refers to itself without end fails on any value
    except InvalidSchema as error:
        return str(error)
    return None


def row_fault(schema: Any, reference: Any, match_reference: bool) -> str | None:
    """Return what is wrong with a row's schema, or with its reference if that matters, and how to mend it; or None."""
    if schema is None:
        return "there is no schema. Add the column schema, or set the option schema."
    if fault := schema_fault(schema):
        return f"the schema {fault}. Write a JSON Schema; in a column as JSON text, where no table adds nulls."
    if not match_reference:
        return None
    if reference is None:
        return "match_reference needs the column reference. Add it, or remove the option."
    try:
        fault = validation_fault(schema, from_column(reference))
    except InvalidJson as error:
        return f"the reference {error}. Write it as JSON text."
    except InvalidSchema as error:
        return f"the schema {error}. Correct it."
    return f"the reference is not valid under the schema: {fault}. Correct or remove the row." if fault else None


def validation_fault(schema: Any, value: Any) -> str | None:
    """Return the first violation of a schema (JSON text or a value), or None if the value is valid.

    Raises:
        InvalidSchema: the schema is none, refers to another document, or refers to itself without end.
    """
    from rlvr.verifiers.json_validator import first_violation  # the package jsonschema may be missing

    return first_violation(schema, value)


# ----------------------------------------------------------------------------------------------------------------------
# Parsing


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise InvalidJson("has an object with two equal keys")
    return value


def _constant(name: str) -> Any:
    raise InvalidJson(f"has {name}, which is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(f"has a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidJson("has a number that is too large")
    return number


def _check_size(value: Any) -> None:
    level, count = [value], 1
    for _ in range(MAX_DEPTH):
        level = [item for part in level if isinstance(part, dict | list) for item in items_of(part)]
        count += len(level)
        if not level:
            return
        if count > MAX_VALUES:
            raise InvalidJson(f"has more than {MAX_VALUES:,} values")
    raise InvalidJson(f"is nested more than {MAX_DEPTH} levels deep")


def items_of(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
