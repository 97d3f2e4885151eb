"""Generate countdown problems (TinyZero): reach a target with given numbers, + - * / and brackets.

Nothing is downloaded. Each problem is made from a solution that uses every number, so it can be solved. A test problem,
by its numbers in any order and its target, is never a training problem.
"""

from __future__ import annotations

import random
from typing import Literal

from rlvr import InputError, Task
from rlvr.data.input_checks import check_integer, option_error
from rlvr.data.io import Row
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import to_datasets

INSTRUCTION = (
    "Show your work in <think> </think> tags. Then give the expression, and nothing else, in <answer> </answer> tags, "
    "for example <answer> (1 + 2) / 3 </answer>."
)
TRIES_PER_ROW = 200

Problem = tuple[tuple[int, ...], int]  # the sorted numbers, and the target


def countdown(
    *,
    min_numbers: int = 3,
    max_numbers: int = 4,
    max_number: int = 99,
    max_target: int = 99,
    train_rows: int = 5000,
    test_rows: int = 250,
    instruction_role: Literal["system", "user"] = "system",
    seed: int = 42,
) -> Task:
    """Generate problems, as chat prompts.

    Args:
        min_numbers, max_numbers: least and greatest count of numbers in a problem, 2 to 8.
        max_number: the largest given number. The smallest is 1.
        max_target: the largest target. The smallest is 10.
        train_rows, test_rows: number of problems of this split, all different.
        instruction_role: role of the message with the answer format. "user" is for templates without a system turn.
        seed: seed of the problems.

    Rows have `prompt`, `question`, `numbers`, `target`, `difficulty` ("3 numbers"), `source` ("countdown") and `id`.
    """
    name = "countdown"
    check_integer(name, "min_numbers", min_numbers, 2, 8)
    check_integer(name, "max_numbers", max_numbers, 2, 8)
    check_integer(name, "max_number", max_number, 9, 10_000)
    check_integer(name, "max_target", max_target, 10, 100_000)
    check_integer(name, "train_rows", train_rows, 1)
    check_integer(name, "test_rows", test_rows, 0)
    if min_numbers > max_numbers:
        raise option_error(name, "min_numbers", f"{min_numbers} is above max_numbers, {max_numbers}. Lower it.")
    solutions: dict[Problem, str] = {}
    splits: dict[str, list[Row]] = {}
    for split, wanted in (("test", test_rows), ("train", train_rows)):
        chance, rows = random.Random(f"{seed}/{split}"), list[Row]()
        for _ in range(wanted * TRIES_PER_ROW):
            if len(rows) == wanted:
                break
            numbers = [chance.randint(1, max_number) for _ in range(chance.randint(min_numbers, max_numbers))]
            solution, target = _combine(numbers, chance)
            problem = (tuple(sorted(numbers)), target)
            if 10 <= target <= max_target and target not in numbers and problem not in solutions:
                solutions[problem] = solution
                rows.append(_row(numbers, target, f"{name}-{split}-{len(rows)}", instruction_role))
        if len(rows) < wanted:
            message = (
                f"Task {name}: found only {len(rows):,} different {split} problems of the {wanted:,} asked for. "
                f"Lower {split}_rows, or raise max_numbers, max_number or max_target."
            )
            raise InputError(message, kind="empty-data", key=f"{split}_rows")
        splits[split] = rows
    return Task(
        **to_datasets(train=splits["train"], validation=[], test=splits["test"]),
        notes=(f"Made with seed {seed}; no test problem, by numbers and target, is a training problem.",),
        gold=lambda row: (
            f"<think>I try.</think>\n<answer>{solutions[tuple(sorted(row['numbers'])), row['target']]}</answer>"
        ),
        answer=None,
    )


def _combine(numbers: list[int], chance: random.Random) -> tuple[str, int]:
    """Join random pairs until one expression is left. Every intermediate value is a whole number from 1."""
    parts = [(str(number), number) for number in numbers]
    while len(parts) > 1:
        chance.shuffle(parts)
        (left, one), (right, other) = parts.pop(), parts.pop()
        if one < other:
            left, one, right, other = right, other, left, one
        results = {"+": one + other, "*": one * other}
        results |= {"-": one - other} if one > other else {}
        results |= {"/": one // other} if one % other == 0 else {}
        sign = chance.choice(list(results))
        parts.append((f"({left} {sign} {right})", results[sign]))
    return parts[0][0].removeprefix("(").removesuffix(")"), parts[0][1]


def _row(numbers: list[int], target: int, row_id: str, role: str) -> Row:
    question = (
        f"Using the numbers {numbers}, create an expression that equals {target}. You can use the operations +, -, * "
        "and / and brackets, and have to use each number exactly once."
    )
    return {
        "prompt": build_messages(INSTRUCTION, question, role),
        "question": question,
        "numbers": numbers,
        "target": target,
        "difficulty": f"{len(numbers)} numbers",
        "source": "countdown",
        "id": row_id,
    }
