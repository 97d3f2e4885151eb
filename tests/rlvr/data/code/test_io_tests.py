"""Tests with an input and an output: pairs, those that were cut off, contradictions, samples."""

from __future__ import annotations

import pytest

from rlvr.data.code import io_tests


@pytest.mark.parametrize(
    ("column", "tests"),
    [
        ({"input": ["1", "2"], "output": ["3", "4"]}, [("1", "3"), ("2", "4")]),
        ([{"input": "1", "output": "3"}], [("1", "3")]),
        ({"input": [], "output": []}, []),
        (None, []),
    ],
)
def test_both_shapes_of_a_column_are_read(column: object, tests: list) -> None:
    assert io_tests.pair_tests(column) == [{"input": given, "output": wanted} for given, wanted in tests]


@pytest.mark.parametrize("column", [{"input": ["1"], "output": []}, [{"input": "1"}], {"input": [1], "output": ["1"]}])
def test_a_column_of_another_shape_is_refused(column: object) -> None:
    with pytest.raises(io_tests.InvalidTests):
        io_tests.pair_tests(column)


@pytest.mark.parametrize(
    ("text", "cut", "why"),
    [
        ("9 " * 120 + "...", True, "numbers that break off"),
        ("0.5 " * 80 + "...", True, "real numbers have dots of their own"),
        ("abc" * 100 + "...", True, "a word that breaks off"),
        ("9 " * 120 + "10", False, "whole"),
        ("wait...", False, "short"),
        ("..#\n" * 80 + "...", False, "a grid of dots"),
        ("." * 300, False, "nothing but dots"),
    ],
)
def test_a_text_that_breaks_off_is_told_from_one_that_ends_in_dots(text: str, cut: bool, why: str) -> None:
    assert io_tests.is_truncated(text) == cut, why
    assert io_tests.is_truncated(f"{text}\n") == cut, why


@pytest.mark.parametrize(
    ("outputs", "has_contradictions", "why"),
    [
        (["1\n", "1"], False, "a blank line at the end"),
        (["1 2", "1\n2"], False, "other white space"),
        (["YES", "yes"], False, "the case"),
        (["1 2", "2 1"], True, "another order"),
    ],
)
def test_two_outputs_of_one_input_contradict_each_other(outputs: list[str], has_contradictions: bool, why: str) -> None:
    tests = [{"input": f"5{' ' * index}\n", "output": output} for index, output in enumerate(outputs)]
    assert io_tests.has_contradictions(tests) == has_contradictions, why


@pytest.mark.parametrize(
    ("rules", "outputs", "unanswered", "why"),
    [
        ("Print n + 1.", ["6", "", " \n"], [2, 3], "nothing where an answer is asked for"),
        ("Print n + 1.", ["6", "0\n"], [], "all have an answer"),
        ("Print n + 1.", [""], [1], "the only test"),
        ("Print nothing but the sum.", ["6", ""], [2], "nothing but an answer"),
        ("If there is no such string, print nothing.", ["6", ""], [], "nothing may be the answer"),
        ("Print the string. It may be empty.", ["6", ""], [], "so may an empty string"),
        ("Leave the line blank if n is 0.", ["6", "\n"], [], "or a blank line"),
        ("Otherwise, do not print anything.", ["6", ""], [], "in other words"),
    ],
)
def test_tests_without_an_expected_output_are_split_off(rules: str, outputs: list, unanswered: list, why: str) -> None:
    tests = [{"input": "5", "output": output} for output in outputs] + [{"assert": "assert f(1) == ''"}]
    kept, numbers = io_tests.split_unanswered(tests, rules)
    assert numbers == unanswered, why
    assert [test for number, test in enumerate(tests, 1) if number not in numbers] == kept
