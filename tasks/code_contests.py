"""Load CodeContests: 13,610 problems of programming contests with tests, in a band of difficulty.

The task reads two formats (rlvr/data/code/contest_problems.py). The prompt is a chat message for the model's own
template. By default, private tests score a program. Problems that cannot be scored fairly are dropped and counted by
reason (docs/data.md).
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from rlvr import InputError, Task
from rlvr.data.code import io_tests, problem_text
from rlvr.data.code.contest_problems import (
    HUB_DATASET,
    ContestProblem,
    choose_problems,
    read_contests,
)
from rlvr.data.code.prompts import STDIN, build_instruction
from rlvr.data.input_checks import check_limits, option_error
from rlvr.data.io import Row
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import hold_out_test, to_datasets

TIERS = {"easy": (800, 1000), "hard": (1100, 2200), "expert": (2300, 3500)}


def code_contests(
    *,
    path: str | None = None,
    test_path: str | None = None,
    language: Literal["cpp", "python"] = "cpp",
    tier: Literal["easy", "hard", "expert"] = "easy",
    tests: Literal["private", "public", "all"] = "private",
    max_tests: int | None = None,
    time_factor: float = 1.0,
    answer_format: Literal["fence", "tags"] = "fence",
    instruction_role: Literal["system", "user"] = "user",
    test_fraction: float = 0.1,
    seed: int = 42,
) -> Task:
    """Load problems of CodeContests from the hub, or from files, in a band of difficulty.

    Args:
        path: a parquet, JSONL or JSON file, or a folder with files for each split (train*, valid*, test*). The columns
            decide the format. None downloads the dataset (several GB) or uses the cached copy.
        test_path: a file with the held-out rows, if `path` has none.
        language: language of the programs. "cpp" is C++17.
        tier: "easy" is a rating of 800 to 1000, "hard" 1100 to 2200, "expert" 2300 to 3500.
        tests: the tests that score a program. The statement does not show "private" tests.
        max_tests: maximum number of tests per problem, drawn at random.
        time_factor: factor of the time limits, which are meant for C++.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: role of the message with the instruction. Reasoning models expect everything in the user turn.
        test_fraction: share of the training problems to hold out, if the data has no test split.
        seed: seed of all random choices.

    Rows have `prompt`, `question` (the statement), `language`, `difficulty` (the rating), `source` and `id` ("177_A2").
    The judge reads `tests`, `time_s`, `memory_mb`, `comparison` and `tolerance`. The entries of `tests` and
    `public_tests` are {"input", "output"}.
    """
    name = "code_contests"
    check_limits(name, max_tests=max_tests)
    if isinstance(time_factor, bool) or not isinstance(time_factor, int | float) or not 0.1 <= time_factor <= 100:
        raise option_error(name, "time_factor", f"{time_factor!r} is not a number from 0.1 to 100.")
    band = TIERS[tier]
    raw = read_contests(path, test_path, band)
    place = f"{path or HUB_DATASET}{f' and {test_path}' if test_path else ''}"
    chosen, dropped = choose_problems(raw, path or HUB_DATASET, band, tests, max_tests, seed)
    total = sum(len(loaded.rows) + loaded.skipped for loaded in raw.values())
    left = sum(map(len, chosen.values()))
    if not chosen["train"]:
        fix = "Choose another tier."
        message = f"Task {name}: none of {total:,} problems of {place} is left to train on. {' '.join(dropped)} {fix}"
        raise InputError(message, kind="empty-data", key="tier")
    instruction = build_instruction(STDIN, language, answer_format)
    splits = {
        split: [_row(*problem, instruction, instruction_role, language, time_factor) for problem in problems]
        for split, problems in chosen.items()
    }
    notes = [
        f"Kept {left:,} of {total:,} problems of {place}, all with a rating from {band[0]} to {band[1]}.",
        *dropped,
    ]
    notes += hold_out_test(name, splits, test_fraction, seed)
    if max_tests is not None:
        notes.append(f"Drew at most {max_tests} tests a problem with seed {seed}.")
    compared = Counter(row["comparison"] for rows in splits.values() for row in rows)
    notes.append(f"Outputs are compared by {', '.join(f'{how} ({count:,})' for how, count in compared.most_common())}.")
    return Task(**to_datasets(**splits), notes=tuple(notes), answer=None)


def _row(
    problem: ContestProblem,
    tests: list[io_tests.Test],
    task_instruction: str,
    role: str,
    language: str,
    time_factor: float,
) -> Row:
    statement = problem_text.parse_statement(problem.question)
    outputs = [test["output"] for test in (*problem.public, *tests)]
    comparison, tolerance = problem_text.choose_comparison(statement, outputs)
    public = problem.public
    if comparison == "float":
        tests, public = (
            [{**test, "output": problem_text.add_decimal_points(test["output"])} for test in some]
            for some in (tests, public)
        )
    time_s, memory_mb = round(problem.time_s * time_factor, 3), round(problem.memory_mb)
    limits = f"Time limit: {time_s:g} s. Memory limit: {memory_mb} MB."
    return {
        "prompt": build_messages(task_instruction, f"{problem.question}\n\n{limits}", role),
        "question": problem.question,
        "tests": tests,
        "public_tests": public,
        "time_s": time_s,
        "memory_mb": memory_mb,
        "comparison": comparison,
        "tolerance": tolerance,
        "language": language,
        "difficulty": str(problem.rating),
        "source": "code_contests",
        "id": problem.id,
    }
