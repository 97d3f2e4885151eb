"""Repeated prompts, small held-out splits and a metric that is trained against bring warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from datasets import Dataset

from rlvr.config.specs import EvaluationSpec
from rlvr.errors import Problem
from rlvr.preflight.check import check_components
from rlvr.preflight.measurement_checks import (
    GOOD_HALF_WIDTH,
    MAX_HALF_WIDTH,
    check_equal_golds,
    check_metric_weight,
    check_missing_golds,
    check_repeated_prompts,
    half_width,
    rows_needed,
)
from rlvr.scoring.reward import Reward
from tests.support.run_components import make_components, rows


def prompts(texts: list[str]) -> Dataset:
    return Dataset.from_dict({"prompt": texts, "final_answer": [f"to {text}" for text in texts]})


def kinds(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.kind, problem.level) for problem in problems]


@pytest.mark.parametrize("split", ["train", "test"])
def test_repeated_prompts_are_counted_with_an_example_row(split: str) -> None:
    repeated = prompts(["once?", *(f"{row % 4}?" for row in range(159))])
    components = make_components(train=repeated) if split == "train" else make_components(test=repeated)
    [problem] = check_components(components).problems
    assert kinds([problem]) == [("repeated-prompt", "warning")]
    assert (problem.key, problem.row) == ("prompt", 1)
    assert split in problem.message and "155 of 160" in problem.message and "40 times" in problem.message


REPEATED = [
    # second prompt, second gold, kinds, why
    ("What is 1 + 1?", "2", ["repeated-prompt"], "the same"),
    ("what is  1 + 1?\n", "2", ["repeated-prompt"], "case and white space differ, as for the split"),
    ("What is 1 + 1?", "3", ["repeated-prompt", "different-golds"], "another gold"),
    ("What is 1 + 2?", "3", [], "another prompt"),
]


@pytest.mark.parametrize("is_chat", [False, True])
@pytest.mark.parametrize(("prompt", "gold", "expected", "why"), REPEATED, ids=[row[-1] for row in REPEATED])
def test_golds_of_a_repeated_prompt_must_agree(
    prompt: str, gold: str, expected: list[str], why: str, is_chat: bool
) -> None:
    texts = ["What is 1 + 1?", *(f"What is {row} + 5?" for row in range(158)), prompt]
    data = [[{"role": "user", "content": text}] for text in texts] if is_chat else texts
    train = Dataset.from_dict({"prompt": data, "final_answer": ["2", *(str(row + 5) for row in range(158)), gold]})
    for column in ("final_answer", "answer"):
        renamed = Dataset.from_dict({"prompt": train["prompt"][:], column: train["final_answer"][:]})
        problems = list(check_repeated_prompts(make_components(train=renamed, columns=(column,))))
        assert [problem.kind for problem in problems] == expected, why
        if len(expected) == 2:
            assert (problems[1].key, problems[1].row) == (column, 0) and "rows 0 and 159" in problems[1].message


@pytest.mark.parametrize(
    ("available", "used", "is_small", "why"),
    [
        (40, None, True, "a small split"),
        (200, 40, True, "a large split of which few rows are used"),
        (93, None, False, "just enough"),
        (92, None, True, "one row too few"),
    ],
)
def test_too_few_held_out_rows_for_an_interval_are_warned_of(
    available: int, used: int | None, is_small: bool, why: str
) -> None:
    components = make_components(test=rows(available, start=500), evaluation=EvaluationSpec(rows=used))
    problems = check_components(components).problems
    assert kinds(problems) == ([("small-split", "warning")] if is_small else []), why
    for problem in problems:
        half = f"{100 * half_width(used or available):.0f} points"
        assert problem.key == "evaluation.split" and all(part in problem.message for part in (half, "93", "381")), why


def test_more_rows_to_measure_than_there_are_are_warned_of() -> None:
    components = make_components(test=rows(100, start=500), evaluation=EvaluationSpec(rows=101))
    [problem] = check_components(components).problems
    assert (problem.kind, problem.level, problem.key) == ("too-few-rows", "warning", "evaluation.rows")


@pytest.mark.parametrize(
    ("tokens", "gold", "expected", "why"),
    [
        (4, "2", ["short-answers"], "far below the 40 of training"),
        (20, "2", [], "half of them"),
        (30, "2 " * 20, ["gold-too-long"], "no gold fits, though it fits into training"),
        (60, "2 " * 20, [], "as in training"),
    ],
)
def test_answers_that_an_evaluation_cuts_off_are_warned_of(
    tokens: int, gold: str, expected: list[str], why: str
) -> None:
    components = make_components(
        {"max_completion_length": 60 if " " in gold else 40},
        evaluation=EvaluationSpec(max_new_tokens=tokens),
        gold=lambda row: gold,
    )
    problems = check_components(components).problems
    assert [(one.kind, one.key) for one in problems] == [(kind, "evaluation.max_new_tokens") for kind in expected], why


def test_the_rows_needed_are_the_fewest_for_an_interval() -> None:
    for width in (MAX_HALF_WIDTH, GOOD_HALF_WIDTH):
        assert half_width(rows_needed(width)) <= width < half_width(rows_needed(width) - 1)


@pytest.mark.parametrize(("weight", "expected"), [(-1.0, [("negative-metric", "warning")]), (1.0, []), (0.0, [])])
def test_a_metric_with_a_negative_weight_is_warned_of(weight: float, expected: list[tuple[str, str]]) -> None:
    metric = Reward("right", lambda **kwargs: [], columns=("final_answer",), weight=weight)
    other = Reward("other", lambda **kwargs: [], weight=1.0)
    components = replace(make_components(), rewards=[metric, other], metric=metric)
    problems = check_components(components).problems
    assert kinds(problems) == expected and all("right" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("columns", "weight", "expected"),
    [
        (("final_answer",), -1.0, [("negative-verifier", "warning")]),
        (("final_answer",), 0.5, [("blind-metric", "warning")]),
        ((), -1.0, []),
    ],
)
def test_a_verifier_that_is_trained_against_is_warned_of(
    columns: tuple[str, ...], weight: float, expected: list[tuple[str, str]]
) -> None:
    """Its sign moves the metric to another reward."""
    verifier = Reward("right", lambda **kwargs: [], columns=columns, weight=weight)
    metric = Reward("format", lambda **kwargs: [], weight=0.6)
    components = replace(make_components(), rewards=[verifier, metric], metric=metric)
    assert kinds(check_components(components).problems) == expected


@pytest.mark.parametrize(
    ("columns", "expected", "why"),
    [
        ((), ["blind-metric"], "a format alone"),
        (("answer",), [], "it compares with a column of another name"),
        (("final_answer",), [], "it compares with the gold"),
    ],
)
@pytest.mark.parametrize("label", ["", "sums"])
@pytest.mark.parametrize("weight", [1.0, 0.0], ids=["rewarded", "only watched"])
@pytest.mark.parametrize("gold", ["final_answer", "answer", "solution", "target", "tests"])
def test_a_metric_that_reads_the_text_alone_is_warned_of(
    columns: tuple[str, ...], expected: list[str], why: str, label: str, weight: float, gold: str
) -> None:
    metric = Reward("format", lambda **kwargs: [], columns=columns)
    verifier = Reward("right", lambda **kwargs: [], columns=(gold,), applies_to=("sums",) if label else None)
    verifier.weight = weight
    components = replace(make_components(), rewards=[metric, verifier], metric={label: metric} if label else metric)
    problems = list(check_metric_weight(components))
    assert [problem.kind for problem in problems] == expected, why
    assert all("right" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("golds", "is_warned", "why"),
    [
        (["sums"] * 40, True, "the wrong column"),
        (["yes"] * 39 + ["no"], False, "two answers"),
        (["2"] * 19, False, "few rows"),
    ],
)
def test_golds_that_are_all_equal_bring_a_warning(golds: list[str], is_warned: bool, why: str) -> None:
    train = Dataset.from_dict({"prompt": [f"{row}?" for row in range(len(golds))], "final_answer": golds})
    problems = list(check_equal_golds(make_components(train=train)))
    assert kinds(problems) == [("equal-golds", "warning")] * is_warned, why
    assert all("'sums'" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("golds", "columns", "missing", "why"),
    [
        (["1", None, "3"], ("answer",), [1], "a null"),
        (["1", "2", " "], ("answer",), [2], "white space"),
        (["1", None, "3"], ("level",), [], "no reward reads it"),
        ([None, None, None], ("answer",), [], "a column of another task"),
        (["1", "2", "3"], ("answer",), [], "all there"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_without_a_gold_are_named(
    golds: list[str | None], columns: tuple[str, ...], missing: list[int], why: str, split: str
) -> None:
    data = Dataset.from_dict({"prompt": ["a?", "b?", "c?"], "answer": golds, "level": ["x"] * 3})
    complete = Dataset.from_dict({"prompt": ["d?"], "answer": ["4"], "level": ["x"]})
    components = make_components(**{"train": complete, "test": complete, split: data}, columns=columns)
    problems = list(check_missing_golds(components))
    assert [(one.kind, one.level, one.row) for one in problems] == [
        ("missing-gold", "warning", row) for row in missing
    ], why
    assert all("answer" in one.message and split in one.message for one in problems)
