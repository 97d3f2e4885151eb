"""The answers that the reward trial has scored: right ones, a wrong one, and answers without content."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.data.task import Task
from rlvr.environments.proxies import Environments
from rlvr.red_team.attacks import NOISE
from rlvr.red_team.target import REFERENCE_FORMS, answer_column, written_gold
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.results import Scored
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

ROWS_WITH_FORMS = 4  # whose right answers, without a gold, and wrong ones are tried in each of REFERENCE_FORMS
STEP = -1  # what functions see as trainer_state.global_step: training begins at 0
REASONING = "First, 3 + 4 = 7."
WRONG = "987654"  # the right answer of no row that is tried with it

# Answers without content, and what messages call them.
EMPTY_ANSWERS = {"empty": "an empty answer", "noise": f"the noise {NOISE!r}", "prompt": "the repeated prompt"}
WORDS = {
    "gold": "the task's gold",
    "answer": "the row's right answer",
    "reasoned": "a right answer after reasoning",
    "wrong": "a wrong answer",
    "another": "the right answer of another row",
    "guesses": "a list of guesses",
    "number": "an answer with a number",
    **EMPTY_ANSWERS,
}


@dataclass(frozen=True)
class Answer:
    """A completion to try: one of `WORDS` for a row of the training split."""

    kind: str
    row: int
    text: str
    column: str | None = None  # that has the row's right answer, unless "gold" or without content
    form: str | None = None  # one of REFERENCE_FORMS, for "answer"


Values = dict[Answer, list[float | None]]  # of each reward of the scorer


def answers_to_try(task: Task, numbers: Sequence[int], metric: Reward, *, is_played: bool) -> list[Answer]:
    """Each answer to try for these training rows.

    Args:
        metric: gets wrong answers too, if it reads the right ones.
        is_played: whether completions call tools, so that none is right without a call.
    """
    answers = []
    read = columns_read(metric)
    for number in numbers:
        row = task.train[number]
        gold = written_gold(task, row)
        if gold is not None:
            answers.append(Answer("gold", number, str(gold)))
        elif not is_played and number in numbers[:ROWS_WITH_FORMS] and (column := answer_column(row, read)):
            answers += [Answer("answer", number, form.format(row[column]), column, form) for form in REFERENCE_FORMS]
        answers.append(Answer("empty", number, ""))
        answers.append(Answer("noise", number, NOISE))
        prompt = row["prompt"]
        answers.append(Answer("prompt", number, prompt if isinstance(prompt, str) else str(prompt[-1]["content"])))
    if not is_played:
        for number in numbers[:ROWS_WITH_FORMS]:
            answers += _reasoned_answers(task, number, read)
            answers += _wrong_answers(task, number, metric)
            answers += _answers_of_another(task, number, numbers, read)
    return answers


def _reasoned_answers(task: Task, number: int, read: set[str]) -> Iterator[Answer]:
    """The row's right answer after reasoning, in the form of the gold or in the usual ones."""
    row = task.train[number]
    column = answer_column(row, read)
    if column not in read:
        return
    gold = written_gold(task, row)
    if gold is None:
        for form in REFERENCE_FORMS:
            text = form.replace("…", REASONING) if "…" in form else f"{REASONING}\n{form}"
            yield Answer("reasoned", number, text.format(row[column]), column)
    elif str(gold).strip() != str(row[column]).strip():
        yield Answer("reasoned", number, f"{REASONING}\n{gold}", column)


def _wrong_answers(task: Task, number: int, metric: Reward) -> Iterator[Answer]:
    """A wrong number in the form of the row's gold and in the usual ones, longer numbers, and a list of guesses."""
    row = task.train[number]
    read = columns_read(metric)
    column = answer_column(row, read)
    if column not in read or WRONG in (right := str(row[column])):
        return
    gold = written_gold(task, row)
    before, found, after = str(gold).rpartition(right) if gold is not None else ("", "", "")
    if found:
        yield Answer("wrong", number, f"{before}{WRONG}{after}", column)
    for form in REFERENCE_FORMS:
        yield Answer("wrong", number, form.format(WRONG), column)
    if right.isascii() and right.isdigit() and int(right):
        for other in (f"1{right}", f"{right}0", right[0]):
            for form in ("#### {}", "The answer is {}.", "{}"):
                if int(other) != int(right):
                    yield Answer("wrong", number, form.format(other), column)
        yield Answer("guesses", number, f"It may be {WRONG}, {right} or 123456.", column)


def _answers_of_another(task: Task, number: int, numbers: Sequence[int], read: set[str]) -> Iterator[Answer]:
    """The right answer of another row, far from this row's: a reward may look for it in the whole column."""
    row = task.train[number]
    column = answer_column(row, read)
    if column not in read:
        return
    right = str(row[column])
    others = [str(task.train[other][column]) for other in numbers]
    different = [other for other in others if other.strip(" .").casefold() != right.strip(" .").casefold()]
    if different:
        other = max(different, key=lambda one: _distance(one, right))
        for form in REFERENCE_FORMS:
            yield Answer("another", number, form.format(other), column)


def _distance(one: str, other: str) -> float:
    """Of two numbers; 0 for other texts."""
    try:
        return abs(float(one) - float(other))
    except ValueError:
        return 0.0


def paid_form(values: Values, index: int) -> str:
    """The first of the usual forms in which the reward of this index paid for a right answer, or else a sentence."""
    paid = (answer.form for answer, row in values.items() if answer.form and (row[index] or 0.0) > 0)
    return next(paid, "The answer is {}.")


def right_answers(task: Task, rows: Sequence[int], form: str, read: set[str]) -> Iterator[Answer]:
    """The gold of each row, or its right answer in this form if it is in a column that was read."""
    for number in rows:
        row = task.train[number]
        if (gold := written_gold(task, row)) is not None:
            yield Answer("gold", number, str(gold))
        elif (column := answer_column(row, read)) in read:
            yield Answer("answer", number, form.format(row[column]), column)


def score_answers(
    task: Task,
    answers: Sequence[Answer],
    scorer: Scorer,
    environments: Environments | None,
    skipped: Collection[str],
    *,
    as_text: bool = False,
) -> Scored:
    """Score answers; with `as_text`, as plain text even where completions are chat messages."""
    rows = [task.train[answer.row] for answer in answers]
    completions: list[Any] = [
        [{"role": "assistant", "content": answer.text}] if task.is_chat and not as_text else answer.text
        for answer in answers
    ]
    columns = {name: [row[name] for row in rows] for name in task.train.column_names if name != "prompt"}
    if environments is not None:
        columns[ENVIRONMENTS] = environments.reset(rows, STEP)
    token_ids: list[list[int]] = [[0] * len(answer.text) for answer in answers]  # only their lengths differ
    prompts = [row["prompt"] for row in rows]
    return scorer.score(prompts, completions, columns, completion_ids=token_ids, step=STEP, skipped=skipped)
