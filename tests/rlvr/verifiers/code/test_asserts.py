"""Tests that are Python statements: whether a wrong value can fail them."""

from __future__ import annotations

import ast

import pytest

from rlvr.verifiers.code.asserts import can_fail

CAN_FAIL = [
    ("assert f(1) == 2", True, "the usual form"),
    ("def check(c):\n    assert c(1)\ncheck(f)", True, "in a helper of its own"),
    ("try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass", True, "a constant that always fails"),
    ("if f(1) != 2:\n    raise ValueError", True, "raises without an assert"),
    ("np.testing.assert_allclose(f(1), 0.5)", True, "numpy's functions"),
    ("case.assertEqual(f(1), 2)", True, "unittest's methods"),
    ("with pytest.raises(ValueError):\n    f(-1)", True, "an exception that must come"),
    ("f(1) == 2", False, "a comparison without assert"),
    ("print(f(1) == 2)", False, "a printed comparison"),
    ("1 == 2", False, "a comparison of constants"),
    ("pass", False, "nothing"),
    ("", False, "no statement"),
    ("# nothing", False, "a comment"),
    ("f(1)\nassert True", False, "a constant that holds"),
    ("assert (f(1) == 2, 'two')", False, "a tuple, which is true"),
    ("check(f)", False, "a helper that the text does not define"),
    ("def test_f():\n    assert f(1) == 2", False, "a function for pytest, which nothing calls"),
    ("def check(candidate):\n    assert candidate(1) == 2", False, "HumanEval's form without its call"),
    ("class T(TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)", False, "a class that nothing runs"),
    ("class T(C):\n    def test(self):\n        self.assertEqual(f(1), 2)\nunittest.main()", True, "it runs them"),
    ("if __name__ == '__main__':\n    assert f(1) == 2", False, "a test is no script"),
    ("if False:\n    assert f(1) == 2\nelse:\n    assert f(2) == 3", True, "the other branch"),
    ("def once(n):\n    assert f(n)\nfor n in range(3):\n    once(n)", True, "a helper in a loop"),
    ("def again(n):\n    assert f(n)\n    again(n - 1)", False, "a function that only calls itself"),
]


@pytest.mark.parametrize("code, expected, why", CAN_FAIL, ids=[why for *_, why in CAN_FAIL])
def test_what_can_fail_is_told_from_what_can_not(code: str, expected: bool, why: str) -> None:
    assert can_fail(ast.parse(code)) == expected
