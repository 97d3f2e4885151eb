"""Compare this project's verifier with two others on the same completions: error rates by class, and speed.

    python -m benchmarks.verify_answers                    # about ten minutes on one core
    python -m benchmarks.verify_answers --rows 100 --math_verify_tests Math-Verify/tests

The others:
- math-verify, as its README uses it: parse(gold), parse(completion), verify;
- trl.rewards.accuracy_reward, on conversational completions.

Completions: GSM8K's own solutions in six notations, each against its own gold and one of the gold's neighbours;
sentences of verify_sentences.py; the tables of tests/support/answer_cases.jsonl, by class; the parametrized rows of
math-verify's tests, if a checkout has them. Every scorer runs in a process that is killed after 5 s on one completion,
and says nothing of that one.

The table's cells are false positives / false negatives. "Nothing said" of a right answer is a false negative.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.verify_sentences import DATA, questions, sentences
from rlvr.scoring.registry import task_module
from rlvr.workers.pool import WorkerPool
from tests.support import answer_cases

KILLED_AFTER_S = 5.0
SLOW_S = 2.0


# ----------------------------------------------------------------------------------------------------------------------
# The scorers: one completion and its gold -> right, wrong, or None for "can't say"


def _ours(completion: str, gold: str) -> bool | None:
    from rlvr.verifiers.math import check_answer

    return check_answer(completion, gold).correct


def _math_verify(completion: str, gold: str) -> bool | None:
    from math_verify import parse, verify

    return bool(verify(parse(gold if "$" in gold else f"${gold}$"), parse(completion)))


def _trl(completion: str, gold: str) -> bool | None:
    from trl.rewards import accuracy_reward

    (reward,) = accuracy_reward(
        [[{"role": "assistant", "content": completion}]], [gold if "$" in gold else f"${gold}$"]
    )
    return None if reward is None else reward > 0


SCORERS: dict[str, Callable[[str, str], bool | None]] = {
    "this project": _ours,
    "math-verify": _math_verify,
    "trl accuracy_reward": _trl,
}


def work(item: list[Any]) -> list[Any]:
    """Run in a worker: [scorer, completion, gold] -> [right, seconds]; [scorer, [[completion, gold], …]] -> rate."""
    scorer = SCORERS[item[0]]
    if isinstance(item[1], list):
        for completion, gold in ((r"\boxed{\sqrt{8}}", r"2\sqrt{2}"), ("#### 1", "1")):
            scorer(completion, gold)  # imports, and our workers
        start = time.perf_counter()
        for completion, gold in item[1]:
            scorer(completion, gold)
        return [len(item[1]), time.perf_counter() - start]
    start = time.perf_counter()
    try:
        right = scorer(item[1], item[2])
    except Exception as error:
        return [f"{type(error).__name__}", time.perf_counter() - start]
    return [right, time.perf_counter() - start]


# ----------------------------------------------------------------------------------------------------------------------
# The completions


@dataclass(frozen=True)
class LabelledCompletion:
    completion: str
    gold: str
    right: bool


NOTATIONS = {
    "#### The final answer is N": "{work}\n#### The final answer is {gold}",
    "#### N": "{work}\n#### {gold}",
    r"\boxed{N}": "{work}\nSo it is $\\boxed{{{gold}}}$.",
    "The answer is N.": "{work} The answer is {gold}.",
    "<answer>N</answer>": "<think>\n{work}\n</think>\n<answer>{gold}</answer>",
    "after </think>": "{work}\n</think>\n{gold}",
}


def gsm8k(folder: Path, most: int) -> list[tuple[str, str]]:
    """Return (worked solution, gold) of GSM8K's test rows, those with a comma or a minus first."""
    one_paragraph = task_module("gsm8k").one_paragraph
    answers = [json.loads(line)["answer"] for line in (folder / "gsm8k_test.jsonl").read_text("utf-8").splitlines()]
    pairs = [(one_paragraph(work), gold.strip()) for work, _, gold in (text.rpartition("####") for text in answers)]
    return sorted(pairs, key=lambda pair: pair[1].isdigit())[:most]


def _neighbours(gold: str) -> list[str]:
    value = int(gold.replace(",", ""))
    return [str(value + 1), str(-value) if value else "7", str(value * 10) if value else "70"]


def sets(pairs: Sequence[tuple[str, str]]) -> dict[str, list[LabelledCompletion]]:
    """Return the completions of each row of the table."""
    named: dict[str, list[LabelledCompletion]] = {}
    for name, form in NOTATIONS.items():
        rows = []
        for number, (work_text, gold) in enumerate(pairs):
            completion = form.format(work=work_text, gold=gold)
            rows.append(LabelledCompletion(completion, gold, True))
            rows += [LabelledCompletion(completion, other, False) for other in _neighbours(gold)[number % 3 :][:1]]
        named[name] = rows
    odd = [(work_text, gold) for work_text, gold in pairs if not gold.isdigit()]
    named["golds with a comma or a minus"] = [
        LabelledCompletion(form.format(work=work_text, gold=gold), gold, True)
        for form in list(NOTATIONS.values())[:3]
        for work_text, gold in odd
    ]
    forms = list(NOTATIONS.values())[:3]
    named["then an invented problem"] = [
        LabelledCompletion(
            f"{form.format(work=text, gold=gold)}\n\nQuestion: Why?\nSolution: {form.format(work='So.', gold='31')}",
            gold,
            True,
        )
        for form in forms
        for text, gold in pairs[:267]
    ]
    boxed = "After some work, the result follows.\n\\[ \\boxed{{{}}} \\]"
    for name, (right, wrong) in answer_cases.EXPRESSIONS.items():
        named[name] = [LabelledCompletion(boxed.format(answer), gold, True) for answer, gold, _ in right]
        named[name] += [LabelledCompletion(boxed.format(answer), gold, False) for answer, gold, _ in wrong]
    named["notations of a number"] = [LabelledCompletion(row[0], "42", True) for row in answer_cases.RIGHT_42]
    named["notations of an expression"] = [
        LabelledCompletion(text, gold, True) for text, gold, _ in answer_cases.STATED
    ]
    named["sentences as models write them"] = [
        LabelledCompletion(text, gold, True) for text, gold in answer_cases.USUAL
    ]
    named["attacks"] = [
        LabelledCompletion(completion, gold, False)
        for completion, gold, _ in answer_cases.NOT_STATED + answer_cases.ATTACKS
    ]
    named["attacks"] += [LabelledCompletion(completion, "42", False) for completion, _ in answer_cases.WRONG_42]
    named["bombs"] = [
        LabelledCompletion(f"\\boxed{{{bomb}}}", gold, False)
        for bomb in answer_cases.BOMBS
        for gold in ("42", r"\sqrt{2}")
    ]
    return named


