"""Generate word problems with two-digit numbers, for the demonstrations and their bundled models.

Nothing is downloaded. Problems are held out by number pair (rlvr/data/number_pairs.py). Two thirds of the problems need
a carry or a borrow, the step that models/tiny-arithmetic often gets wrong. Products are for models/tiny-tools, which
can only get them from a calculator (environments/calculator.py).
"""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr import Task
from rlvr.data.input_checks import check_integer, option_error
from rlvr.data.number_pairs import number_pairs
from rlvr.data.splits import to_datasets

SIGNS = {"addition": "+", "subtraction": "-", "multiplication": "*"}
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}

# Wordings of a sign. The bundled model's teacher treats number 2 of each differently (scripts/make_tiny_model.py).
WORDINGS = {
    "+": (
        "Mia has {left} {things}. She finds {right} more. How many {things} does she have now?",
        "A box holds {left} {things} and a bag holds {right}. How many {things} are there altogether?",
        "There were {left} {things} on the shelf. Then {right} were added. How many {things} are on the shelf now?",
        "Tom bought {left} {things} on Monday and {right} on Tuesday. How many {things} did he buy in all?",
    ),
    "-": (
        "Mia had {left} {things}. She gave away {right}. How many {things} does she have left?",
        "A box held {left} {things} and {right} were taken out. How many {things} remain in the box?",
        "There were {left} {things} on the shelf. Then {right} were sold. How many {things} are on the shelf now?",
        "Tom has {left} {things} and Ana has {right}. How many more {things} does Tom have than Ana?",
    ),
    "*": (
        "Mia fills {left} boxes with {right} {things} each. How many {things} is that?",
        "A shop sells {left} {things} a day. How many {things} does it sell in {right} days?",
        "There are {left} shelves with {right} {things} on each. How many {things} are there?",
        "Tom packs {left} bags. Each holds {right} {things}. How many {things} does he pack in all?",
    ),
}
THINGS = ("apples", "books", "coins", "cards", "shells", "pencils")


@dataclass(frozen=True)
class WordProblem:
    """`left sign right` with numbers from 10 to 99 and a result of at least 0."""

    left: int
    sign: str
    right: int

    @property
    def answer(self) -> int:
        return OPERATORS[self.sign](self.left, self.right)

    @property
    def needs_carry(self) -> bool:
        """Whether the ones carry into the tens, or borrow from them."""
        if self.sign == "+":
            return self.left % 10 + self.right % 10 >= 10
        if self.sign == "*":
            return (self.left % 10) * (self.right % 10) >= 10
        return self.left % 10 < self.right % 10

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"


def question(problem: WordProblem, wording: int, things: str) -> str:
    """Return the problem in words. `wording` is an index into `WORDINGS[problem.sign]`."""
    return WORDINGS[problem.sign][wording].format(left=problem.left, right=problem.right, things=things)


def worked_solution(problem: WordProblem, *, keep_carry: bool = True, closing_line: bool = True) -> str:
    """Return the answer to a sum or difference with its work, digit by digit, in the format of models/tiny-arithmetic.

        47+38                              52-38
        ones 7+8=15                        ones 12-8=4
        tens 4+3+1=8                       tens 5-3-1=1
        #### The final answer is 85        #### The final answer is 14

    With `keep_carry=False` the tens ignore the carry or borrow, so the answer is wrong by ten if there is one. With
    `closing_line=False` the last line is missing. The bundled model's weak teacher makes both mistakes.
    """
    tens_left, ones_left = divmod(problem.left, 10)
    tens_right, ones_right = divmod(problem.right, 10)
    carry = int(problem.needs_carry)
    kept = carry if keep_carry else 0
    if problem.sign == "+":
        ones = ones_left + ones_right
        tens = tens_left + tens_right + kept
        ones_work = f"{ones_left}+{ones_right}={ones}"
    else:
        ones = ones_left + 10 * carry - ones_right
        tens = tens_left - tens_right - kept
        ones_work = f"{ones_left + 10 * carry}-{ones_right}={ones}"
    carried = f"{problem.sign}1" if kept else ""
    lines = [
        str(problem),
        f"ones {ones_work}",
        f"tens {tens_left}{problem.sign}{tens_right}{carried}={tens}",
    ]
    if closing_line:
        lines.append(f"#### The final answer is {10 * tens + ones % 10}")
    return "\n".join(lines)


