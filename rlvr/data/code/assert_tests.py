"""Tests that are Python statements: the asserts of MBPP, and the function `check(candidate)` of HumanEval.

The judge takes {"assert": "statements"} and runs each on its own, so that a share of them can be passed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from rlvr.data.code.io_tests import BadTests, Test


def with_setup(asserts: Sequence[str], setup: Sequence[str] = ()) -> list[Test]:
    """One test for each assert, each with the imports and other statements that it needs in front of it.

    Raises:
        BadTests: one of them is not valid Python, or asserts nothing.
    """
    front = "".join(f"{code.strip()}\n" for code in setup if code.strip()).replace("\r\n", "\n")
    tests = []
    for statement in asserts:
        code = front + statement.strip().replace("\r\n", "\n")
        if not any(isinstance(node, ast.Assert) for node in ast.walk(_parsed(code))):
            raise BadTests("a test that asserts nothing")
        tests.append({"assert": code})
    return tests


def entry_point_of(asserts: Sequence[str], program: str | None = None) -> str:
    """The function that asserts test: of those that they call, the first one that the program defines.

    Without a program it is the first one that is not built in, or else the first one.

    Raises:
        BadTests: they call no function by its name, or are not valid Python.
    """
    called = list(dict.fromkeys(name for statement in asserts for name in _called(_parsed(statement))))
    if not called:
        raise BadTests("asserts that call no function")
    defined = _defined(program) if program is not None else set()
    for choice in (
        [name for name in called if name in defined],
        [name for name in called if name not in dir(builtins)],
        called,
    ):
        if choice:
            return choice[0]
    raise AssertionError("unreachable: called is not empty")


def _called(tree: ast.AST) -> list[str]:
    """Names that are called, the outermost first: in f(Pair(1)) == 2, f before Pair."""
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
    """The tests of a function `check(candidate)`: one for each assert in it, if its body is nothing but asserts.

    Otherwise (loops, assignments, more functions) there is one test, which calls it as it stands. Asserts that don't
    mention the candidate, such as `assert True`, are left out: any program would pass them.

    Raises:
        BadTests: not valid Python, no such function, or it asserts nothing of its candidate.
    """
    tree = _parsed(code)
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise BadTests("no function check(candidate) in its test")
    check, candidate = checks[0], checks[0].args.args[0].arg
    whole = [{"assert": f"{code.strip()}\n\ncheck({entry_point})"}]
    others = [node for node in tree.body if node is not check and not _is_metadata(node)]
    body = [node for node in check.body if not _is_remark(node)]
    if not any(candidate in _names(node) for node in body):
        raise BadTests("a check that asserts nothing of its candidate")
    if others or not all(isinstance(node, ast.Assert) for node in body):
        return whole
    asked = [node for node in body if candidate in _names(node)]
    return [{"assert": f"{candidate} = {entry_point}\n{ast.unparse(node)}"} for node in asked]


def _is_metadata(node: ast.stmt) -> bool:
    """METADATA = {…}, which every check of HumanEval has in front of it."""
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id == "METADATA" for target in node.targets
    )


def _is_remark(node: ast.stmt) -> bool:
    """A docstring, or a `pass`."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _parsed(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadTests(f"a test that is not valid Python ({str(error).splitlines()[0]})") from None
