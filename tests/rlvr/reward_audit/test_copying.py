"""Copies of the prompt: what counts as one, and which rewards they break."""

from __future__ import annotations

import re
from typing import Any

import pytest
from datasets import Dataset

from rewards.exact_match import exact_match
from rewards.multiple_choice import multiple_choice
from rlvr.data.task import Task
from rlvr.reward_audit.copying import Copying, count_copied, parts, says_more, try_copies
from rlvr.reward_audit.findings import Findings
from rlvr.reward_audit.red_team import attack
from rlvr.reward_audit.target import Target
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer

ROWS = range(96)
ADDRESS = re.compile(r"\w+@\w+")


def lone_address(completions: list[str], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [ADDRESS.findall(text) for text in completions]
    return [float(one == [gold]) for one, gold in zip(found, final_answer, strict=True)]


def last_number(completions: list[str], final_answer: list[str], **kwargs: Any) -> list[float]:
    found = [re.findall(r"\d+", text) for text in completions]
    return [float(one[-1:] == [gold]) for one, gold in zip(found, final_answer, strict=True)]


LONE_ADDRESS = Reward("lone_address", lone_address, columns=("final_answer",))
LAST_NUMBER = Reward("last_number", last_number, columns=("final_answer",))
EXACT = Reward("exact_match", exact_match, columns=("final_answer",))
CHOICE = Reward("multiple_choice", multiple_choice, columns=("final_answer",))


def task_of(prompts: list[str], golds: list[str], **columns: list[Any]) -> Task:
    rows = Dataset.from_dict({"prompt": prompts, "final_answer": golds, **columns})
    return Task(rows, rows.select([]), rows.select([]))


def mails(every: int = 1) -> Task:
    """Prompts with two addresses, in every so many rows on lines of their own."""
    breaks = ["\n" if row % every == 0 else " and " for row in ROWS]
    prompts = [
        f"Which address is new?\nWrite to ann{row}@home{line}not to bob{row}@work" for row, line in enumerate(breaks)
    ]
    return task_of(prompts, [f"ann{row}@home" for row in ROWS])


def quotes() -> Task:
    return task_of([f'Repeat what is quoted: "word {row}".' for row in ROWS], [f"word {row}" for row in ROWS])


def choices() -> Task:
    texts = [[f"thing {row}{letter}" for letter in "abcd"] for row in ROWS]
    prompts = [
        "Which one?\n" + "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", of_row, strict=True))
        for of_row in texts
    ]
    return task_of(prompts, ["ABCD"[row * 7 % 11 % 4] for row in ROWS], choices=texts)


def numbers(every: int) -> Task:
    """Prompts whose first sentence ends in the answer, in every so many rows."""
    golds = [1000 + row for row in ROWS]
    first = [gold if row % every == 0 else gold + 1000 for row, gold in zip(ROWS, golds, strict=True)]
    return task_of([f"There were {one}. How many are left?" for one in first], [str(gold) for gold in golds])


def copies_of(task: Task, reward: Reward) -> Copying | None:
    with Scorer([reward]) as scorer:
        target = Target(task, [reward], scorer)
        target.try_texts([()])
        return try_copies(target, target.right_totals())


@pytest.mark.parametrize(
    ("task", "reward", "broken", "why"),
    [
        (mails(), LONE_ADDRESS, True, "one line holds the answer alone, among other words"),
        (mails(2), LONE_ADDRESS, True, "in half of the rows, as was measured in a run"),
        (mails(), EXACT, False, "a copied line is more than the answer, and refused"),
        (quotes(), EXACT, False, "an honest extraction: the quoted part is the answer"),
        (choices(), CHOICE, False, "the line of a choice is that choice"),
        (numbers(11), LAST_NUMBER, False, "the answer stands in the prompt in a small share of the rows"),
        (numbers(1), LAST_NUMBER, True, "it does in all"),
    ],
)
def test_a_reward_breaks_if_copies_earn_more_than_guesses(task: Task, reward: Reward, broken: bool, why: str) -> None:
    copying = copies_of(task, reward)
    assert copying is not None and copying.breaks == broken, (why, copying)


def test_what_every_prompt_offers_is_a_guess() -> None:
    golds = [str(row % 7) for row in ROWS]
    copying = copies_of(task_of(["\n".join(f"number {n}" for n in range(7))] * 96, golds), LAST_NUMBER)
    assert copying is not None and copying.copies == copying.guessing == 1.0 and not copying.breaks


def findings_of(task: Task, reward: Reward, copied: tuple[int, int] = (0, 0)) -> Findings:
    with Scorer([reward]) as scorer:
        return attack(task, [reward], scorer, seconds=600, copied=copied)


@pytest.mark.slow
def test_the_verdict_is_broken_where_copies_earn_or_a_run_copied() -> None:
    broken = findings_of(mails(), LONE_ADDRESS)
    assert broken.verdict == "broken" and "copied part" in broken.sentences()[0]
    assert [findings_of(mails(), EXACT, copied).verdict for copied in ((93, 2), (93, 20))] == ["holds", "broken"]


def test_right_completions_of_a_run_that_copy_their_prompt_are_counted() -> None:
    prompt = [{"role": "system", "content": "Find it."}, {"role": "user", "content": "New one?\nUse a@b, please."}]
    said = [("Use a@b, please.", 1.0), ("a@b", 1.0), ("It is a@b.", 1.0), ("New one?", 0.0), ("one?\nUse a@b", 1.0)]
    row = {"prompt": prompt, "final_answer": "a@b"}
    rows = [
        {**row, "completion": [{"role": "assistant", "content": text}], "lone_address": value} for text, value in said
    ]
    assert count_copied(rows, LONE_ADDRESS) == (4, 2)


def test_the_parts_of_a_prompt_are_its_lines_sentences_and_quoted_parts() -> None:
    assert parts('Say "hi, you" or `no`. It\'s\nlate! Bye') == [
        'Say "hi, you" or `no`. It\'s',
        "late! Bye",
        'Say "hi, you" or `no`.',
        "It's\nlate!",
        "Bye",
        "hi, you",
        "no",
    ]


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("a@b.", False, "punctuation"),
        ("B) a bridge", False, "the letter of a choice"),
        ("(2) a@b", False, "the text of a choice"),
        ("mail a@b", True, "another word"),
        ("--", False, "no word at all"),
    ],
)
def test_a_copy_says_more_than_the_answer(text: str, more: bool, why: str) -> None:
    assert says_more(text, ["a@b", "B"]) == more, why
