"""JSON that a model wrote: read strictly, compared by value, validated by a schema.

Refused are duplicate keys, NaN and Infinity, numbers beyond 64-bit floats, and values too large or nested too deeply.
Values are equal regardless of the order of keys; 1 equals 1.0, and true does not equal 1.

Schemas are those of the library jsonschema: every draft, 2020-12 by default. Nothing is fetched: a `$ref` to a URL is
an error. `format` is not checked. A `pattern` or a recursion may need exponential time on some values: a value that
needs more than `DEADLINE_S` is not valid.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

MAX_CHARACTERS = 100_000
MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 308  # larger integers are no 64-bit floats
MAX_MESSAGE = 200
DEADLINE_S = 2.0  # of a validation; an honest one takes a millisecond

_deadline: ContextVar[float] = ContextVar("deadline")

Form = Literal["any", "plain", "block"]


class InvalidJson(ValueError):
    """A text is no JSON, or is refused; the message continues "the answer …"."""


class _TooSlow(Exception):
    """A validation exceeds its deadline."""


class InvalidSchema(ValueError):
    """A schema is none; the message continues "the schema …"."""


def find_json(turn: str, form: Form = "any") -> str:
    """Return the text of the one JSON value of a turn.

    Args:
        form: "plain": the turn is nothing but the value. "block": the value is in the only code block (```json or ```),
            with any text around it. "any": a block if the turn has one.
    """
    lines = turn.split("\n")
    fences = [number for number, line in enumerate(lines) if line.lstrip(" \t").startswith("```")]
    if form == "plain" or (form == "any" and not fences):
        return turn.strip()
    infos = [lines[number].strip()[3:].strip().lower() for number in fences[:2]]
    if len(fences) != 2 or infos[0] not in ("json", "") or infos[1]:
        raise InvalidJson("has not exactly one code block of JSON")
    return "\n".join(lines[fences[0] + 1 : fences[1]])


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
        return "match_reference needs the column reference or final_answer. Add it, or remove the option."
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
    from referencing.exceptions import Unresolvable

    _deadline.set(time.monotonic() + DEADLINE_S)
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        error = next(_validator(text).iter_errors(value), None)
    except _TooSlow:
        return f"the schema needs more than {DEADLINE_S:g} s for this value"
    except Unresolvable as unresolvable:
        raise InvalidSchema(f"refers to {_cut(unresolvable.ref)}, which it does not contain") from None
    except RecursionError:
        raise InvalidSchema("refers to itself without end, or is nested too deeply") from None
    except TypeError:
        raise InvalidSchema("is no JSON") from None
    if error is None:
        return None
    return _cut(f"{error.json_path}: {error.message}")


@lru_cache(maxsize=1024)
def _validator(text: str) -> Any:
    """Build the validator of a schema."""
    from jsonschema import SchemaError, validators
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    try:
        schema = parse_json(text)
    except InvalidJson as error:
        raise InvalidSchema(str(error)) from None
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("is no object")
    library_class = validators.validator_for(schema, default=validators.Draft202012Validator)
    if _has_inner(schema, "$schema") or ("unevaluatedProperties" in text and "patternProperties" in text):
        # The library would check these parts by its own keywords, without a limit of time.
        raise InvalidSchema("has an inner $schema, or unevaluatedProperties beside patternProperties")
    try:
        library_class.check_schema(schema)
    except SchemaError as error:
        raise InvalidSchema(f"is none ({_cut(f'{error.json_path}: {error.message}')})") from None
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    try:
        _look_up_references(resource, REGISTRY.resolver_with_root(resource))
    except Unresolvable as error:
        raise InvalidSchema(f"refers to {_cut(error.ref)}, which it does not contain; nothing is fetched") from None
    keywords = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    keywords["additionalProperties"] = _additional_properties
    keywords |= {name: _timed(library_class.VALIDATORS[name]) for name in _REFERENCES & library_class.VALIDATORS.keys()}
    # Without a registry, the library would download what a $ref names.
    return validators.extend(library_class, keywords)(schema, registry=REGISTRY)


def _has_inner(schema: Any, key: str) -> bool:
    """Whether an object within the schema has a key with text."""
    parts = list(_items(schema)) if isinstance(schema, dict | list) else []
    return any((isinstance(part, dict) and isinstance(part.get(key), str)) or _has_inner(part, key) for part in parts)


def _look_up_references(resource: Any, resolver: Any) -> None:
    """Look up each reference of a schema; raise referencing's Unresolvable for one without a target."""
    contents = resource.contents if isinstance(resource.contents, dict) else {}
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(contents.get(keyword), str):
            resolver.lookup(contents[keyword])
    for part in resource.subresources():
        _look_up_references(part, resolver.in_subresource(part))


# ----------------------------------------------------------------------------------------------------------------------
# Keywords of schemas whose checks in the library have no limit of time

Keyword = Callable[[Any, Any, Any, Any], Iterator[Exception]]
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


def _timed(keyword: Keyword) -> Keyword:
    """Return the check of a keyword that recurs, with the deadline."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Exception]:
        if time.monotonic() > _deadline.get():
            raise _TooSlow
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _matches(pattern: str, text: str) -> bool:
    """Search for a pattern, until the deadline: the library's own search could take for ever."""
    import regex

    try:
        return regex.search(pattern, text, timeout=max(_deadline.get() - time.monotonic(), 0.001)) is not None
    except TimeoutError:
        raise _TooSlow from None
    except regex.error as error:
        raise InvalidSchema(f"has the pattern {pattern[:60]!r}: {error}") from None


def _pattern(validator: Any, pattern: str, text: Any, schema: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if isinstance(text, str) and not _matches(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], value: Any, schema: Any) -> Iterator[Exception]:
    for pattern, part in patterns.items() if isinstance(value, dict) else ():
        for name in value:
            if _matches(pattern, name):
                yield from validator.descend(value[name], part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    for name in value if isinstance(value, dict) else ():
        is_known = name in schema.get("properties", {})
        if not is_known and not any(_matches(pattern, name) for pattern in schema.get("patternProperties", ())):
            if isinstance(allowed, dict):
                yield from validator.descend(value[name], allowed, path=name)
            elif not allowed:
                yield ValidationError(f"the key {name!r} is unexpected")


def _unique_items(validator: Any, unique: bool, items: Any, schema: Any) -> Iterator[Exception]:
    """Compare all items in linear time; the library's own check is quadratic for objects."""
    from jsonschema import ValidationError

    if unique and isinstance(items, list) and len(set(map(comparable, items))) < len(items):
        yield ValidationError("two items are equal")


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
        level = [item for part in level if isinstance(part, dict | list) for item in _items(part)]
        count += len(level)
        if not level:
            return
        if count > MAX_VALUES:
            raise InvalidJson(f"has more than {MAX_VALUES:,} values")
    raise InvalidJson(f"is nested more than {MAX_DEPTH} levels deep")


def _items(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."
