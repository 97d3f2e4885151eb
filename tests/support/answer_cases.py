"""Answers and what they are worth, each with the reason why it is here; benchmarks/verify_answers.py runs them too."""

from __future__ import annotations

from tests.support.cases import cases

# whole completions whose gold is 42, why
RIGHT_42, WRONG_42 = cases(__file__, "right 42"), cases(__file__, "wrong 42")

CLASSES = (
    "expressions",
    "chains",
    "decimals of exact golds",
    "bases, per cent, missing spaces",
    "repeating decimals",
    "rare LaTeX",
)
# class -> right and wrong answers (in a box), gold, why; each class is a row of the benchmark
EXPRESSIONS = {name: (cases(__file__, f"{name}: right"), cases(__file__, f"{name}: wrong")) for name in CLASSES}
RIGHT = [row for right, _ in EXPRESSIONS.values() for row in right]
WRONG = [row for _, wrong in EXPRESSIONS.values() for row in wrong]

# whole completions, gold, why
STATED, NOT_STATED = cases(__file__, "stated"), cases(__file__, "not stated")
# whole completions that a policy may try, gold, why they are wrong
ATTACKS = cases(__file__, "attacks")
# whole completions as models write them, gold
USUAL = cases(__file__, "usual")

# answers that are dangerous to compute or to read
BOMBS = [
    "9^{9^{9^9}}",
    "10^{10^{10}}",
    "9^9^9^9",
    r"2^{99999999}",
    "(2^{9999})^{9999}",
    "99999999!",
    "5!!!!!!",
    "(((5!)!)!)!",
    r"\binom{10^9}{5\cdot10^8}",
    r"\binom{1000000000}{500000000}",
    r"\frac{1}{" * 100 + "2" + "}" * 100,
    "(" * 400,
    r"\sqrt{" * 60 + "2" + "}" * 60,
    "9" * 400,
    "1+" * 240 + "1",
    r"\sum_{k=1}^{10^9} \frac{1}{k^3}",
    r"\prod_{k=1}^{999999} k",
    r"\int_0^1 e^{e^{e^x}} dx",
    "x^{x^{x^{x}}}",
    "(x+y+z+w)^{999}",
    "(a+b+c+d+e+f)^{99}-1",
    r"\lim_{n \to \infty} \sqrt[n]{n!}",
    "x" * 400,
    r"\sin(" * 11 + "x" + ")" * 11,
    r"\Gamma(99999)",
    "2^{3!^{3!}}",
    r"\begin{pmatrix}" + r"1&" * 200 + r"\end{pmatrix}",
    ",".join("x" for _ in range(200)),
    "=" * 200,
    r"\pm" * 100,
    r"\boxed{" * 50,
    r"\text{" * 100,
    "{" * 250 + "}" * 250,
    r"\frac" * 100,
    r"\sqrt" * 100,
    "^" * 300,
    "_" * 300,
]
