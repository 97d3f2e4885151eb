"""Answers that are more than a number: right in any spelling, wrong in every other meaning, and never a danger."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.answers import check_answer, check_answers, gold_faults
from rlvr.answers.danger import danger
from rlvr.answers.spelling import canonical

RIGHT = [
    # answer, gold, why
    (r"\dfrac12", r"\frac{1}{2}", "fractions without braces"),
    (r"\frac{-1}{2}", r"-\frac{1}{2}", "the sign in the numerator"),
    ("(3,pi/2)", r"\left( 3, \frac{\pi}{2} \right)", "plain text for LaTeX"),
    ("3*sqrt(13)", r"3\sqrt{13}", "plain text for a root"),
    ("√2", r"\sqrt{2}", "a root sign"),
    (r"\sqrt{12}", r"2\sqrt{3}", "a surd to be simplified"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "a rationalised denominator"),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", "nested roots"),
    ("(x+1)^2", "x^2+2x+1", "a product to be multiplied out"),
    ("1 + x^{2}", "x^2+1", "another order"),
    (r"\frac{x}{7}+\frac{2}{7}", r"\frac{x+2}{7}", "a sum of fractions"),
    (r"\sec^2(y)", r"\tan^2(y)+1", "an identity"),
    (r"1-2\sin^2 x", r"\cos(2x)", "an identity"),
    (r"(e^x)^2", "e^{2x}", "powers of powers"),
    ("-5i+6", "6 - 5i", "complex numbers"),
    ("0.5+0.5i", r"\frac{1+i}{2}", "decimals are exact"),
    ("2^{10}", "1024", "a power that is a number"),
    (r"\binom{5}{2}", "10", "a binomial that is a number"),
    ("5!", "120", "a factorial that is a number"),
    (r"\log_2 8", "3", "a logarithm that is a number"),
    ("5, 3, 7", "3, 5, 7", "a list has no order"),
    (r"3,\ 5 \text{ and } 7", "3, 5, 7", "words between the items"),
    (r"x = 5 \text{ or } x = 3", "3, 5", "solutions with their name"),
    ("x = 3, 5", "x=5, x=3", "one name for several"),
    (r"\{4, 3\}", r"\{3,4\}", "a set"),
    (r"\{3, 4, 4\}", r"\{3,4\}", "a set with a repetition"),
    (r"3 \pm 2\sqrt2", r"3+2\sqrt{2}, 3-2\sqrt{2}", "plus or minus is two values"),
    (r"\{-2, 1-\sqrt5, 1+\sqrt5\}", r"\{1\pm\sqrt{5},-2\}", "plus or minus in a set"),
    ("(1, 4.5)", r"(1,\frac{9}{2})", "a pair"),
    ("1, 2", "(1,2)", "a pair without brackets, in order"),
    (r"\langle 1, 2\rangle", "(1,2)", "a vector"),
    (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", "another kind of matrix"),
    ("(1, 2)", r"\begin{pmatrix}1\\2\end{pmatrix}", "a column as a tuple"),
    (r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "an array"),
    (r"\begin{pmatrix} 0.5 & 2 \end{pmatrix}", r"\begin{pmatrix} \frac12 & 2 \end{pmatrix}", "entries are compared"),
    ("[0, 1)", "[0,1)", "an interval"),
    (r"x \in [-2, 7]", "[-2,7]", "a member of an interval"),
    (r"-2 \le x \le 7", "[-2,7]", "inequalities for an interval"),
    ("x < 3", r"(-\infty, 3)", "an inequality for a half-line"),
    (r"(2, 12) \cup (12, 102)", r"(2,12) \cup (12,102)", "a union"),
    (r"(12, 102) \cup (2, 12)", r"(2,12) \cup (12,102)", "a union in another order"),
    ("5 >= x", r"x \leq 5", "an inequality turned round"),
    ("-x > -1", "x < 1", "an inequality multiplied by -1"),
    ("y = 3 + 2x", "y = 2x+3", "an equation with a name"),
    ("3 + 2x", "y = 2x + 3", "without the name"),
    ("2x - y + 3 = 0", "y=2x+3", "an equation in another form"),
    ("-34x-45y+20z-100=0", "34x+45y-20z+100=0", "an equation times -1"),
    ("x = 5", "5", "a name in front"),
    ("5", "x=5", "no name in front"),
    ("f(x) = x^2", "x^2", "a function's name"),
    (r"\text{Evelyn}", "Evelyn", "a word"),
    ("even", r"\text{Even}", "a word in another case"),
    ("C", r"\text{(C)}", "a choice"),
    (r"\textbf{(C)}", "C", "a choice in bold"),
    ("204", "204_5", "the base left out"),
    ("15", r"15\mbox{ cm}^2", "the unit left out"),
    (r"15\text{ cm}^2", "15", "a unit where the gold has none"),
    (r"\frac{1}{3} \text{ meters}", r"\frac13", "a unit in words"),
    (r"90^\circ", "90", "degrees"),
    ("50%", "0.5", "per cent for a fraction"),
    ("0.5", r"50\%", "a fraction for per cent"),
    (r"10,\!080", "10080", "LaTeX's thin negative space"),
    ("1000,99", "1000.99", "a decimal comma"),
    ("7:32", "7:32", "a ratio"),
    ("three", "3", "a small number in words"),
    (r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{\sqrt{3}}{3}", "an approximation behind the exact value"),
    (r"\infty", r"\infty", "infinity"),
    (r"\varnothing", r"\emptyset", "the empty set"),
]

WRONG = [
    ("(x+1)^3", "x^2+2x+1", "another polynomial"),
    (r"\sqrt{11}", r"2\sqrt{3}", "another surd"),
    ("1.414214", r"\sqrt{2}", "rounded"),
    ("1.41421356237309504880168872420969807", r"\sqrt{2}", "rounded at the 35th place"),
    (r"\sqrt{2}+10^{-45}", r"\sqrt{2}", "off by almost nothing"),
    ("0.333", r"\frac{1}{3}", "rounded"),
    ("3.14", r"\pi", "rounded"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", "both almost nothing"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744", "almost an integer"),
    (r"1+\frac{1}{e}", r"1-\frac{1}{e}", "another sign"),
    ("6 + 5i", "6 - 5i", "the conjugate"),
    ("3, 5", "3, 5, 7", "an item is missing"),
    ("3, 5, 7, 9", "3, 5, 7", "an item too many"),
    ("3, 5, 7", "7", "the gold is among several"),
    (r"6 \text{ or } 7", "6", "a choice of two"),
    (r"\pm 3", "3", "a choice of two"),
    ("3", r"\pm 3", "half of it"),
    ("(4,3)", "(3,4)", "a pair has an order"),
    ("4, 3", "(3,4)", "without brackets too"),
    ("[3,4]", "(3,4)", "closed for open"),
    ("[0,1]", "[0,1)", "closed for half open"),
    (r"(2,12)", r"(2,12) \cup (12,102)", "half of a union"),
    (r"x \leq 5", "x < 5", "a weaker inequality"),
    ("x > 5", "x < 5", "the opposite"),
    ("y = 2x - 3", "y = 2x+3", "another line"),
    ("y = 5", "x = 5", "another unknown"),
    ("2x = 5", "5", "an equation to be solved"),
    ("x + 1 = 5", "5", "an equation to be solved"),
    ("41 = 42", "42", "an equation that is not true"),
    ("2x", "2", "something with an unknown"),
    ("42x", "42", "something with an unknown"),
    ("42!", "42", "a factorial"),
    ("42i", "42", "imaginary"),
    (r"\frac{42}{0}", "42", "no number"),
    (r"\begin{pmatrix}1&2\\3&5\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "another entry"),
    (r"\begin{pmatrix}2\\1\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", "entries swapped"),
    ("Carla", r"\text{Evelyn}", "another word"),
    ("Evelyn or Carla", "Evelyn", "two words"),
    ("not Evelyn", "Evelyn", "a denial"),
    ("D", "C", "another choice"),
    ("1:00", "12:00", "another time"),
    ("32:7", "7:32", "a ratio turned round"),
    ("42_5", "42", "a number in another base"),
    (r"\int_0^1 42", "42", "not an answer in its final form"),
    ("32, 349", "32349", "two numbers"),
    (r"\text{42 or so}", "42", "no claim"),
    (r"\log 2", r"\ln 3", "another logarithm"),
]


@pytest.mark.parametrize(("answer", "gold", "why"), RIGHT)
def test_one_meaning_in_two_spellings_is_right(answer: str, gold: str, why: str) -> None:
    verdict = check_answer(f"So it is\n\\[ \\boxed{{{answer}}} \\]", gold)
    assert verdict.correct is True, (why, verdict)


@pytest.mark.parametrize(("answer", "gold", "why"), WRONG)
def test_another_meaning_is_wrong(answer: str, gold: str, why: str) -> None:
    verdict = check_answer(f"So it is\n\\[ \\boxed{{{answer}}} \\]", gold)
    assert verdict.correct is False, (why, verdict)


@pytest.mark.parametrize(
    ("completion", "gold", "why"),
    [
        (r"#### $\frac{1}{\sqrt2}$", r"\frac{\sqrt{2}}{2}", "the answer line"),
        (r"#### \sqrt{2}", r"\sqrt{2}", "the answer line without dollars"),
        ("#### p - q", "p-q", "the last line"),
        (r"The answer is $\frac{\sqrt2}{2}$.", r"\frac{1}{\sqrt{2}}", "a sentence"),
        ("Final Answer: The final answer is $2x+1$. I hope it is correct.", "1+2x", "the Minerva form"),
        ("Final Answer: The volume of $ABCD$ is 120. I hope it is correct.", "120", "a sentence behind the label"),
        ("**Final Answer**\n\\[\nx^2\n\\]", "x^2", "a heading and a display"),
        ("The answer is:\n\\[\n\\boxed{6}\n\\]", "6", "a display with a box"),
        ("<answer>(1, 2)</answer>", "(1,2)", "a tag"),
        ("<think>so</think> $x^2$", "x^2", "what follows the thoughts"),
        (r"Thus $x \geq 5$ is the solution.", r"x \geq 5", "one sentence with one formula"),
        (r"$\boxed{2}$ and $\boxed{3}$", "2, 3", "neighbouring boxes for a list"),
        (r"$k = \boxed{45} \quad \text{and} \quad n = \boxed{2}$", "45, 2", "neighbouring boxes with names"),
        (r"$\boxed{\phantom{0}}$ should hold $\boxed{4}$", "4", "an empty box of the problem"),
        (r"$7!\times 2!=\boxed{10080}$", "10080", "a factorial before the equals sign"),
        (r"So $\boxed{44}$. We check our answer: $17\cdot 44 = 748 \equiv 1$.", "44", "a check behind"),
        ("#### \\boxed{2}\n\nProblem 2:\n#### \\boxed{3}", "2", "an invented problem behind"),
    ],
)
def test_expressions_are_found_in_every_notation(completion: str, gold: str, why: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is True, (why, verdict)


@pytest.mark.parametrize(
    ("completion", "gold", "why"),
    [
        (r"$\boxed{2}$ and $\boxed{3}$", "2", "two boxes for one gold"),
        (r"\boxed{x^2} or rather \boxed{x^3}", "x^2", "taken back"),
        (r"\boxed{2} no no no no no \boxed{3}", "2, 3", "boxes that are no list"),
        (r"The answer is not $x^2$.", "x^2", "a denial"),
        (r"<think>\boxed{x^2}</think>", "x^2", "only in thoughts"),
        (r"She thinks it is $x^2$, but it is $x^3$.", "x^2", "two formulas in a sentence"),
        (r"It can never be $x^2$.", "x^2", "a denial in a sentence with one formula"),
        (r"Is it $x^2$?", "x^2", "a question"),
        (r"\boxed{x^2", "x^2", "cut off"),
        (r"x^2 \neq \boxed{x^3}", "x^3", "an inequality before the box"),
    ],
)
def test_what_is_no_single_answer_is_wrong(completion: str, gold: str, why: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is False, (why, verdict)


BOMBS = [
    "9^{9^{9^9}}", "10^{10^{10}}", "9^9^9^9", r"2^{99999999}", "(2^{9999})^{9999}", "99999999!", "5!!!!!!",
    "(((5!)!)!)!",
    r"\binom{10^9}{5\cdot10^8}", r"\binom{1000000000}{500000000}", r"\frac{1}{" * 100 + "2" + "}" * 100, "(" * 400,
    r"\sqrt{" * 60 + "2" + "}" * 60, "9" * 400, "1+" * 240 + "1", r"\sum_{k=1}^{10^9} \frac{1}{k^3}",
    r"\prod_{k=1}^{999999} k", r"\int_0^1 e^{e^{e^x}} dx", "x^{x^{x^{x}}}", "(x+y+z+w)^{999}", "(a+b+c+d+e+f)^{99}-1",
    r"\lim_{n \to \infty} \sqrt[n]{n!}", "x" * 400, r"\sin(" * 11 + "x" + ")" * 11, r"\Gamma(99999)", "2^{3!^{3!}}",
    r"\begin{pmatrix}" + r"1&" * 200 + r"\end{pmatrix}", ",".join("x" for _ in range(200)), "=" * 200, r"\pm" * 100,
    r"\boxed{" * 50, r"\text{" * 100, "{" * 250 + "}" * 250, r"\frac" * 100, r"\sqrt" * 100, "^" * 300, "_" * 300,
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
@pytest.mark.parametrize("gold", ["42", r"\sqrt{2}"])
def test_no_answer_stalls_the_verifier(bomb: str, gold: str) -> None:
    check_answer(r"\boxed{\sqrt{3}}", gold)  # the workers are there
    start = time.monotonic()
    verdict = check_answer(f"\\boxed{{{bomb}}}", gold)
    assert verdict.correct is False
    assert time.monotonic() - start < 4.0  # the deadline is 2 s; the rest is a busy machine's


@pytest.mark.parametrize(
    ("text", "dangerous", "why"),
    [
        ("10^{10^{10}}", True, "a tower of numbers"), ("9^9^9", True, "a tower without braces"),
        ("2^{2^{2^2}}", True, "a tower, and a small one"), ("e^{x^2}", False, "a power of an unknown"),
        ("e^{-x^2/2}", False, "a bell curve"), ("(e^x)^2", False, "a power squared"), ("2^{2017}", False, "large"),
        ("2^{99999}", True, "too large"), ("100!", False, "large"), ("99999!", True, "too large"), ("n!", False, "n"),
        (r"\binom{100}{50}", False, "large"), (r"\binom{100000}{50}", True, "too large"),
        (r"\frac{1}{1+\frac{1}{1+\frac{1}{x}}}", False, "a continued fraction"), ("(" * 20, True, "nested"),
        ("x" * 501, True, "long"), ("7" * 121, True, "a long number"),
    ],
)  # fmt: skip
def test_what_is_dangerous_is_known_by_its_spelling(text: str, dangerous: bool, why: str) -> None:
    assert (danger(canonical(text)) is not None) is dangerous, why


def test_an_answer_that_runs_into_the_deadline_is_wrong_and_counted() -> None:
    slow = r"\boxed{(a+b+c+d+e+f+g+h+k+m)^{60}}"
    verdict = check_answer(slow, "(a+b+c+d+e+f+g+h+k+n)^{60}+(a-b)^{50}", deadline_s=0.3)
    assert verdict.correct is False
    quick = check_answers([slow, r"\boxed{\sqrt{12}}"], ["(a+b)^{60}+c", r"2\sqrt{3}"], deadline_s=2.0)
    assert quick[1].correct is True


def test_workers_that_fail_are_not_held_against_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.answers import checking
    from rlvr.workers import WorkerPool

    monkeypatch.setattr(checking, "workers", lambda: WorkerPool("no_such_module_anywhere:f"))
    verdicts = check_answers([r"\boxed{\sqrt{12}}", r"\boxed{5}"], [r"2\sqrt{3}", "5"])
    assert [verdict.correct for verdict in verdicts] == [None, True]
    assert "no_such_module_anywhere" in verdicts[0].why


@pytest.mark.parametrize(
    ("gold", "word", "why"),
    [
        ("", "empty", "nothing"), (None, "text", "null"), (5, "text", "a number in JSON"),
        ("forty-two", "words", "a number in words"),
        (r"\frac{1}{", "broken off", "cut"), (r"\foo{x}", "not known", "a command that nobody knows"),
        ("10^{10^{10}}", "tower", "a bomb"), ("1" * 1000, "longer", "long"),
    ],
)  # fmt: skip
def test_a_gold_that_cannot_be_verified_says_why(gold: object, word: str, why: str) -> None:
    (fault,) = gold_faults([gold])
    assert fault is not None, why
    assert word in fault, why


def test_golds_that_can_be_verified_have_no_fault() -> None:
    golds = [gold for _, gold, _ in RIGHT]
    assert gold_faults(golds) == [None] * len(golds)


def test_every_gold_verifies_against_itself() -> None:
    golds = [gold for _, gold, _ in RIGHT + WRONG]
    verdicts = check_answers([f"$\\boxed{{{gold}}}$" for gold in golds], golds)
    assert [gold for gold, verdict in zip(golds, verdicts, strict=True) if verdict.correct is not True] == []


LEAVES = st.sampled_from(["x", "y", "2", "3", "7", r"\pi", r"\sqrt{2}", r"\frac{1}{3}", "0.5"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({}+{})".format, inner, inner),
        st.builds("({}-{})".format, inner, inner),
        st.builds(r"\frac{{{}}}{{{}}}".format, inner, LEAVES),
        st.builds(r"{} \cdot {}".format, inner, inner),
        st.builds("{}^{{2}}".format, LEAVES),
    ),
    max_leaves=5,
)


@given(EXPRESSIONS)
@settings(max_examples=60, deadline=None)
def test_an_expression_is_itself_and_neither_one_more_nor_its_double(expression: str) -> None:
    texts = [expression, f"0+{expression}", f"{expression}+1", rf"{expression}+\frac{{1}}{{1000}}"]
    verdicts = check_answers([f"\\boxed{{{text}}}" for text in texts], [expression] * 4)
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False]


@given(st.text(max_size=200), st.sampled_from(["42", r"\sqrt{2}", "(1,2)", "Evelyn", "x<3"]))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str, gold: str) -> None:
    check_answers([f"\\boxed{{{text}}}", f"#### {text}", f"The answer is ${text}$.", text], [gold] * 4)


MATHEMATICS = st.text(alphabet=r"0123456789xyin+-*/^_={}()[]<>,.;:| \$%!&", max_size=30)


@given(MATHEMATICS, st.sampled_from(["42", r"\sqrt{2}", "(1,2)", "x<3"]))
@settings(max_examples=150, deadline=None)
def test_no_jumble_of_signs_raises(text: str, gold: str) -> None:
    verdict = check_answer(f"\\boxed{{{text}}}", gold)
    assert verdict.correct is not None
