"""Validate JSON by a schema, with a limit of time.

Schemas are those of the library jsonschema: every draft, 2020-12 by default. Nothing is fetched: a `$ref` to a URL is
an error. `format` is not checked. A `pattern` or a recursion may need exponential time on some values: a value that
needs more than `DEADLINE_S` is not valid.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import regex
from jsonschema import FormatChecker, SchemaError, ValidationError, validators
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from rlvr.verifiers.json_value import InvalidJson, InvalidSchema, comparable, items_of, parse_json

MAX_MESSAGE = 200
DEADLINE_S = 2.0  # of a validation; an honest one takes a millisecond

_deadline: ContextVar[float] = ContextVar("deadline")


class _TooSlow(Exception):
    """A validation exceeds its deadline."""


def first_violation(schema: Any, value: Any) -> str | None:
    """Return the first violation of a schema (JSON text or a value), or None if the value is valid.

    Raises:
        InvalidSchema: the schema is none, refers to another document, or refers to itself without end.
    """
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
        library_class.check_schema(schema, format_checker=_FORMATS)
    except SchemaError as error:
        raise InvalidSchema(f"is none ({_cut(f'{error.json_path}: {error.message}')})") from None
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    try:
        _look_up_references(resource, REGISTRY.resolver_with_root(resource))
    except Unresolvable as error:
        raise InvalidSchema(f"refers to {_cut(error.ref)}, which it does not contain; nothing is fetched") from None
    keywords = library_class.VALIDATORS | {"pattern": _pattern, "patternProperties": _pattern_properties}
    keywords |= {"uniqueItems": _unique_items, "enum": _enum(), "additionalProperties": _additional_properties}
    keywords = {name: _timed(check) for name, check in keywords.items()}
    # Without a registry, the library would download what a $ref names.
    return validators.extend(library_class, keywords)(schema, registry=REGISTRY)


def _has_inner(schema: Any, key: str) -> bool:
    """Whether an object within the schema has a key with text."""
    parts = list(items_of(schema)) if isinstance(schema, dict | list) else []
    return any((isinstance(part, dict) and isinstance(part.get(key), str)) or _has_inner(part, key) for part in parts)


def _look_up_references(resource: Any, resolver: Any) -> None:
    """Look up each reference of a schema; raise referencing's Unresolvable for one without a target."""
    contents = resource.contents if isinstance(resource.contents, dict) else {}
    # The package referencing fails on two forms that older drafts allow: one schema, and a schema before a list.
    if isinstance(contents.get("extends"), dict):
        contents["extends"] = [contents["extends"]]
    if isinstance(contents.get("dependencies"), dict):
        contents["dependencies"] = dict(
            sorted(contents["dependencies"].items(), key=lambda one: isinstance(one[1], dict))
        )
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(contents.get(keyword), str):
            resolver.lookup(contents[keyword])
    for part in resource.subresources():
        _look_up_references(part, resolver.in_subresource(part))


# ----------------------------------------------------------------------------------------------------------------------
# Keywords of schemas, with a limit of time

Keyword = Callable[[Any, Any, Any, Any], Iterator[Exception]]
_FORMATS = FormatChecker(())
_FORMATS.checks("regex", raises=regex.error)(lambda value: not isinstance(value, str) or regex.compile(value))


def _timed(keyword: Keyword) -> Keyword:
    """Return the check of a keyword, with the deadline."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Exception]:
        if time.monotonic() > _deadline.get():
            raise _TooSlow
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _matches(pattern: str, text: str) -> bool:
    """Search for a pattern, until the deadline: the library's own search could take for ever."""
    try:
        return regex.search(pattern, text, timeout=max(_deadline.get() - time.monotonic(), 0.001)) is not None
    except TimeoutError:
        raise _TooSlow from None
    except regex.error as error:
        raise InvalidSchema(f"has the pattern {pattern[:60]!r}: {error}") from None


def _pattern(validator: Any, pattern: str, text: Any, schema: Any) -> Iterator[Exception]:
    if isinstance(text, str) and not _matches(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], value: Any, schema: Any) -> Iterator[Exception]:
    for pattern, part in patterns.items() if isinstance(value, dict) else ():
        for name in value:
            if _matches(pattern, name):
                yield from validator.descend(value[name], part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Exception]:
    for name in value if isinstance(value, dict) else ():
        is_known = name in schema.get("properties", {})
        if not is_known and not any(_matches(pattern, name) for pattern in schema.get("patternProperties", ())):
            if isinstance(allowed, dict):
                yield from validator.descend(value[name], allowed, path=name)
            elif not allowed:
                yield ValidationError(f"the key {name!r} is unexpected")


def _unique_items(validator: Any, unique: bool, items: Any, schema: Any) -> Iterator[Exception]:
    """Compare all items in linear time; the library's own check is quadratic for objects."""
    if unique and isinstance(items, list) and len(set(map(comparable, items))) < len(items):
        yield ValidationError("two items are equal")


def _enum() -> Keyword:
    """Return the check of `enum`, which hashes the values of each list once; the library compares all of them."""
    hashed: dict[int, frozenset[Hashable]] = {}  # by identity: the schema lives as long as its validator

    def check(validator: Any, values: list[Any], instance: Any, schema: Any) -> Iterator[Exception]:
        if id(values) not in hashed:
            hashed[id(values)] = frozenset(map(comparable, values))
        if comparable(instance) not in hashed[id(values)]:
            yield ValidationError(f"{instance!r} is not one of {values[:20]!r}")

    return check


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."
