"""Reward a turn that is one JSON value, valid under a schema and perhaps equal to a reference: 1 or 0.

    schema: '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'   # a row's column

{"city": "Paris"} is valid, alone or in a code block. `rlvr.verifiers.json_value` states how JSON is read, compared and
validated: duplicate keys, NaN and very large values are refused, and no `$ref` is fetched.

Exploits: without `match_reference`, the emptiest valid value earns as much as a right one ({"city": ""}). With
`partial`, values that most rows share ("USD") earn their part. A value for which a hostile schema (a `pattern`, a
recursion) needs more than two seconds earns 0.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError, completion_text, own_turn
from rlvr.verifiers.json_value import (
    FORMS,
    Form,
    InvalidJson,
    InvalidSchema,
    comparable,
    find_json,
    from_column,
    parse_json,
    schema_fault,
    share_of_leaves,
    validation_fault,
)


def json_schema(
    prompts: list[Any],
    completions: list[Any],
    *,
    schema: Any = None,
    reference: list[Any] | None = None,
    final_answer: list[Any] | None = None,
    match_reference: bool = False,
    partial: bool = False,
    form: Form = "any",
    **kwargs: Any,
) -> list[float | None]:
    """Check whether the model's own turn is one JSON value that is valid under the schema.

    Args:
        completions: strings, or lists of chat messages.
        schema: a column with the schema of each row, or an option with the schema of all rows: JSON text, or an object.
        reference: an optional column: the right value, as JSON text or a value.
        final_answer: the same, if there is no column `reference`.
        match_reference: also require a value equal to the reference: key order is free, 1 equals 1.0.
        partial: with `match_reference`, a valid value that differs earns the share of leaves (a name, a number) that it
            has in common with the reference, of the larger of the two.
        form: "plain": the turn is nothing but the value. "block": it has one code block, and any text around it. "any":
            either.

    Returns:
        1.0 or 0.0 for each completion, with `partial` a share; None if the schema loops on this value.

    Raises:
        InputError: a schema or a required reference is none (with its row), or an option is invalid.
    """
    _check_form(form)
    schemas = _of_rows(schema, len(completions), "schema")
    references = _of_rows(final_answer if reference is None else reference, len(completions), "reference")
    for row, (one, gold) in enumerate(zip(schemas, references, strict=True)):
        if fault := _row_fault(one, gold, match_reference):
            message = f"Reward json_schema, row {row} of the batch: {fault}"
            raise InputError(message, kind="invalid-row", key="schema", row=row)
    return [
        _score(completion, one, gold, match_reference, partial, form)[0]
        for completion, one, gold in zip(completions, schemas, references, strict=True)
    ]


def validate_rows(
    *,
    schema: Any = None,
    reference: list[Any] | None = None,
    final_answer: list[Any] | None = None,
    match_reference: bool = False,
    **kwargs: Any,
) -> list[str | None]:
    """Return for each row what is wrong with its schema or its reference, or None. Called once before training."""
    golds = final_answer if reference is None else reference
    columns = [column for column in (schema, golds) if isinstance(column, list)]
    count = len(columns[0]) if columns else 1
    schemas, references = _of_rows(schema, count, "schema"), _of_rows(golds, count, "reference")
    return [_row_fault(one, gold, match_reference) for one, gold in zip(schemas, references, strict=True)]


def explain(
    completion: Any,
    *,
    schema: Any = None,
    reference: Any = None,
    final_answer: Any = None,
    match_reference: bool = False,
    partial: bool = False,
    form: Form = "any",
    **kwargs: Any,
) -> list[str]:
    """Explain the reward of `json_schema`, one sentence a step; the last one is the reward.

    Args: as `json_schema`, for one row.
    """
    _check_form(form)
    gold = final_answer if reference is None else reference
    if fault := _row_fault(schema, gold, match_reference):
        raise InputError(f"Reward json_schema: {fault}", kind="invalid-row", key="schema")
    reward, steps = _score(completion, schema, gold, match_reference, partial, form)
    return [*steps, "Reward: None" if reward is None else f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------


def _score(
    completion: Any, schema: Any, gold: Any, match_reference: bool, partial: bool, form: Form
) -> tuple[float | None, list[str]]:
    """Return the reward and the sentences that explain it."""
    try:
        value = parse_json(find_json(own_turn(completion_text(completion)), form))
    except InvalidJson as error:
        return 0.0, [f"The own turn {error}."]
    steps = ["The own turn is one JSON value."]
    try:
        fault = validation_fault(schema, value)
    except InvalidSchema as error:
        return None, [*steps, f"The schema {error}."]
    if fault:
        return 0.0, [*steps, f"It is not valid under the schema: {fault}"]
    steps.append("It is valid under the schema.")
    if not match_reference:
        return 1.0, steps
    expected = from_column(gold)
    if comparable(value) == comparable(expected):
        return 1.0, [*steps, "It equals the reference."]
    if not partial:
        return 0.0, [*steps, "It differs from the reference."]
    share = share_of_leaves(value, expected)
    return share, [*steps, f"It has {share:.1%} of its leaves in common with the reference."]


def _row_fault(schema: Any, gold: Any, match_reference: bool) -> str | None:
    """Return what is wrong with a row and how to mend it, or None."""
    if schema is None:
        return "there is no schema. Add the column schema, or set the option schema."
    if fault := schema_fault(schema):
        return (
            f"the schema {fault}. Write a JSON Schema, in a column as JSON text (a table fills missing keys with null)."
        )
    if not match_reference:
        return None
    if gold is None:
        return "match_reference needs the column reference or final_answer. Add it, or remove the option."
    try:
        fault = validation_fault(schema, from_column(gold))
    except InvalidJson as error:
        return f"the reference {error}. Write it as JSON text."
    except InvalidSchema as error:
        return f"the schema {error}. Correct it."
    return f"the reference is not valid under the schema: {fault}. Correct or remove the row." if fault else None


def _of_rows(value: Any, count: int, name: str) -> list[Any]:
    """Return the column `value`, or an option as a column."""
    if not isinstance(value, list):
        if name == "schema" and (fault := _row_fault(value, None, False)):
            raise InputError(f"Reward json_schema: {fault}", kind="invalid-value", key="schema")
        return [value] * count
    if len(value) != count:
        message = f"Reward json_schema: the column {name} has {len(value)} entries for {count} rows. Pass one each."
        raise InputError(message, kind="length-mismatch", key=name)
    return value


def _check_form(form: Form) -> None:
    if form not in FORMS:
        message = f"Reward json_schema, option form: {form!r} is none of {', '.join(FORMS)}."
        raise InputError(message, kind="invalid-value", key="form")
