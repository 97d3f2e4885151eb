"""Check values against annotations that are given as text, such as "int | None" or "Literal['a', 'b']"."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from typing import Any

# The plain types, and how messages name them.
PLAIN_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "None": "empty",
}


def mismatch(value: Any, annotation: str) -> str | None:
    """Compare a value with an annotation; None if it fits, or if the annotation names other than plain types.

    Returns:
        A predicate, such as "is text ('x'), but should be a number".
    """
    types = types_of(annotation)
    is_plain = all(name in PLAIN_TYPES or name.startswith("'") for name in types)
    return type_mismatch(value, types) if is_plain else None


def type_mismatch(value: Any, types: Iterable[str]) -> str | None:
    """Compare a value with the names of plain types and with choices, as `types_of` returns them."""
    types = list(types)
    name = "None" if value is None else type(value).__name__
    if name in types or (name == "int" and "float" in types) or repr(value) in types:
        return None
    words = {"str": "text", "list": "a list", "dict": "a mapping"}
    described = "empty" if value is None else f"{words.get(name, 'a number')} ({value!r})"
    if isinstance(value, bool):
        described = "true (which a key without a value means)" if value else "false"
    expected = [words for one, words in PLAIN_TYPES.items() if one in types]
    return f"is {described}, but should be {' or '.join([*expected, *sorted(set(types) - set(PLAIN_TYPES))])}"


@functools.cache
def types_of(annotation: str) -> frozenset[str]:
    """Return the names of the types that an annotation allows, without their parameters; "'a'" for a choice."""

    def names(node: ast.expr) -> Iterator[str]:
        match node:
            case ast.BinOp():
                yield from (*names(node.left), *names(node.right))
            case ast.Subscript(value=ast.Name("Optional" | "Union" as outer)):
                for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                    yield from names(item)
                yield from ["None"] if outer == "Optional" else []
            case ast.Subscript(value=ast.Name("Literal")):
                yield from map(ast.unparse, node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
            case ast.Subscript():
                yield ast.unparse(node.value)
            case _:
                yield ast.unparse(node)

    return frozenset(names(ast.parse(annotation, mode="eval").body))
