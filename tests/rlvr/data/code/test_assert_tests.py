"""Tests that are Python statements: which function they test, and a check taken apart."""

from __future__ import annotations

import pytest

from rlvr.data.code.assert_tests import find_entry_point, make_assert_tests, split_check
from rlvr.data.code.io_tests import InvalidTests


@pytest.mark.parametrize(
    ("asserts", "program", "entry_point", "why"),
    [
        (["assert f(1) == 2"], None, "f", "plainly"),
        (["assert set(f([1])) == set([1])"], None, "f", "within a built-in"),
        (["assert math.isclose(f(1), 0.5)"], None, "f", "within another module's function"),
        (["assert f([Pair(1, 2)], 4) == 3"], None, "f", "a class stands in its arguments"),
        (["assert f(1) == f(g(2))"], None, "f", "twice"),
        (["assert not f(1)"], None, "f", "denied"),
        (["assert sum(1, 2) == 3"], "def sum(a, b): return a + b", "sum", "the program redefines a built-in"),
        (["assert sum(1, 2) == 3"], None, "sum", "nothing but a built-in"),
        (["assert check(f(1))"], "def f(n): return n", "f", "the one that the program defines"),
        (["assert f(1)"], "def f(n: return", "f", "a program that isn't Python says nothing"),
        (["assert x", "assert f(1)"], None, "f", "in the second assert"),
    ],
)
def test_the_tested_function_is_found(asserts: list[str], program: str | None, entry_point: str, why: str) -> None:
    assert find_entry_point(asserts, program) == entry_point, why


@pytest.mark.parametrize("asserts", [["assert True"], ["assert x.f(1)"], ["assert ("], []])
def test_asserts_without_a_tested_function_are_refused(asserts: list[str]) -> None:
    with pytest.raises(InvalidTests):
        find_entry_point(asserts)


def test_setup_stands_in_front_of_each_assert() -> None:
    tests = make_assert_tests(["assert f(x)", "assert f(-x)\r\n"], ["import math", "", "x = 1\r\n"])
    assert [test["assert"] for test in tests] == [
        "import math\nx = 1\nassert f(x)",
        "import math\nx = 1\nassert f(-x)",
    ]


@pytest.mark.parametrize("statement", ["f(1)", "assert f(1", "", "x = 1", "assert True"])
def test_what_asserts_nothing_is_no_test(statement: str) -> None:
    with pytest.raises(InvalidTests):
        make_assert_tests([statement])


@pytest.mark.parametrize(
    ("code", "tests", "why"),
    [
        ("def check(c):\n  assert c(1)\n  assert c(2), 'two'", ["assert c(1)", "assert c(2), 'two'"], "only asserts"),
        ("def check(c):\n  'doc'\n  assert c(1)\n  pass", ["assert c(1)"], "remarks don't count"),
        ("def check(c):\n  assert c(1)\n  assert True", ["assert c(1)"], "an assert of nothing"),
        ("METADATA = {}\ndef check(c):\n  assert c(1)", ["assert c(1)"], "METADATA"),
        ("def check(c):\n  for n in range(3):\n    assert c(n)", None, "a loop"),
        ("def check(c):\n  x = 1\n  assert c(x)", None, "a name of its own"),
        ("import math\ndef check(c):\n  assert c(math.pi)", None, "an import in front"),
    ],
)
def test_a_check_is_taken_apart_where_it_is_only_asserts(code: str, tests: list[str] | None, why: str) -> None:
    found = [test["assert"] for test in split_check(code, "f")]
    assert found == ([f"c = f\n{test}" for test in tests] if tests else [f"{code}\n\ncheck(f)"]), why


@pytest.mark.parametrize(
    "code",
    [
        "",
        "def check():\n  pass",
        "def check(c):\n  assert True",
        "def check(c",
        "def check(c):\n  c(1)",
        "def test(c):\n  assert c(1)",
    ],
)
def test_a_check_that_tests_nothing_is_refused(code: str) -> None:
    with pytest.raises(InvalidTests):
        split_check(code, "f")
