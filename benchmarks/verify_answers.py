"""Compare this project's verifier with two others on the same completions: error rates by class, and speed.

    python -m benchmarks.verify_answers --rows 100 --math_verify_tests Math-Verify/tests     # some minutes

The others:
- math-verify, as its README uses it: parse(gold), parse(completion), verify;
- trl.rewards.accuracy_reward, on conversational completions.

Completions: sentences of verify_sentences.py; GSM8K's own solutions in three notations, before another problem; tables
of tests/support/answer_cases.jsonl; the parametrized rows of math-verify's tests, if a checkout has them. Every scorer
runs in a process that is killed after 5 s on one completion, and says nothing of that one.

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
    """Run in a worker: [scorer, completion, gold] -> [right]; [scorer, [[completion, gold], …]] -> [rows, seconds].

    What raises says nothing of the completion.
    """
    scorer = SCORERS[item[0]]
    if isinstance(item[1], list):
        for completion, gold in ((r"\boxed{\sqrt{8}}", r"2\sqrt{2}"), ("#### 1", "1")):
            scorer(completion, gold)  # imports, and our workers
        start = time.perf_counter()
        for completion, gold in item[1]:
            scorer(completion, gold)
        return [len(item[1]), time.perf_counter() - start]
    try:
        return [scorer(item[1], item[2])]
    except Exception:
        return [None]


# ----------------------------------------------------------------------------------------------------------------------
# The completions


@dataclass(frozen=True)
class LabelledCompletion:
    completion: str
    gold: str
    right: bool


NOTATIONS = ("{work}\n#### The final answer is {gold}", "{work}\n#### {gold}", "{work}\nSo it is $\\boxed{{{gold}}}$.")
INVENTED = "\n\nQuestion: Why?\nSolution: "


def gsm8k(folder: Path, most: int) -> list[tuple[str, str]]:
    """Return (worked solution, gold) of GSM8K's test rows, those with a comma or a minus first."""
    one_paragraph = task_module("gsm8k").one_paragraph
    answers = [json.loads(line)["answer"] for line in (folder / "gsm8k_test.jsonl").read_text("utf-8").splitlines()]
    pairs = [(one_paragraph(work), gold.strip()) for work, _, gold in (text.rpartition("####") for text in answers)]
    return sorted(pairs, key=lambda pair: pair[1].isdigit())[:most]


def sets(folder: Path, rows: int) -> dict[str, list[LabelledCompletion]]:
    """Return the completions of each row of the table."""
    named = {
        "natural sentences": [
            LabelledCompletion(completion, gold, completion == right)
            for right, wrong, gold in sentences(questions(folder)[:rows], templates=1, seed=0)
            for completion in (right, wrong)
        ],
        "then an invented problem": [
            LabelledCompletion(
                form.format(work=text, gold=gold) + INVENTED + form.format(work="So.", gold="31"), gold, True
            )
            for form in NOTATIONS
            for text, gold in gsm8k(folder, rows)
        ],
    }
    boxed = "After some work, the result follows.\n\\[ \\boxed{{{}}} \\]"
    for name in ("expressions", "chains"):
        right, wrong = answer_cases.EXPRESSIONS[name]
        named[name] = [LabelledCompletion(boxed.format(answer), gold, True) for answer, gold, _ in right]
        named[name] += [LabelledCompletion(boxed.format(answer), gold, False) for answer, gold, _ in wrong]
    named["attacks"] = [
        LabelledCompletion(completion, gold, False)
        for completion, gold, _ in answer_cases.NOT_STATED + answer_cases.ATTACKS
    ]
    named["attacks"] += [LabelledCompletion(completion, "42", False) for completion, _ in answer_cases.WRONG_42]
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


def measure(rows: Sequence[LabelledCompletion], scorer: str, pool: WorkerPool) -> str:
    """Return a cell of the table."""
    outcomes = pool.map([[scorer, row.completion, row.gold] for row in rows], timeout_s=KILLED_AFTER_S)
    credited = lost = 0
    for row, outcome in zip(rows, outcomes, strict=True):
        result = outcome.value[0] if outcome.status == "done" else None
        lost += row.right and result is not True
        credited += not row.right and result is True
    return f"{credited} / {lost}"


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

    named = sets(options.data, options.rows)
    if options.math_verify_tests:
        named["rows of math-verify's tests"] = math_verify_rows(options.math_verify_tests)
    pool = WorkerPool("benchmarks.verify_answers:work", processes=1)
    print(f"| completions (right, wrong) | {' | '.join(SCORERS)} |\n|{'---|' * (len(SCORERS) + 1)}")
    for name, rows in named.items():
        right = sum(row.right for row in rows)
        cells = [measure(rows, scorer, pool) for scorer in SCORERS]
        print(f"| {name} ({right}, {len(rows) - right}) | {' | '.join(cells)} |", flush=True)
    rows = math_shaped(named["expressions"])
    rates = [rate(rows, scorer, pool) for scorer in SCORERS]
    print(f"| completions per second, four numbers for each expression | {' | '.join(rates)} |")


if __name__ == "__main__":
    main()
