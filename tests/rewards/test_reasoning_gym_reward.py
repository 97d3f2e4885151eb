"""The reward that asks the verifier of a reasoning-gym dataset."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rewards.reasoning_gym import reasoning_gym
from rlvr.data.io import unpack
from rlvr.verifiers.completion_text import tagged_answer
from rlvr.verifiers.evaluated_answers import EVALUATED_AS_EXPRESSION, EVALUATED_AS_LITERAL
from tasks.reasoning_gym import reasoning_gym as task
from tests.support.cases import cases


@pytest.mark.parametrize(("completion", "answer", "why"), cases(__file__, "takes the answer out"))
def test_takes_the_answer_out_of_the_own_turn(completion: str, answer: str | None, why: str) -> None:
    assert tagged_answer(completion) == answer, why


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset", ["chain_sum", "leg_counting", "word_sorting", "countdown", "arc_agi", "rearc", "n_queens"]
)
def test_the_packages_own_solution_scores_1_and_nonsense_less(dataset: str) -> None:
    rows = task(dataset=dataset, train_rows=3, test_rows=2).train
    right = [f"So it is:\n<answer>{answer}</answer>" for answer in rows["final_answer"]]
    assert score(right, rows["entry"]) == [1.0] * 3
    assert score([[{"role": "assistant", "content": text}] for text in right], rows["entry"]) == [1.0] * 3
    assert all(value is not None and value < 0.5 for value in score(["<answer>nonsense</answer>"] * 3, rows["entry"]))
    assert score(["I don't know"] * 3, rows["entry"]) == [0.0] * 3


@pytest.mark.parametrize(
    ("dataset", "constants"),
    [
        ("coin_flip", ("0", "0.0", "1", "1/2")),
        ("complex_arithmetic", ("nan", "nan+nani", "inf", "-inf")),
        ("game_of_life_halting", ("x", "False or True", "true", "0")),
    ],
)
def test_a_constant_earns_no_more_than_where_it_is_right(dataset: str, constants: tuple[str, ...]) -> None:
    rows = task(dataset=dataset, train_rows=40, test_rows=1).train
    right = [f"<answer>{answer}</answer>" for answer in rows["final_answer"]]
    assert score(right, rows["entry"]) == [1.0] * 40
    for constant in constants:
        earned = score([f"<answer>{constant}</answer>"] * 40, rows["entry"])
        assert sum(value or 0.0 for value in earned) <= 4, constant


def test_verifies_by_the_options_of_the_task() -> None:
    options = {"datasets": [{"name": "chain_sum", "weight": 1.0, "config": {}}]}
    rows = task(dataset="composite", options=options, train_rows=3, test_rows=1).train
    assert score([f"<answer>{answer}</answer>" for answer in rows["final_answer"]], rows["entry"]) == [1.0] * 3


def test_partial_credit_can_be_switched_off() -> None:
    rows = task(dataset="chain_sum", train_rows=1, test_rows=1).train
    verbose = [f"<answer>It is {rows['final_answer'][0]}, I think.</answer>"]
    assert score(verbose, rows["entry"]) != [0.0]
    assert reasoning_gym([""], verbose, entry=list(rows["entry"]), exact=True) == [0.0]


def score(completions: Sequence[object], entry: Sequence[str]) -> list[float | None]:
    return reasoning_gym([""] * len(completions), list(completions), entry=list(entry))


# ── Verifiers that run the answer as Python ─────────────────────────────────────────────────────────────────────────

HOSTILE = [
    ("open(MARK, chr(119))", "a call"),
    ("[open(MARK, chr(119))]", "a call inside a list"),
    ("__import__('os').system('touch MARK')", "an import"),
    ("().__class__.__base__.__subclasses__()", "an attribute"),
    ("exec(chr(120))", "a builtin without a quote or an underscore"),
    ("exit()", "would end the run"),
    ("9**9**9**9", "a tower of powers"),
    ("(((((9**99)**99)**99)**99)**99)", "a tower in brackets"),
    ("2**(10**9)", "a huge exponent"),
    ("9" * 400, "a long number"),
    ("x.y", "an attribute of a variable"),
    ("lambda: 1", "a function"),
    ("factorial(99999)", "a function that takes long"),
    ("[" * 10_000, "nesting that overflows a parser"),
]


@functools.cache
def problem_of(dataset: str) -> dict[str, Any]:
    return task(dataset=dataset, train_rows=8, test_rows=1).train[0]


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(EVALUATED_AS_LITERAL | EVALUATED_AS_EXPRESSION))
@pytest.mark.parametrize(("answer", "why"), HOSTILE)
def test_a_hostile_answer_is_never_evaluated(dataset: str, answer: str, why: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    answer = answer.replace("MARK", repr(str(mark)) if "open" in answer else str(mark))
    problem = problem_of(dataset)
    started = time.process_time()
    assert reasoning_gym(["p"], [f"<answer>{answer}</answer>"], entry=[problem["entry"]])[0] in (0.0, 0.01, 0.05)
    assert not mark.exists(), why
    assert time.process_time() - started < 5, why


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["countdown", "puzzle24"])
@pytest.mark.parametrize(("form", "why"), cases(__file__, "arithmetic with other numbers"))
def test_arithmetic_with_other_numbers_is_wrong(dataset: str, form: str, why: str) -> None:
    row = task(dataset=dataset, train_rows=1, test_rows=1).train[0]
    numbers = [str(number) for number in unpack(row["entry"])["item"]["metadata"]["numbers"]]
    target = unpack(row["entry"])["item"]["metadata"].get("target", 24)
    answer = form.format(sum="+".join(numbers), digits="".join(numbers), target=target)
    assert score([f"<answer>{answer}</answer>"], [row["entry"]]) == [0.0], why


def test_a_mixture_of_datasets_is_guarded_as_its_parts_are(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mixture = {"datasets": [{"name": "puzzle24", "weight": 1, "config": {}}]}
    entry = task(dataset="composite", options=mixture, train_rows=2, test_rows=1).train[0]["entry"]
    hostile = f"<answer>open({str(mark)!r}, chr(119))</answer>"
    assert reasoning_gym(["p"], [hostile], entry=[entry])[0] < 1
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(EVALUATED_AS_LITERAL | EVALUATED_AS_EXPRESSION))
def test_right_answers_of_guarded_datasets_still_earn_everything(dataset: str) -> None:
    rows = task(dataset=dataset, train_rows=16, test_rows=1).train
    answers = [unpack(row["entry"])["item"]["answer"] for row in rows]
    completions = [f"<answer>{answer}</answer>" for answer in answers]
    assert reasoning_gym([""] * len(rows), completions, entry=list(rows["entry"])) == [1.0] * len(rows)


def test_every_verifier_of_the_package_that_evaluates_an_answer_is_guarded() -> None:
    """Reads the package's source: a new version that evaluates answers elsewhere fails here."""
    import importlib.util

    spec = importlib.util.find_spec("reasoning_gym")
    assert spec is not None and spec.origin is not None
    evaluates = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(\s*(?:user_)?(?:answer|solution|response)\b")
    found = {
        file.stem
        for file in Path(spec.origin).parent.rglob("*.py")
        if evaluates.search(file.read_text(encoding="utf-8"))
    }
    assert found == EVALUATED_AS_LITERAL | EVALUATED_AS_EXPRESSION
