"""Tests as the judge works with them: read and checked once, whoever is judged by them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.errors import InputError
from rlvr.sandbox.guest import values
from rlvr.sandbox.languages import Language
from rlvr.verifiers.code.compare_output import check_comparison

STDIO, CALL, ASSERT = "stdio", "call", "assert"
_KEYS = {"input", "output", "call", "expected", "assert", "comparison", "tolerance"}


@dataclass(frozen=True)
class Test:
    """One test.

    Attributes:
        given: the program's standard input, or the encoded arguments of a call, or the statements of an assert.
        expected: the expected output, or the expected value.
        entry_point: the function that a call is to; for an assert that is not a plain call, None.
        python_equality: whether values are compared as Python's `==` does (an assert), not as JSON would (a call).
    """

    __test__ = False  # pytest would take the class for tests

    form: str
    given: bytes
    expected: Any
    comparison: str | None
    tolerance: float | None
    entry_point: str | None = None
    python_equality: bool = False


def read_tests(
    tests: Sequence[Mapping[str, Any]], *, language: Language, entry_point: str | None, checker: bool, where: str
) -> list[Test]:
    """Checks tests and puts them into the form that the judge works with.

    Raises:
        InputError: a test is none; with its place and key.
    """
    if isinstance(tests, (str, bytes)) or not isinstance(tests, Sequence):
        raise InputError(f"{where}: tests should be a list of tests, but is {type(tests).__name__}.")
    return [
        _read(test, language, entry_point, checker, f"{where}, test {index + 1} of {len(tests)}")
        for index, test in enumerate(tests)
    ]


def _read(test: Mapping[str, Any], language: Language, entry_point: str | None, checker: bool, where: str) -> Test:
    if not isinstance(test, Mapping):
        raise InputError(f"{where} should be a dictionary, but is {type(test).__name__}.")
    # Tables fill in what a row lacks: an "output" that is None is none.
    test = {key: value for key, value in test.items() if value is not None or key == "expected"}
    unknown = set(test) - _KEYS
    if unknown:
        raise InputError(f"{where} has the unknown key {min(unknown)!r}; known are {', '.join(sorted(_KEYS))}.")
    comparison, tolerance = test.get("comparison"), test.get("tolerance")
    try:
        check_comparison(comparison if comparison is not None else "exact", tolerance if tolerance is not None else 0)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if "assert" in test:
        return _assertion(str(test["assert"]), language, entry_point, comparison, tolerance, where)
    if "call" in test:
        return _call(test, language, entry_point, comparison, tolerance, where)
    if "input" not in test and "output" not in test:
        raise InputError(f"{where} has neither input and output, nor call and expected, nor assert.")
    if "output" not in test and not checker:
        raise InputError(f"{where} has no output to compare with. Give one, or a checker that does without.")
    texts = []
    for key in ("input", "output"):
        text = test.get(key, "")
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogateescape" if _escaped(text) else "surrogatepass")
        if not isinstance(text, bytes):
            raise InputError(f"{where}: {key} should be text, but is {type(text).__name__}.")
        texts.append(text)
    return Test(STDIO, texts[0], texts[1], comparison, tolerance)


def _escaped(text: str) -> bool:
    """Whether surrogates in it stand for bytes, as in a text that was read with surrogateescape."""
    return all(0xDC80 <= ord(character) <= 0xDCFF for character in text if "\ud800" <= character <= "\udfff")


def _call(
    test: Mapping[str, Any], language: Language, entry_point: str | None, comparison: str | None,
    tolerance: float | None, where: str,
) -> Test:  # fmt: skip
    if "expected" not in test:
        raise InputError(f"{where} has a call, but not what is expected of it.")
    if not entry_point:
        raise InputError(f"{where} calls a function: say which, with entry_point.")
    arguments = test["call"]
    if isinstance(arguments, str) or not isinstance(arguments, Sequence):
        raise InputError(f"{where}: call should be the list of the arguments, but is {type(arguments).__name__}.")
    if language.compiled:
        given = _tokens(list(arguments), where)
        expected = test["expected"]
    else:
        given = _order(entry_point, list(arguments))
        expected = test["expected"]
    return Test(CALL, given, expected, comparison, tolerance, entry_point)


def _order(entry_point: str, arguments: list[Any]) -> bytes:
    return values.encode({"entry_point": entry_point, "arguments": arguments}).encode()


def _tokens(arguments: list[Any], where: str) -> bytes:
    """The arguments in the notation that driver.hpp reads."""
    words: list[bytes] = []

    def put(value: Any) -> None:
        if isinstance(value, bool):
            words.append(b"1" if value else b"0")
        elif isinstance(value, (int, float)):
            words.append(repr(value).encode())
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogateescape")
            words.append(str(len(text)).encode() + b":" + text)
        elif isinstance(value, Mapping):
            words.append(str(len(value)).encode())
            for key, item in value.items():
                put(key)
                put(item)
        elif isinstance(value, (list, tuple, set, frozenset)):
            words.append(str(len(value)).encode())
            for item in value:
                put(item)
        else:
            raise InputError(f"{where}: {value!r} can't be handed to a compiled function.")

    for argument in arguments:
        put(argument)
    return b" ".join(words)


def _assertion(
    text: str, language: Language, entry_point: str | None, comparison: str | None, tolerance: float | None, where: str
) -> Test:
    if language.compiled:
        raise InputError(f"{where} is an assert: that is Python, and the program is in {language.name}.")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{where} is no Python: {error}") from error
    plain = _plain_call(tree)
    if plain is not None and comparison is None:
        name, arguments, expected = plain
        return Test(CALL, _order(name, arguments), expected, None, None, name, python_equality=True)
    return Test(ASSERT, text.encode(), None, None, None, entry_point)


def _plain_call(tree: ast.Module) -> tuple[str, list[Any], Any] | None:
    """Function, arguments and expected value of `assert f(literals) == literal`, which is most asserts; or None."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    test = tree.body[0].test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    call = test.left
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    if call.func.id in _BUILTINS:
        return None
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        expected = ast.literal_eval(test.comparators[0])
        values.decode(values.encode(arguments))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return call.func.id, arguments, expected


# `assert sorted(f(x)) == …` is no call of the program's function.
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)


def digest(tests: Sequence[Mapping[str, Any]]) -> str:
    """The same for equal tests, whatever object holds them."""
    return hashlib.sha256(values.encode(tests).encode("utf-8", "surrogatepass")).hexdigest()
