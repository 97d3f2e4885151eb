"""What tests that are Python statements say of themselves: whether they can fail, and what they name."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def can_fail(tree: ast.AST) -> bool:
    """Whether statements can fail for a wrong value: any program that ends passes `f(1) == 2` and `assert True`.

    They can if they have a `raise`, a call such as `self.assertEqual(…)` or `pytest.raises(…)`, or an `assert` of
    something else than a true constant or a tuple in brackets. A function or class that nothing uses does not run, as
    `def test_it(): …` for pytest.
    """
    return any(map(_can_fail, [tree, *_executed(tree, tree)]))


def free_names(tree: ast.Module) -> set[str]:
    """The names that statements use and don't bind themselves."""
    bound: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return used - bound


def _executed(part: ast.AST, tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(part):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if _is_used(node, tree):
                yield from ast.walk(node)
        elif isinstance(node, ast.If) and _is_never_true(node.test):
            for other in node.orelse:
                yield from (other, *_executed(other, tree))
        else:
            yield from (node, *_executed(node, tree))


def _is_used(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, tree: ast.AST) -> bool:
    """Whether something outside of a definition names it, or `unittest.main()` runs all classes."""
    own = set(map(id, ast.walk(definition)))
    outside = [node for node in ast.walk(tree) if id(node) not in own]
    return any(
        (isinstance(node, ast.Name) and node.id == definition.name)
        or (isinstance(node, ast.Attribute) and node.attr in (definition.name, "main"))
        for node in outside
    )


def _is_never_true(test: ast.expr) -> bool:
    """`if False:`, and `if __name__ == "__main__":`, since a test is no script."""
    names = [node.id for node in ast.walk(test) if isinstance(node, ast.Name)]
    return "__name__" in names or (isinstance(test, ast.Constant) and not test.value)


def _can_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        is_true = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return not is_true and not (isinstance(node.test, ast.Tuple) and node.test.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        return name.startswith("assert") or name in ("fail", "raises")
    return isinstance(node, ast.Raise)
