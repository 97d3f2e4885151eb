"""Reward a turn that is one JSON value, valid under a schema and, if required, equal to a reference: 1 or 0.

    schema: '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'   # a row's column

{"city": "Paris"} is valid, as the whole turn or in a code block. `rlvr.verifiers.json_value` states how JSON is read,
compared and validated. Duplicate keys, NaN and very large values are invalid, and no `$ref` is fetched.

Known weaknesses: without `match_reference`, the emptiest valid value scores as much as a correct value ({"city": ""}).
With `partial`, values that most rows share ("USD") score their part. If validation takes more than two seconds (a
`pattern`, a recursion), the value scores 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlvr import completion_text
from rlvr.verifiers.json_value import (
    Form,
    InvalidJson,
    InvalidSchema,
    comparable,
    find_json,
    from_column,
    parse_json,
    row_fault,
    share_of_leaves,
    validation_fault,
)


def json_schema(
    prompts: list[Any],
    completions: list[Any],
    *,
    schema: Any = None,
    reference: list[Any] | None = None,
    match_reference: bool = False,
    partial: bool = False,
    form: Literal["any", "plain", "block"] = "any",
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Check whether the model's own turn is one JSON value that is valid under the schema.

    Args:
        completions: strings, or lists of chat messages.
        schema: the schema as JSON text or an object. A column holds one schema per row, an option one for all rows.
        reference: an optional column: the correct value of each row, as JSON text or a value.
        match_reference: also require a value equal to the reference. Key order does not count, and 1 equals 1.0.
        partial: with `match_reference`, score common leaves divided by the leaves of the larger value. A leaf is a
            value without parts, such as a name or a number.
        form: "plain": the turn is nothing but the value. "block": it has one code block, and any text around it. "any":
            either.

    Returns:
        1.0 or 0.0 for each completion, or a share with `partial`. None if the schema or a required reference is
        invalid, or if the schema refers to itself without end.
    """
    count = len(completions)
    rows = zip(completions, _of_rows(schema, count), _of_rows(reference, count), strict=True)
    scored = [_score(*row, match_reference, partial, form) for row in rows]
    if log_extra is not None:
        log_extra("json_schema/why", [why for _, why in scored])
    return [reward for reward, _ in scored]


def validate_rows(
    *,
    schema: Any = None,
    reference: list[Any] | None = None,
    match_reference: bool = False,
    **kwargs: Any,
) -> list[str | None]:
    """Return for each row what is wrong with its schema or its reference, or None. Called before training."""
    count = len(schema if isinstance(schema, list) else reference or [None])
    rows = zip(_of_rows(schema, count), _of_rows(reference, count), strict=True)
    return [row_fault(one, gold, match_reference) for one, gold in rows]


def _of_rows(value: Any, count: int) -> list[Any]:
    """Return a column, or an option as a column."""
    return value if isinstance(value, list) else [value] * count


def _score(
    completion: Any, schema: Any, gold: Any, match_reference: bool, partial: bool, form: Form
) -> tuple[float | None, str]:
    if fault := row_fault(schema, gold, match_reference):
        return None, f"The row can't be scored: {fault}"
    try:
        value = parse_json(find_json(completion_text(completion), form))
        fault = validation_fault(schema, value)
    except InvalidJson as error:
        return 0.0, f"The own turn {error}."
    except InvalidSchema as error:
        return None, f"The schema {error}."
    if fault:
        return 0.0, f"The value is not valid under the schema: {fault}."
    if not match_reference:
        return 1.0, "The value is valid under the schema."
    expected = from_column(gold)
    if comparable(value) == comparable(expected):
        return 1.0, "The value equals the reference."
    share = share_of_leaves(value, expected)
    return (
        share if partial else 0.0,
        f"The value is valid and has {share:.1%} of its leaves in common with the reference.",
    )
