"""Read and check test cases and checkers, and encode tests for execution."""

from __future__ import annotations

import ast
import builtins
import hashlib
import itertools
import symtable
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.errors import InputError, error_context
from rlvr.sandbox.compiler import function_name
from rlvr.sandbox.guest import values
from rlvr.sandbox.languages import Language
from rlvr.verifiers.code.asserts import can_fail, free_names
from rlvr.verifiers.code.tolerance import check_comparison
from rlvr.verifiers.code.types import Submission

STDIO, CALL, ASSERT = "stdio", "call", "assert"
_KEYS = ("input", "output", "call", "expected", "assert", "comparison", "tolerance")


@dataclass(frozen=True)
class Test:
    """One test case."""

    __test__ = False  # not a test class for pytest

    form: str  # STDIO, CALL or ASSERT
    content: bytes  # standard input, the encoded arguments of a call, or the statements of an assert
    expected: Any = None  # output or value
    comparison: str | None = None
    tolerance: float | None = None
    entry_point: str | None = None  # the function under test
    python_equality: bool = False  # whether values are compared by Python's `==` (asserts) or as JSON data (calls)


def read_tests(submission: Submission, language: Language) -> list[Test]:
    """Check a submission's tests and encode them.

    Raises:
        InputError: a test is invalid, or does not fit the submission. The message has its number, and `key` the key.
    """
    tests = submission.tests
    if isinstance(tests, (str, bytes)) or not isinstance(tests, Sequence):
        raise InputError(f"tests is {type(tests).__name__}. Give a list of tests.", kind="wrong-type", key="tests")
    names = names_under_test(tests, submission.entry_point)
    is_builtin = len(names) == 1 and names <= _BUILTINS  # as in sum(10, 15) == 6: the program must define it
    entry_point = submission.entry_point or (min(names) if is_builtin else None)
    checked = []
    for number, test in enumerate(tests, 1):
        with error_context(f"test {number} of {len(tests)}"):
            checked.append(_read_test(test, language, entry_point, submission.checker is not None))
    if language.compiled and any(test.form == CALL for test in checked):
        _check_calls(submission, language, checked)
    return checked


def _check_calls(submission: Submission, language: Language, tests: Sequence[Test]) -> None:
    """Check that the function of a compiled program can be called."""
    if language.name != "cpp":
        raise InputError(
            f"tests call a function in {language.name}. Only Python and C++ functions can be called.",
            kind="unsupported-test",
        )
    if not submission.signature:
        raise InputError(
            "tests call a function in C++. Give its signature, as in 'int add(int, int)'.",
            kind="missing-signature",
            key="signature",
        )
    name = function_name(submission.signature)
    if name != submission.entry_point:
        raise InputError(
            f"the signature declares {name!r}, but entry_point is {submission.entry_point!r}.",
            kind="invalid-signature",
            key="signature",
        )
    if any(test.form != CALL for test in tests):
        raise InputError(
            "calls and tests of standard input are mixed. A C++ program has one or the other.", kind="mixed-tests"
        )


def names_under_test(tests: Sequence[Mapping[str, Any]], entry_point: str | None) -> set[str]:
    """Return the names that a program must define, as far as its tests tell.

    Beside another name, a builtin is a tool of the asserts, and a program must not replace it.
    """
    if entry_point:
        return {entry_point.partition(".")[0]}
    names: set[str] = set()
    for test in tests:
        source = test.get("assert") if isinstance(test, Mapping) else None
        if source is None:
            return set()
        try:
            names |= free_names(ast.parse(str(source)))
        except _UNPARSABLE:  # reported with the number of its test
            return set()
    return names - _BUILTINS or names


def _read_test(test: Mapping[str, Any], language: Language, entry_point: str | None, has_checker: bool) -> Test:
    if not isinstance(test, Mapping):
        raise InputError(f"it is {type(test).__name__}. Give a dictionary.", kind="wrong-type")
    # Tables fill in None for keys that a row lacks.
    test = {key: value for key, value in test.items() if value is not None or key == "expected"}
    unknown = set(test) - set(_KEYS)
    if unknown:
        key = min(map(str, unknown))
        message = (
            f"unknown key {key!r}. A test has input and output (what a program reads and prints), call and expected "
            "(of a function), or assert, and may have comparison and tolerance."
        )
        raise InputError(message, kind="unknown-key", key=key)
    comparison, tolerance = test.get("comparison"), test.get("tolerance")
    check_comparison(comparison if comparison is not None else "exact", tolerance if tolerance is not None else 0)
    if "assert" in test:
        return _read_assert(str(test["assert"]), language, entry_point, comparison)
    if "call" in test:
        form, (encoded, expected) = CALL, _read_call(test, language, entry_point)
    else:
        form, (encoded, expected) = STDIO, _read_streams(test, has_checker)
    return Test(form, encoded, expected, comparison, tolerance, entry_point if form == CALL else None)


