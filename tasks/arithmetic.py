"""Two-digit addition and subtraction as word problems: the task of the demonstration and of the embedded model.

Everything is generated here, nothing is downloaded. What is held out is held out by number pair: whoever trained on
"47 + 38", in whatever words, in either order and with either sign, has trained on the pair {38, 47}, and none of the
problems with that pair is ever a test problem. Which pairs those are is fixed by a checksum, not by the seed, so the
embedded model (scripts/make_tiny_model.py) and any later run agree on it:

    crc32("smaller,larger") % 10    0: test    1: validation    2-9: training

Two problems in three need a carry (or a borrow), because that is the step the embedded model is bad at.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.data.number_pairs import number_pairs
from rlvr.data.task import Task
from rlvr.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset

SIGNS = {"addition": "+", "subtraction": "-"}
COLUMNS = ("prompt", "question", "final_answer", "source", "difficulty", "id")

# The wordings of a sign; the embedded model's teacher treats the one numbered 2 of each differently.
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
}
THINGS = ("apples", "books", "coins", "cards", "shells", "pencils")


@dataclass(frozen=True)
class WordProblem:
    """`left sign right`, both numbers in 10..99, the result never negative."""

    left: int
    sign: str
    right: int

    @property
    def answer(self) -> int:
        return self.left + self.right if self.sign == "+" else self.left - self.right

    @property
    def needs_carry(self) -> bool:
        """Whether the ones carry into the tens (addition) or borrow from them (subtraction)."""
        if self.sign == "+":
            return self.left % 10 + self.right % 10 >= 10
        return self.left % 10 < self.right % 10

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"


def question(problem: WordProblem, wording: int, things: str) -> str:
    """The problem in words; `wording` is an index into `WORDINGS[problem.sign]`."""
    return WORDINGS[problem.sign][wording].format(left=problem.left, right=problem.right, things=things)


def worked_solution(problem: WordProblem, *, keep_carry: bool = True, closing_line: bool = True) -> str:
    """The answer with its work, digit by digit, as the embedded model is taught to write it.

        47+38                              52-38
        ones 7+8=15                        ones 12-8=4
        tens 4+3+1=8                       tens 5-3-1=1
        #### The final answer is 85        #### The final answer is 14

    With `keep_carry=False` the carry or borrow is forgotten in the tens, which makes the answer of a problem that needs
    one wrong by ten; with `closing_line=False` the last line is missing. The embedded model's weak teacher makes these
    two mistakes.
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
    operations: str = "both",
    train_rows: int = 1500,
    validation_rows: int = 0,
    test_rows: int = 250,
    seed: int = 42,
) -> Task:
    """Word problems with two-digit numbers, as chat prompts of one user message.

    Args:
        operations: "addition", "subtraction" or "both" (half of the rows each).
        train_rows: problems to train on. No problem comes twice, whatever its words: with both operations there are
            at most 6,564, with one of them half as many.
        validation_rows: problems for looking at during development, from number pairs of their own.
        test_rows: held-out problems; with both operations at most 794.
        seed: which problems are drawn, in which words and order; never which number pairs are held out.

    Rows have `prompt`, `question`, `final_answer`, `source` ("addition" or "subtraction"), `difficulty` ("carry" or
    "no carry"; a borrow counts as a carry) and `id`, which is the bare problem, such as "47+38".
    """
    choices = (*SIGNS, "both")
    if operations not in choices:
        raise InputError(
            f"Task arithmetic, option operations: {operations!r} is none of {', '.join(choices)}. Write one of these."
        )
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"Task arithmetic, option seed: {seed!r} is not a whole number. Write one, such as 42.")
    sources = list(SIGNS) if operations == "both" else [operations]
    wanted = (("train", train_rows, 1), ("validation", validation_rows, 0), ("test", test_rows, 1))
    splits = {}
    for split, rows, least in wanted:
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < least:
            raise InputError(
                f"Task arithmetic, option {split}_rows: {rows!r} is not a whole number of {least} or more. "
                "Write how many problems you want."
            )
        # One generator a split: asking for more training rows leaves the test rows as they were.
        splits[split] = _rows(split, sources, rows, random.Random(f"{seed}/{split}"))
    return Task(
        **{split: _dataset(rows) for split, rows in splits.items()},
        notes=(
            f"Generated with seed {seed}; test problems use number pairs that no training problem uses, "
            "in either order and with either sign.",
        ),
        gold=lambda row: f"Here is how.\n#### The final answer is {row['final_answer']}",
    )


def _rows(split: str, sources: Sequence[str], rows: int, rng: random.Random) -> list[dict[str, Any]]:
    """`rows` different problems of a split: sources evenly, two thirds of each with a carry, shuffled."""
    drawn: list[WordProblem] = []
    for position, source in enumerate(sources):
        share = rows // len(sources) + (position < rows % len(sources))
        problems = _problems(split, SIGNS[source])
        if share > len(problems):
            raise InputError(
                f"Task arithmetic, option {split}_rows: {rows} rows need {share} different {source} problems, but the "
                f"{split} split has only {len(problems)}. Ask for fewer {split}_rows."
            )
        carrying = [problem for problem in problems if problem.needs_carry]
        others = [problem for problem in problems if not problem.needs_carry]
        # Every carrying problem there is, where two thirds would be more: the others are the larger half.
        with_carry = min(round(share * 2 / 3), len(carrying))
        drawn += rng.sample(carrying, with_carry) + rng.sample(others, share - with_carry)
    rng.shuffle(drawn)
    return [_row(problem, rng) for problem in drawn]


def _problems(split: str, sign: str) -> list[WordProblem]:
    """One problem for each number pair of the split: the larger number first, as subtraction needs it."""
    return [WordProblem(large, sign, small) for small, large in number_pairs(split)]


def _row(problem: WordProblem, rng: random.Random) -> dict[str, Any]:
    if problem.sign == "+" and rng.random() < 0.5:
        problem = WordProblem(problem.right, problem.sign, problem.left)
    text = question(problem, rng.randrange(len(WORDINGS[problem.sign])), rng.choice(THINGS))
    return {
        "prompt": [{"role": "user", "content": text}],
        "question": text,
        "final_answer": str(problem.answer),
        "source": "addition" if problem.sign == "+" else "subtraction",
        "difficulty": "carry" if problem.needs_carry else "no carry",
        "id": str(problem),
    }


def _dataset(rows: list[dict[str, Any]]) -> Dataset:
    from datasets import Dataset, Features, List, Value

    text = Value("string")
    features = Features({"prompt": List({"role": text, "content": text}), **dict.fromkeys(COLUMNS[1:], text)})
    # Column by column, so that a split of 0 rows has the columns too.
    return Dataset.from_dict({column: [row[column] for row in rows] for column in COLUMNS}, features=features)
