"""The reward for ending in an answer."""

from __future__ import annotations

import time

import pytest

from rewards.answer_format import answer_format


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        ("so 42.\n#### The final answer is 42", 1.0, "the form"),
        ("#### The final answer is 42", 1.0, "the line alone"),
        ("so\n#### The final answer is 42\n\n", 1.0, "line breaks behind"),
        ("so\n  #### The final answer is 42  ", 1.0, "spaces around"),
        ("so\r\n#### The final answer is 42\r\n", 1.0, "line ends of Windows"),
        ("so\n#### The final answer is -5", 1.0, "a minus"),
        ("so\n#### The final answer is −5", 1.0, "a Unicode minus"),
        ("so\n#### The final answer is $1,080.50.", 1.0, "currency, comma, decimals, full stop"),
        ("so\n#### The final answer is 41", 1.0, "wrong, but in the right form"),
        ("so\n#### The final answer is 42\n\nQuestion: next", 1.0, "an invented problem is not its own turn"),
        ("so\n#### The final answer is 42\n\nQuestion:", 1.0, "the stop string itself"),
        ("so 42 #### The final answer is 42", 0.0, "not on a line of its own"),
        ("#### The final answer is 42\nI hope it helps.", 0.0, "not at the end"),
        ("so\n#### The final answer is 42 apples", 0.0, "a word behind"),
        ("so\n#### The final answer is 5abc", 0.0, "letters behind"),
        ("so\n#### The final answer is forty-two", 0.0, "a word"),
        ("so\n#### The final answer is 42 or 41", 0.0, "two answers"),
        ("so\n#### The final answer is ", 0.0, "no number"),
        ("so\n#### 42", 0.0, "another form"),
        ("so\n##### The final answer is 42", 0.0, "one mark too many"),
        ("so\n#### The final answer is 1,42", 0.0, "a comma that separates no thousands"),
        ("Question: x\n#### The final answer is 42", 0.0, "not its own turn"),
        ("<think>\n#### The final answer is 42\n</think>", 0.0, "only in thoughts"),
        ("#### The final answer is " + "1" * 2000, 0.0, "a line without end"),
        ("", 0.0, "nothing"),
        (r"So she has \(\boxed{42}\) apples left.", 1.0, "a box in the last line"),
        ("Thus:\n\\[\n\\boxed{42}\n\\]", 1.0, "a formula of three lines"),
        ("Thus:\n$$\n\\boxed{42}\n$$.\n", 1.0, "another one"),
        (r"\boxed{\frac{5}{6}}", 1.0, "a fraction"),
        (r"\boxed{\$1,080}", 1.0, "a currency sign and a comma"),
        (r"\boxed{41} of \boxed{42}", 0.0, "two boxes"),
        (r"put your final answer within \boxed{}.", 0.0, "the prompt"),
        (r"\boxed{N}", 0.0, "a letter"),
        (r"\boxed{42", 0.0, "an open box"),
        ("\\boxed{42}\nI hope it helps.", 0.0, "a box before the end"),
        ("42\n\\]", 0.0, "a formula without a box"),
        ("\n\\]", 0.0, "only the end of a formula"),
        ("\\boxed{" + "1" * 2000 + "}", 0.0, "a box without end"),
    ],
)
def test_scores_plain_and_chat_completions_alike(completion: str, reward: float, why: str) -> None:
    assert answer_format([""], [completion]) == [reward], why
    assert answer_format([[]], [[{"role": "assistant", "content": completion}]]) == [reward], why


def test_the_pattern_is_an_option_in_place_of_both_forms() -> None:
    assert answer_format([""], ["so\n\\boxed{x}"], pattern=r"\\boxed\{.+\}") == [1.0]
    assert answer_format([""], ["so\n\\boxed{42}."], pattern=r"\\boxed\{.+\}") == [0.0]
    assert answer_format([""], ["#### The final answer is 42"], pattern=r"\\boxed\{.+\}") == [0.0]


def test_text_that_no_form_fits_takes_linear_time() -> None:
    lines = ["\\boxed{" * 140, "\\boxed{" + "1" * 490 + "}" * 480 + "\\boxed", "\n \\]" * 100_000, "\n" * 300_000 + "x"]
    started = time.process_time()
    assert answer_format([""] * 4, lines) == [0.0] * 4
    assert time.process_time() - started < 2.0  # measured: 0.1 s
