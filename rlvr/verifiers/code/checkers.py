"""Check the source of a checker without running it: it comes with the data, so it runs in the sandbox only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rlvr.errors import InputError

CALL = "check(input, output, expected)"
# What a statement defines inside of these is not a name of the module.
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def check_checker(source: str) -> None:
    """Raise InputError unless a checker is Python and has a `check` that takes three arguments."""
    try:
        tree = ast.parse(source)
        compile(tree, "checker", "exec", dont_inherit=True)
        fault = _fault(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        fault = f"is not valid Python: {error}"
    if fault is not None:
        raise InputError(f"the checker {fault}.", kind="invalid-checker", key="checker")


def _fault(tree: ast.Module) -> str | None:
    bound = list(_bindings(tree))
    checks = [node for name, node in bound if name == "check"]
    if not checks:
        others = sorted({name for name, node in bound if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)})
        return f"defines no function {CALL}" + (f"; it defines {', '.join(others[:5])}" if others else "")
    faults = [_signature_fault(node) for node in checks]
    return None if None in faults else faults[-1]


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a module's statements define, also within `if` and `try`, each with its node."""
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        elif not isinstance(node, (ast.ClassDef, *_OWN_SCOPE)):
            nodes.extend(ast.iter_child_nodes(node))


def _signature_fault(node: ast.AST) -> str | None:
    """Return why a definition of `check` can't be called with three arguments. Only a plain `def` shows it."""
    if isinstance(node, ast.AsyncFunctionDef):
        return f"defines check with async def. Write def {CALL}"
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return None
    given = node.args
    most = len(given.posonlyargs) + len(given.args)
    if most - len(given.defaults) <= 3 and (most >= 3 or given.vararg) and None not in given.kw_defaults:
        return None
    return f"defines check({ast.unparse(given)}), which can't be called as {CALL}"
