"""Convert tests that are Python statements: the asserts of MBPP, and `check(candidate)` of HumanEval.

The judge runs each {"assert": "statements"} separately, so a program can pass a share of them.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

from rlvr.data.code.io_tests import InvalidTests, Test


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


def can_fail(tree: ast.AST) -> bool:
    """Whether statements can fail for a wrong value: any program that ends passes `f(1) == 2` and `assert True`.

    They can if they have a `raise`, a call such as `self.assertEqual(…)` or `pytest.raises(…)`, or an `assert` of
    something else than a true constant or a tuple in brackets. A function or class that nothing uses does not run, as
    `def test_it(): …` for pytest.
    """
    return any(map(_can_fail, [tree, *_executed(tree, tree)]))


def assert_fault(sources: Sequence[str], entry_point: str | None) -> str | None:
    """Return why no program can pass asserts, as far as their names tell; None if nothing does.

    Args:
        sources: valid Python.
    """
    name = (entry_point or "").rpartition(".")[2]
    if name and sources and not any(re.search(rf"\b{re.escape(name)}\b", source) for source in sources):
        is_humaneval = any(re.search(r"\bcandidate\b", source) for source in sources)
        fix = f"Call check({name}), or write {name} for candidate" if is_humaneval else "Correct one of them"
        return f"entry_point is {entry_point!r}, but no assert names it. {fix}"
    unconnected = next(
        (number for number, source in enumerate(sources, 1) if not _names_others(ast.parse(source))), None
    )
    if unconnected is not None:
        return f"assert {unconnected} of {len(sources)} names nothing of the program, so any program passes it"
    return None


def imported_packages(source: str) -> set[str]:
    """The packages that a test imports, outside of `try`; "." for a relative import."""
    return set(_imports(ast.parse(source)))


def _names_others(tree: ast.Module) -> bool:
    """Whether statements use a name that they don't bind themselves."""
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
    return bool(used - bound)


def _imports(part: ast.AST) -> Iterator[str]:
    """The packages that statements import, outside of `try`."""
    for node in ast.iter_child_nodes(part):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").partition(".")[0]
        elif not isinstance(node, ast.Try):
            yield from _imports(node)


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
