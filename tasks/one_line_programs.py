"""Generate sentences to turn into one-line Python programs, for the code demonstration and its bundled model.

    Read n. Add 12, then multiply by 47. Print the result.

    ```python
    n=int(input());print((n+12)*47)
    ```

Nothing is downloaded. Problems are held out by their two numbers (rlvr/data/number_pairs.py). Two thirds have a trap:

    expression   (n+12)*47           a sum needs parentheses before it is multiplied, divided or reduced
    sum          sum(range(12,n+1))  range excludes its end, but the sentence includes it

The other problems look alike without a trap: n*12+47, and sum(range(12,n)) for a sentence that excludes n. So a program
that always adds 1 is wrong.
"""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass
from typing import Any, Literal

from rlvr import Task
from rlvr.data.input_checks import check_integer, option_error
from rlvr.data.io import Row
from rlvr.data.number_pairs import number_pairs
from rlvr.data.splits import to_datasets

NAME = "one_line_programs"
# A step of a problem, in words. The sums come first only, and need no parentheses before the second step.
STEPS = {
    "+": "add {number}",
    "-": "subtract {number}",
    "*": "multiply by {number}",
    "//": "divide by {number} rounding down",
    "%": "take the remainder of dividing by {number}",
    "sum to": "sum the numbers from {number} to n, n included",
    "sum below": "sum the numbers from {number} to n, n excluded",
}
# The first and the second step of a problem, by source and difficulty.
KINDS = {
    ("expression", "trap"): [(first, second) for first in ("+", "-") for second in ("*", "//", "%")],
    ("expression", "plain"): [(first, second) for first in ("*", "//", "%") for second in ("+", "-")],
    ("sum", "trap"): [("sum to", second) for second in ("+", "-", "*")],
    ("sum", "plain"): [("sum below", second) for second in ("+", "-", "*")],
}
SOURCES = ("expression", "sum")
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}

# The bundled model's teacher treats number 2 differently (scripts/make_tiny_model.py).
WORDINGS = (
    "Read n. {First}, then {second}. Print the result.",
    "Write a program that reads n and prints this: {first}, then {second}.",
    "The input is n. {First} and then {second}. Print what you get.",
    "Take n from the input, {first}, then {second}, and print that.",
)

# Inputs of the tests. From 200 on, a program that falls into its trap fails every test.
SMALLEST_INPUT, LARGEST_INPUT = 200, 999
MOST_TESTS = 8  # n//99 has nine values, and all outputs of a problem differ


@dataclass(frozen=True)
class OneLiner:
    """A problem of two steps, each with its number: `first` is a key of `STEPS`, `second` an operator."""

    first: str
    left: int
    second: str
    right: int

    @property
    def source(self) -> str:
        return "sum" if self.first.startswith("sum") else "expression"

    @property
    def has_trap(self) -> bool:
        return (self.first, self.second) in KINDS[(self.source, "trap")]

    def expression(self, *, careful: bool = True) -> str:
        """Return the problem in Python. With `careful=False`, return the version that falls into the trap, if any."""
        if self.source == "sum":
            inner = f"sum(range({self.left},n{'+1' if careful and self.first == 'sum to' else ''}))"
        else:
            inner = f"n{self.first}{self.left}"
            inner = f"({inner})" if careful and self.has_trap else inner
        return f"{inner}{self.second}{self.right}"

    def output(self, n: int) -> int:
        """Compute the expected output for the input `n`."""
        if self.source == "sum":
            value = sum(range(self.left, n + (self.first == "sum to")))
        else:
            value = OPERATORS[self.first](n, self.left)
        return OPERATORS[self.second](value, self.right)

    def __str__(self) -> str:
        return self.expression()


def question(problem: OneLiner, wording: int) -> str:
    """Return the problem in words. `wording` is an index into `WORDINGS`."""
    first = STEPS[problem.first].format(number=problem.left)
    second = STEPS[problem.second].format(number=problem.right)
    return WORDINGS[wording].format(first=first, First=first[0].upper() + first[1:], second=second)