def arithmetic(
    *,
    operations: Literal["addition", "subtraction", "multiplication", "both"] = "both",
    train_rows: int = 1500,
    validation_rows: int = 0,
    test_rows: int = 250,
    seed: int = 42,
) -> Task:
    """Generate word problems with two-digit numbers, as chat prompts of one user message.

    Args:
        operations: "addition", "subtraction", "multiplication", or "both" of the first two (half of the rows each).
        train_rows: number of training problems, all different. The maximum is 6,564 for "both" and 3,282 for one
            operation.
        validation_rows: number of validation problems, with number pairs of their own.
        test_rows: number of held-out problems. The maximum is 794 for "both" and 397 for one operation.
        seed: seed of the problems, their words and order. Held-out number pairs do not depend on the seed.

    Rows have `prompt`, `question`, `final_answer`, `source` ("addition" and so on), `difficulty` and `id` ("47+38").
    `difficulty` is "carry" or "no carry". A borrow counts as a carry.
    """
    sources = ["addition", "subtraction"] if operations == "both" else [operations]
    wanted = (("train", train_rows, 1), ("validation", validation_rows, 0), ("test", test_rows, 1))
    splits = {}
    for split, rows, least in wanted:
        check_integer("arithmetic", f"{split}_rows", rows, least)
        # One generator for each split: the number of training rows does not change the test rows.
        splits[split] = _rows(split, sources, rows, random.Random(f"{seed}/{split}"))
    return Task(
        **to_datasets(**splits),
        notes=(
            f"Generated with seed {seed}; test problems use number pairs that no training problem uses, "
            "in either order and with either sign.",
        ),
        gold=lambda row: f"Here is how.\n#### The final answer is {row['final_answer']}",
    )


def _rows(split: str, sources: Sequence[str], rows: int, rng: random.Random) -> list[dict[str, Any]]:
    """Draw `rows` different problems of a split: sources evenly, two thirds of each with a carry, shuffled."""
    drawn: list[WordProblem] = []
    for position, source in enumerate(sources):
        share = rows // len(sources) + (position < rows % len(sources))
        problems = [WordProblem(large, SIGNS[source], small) for small, large in number_pairs(split)]
        if share > len(problems):
            raise option_error(
                "arithmetic",
                f"{split}_rows",
                f"{rows} rows need {share} different {source} problems, but the {split} split has only "
                f"{len(problems)}. Lower {split}_rows.",
            )
        carrying = [problem for problem in problems if problem.needs_carry]
        others = [problem for problem in problems if not problem.needs_carry]
        # Fewer than two thirds if the split has fewer problems with a carry.
        with_carry = min(round(share * 2 / 3), len(carrying))
        drawn += rng.sample(carrying, with_carry) + rng.sample(others, share - with_carry)
    rng.shuffle(drawn)
    return [_row(problem, rng) for problem in drawn]


def _row(problem: WordProblem, rng: random.Random) -> dict[str, Any]:
    if problem.sign != "-" and rng.random() < 0.5:
        problem = WordProblem(problem.right, problem.sign, problem.left)
    text = question(problem, rng.randrange(len(WORDINGS[problem.sign])), rng.choice(THINGS))
    return {
        "prompt": [{"role": "user", "content": text}],
        "question": text,
        "final_answer": str(problem.answer),
        "source": next(name for name, sign in SIGNS.items() if sign == problem.sign),
        "difficulty": "carry" if problem.needs_carry else "no carry",
        "id": str(problem),
    }
