"""The reward of countdown: right expressions in any spelling, and nothing for any other way to the target."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.countdown import countdown, validate_rows

NUMBERS, TARGET = [3, 5, 12], 27


def score(text: str, numbers: Any = NUMBERS, target: Any = TARGET, **options: Any) -> float | None:
    chat = [{"role": "assistant", "content": text}]
    (reward, same) = countdown(["", ""], [chat, text], numbers=[numbers] * 2, target=[target] * 2, **options)
    assert reward == same
    return reward


@pytest.mark.parametrize(
    ("answer", "numbers", "target", "why"),
    [
        ("12 + 3 * 5", NUMBERS, TARGET, "plain"),
        ("12+(5*3)", NUMBERS, TARGET, "another order, without spaces"),
        ("((12)) + 3 * 5 = 27", NUMBERS, TARGET, "with the target"),
        ("$12 + 3 \\times 5$", NUMBERS, TARGET, "LaTeX"),
        ("12 + 5 × 3", NUMBERS, TARGET, "the sign for times"),
        ("12 + 5 ⋅ 3", NUMBERS, TARGET, "the operator dot"),
        ("(12 − 3) ÷ 9", [3, 9, 12], 1, "the signs for minus and divided"),
        ("(5 - 1 / 5) * 5", [1, 5, 5, 5], 24, "a fraction on the way"),
        ("3 - 5 + 12", NUMBERS, 10, "a negative value on the way"),
    ],
)
def test_a_right_expression_earns_1(answer: str, numbers: list[int], target: int, why: str) -> None:
    assert score(f"<think>12 + 5?</think>\n<answer>{answer}</answer>", numbers, target) == 1.0, why
    assert score(f"So it is\n#### {answer}", numbers, target) == 1.0, why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "nothing"),
        ("27", "the target"),
        ("12 + 15", "a number that is not given"),
        ("12 + 3 * 5 + 0", "one more number"),
        ("12 + 3 * 5 * 5 / 5", "a number three times"),
        ("12 * 3 - 5", "another value"),
        ("12 + 3 * 5 = 28", "another target"),
        ("12 + 3 * 5 = 27 = 27", "several equations"),
        ("27 = 12 + 3 * 5", "no suffix"),
        ("12 - -3 * 5", "a sign"),
        ("-(0 - 27)", "signs"),
        ("12 + 3 ** 5", "a power"),
        ("12 + 3 ^ 5", "another power"),
        ("12 + 3 * 5 // 1", "a division that rounds"),
        ("12 + 3(5)", "a call"),
        ("int(12) + 3 * 5", "a function"),
        ("__import__('os').system('true') or 27", "code"),
        ("12 + 3 * 5 # 27", "a comment"),
        ("12 + 3 * 5, 27", "a tuple"),
        ("12 + 3 * 5; 27", "two statements"),
        ("12 +\n3 * 5", "two lines"),
        ("12 + 3 * 5 or 1", "an operator of Python"),
        ("1_2 + 3 * 5", "an underscore"),
        ("012 + 3 * 5", "a zero in front"),
        ("12.0 + 3 * 5", "a decimal"),
        ("0e0*(12+3+5)+27e0", "numbers hidden in exponents"),
        ("12 + ３ * 5", "full-width digits"),
        ("12 + ٣ * 5", "Arabic digits"),
        ("12 + 3 * 5²", "a superscript"),
        ("5 / (12 - 3 * 4)", "division by zero"),
        ("5 / (3 - 3) + 12", "division by zero, too"),
        ("(12 + 3 * 5", "an open bracket"),
        ("(" * 149 + "27" + ")" * 149, "deep nesting"),
        ("(" * 5000 + "27", "deeper nesting"),
        ("9" * 299, "a long number"),
        ("9" * 5000 + " = 27", "a longer number"),
        ("12 + 3 * 5 = " + "0" * 250 + "28", "a long target"),
        ("12 + 3 * 5</answer> or <answer>12 * 3 - 5", "two answers"),
        ("<think>12 + 3 * 5", "a thought"),
    ],
)
def test_no_other_way_to_the_target_earns_anything(answer: str, why: str) -> None:
    assert score(f"<answer>{answer}</answer>") == 0.0, why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("12 + 3 * 5", "no form"),
        ("<think><answer>12 + 3 * 5</answer></think>", "only thought"),
        ("Question: next\n<answer>12 + 3 * 5</answer>", "an invented problem"),
    ],
)
def test_an_expression_that_is_no_answer_earns_nothing(text: str, why: str) -> None:
    assert score(text) == 0.0, why


def test_digits_put_together_are_another_number() -> None:
    assert score("<answer>35 - 8</answer>", [3, 5, 8], 27) == 0.0


def test_no_number_may_be_left_out() -> None:
    assert score("<answer>12 + 3 * 5</answer>", [3, 5, 7, 12], 27) == 0.0


@pytest.mark.parametrize(("numbers", "target"), [(None, 3), ([], 3), ([1, "2"], 3), ([1, 2], None), ([1, -2], 3)])
def test_a_row_without_a_problem_is_not_scored(numbers: Any, target: Any) -> None:
    assert score("<answer>1 + 2</answer>", numbers, target) is None
    assert validate_rows(numbers=[numbers, [1, 2]], target=[target, 3])[1] is None
    assert validate_rows(numbers=[numbers], target=[target]) != [None]