def _read_streams(test: Mapping[str, Any], has_checker: bool) -> list[bytes]:
    """Return the input and the expected output."""
    if "input" not in test and "output" not in test:
        raise InputError("it has neither input and output, nor call and expected, nor assert.", kind="missing-key")
    if "output" not in test and not has_checker:
        fix = "Rename expected: it belongs to call." if "expected" in test else "Give one, or a checker."
        raise InputError(f"it has no output. {fix}", kind="missing-key", key="output")
    texts = []
    for key in ("input", "output"):
        text = test.get(key, "")
        if isinstance(text, str):
            # If all surrogates stand for bytes, the text is of a file that was read with surrogateescape.
            escaped = all("\udc80" <= character <= "\udcff" for character in text if "\ud800" <= character <= "\udfff")
            text = text.encode("utf-8", "surrogateescape" if escaped else "surrogatepass")
        if not isinstance(text, bytes):
            raise InputError(f"{key} is {type(text).__name__}. Give text.", kind="wrong-type", key=key)
        texts.append(text)
    return texts


def _read_call(test: Mapping[str, Any], language: Language, entry_point: str | None) -> tuple[bytes, Any]:
    """Return the encoded arguments and the expected value."""
    if "expected" not in test:
        raise InputError("it has a call, but no expected value.", kind="missing-key", key="expected")
    if not entry_point:
        raise InputError(
            "it calls a function, but entry_point is not set. Set it to the function's name.",
            kind="missing-entry-point",
            key="entry_point",
        )
    if not language.compiled and not all(part.isidentifier() for part in entry_point.split(".")):
        raise InputError(
            f"entry_point is {entry_point!r}. Use the name of a function, like add or Solution.add.",
            kind="invalid-entry-point",
            key="entry_point",
        )
    arguments = test["call"]
    if isinstance(arguments, str) or not isinstance(arguments, Sequence):
        raise InputError(
            f"call is {type(arguments).__name__}. Give the list of arguments.", kind="wrong-type", key="call"
        )
    encoded = _encode_for_driver(arguments) if language.compiled else _encode_for_python(entry_point, list(arguments))
    return encoded, test["expected"]


def _encode_for_python(entry_point: str, arguments: list[Any]) -> bytes:
    return values.encode({"entry_point": entry_point, "arguments": arguments}).encode()


def _encode_for_driver(arguments: Sequence[Any]) -> bytes:
    """Encode arguments in the format that guest/driver.hpp reads. The driver is linked to one function."""
    tokens: list[bytes] = []

    def put(value: Any) -> None:
        if isinstance(value, bool):
            tokens.append(b"1" if value else b"0")
        elif isinstance(value, (int, float)):
            tokens.append(repr(value).encode())
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogateescape")
            tokens.append(str(len(text)).encode() + b":" + text)
        elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
            tokens.append(str(len(value)).encode())
            for item in itertools.chain(*value.items()) if isinstance(value, Mapping) else value:
                put(item)
        else:
            raise InputError(f"{value!r} can't be passed to a compiled function.", kind="unsupported-value", key="call")

    for argument in arguments:
        put(argument)
    return b" ".join(tokens)


def _read_assert(source: str, language: Language, entry_point: str | None, comparison: str | None) -> Test:
    if language.compiled:
        raise InputError(
            f"it is a Python assert, but the program is in {language.name}.", kind="unsupported-test", key="assert"
        )
    try:
        tree = ast.parse(source)
    except _UNPARSABLE as error:
        raise InputError(f"its assert is not valid Python: {error}.", kind="invalid-assert", key="assert") from error
    if not can_fail(tree):
        raise InputError(
            f"it can't fail: {source.strip()[:80]!r} asserts nothing, or in a function that it does not call. "
            'Write "assert add(1, 2) == 3", or call the function, as in check(add).',
            kind="assertless-test",
            key="assert",
        )
    plain = _read_plain_call(tree, entry_point)
    if plain is not None and comparison is None:
        name, arguments, expected = plain
        return Test(CALL, _encode_for_python(name, arguments), expected, entry_point=name, python_equality=True)
    return Test(ASSERT, source.encode(), entry_point=entry_point)


def _read_plain_call(tree: ast.Module, entry_point: str | None) -> tuple[str, list[Any], Any] | None:
    """Return function, arguments and expected value of `assert f(literals) == literal`; None for other asserts.

    Most asserts have this form, and a call needs no second process.
    """
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    test = tree.body[0].test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    call = test.left
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    if call.func.id in _BUILTINS - {entry_point}:
        return None
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        expected = ast.literal_eval(test.comparators[0])
        values.decode(values.encode(arguments))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return call.func.id, arguments, expected


def check_checker(source: str) -> None:
    """Raise InputError unless a checker is Python and its module has the name `check`.

    It is not run: it comes with the data, so it runs in the sandbox only.
    """
    try:
        compile(source, "checker", "exec", dont_inherit=True)
        module = symtable.symtable(source, "checker", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        message = f"the checker is not valid Python: {error}."
        raise InputError(message, kind="invalid-checker", key="checker") from error
    check = module.lookup("check") if "check" in module.get_identifiers() else None
    if check is None or not (check.is_assigned() or check.is_imported()):
        message = "the checker defines no function check(input, output, expected)."
        raise InputError(message, kind="invalid-checker", key="checker")


# `assert sorted(f(x)) == …` calls a builtin, not the program's function.
_BUILTINS = frozenset(dir(builtins))
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def digest(tests: Sequence[Mapping[str, Any]]) -> str:
    """Return a hash that is the same for equal tests."""
    return hashlib.sha256(values.encode(tests).encode("utf-8", "surrogatepass")).hexdigest()
