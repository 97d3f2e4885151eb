"""Check values against annotations that are given as text, such as "int | None" or "Literal['a', 'b']"."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
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
    return type_mismatch(value, types) if types <= set(PLAIN_TYPES) else None


def type_mismatch(value: Any, types: Iterable[str]) -> str | None:
    """Compare a value with the names of plain types, as `mismatch` does."""
    return None if _fits(value, types) else f"is {_describe(value)}, but should be {_expected(types)}"


@functools.cache
def types_of(annotation: str) -> frozenset[str]:
    """Return the names of the types that an annotation allows, without their parameters."""
    types: set[str] = set()

    def walk(node: ast.expr) -> None:
        if isinstance(node, ast.BinOp):
            walk(node.left)
            walk(node.right)
        elif isinstance(node, ast.Subscript):
            outer = ast.unparse(node.value)
            if outer in ("Optional", "Union"):
                inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                types.update({"None"} if outer == "Optional" else set())
                for item in inner:
                    walk(item)
            elif outer == "Literal":
                types.add("bool" if ast.unparse(node.slice) in ("True", "False") else "str")
            else:
                types.add(outer)
        elif isinstance(node, ast.Constant):
            types.add("None")
        else:
            types.add(ast.unparse(node))

    walk(ast.parse(annotation, mode="eval").body)
    return frozenset(types)


def _fits(value: Any, types: Iterable[str]) -> bool:
    if value is None:
        return "None" in types
    if isinstance(value, bool):
        return "bool" in types
    if isinstance(value, int):
        return "int" in types or "float" in types
    return type(value).__name__ in types


def _describe(value: Any) -> str:
    words = {"str": "text", "list": "a list", "dict": "a mapping", "bool": "a truth value", "NoneType": "empty"}
    name = words.get(type(value).__name__, "a number")
    return name if value is None else f"{name} ({value!r})"


def _expected(types: Iterable[str]) -> str:
    return " or ".join(words for name, words in PLAIN_TYPES.items() if name in set(types))