def answer(expression: str, *, closing_fence: bool = True) -> str:
    """Return an answer with the program that prints an expression.

    Without the closing fence, the answer has no code block.
    """
    return f"```python\nn=int(input());print({expression})" + ("\n```" if closing_fence else "")


def one_line_programs(
    *,
    kinds: Literal["expression", "sum", "both"] = "both",
    train_rows: int = 1500,
    validation_rows: int = 0,
    test_rows: int = 250,
    tests_per_problem: int = 4,
    seed: int = 42,
) -> Task:
    """Generate problems for one-line programs, as chat prompts of one user message.

    Args:
        kinds: "expression", "sum" or "both" (half of the rows each).
        train_rows, validation_rows, test_rows: number of problems. No pair of numbers is in two splits.
        tests_per_problem: number of tests, 2 to 8. Their outputs differ, so a constant program passes at most one.
        seed: seed of the problems, their words, order and tests. Held-out numbers do not depend on the seed.

    Rows have `prompt`, `question`, `tests`, `entry_point`, `language`, `source`, `difficulty` and `id`. `tests` is a
    list of {"input", "output"}. `entry_point` is None, because programs read stdin. `source` is "expression" or "sum",
    `difficulty` "trap" or "plain". `id` is the expression of a correct program, such as "(n+12)*47".
    """
    check_integer(NAME, "tests_per_problem", tests_per_problem, 2, MOST_TESTS)
    sources = SOURCES if kinds == "both" else (kinds,)
    splits = {}
    for split, wanted, least in (("train", train_rows, 1), ("validation", validation_rows, 0), ("test", test_rows, 1)):
        check_integer(NAME, f"{split}_rows", wanted, least)
        # One generator for each split: the number of training rows does not change the test rows.
        rng = random.Random(f"{seed}/{split}")
        problems = _draw(split, sources, wanted, rng)
        splits[split] = [_row(problem, tests_per_problem, rng) for problem in problems]
    return Task(
        **to_datasets(**splits),
        notes=(
            f"Generated with seed {seed}; test problems use pairs of numbers that no training problem uses, in either "
            "order and with any operation.",
        ),
        gold=lambda row: answer(row["id"]),
        answer=None,
    )


def _draw(split: str, sources: tuple[str, ...], rows: int, rng: random.Random) -> list[OneLiner]:
    """Draw `rows` different problems of a split: sources evenly, two thirds of each with a trap, shuffled."""
    pairs = number_pairs(split)
    drawn: list[OneLiner] = []
    for position, source in enumerate(sources):
        share = rows // len(sources) + (position < rows % len(sources))
        with_trap = round(share * 2 / 3)
        for difficulty, wanted in (("trap", with_trap), ("plain", share - with_trap)):
            kinds = KINDS[source, difficulty]
            if wanted > len(pairs) * len(kinds):
                problem = f"{rows} rows need {wanted} {source} problems ({difficulty}), but there are only"
                raise option_error(NAME, f"{split}_rows", f"{problem} {len(pairs) * len(kinds)}. Lower it.")
            for choice in rng.sample(range(len(pairs) * len(kinds)), wanted):
                numbers = list(pairs[choice // len(kinds)])
                rng.shuffle(numbers)
                first, second = kinds[choice % len(kinds)]
                drawn.append(OneLiner(first, numbers[0], second, numbers[1]))
    rng.shuffle(drawn)
    return drawn


def _row(problem: OneLiner, tests: int, rng: random.Random) -> Row:
    text = question(problem, rng.randrange(len(WORDINGS)))
    return {
        "prompt": [{"role": "user", "content": text}],
        "question": text,
        "tests": _tests(problem, tests, rng),
        "entry_point": None,
        "language": "python",
        "source": problem.source,
        "difficulty": "trap" if problem.has_trap else "plain",
        "id": str(problem),
    }


def _tests(problem: OneLiner, wanted: int, rng: random.Random) -> list[dict[str, Any]]:
    by_output: dict[int, int] = {}
    while len(by_output) < wanted:
        n = rng.randint(SMALLEST_INPUT, LARGEST_INPUT)
        by_output.setdefault(problem.output(n), n)
    return [{"input": f"{n}\n", "output": f"{output}\n"} for output, n in by_output.items()]
