"""One-line Python programs from a sentence: the task of the code demonstration and of its embedded model.

    Read n. Add 12, then multiply by 47. Print the result.

    ```python
    n=int(input());print((n+12)*47)
    ```

Everything is generated here, nothing is downloaded. Each problem has tests, an input and the output that it should
give, so that a program is judged by running it and not by how it looks. Two problems in three set a trap, one of the
two that beginners fall into:

    expression   (n+12)*47           a sum needs its parentheses before it is multiplied, divided or reduced
    sum          sum(range(12,n+1))  range leaves out its end, but the sentence includes it

The others look alike and set none: n*12+47, and sum(range(12,n)) where the sentence leaves n out, so that a habit of
always adding 1 is no way around the trap.

What is held out is held out by the problem's two numbers, as in tasks/arithmetic.py: whoever trained on 12 and 47, in
whatever words, order and operations, is never tested on them, and that doesn't depend on the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from rlvr.data.io import Row, as_datasets, check_choice, check_whole
from rlvr.data.number_pairs import number_pairs
from rlvr.data.task import Task
from rlvr.errors import InputError

# A step of a problem, in words. The sums come first only; they need no parentheses before the second step.
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

# The embedded model's teacher treats the one numbered 2 differently.
WORDINGS = (
    "Read n. {First}, then {second}. Print the result.",
    "Write a program that reads n and prints this: {first}, then {second}.",
    "The input is n. {First} and then {second}. Print what you get.",
    "Take n from the input, {first}, then {second}, and print that.",
)

# Inputs of the tests. From 200 on, a program that fell into its trap is wrong for every one of them: n is larger than
# what the missing parentheses or the missing 1 could hide. tests/tasks/test_one_line_programs.py tries all of them.
SMALLEST_INPUT, LARGEST_INPUT = 200, 999
MOST_TESTS = 8  # n//99 takes nine values, and the outputs of a problem should all differ


@dataclass(frozen=True)
class OneLiner:
    """Two steps, each with its number: `first` is a key of `STEPS`, `second` an operator."""

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
        """The problem in Python; with `careful=False` as one writes it who falls into its trap, if it has one."""
        if self.first == "sum to":
            inner = f"sum(range({self.left},n+1))" if careful else f"sum(range({self.left},n))"
        elif self.first == "sum below":
            inner = f"sum(range({self.left},n))"
        else:
            inner = f"n{self.first}{self.left}"
            inner = f"({inner})" if careful and self.has_trap else inner
        return f"{inner}{self.second}{self.right}"

    def output(self, n: int) -> int:
        """What the program should print for the input `n`."""
        if self.first == "sum to":
            value = sum(range(self.left, n + 1))
        elif self.first == "sum below":
            value = sum(range(self.left, n))
        else:
            value = _calculate(n, self.first, self.left)
        return _calculate(value, self.second, self.right)

    def __str__(self) -> str:
        return self.expression()


def _calculate(left: int, operator: str, right: int) -> int:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case _:
            return left % right


def question(problem: OneLiner, wording: int) -> str:
    """The problem in words; `wording` is an index into `WORDINGS`."""
    first = STEPS[problem.first].format(number=problem.left)
    second = STEPS[problem.second].format(number=problem.right)
    return WORDINGS[wording].format(first=first, First=first[0].upper() + first[1:], second=second)


def answer(expression: str, *, closing_fence: bool = True) -> str:
    """The program that prints an expression, as an answer shows it.

    Without the closing fence it is no code to whoever reads the answer.
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
    """Sentences to be turned into one-line programs, as chat prompts of one user message.

    Args:
        kinds: "expression", "sum" or "both" (half of the rows each).
        train_rows: problems to train on; no program is asked for twice.
        validation_rows: problems for looking at during development, with numbers of their own.
        test_rows: held-out problems.
        tests_per_problem: how many inputs a program is run on, 2 to 8. Their outputs all differ, so a program that
            prints a constant passes one at most.
        seed: which problems are drawn, in which words and order, and their tests; never which numbers are held out.

    Rows have `prompt`, `question`, `tests` (a list of {"input", "output"}), `entry_point` (None: programs read stdin),
    `language` ("python"), `source` ("expression" or "sum"), `difficulty` ("trap" or "plain") and `id`, which is the
    expression that a right program computes, such as "(n+12)*47".
    """
    name = "one_line_programs"
    check_choice(name, "kinds", kinds, (*SOURCES, "both"))
    check_whole(name, "train_rows", train_rows, 1)
    check_whole(name, "validation_rows", validation_rows, 0)
    check_whole(name, "test_rows", test_rows, 1)
    check_whole(name, "tests_per_problem", tests_per_problem, 2, MOST_TESTS)
    check_whole(name, "seed", seed, 0)
    sources = SOURCES if kinds == "both" else (kinds,)
    splits = {}
    for split, wanted in (("train", train_rows), ("validation", validation_rows), ("test", test_rows)):
        # One generator a split: asking for more training rows leaves the test rows as they were.
        rng = random.Random(f"{seed}/{split}")
        problems = _draw(split, sources, wanted, rng)
        splits[split] = [_row(problem, tests_per_problem, rng) for problem in problems]
    return Task(
        **as_datasets(**splits),
        notes=(
            f"Generated with seed {seed}; test problems use pairs of numbers that no training problem uses, in either "
            "order and with any operation.",
        ),
        gold=lambda row: answer(row["id"]),
    )


def _draw(split: str, sources: tuple[str, ...], rows: int, rng: random.Random) -> list[OneLiner]:
    """`rows` different problems of a split: sources evenly, two thirds of each with a trap, shuffled."""
    pairs = number_pairs(split)
    drawn: list[OneLiner] = []
    for position, source in enumerate(sources):
        share = rows // len(sources) + (position < rows % len(sources))
        with_trap = round(share * 2 / 3)
        for difficulty, wanted in (("trap", with_trap), ("plain", share - with_trap)):
            kinds = KINDS[source, difficulty]
            if wanted > len(pairs) * len(kinds):
                raise InputError(
                    f"Task one_line_programs, option {split}_rows: {rows} rows need {wanted} different problems of the "
                    f"kind {source}, {difficulty}, but the {split} split has only {len(pairs) * len(kinds)}. "
                    f"Ask for fewer {split}_rows."
                )
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
