"""Compare this project's verifier with three others on the same completions: error rates and speed.

    python -m benchmarks.verify_answers                    # about ten minutes on one core
    python -m benchmarks.verify_answers --rows 200         # fewer rows of GSM8K: about six

The others:
- math-verify, as its README uses it: parse(gold), parse(completion), verify;
- trl.rewards.accuracy_reward, on conversational completions;
- regex: the reward of the published GSM8K sample, as its text describes it: the first number behind the first `####`,
  without commas, as a float, within 0.001 of the gold's.

Completions: GSM8K's own solutions in six notations (from ../shared/data or --data FOLDER; made-up word problems of the
same shape where that is missing), each against its own gold, the next row's and the gold's neighbours; the tables of
tests/support/answer_cases.py (expressions, hedges, attacks, bombs). Every scorer runs in a process that is killed after
5 s on one completion, and says nothing of that one.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.workers.pool import WorkerPool
from tests.support import answer_cases

PROJECT = Path(__file__).resolve().parents[1]
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


_FIRST_NUMBER = re.compile(r"####.*?([\d,]+(?:\.\d+)?)")


def _regex(completion: str, gold: str) -> bool | None:
    match = _FIRST_NUMBER.search(completion)
    try:
        return match is not None and abs(float(match[1].replace(",", "")) - float(gold)) < 1e-3
    except ValueError:
        return False


SCORERS: dict[str, Callable[[str, str], bool | None]] = {
    "this project": _ours,
    "math-verify": _math_verify,
    "trl accuracy_reward": _trl,
    "regex of the sample": _regex,
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
    from rlvr.scoring.registry import task_module

    one_paragraph = task_module("gsm8k").one_paragraph
    file = folder / "gsm8k_test.jsonl"
    if file.is_file():
        answers = [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").split("\n") if line]
        pairs = [(one_paragraph(work), gold.strip()) for work, _, gold in (text.rpartition("####") for text in answers)]
    else:
        print(f"(no {file}: made-up problems instead)")
        pairs = [
            (f"There are {n} boxes with {n + 7} pens each. That is {n} * {n + 7} = {n * (n + 7)} pens. Take some away.",
             f"{n * (n + 7) - n * 100:,}")
            for n in range(3, 1303)
        ]  # fmt: skip
    pairs.sort(key=lambda pair: pair[1].isdigit())
    return pairs[:most]


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
            gold, True)
        for form in forms for text, gold in pairs[:267]
    ]  # fmt: skip
    boxed = "After some work, the result follows.\n\\[ \\boxed{{{}}} \\]"
    named["expressions"] = [
        LabelledCompletion(boxed.format(answer), gold, True) for answer, gold, _ in answer_cases.RIGHT
    ]
    named["expressions"] += [
        LabelledCompletion(boxed.format(answer), gold, False) for answer, gold, _ in answer_cases.WRONG
    ]
    named["statements"] = [LabelledCompletion(completion, gold, True) for completion, gold, _ in answer_cases.STATED]
    named["statements"] += [LabelledCompletion(completion, "42", True) for completion, _ in answer_cases.RIGHT_42]
    named["statements"] += [LabelledCompletion(completion, gold, True) for completion, gold in answer_cases.USUAL]
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


def measure(rows: Sequence[LabelledCompletion], scorer: str, pool: WorkerPool) -> tuple[str, int]:
    """Return a cell of the table, and the number of completions over two seconds."""
    outcomes = pool.map([[scorer, row.completion, row.gold] for row in rows], timeout_s=KILLED_AFTER_S)
    wrong = {"false positives": 0, "false negatives": 0, "raised": 0, "unsaid": 0}
    slow = 0
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome.status != "done":
            slow += 1
            wrong["false negatives"] += row.right
            continue
        result, seconds = outcome.value
        slow += seconds > SLOW_S
        if isinstance(result, str):
            wrong["raised"] += 1
        elif result is None:
            wrong["unsaid"] += 1
        elif result and not row.right:
            wrong["false positives"] += 1
        elif not result and row.right:
            wrong["false negatives"] += 1
    accuracy = 100 * (1 - sum(wrong.values()) / len(rows))
    shown = ", ".join(f"{count} {name}" for name, count in wrong.items() if count)
    return f"{accuracy:6.2f} %{f'  ({shown})' if shown else ''}", slow


def rate(rows: Sequence[LabelledCompletion], scorer: str, pool: WorkerPool) -> str:
    """Measure completions a second of wall time, one after the other."""
    (outcome,) = pool.map([[scorer, [[row.completion, row.gold] for row in rows]]], timeout_s=600)
    return f"{outcome.value[0] / outcome.value[1]:,.0f}/s" if outcome.status == "done" else outcome.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="folder with gsm8k_test.jsonl"
    )
    parser.add_argument("--rows", type=int, default=1319, help="rows of GSM8K (default: all of the test split)")
    parser.add_argument("--scorers", nargs="*", choices=[*SCORERS], default=[*SCORERS])
    options = parser.parse_args()

    pairs = gsm8k(options.data, options.rows)
    named = sets(pairs)
    pool = WorkerPool("benchmarks.verify_answers:work", processes=1)
    slow = dict.fromkeys(options.scorers, 0)
    for name, rows in named.items():
        right = sum(row.right for row in rows)
        print(f"\n{name}: {right} right, {len(rows) - right} wrong")
        for scorer in options.scorers:
            cell, late = measure(rows, scorer, pool)
            slow[scorer] += late
            print(f"  {scorer:<22}{cell}", flush=True)
    total = sum(len(rows) for rows in named.values())
    print(f"\nover {SLOW_S:g} s, of {total:,} completions")
    for scorer in options.scorers:
        print(f"  {scorer:<22}{slow[scorer]}")
    for name, rows in (
        ("completions a second, GSM8K, '#### The final answer is N'", named["#### The final answer is N"]),
        ("completions a second, MATH-shaped", math_shaped(named["expressions"])),
    ):
        print(f"\n{name}")
        for scorer in options.scorers:
            few = rows[:400]
            if scorer in ("this project", "regex of the sample"):
                # Enough for a clock to see; a group's completions share their gold, so repeating is no advantage.
                few = rows * (20_000 // len(rows) + 1) if "GSM8K" in name else rows
            print(f"  {scorer:<22}{rate(few, scorer, pool)}", flush=True)


if __name__ == "__main__":
    main()
