"""Convert tests that are Python statements: the asserts of MBPP, and `check(candidate)` of HumanEval.

The judge runs each {"assert": "statements"} separately, so a program can pass a share of them.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from rlvr.data.code.io_tests import InvalidTests, Test
from rlvr.verifiers.code.asserts import can_fail


def make_assert_tests(asserts: Sequence[str], setup: Sequence[str] = ()) -> list[Test]:
    """Make one test of each assert, with the setup statements before it.

    Raises:
        InvalidTests: an assert is invalid Python, or asserts nothing.
    """
    front = "".join(f"{code.strip()}\n" for code in setup if code.strip()).replace("\r\n", "\n")
    tests = []
    for statement in asserts:
        code = front + statement.strip().replace("\r\n", "\n")
        if not can_fail(_parse(code)):
            raise InvalidTests("a test that asserts nothing")
        tests.append({"assert": code})
    return tests


def find_entry_point(asserts: Sequence[str], program: str | None = None) -> str:
    """Find the function that asserts test: the first called one that the program defines.

    Without a program, it is the first called one that is not built in, or else the first.

    Raises:
        InvalidTests: the asserts call no function by name, or are invalid Python.
    """
    called = list(dict.fromkeys(name for statement in asserts for name in _called(_parse(statement))))
    if not called:
        raise InvalidTests("asserts that call no function")
    defined = [name for name in called if program is not None and name in _defined(program)]
    return [*defined, *(name for name in called if name not in dir(builtins)), *called][0]


def _called(tree: ast.AST) -> list[str]:
    """List called names, outermost first: in f(Pair(1)) == 2, f before Pair."""
    names = []
    level: list[ast.AST] = [tree]
    while level:
        names += [node.func.id for node in level if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return names


def _defined(program: str) -> set[str]:
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return set()
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def split_check(code: str, entry_point: str) -> list[Test]:
    """Split a function `check(candidate)` into one test for each assert, if its body has nothing but asserts.

    Otherwise (loops, assignments, more functions) one test calls the whole function. Asserts without the candidate,
    such as `assert True`, are left out, because any program passes them.

    Raises:
        InvalidTests: invalid Python, no such function, or no assert with its candidate.
    """
    tree = _parse(code)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise InvalidTests("no function check(candidate) in its test")
    check, candidate = checks[0], checks[0].args.args[0].arg
    whole = [{"assert": f"{code.strip()}\n\ncheck({entry_point})"}]
    others = [node for node in tree.body if node is not check and not _is_metadata(node)]
    body = [node for node in check.body if not _has_no_effect(node)]
    if not can_fail(ast.Module([*others, *body], [])) or not any(candidate in _names(node) for node in body):
        raise InvalidTests("a check that asserts nothing of its candidate")
    if others or not all(isinstance(node, ast.Assert) for node in body):
        return whole
    asserts = [node for node in body if candidate in _names(node) and can_fail(node)]
    return [{"assert": f"{candidate} = {entry_point}\n{ast.unparse(node)}"} for node in asserts]


def _is_metadata(node: ast.stmt) -> bool:
    """Whether a statement is METADATA = {…}, which precedes every check of HumanEval."""
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets
    )


def _has_no_effect(node: ast.stmt) -> bool:
    """Whether a statement is a docstring or a `pass`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InvalidTests(f"a test that is not valid Python ({str(error).splitlines()[0]})") from None
