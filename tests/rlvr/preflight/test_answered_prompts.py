"""Prompts that have their own answer in them, as rows of supervised fine-tuning do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset

from rlvr.preflight.answered_prompts import check_last_turns, check_stated_answers
from rlvr.scoring.reward import Reward
from tests.support.run_components import make_components


@pytest.mark.parametrize(
    ("ends", "is_named", "why"),
    [
        ([("assistant", "It is 3."), ("assistant", "It is 5.")], True, "solutions"),
        ([("assistant", "<think>"), ("assistant", "<think>")], False, "the beginning of every answer"),
        ([("user", "Go on."), ("user", "And?")], False, "turns of the user"),
    ],
)
def test_prompts_that_end_in_a_solution_are_named(ends: list[tuple[str, str]], is_named: bool, why: str) -> None:
    prompts = [[{"role": "user", "content": "?"}, {"role": role, "content": text}] for role, text in ends]
    problems = list(check_last_turns(make_components(train=Dataset.from_dict({"prompt": prompts}))))
    assert [(one.kind, one.level) for one in problems] == [("answered-prompt", "warning")] * is_named, why


def compares(completions: list[Any], *, final_answer: list[Any], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


REWARD = Reward("compares", compares, columns=("final_answer",))
SOLUTION = "She has {0} of them, since 3 and 4 more are there. #### {0}"


@pytest.mark.parametrize(
    ("prompt", "answers", "is_named", "why"),
    [
        ("### Instruction:\nHow many?\n\n### Response:\nSo 3 and 4.\n#### {}", range(100, 140), True, "a solution"),
        ("Question: How many?\nAnswer: {}\nEnd with a line that reads: #### N", range(100, 140), True, "an answer"),
        ("How many? The answer is **{}**. Explain.", range(100, 140), True, "in a sentence"),
        ("{}", range(100, 140), True, "the column of the answer"),
        ("How many? {}", [SOLUTION.format(number) for number in range(100, 140)], True, "a gold that is a solution"),
        ("How many of {} apples are there?", range(100, 140), False, "a number of the question"),
        ("#### 101, #### 102. How many?", range(100, 140), False, "examples"),
        ("Is it? End with Answer: yes or Answer: no", ["yes", "no"] * 20, False, "choices that every prompt names"),
        ("Is it?\nA. This\nB. That\nAnswer with A or B.", ["A", "B"] * 20, False, "labels of choices"),
        ("How many? {}", range(100, 104), False, "too few rows"),
    ],
)
@pytest.mark.parametrize("is_chat", [False, True])
def test_prompts_that_state_their_answer_are_named(
    prompt: str, answers: Any, is_named: bool, why: str, is_chat: bool
) -> None:
    golds = [str(answer) for answer in answers]
    texts = [prompt.format(gold) for gold in golds]
    prompts = [[{"role": "user", "content": text}] for text in texts] if is_chat else texts
    components = make_components(train=Dataset.from_dict({"prompt": prompts, "final_answer": golds}))
    problems = list(check_stated_answers(replace(components, rewards=[REWARD], metric=REWARD)))
    assert [(one.kind, one.level) for one in problems] == [("answered-prompt", "warning")] * is_named, why