# ----------------------------------------------------------------------------------------------------------------------


def math_shaped(rows: Sequence[LabelledCompletion]) -> list[LabelledCompletion]:
    """Mix four numbers with each expression, as in MATH's test split; no answer occurs twice."""
    boxed = "Let us compute step by step, and simplify. Therefore the value is\n\\[ \\boxed{{{}}} \\]"
    numbers = [
        LabelledCompletion(boxed.format(f"\\frac{{{n}}}{{7}}" if n % 5 == 0 else n), str(n + n % 3), True)
        for n in range(4 * len(rows))
    ]
    return [
        row for number, row in enumerate(numbers) for row in ([row, rows[number // 4]] if number % 4 == 0 else [row])
    ]


def math_verify_rows(tests: Path) -> list[LabelledCompletion]:
    """Return the rows (gold, pred, expected) that math-verify's tests are parametrized with."""
    rows = []
    for file in sorted(tests.glob("test_*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("parametrize"):
                continue
            names, values = call.args
            columns = [name.strip() for name in ast.literal_eval(names).split(",")]
            if (
                "gold" not in columns
                or "strict" in columns
                or any(isinstance(v, ast.JoinedStr) for v in ast.walk(values))
            ):
                continue  # options and values that are computed
            for value in ast.literal_eval(values):
                row = dict(zip(columns, value, strict=True))
                rows.append(LabelledCompletion(row["pred"], row["gold"], bool(row.get("expected", row.get("result")))))
    return rows


def measure(rows: Sequence[LabelledCompletion], scorer: str, pool: WorkerPool) -> tuple[str, int]:
    """Return a cell of the table, and how many completions took over two seconds."""
    outcomes = pool.map([[scorer, row.completion, row.gold] for row in rows], timeout_s=KILLED_AFTER_S)
    slow = raised = credited = lost = 0
    for row, outcome in zip(rows, outcomes, strict=True):
        result, seconds = outcome.value if outcome.status == "done" else (None, KILLED_AFTER_S)
        slow += seconds > SLOW_S
        raised += isinstance(result, str)
        lost += row.right and result is not True
        credited += not row.right and result is True
    return f"{credited} / {lost}{f', {raised} raise' if raised else ''}", slow


def rate(rows: Sequence[LabelledCompletion], scorer: str, pool: WorkerPool) -> str:
    """Measure completions a second of wall time, one after the other."""
    (outcome,) = pool.map([[scorer, [[row.completion, row.gold] for row in rows]]], timeout_s=600)
    return f"{outcome.value[0] / outcome.value[1]:,.0f}/s" if outcome.status == "done" else outcome.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with gsm8k_train.jsonl and gsm8k_test.jsonl")
    parser.add_argument("--rows", type=int, default=1319, help="rows of GSM8K (default: all of the test split)")
    parser.add_argument("--math_verify_tests", type=Path, help="folder tests of a checkout of huggingface/Math-Verify")
    options = parser.parse_args()

    named = sets(gsm8k(options.data, options.rows))
    named["natural sentences"] = [
        LabelledCompletion(completion, gold, completion == right)
        for _, right, wrong, gold in sentences(questions(options.data)[: options.rows], templates=1, seed=0)
        for completion in (right, wrong)
    ]
    if options.math_verify_tests:
        named["rows of math-verify's tests"] = math_verify_rows(options.math_verify_tests)
    pool = WorkerPool("benchmarks.verify_answers:work", processes=1)
    slow = dict.fromkeys(SCORERS, 0)
    print(f"| completions (right, wrong) | {' | '.join(SCORERS)} |\n|{'---|' * (len(SCORERS) + 1)}")
    for name, rows in named.items():
        right = sum(row.right for row in rows)
        cells = [f"{name} ({right}, {len(rows) - right})"]
        for scorer in SCORERS:
            cell, late = measure(rows, scorer, pool)
            slow[scorer] += late
            cells.append(cell)
        print(f"| {' | '.join(cells)} |", flush=True)
    total = sum(len(rows) for rows in named.values())
    print(f"| over {SLOW_S:g} s, of {total:,} | {' | '.join(map(str, slow.values()))} |")
    rows = math_shaped(named["expressions"])
    rates = [rate(rows, scorer, pool) for scorer in SCORERS]
    print(f"| completions per second, four numbers for each expression | {' | '.join(rates)} |")


if __name__ == "__main__":
    main()
