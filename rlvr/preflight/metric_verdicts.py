"""What the scores of the tried answers say about the metric: right answers alone should be right to it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rlvr.data.task import Task
from rlvr.errors import Level, Problem
from rlvr.formatting import count
from rlvr.preflight.answered_prompts import prompt_text
from rlvr.preflight.trial_answers import EMPTY_ANSWERS, Answer, Values
from rlvr.preflight.trial_verdicts import MAX_SHOWN, explain_answer, reads_data, which
from rlvr.red_team.target import NOT_GOLD
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read

MOST_WRONG_GOLDS = 0.1  # share of the golds; above it, the reward does not fit the task
MOST_BY_CHANCE = 0.5  # share of the rows in which the same answer may be right; more if most golds are the same
# What a prompt that asks for a form has in it. "The answer is" comes without being asked for.
_MARKS = ("####", "boxed", "<answer>")
_WITHOUT_CONTENT = "Return 0 for an answer without content."
_EMPTY_FIXES = {
    "empty": _WITHOUT_CONTENT,
    "noise": _WITHOUT_CONTENT,
    "prompt": "Leave the answer out of the prompt; if it names choices, look at the completion's last line alone.",
}


def metric_problems(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """Answers that the metric, the reward of this index, takes as right or wrong against expectation."""
    # A metric that reads a column compares with the data, so its verdict on golds is certain. One that looks at the
    # text alone may want something that no gold of the task has.
    level: Level = "error" if reads_data(metric, task) else "warning"
    for kind, words in EMPTY_ANSWERS.items():
        scores = {answer.row: row[index] or 0.0 for answer, row in values.items() if answer.kind == kind}
        right = [row for row, score in scores.items() if score >= 1]
        if right:
            message = f"{metric.name} takes {words} as right in {which(right, len(scores))}. {_EMPTY_FIXES[kind]}"
            by_chance = len(right) <= _share_by_chance(metric, task, list(scores)) * len(scores)
            of_kind: Level = "warning" if by_chance else level
            yield Problem(message, "accepted-noise", f"rewards.{metric.name}", row=right[0], level=of_kind)
    golds = {answer.row: row[index] for answer, row in values.items() if answer.kind == "gold"}
    wrong = [row for row, score in golds.items() if score is not None and score < 1]
    if wrong:
        message = (
            f"{metric.name} takes the task's own gold as wrong in {which(wrong, len(golds))}: such a row trains the "
            "wrong thing. Do the rewards fit the task (answer format, options)?"
        )
        answer = next(one for one in values if one.kind == "gold" and one.row == wrong[0])
        lines = explain_answer(metric, task, answer)
        if lines:
            message += f" Row {wrong[0]}, by scripts/score.py --why:\n" + "\n".join(lines)
        level = "warning" if len(wrong) <= len(golds) * MOST_WRONG_GOLDS else level
        yield Problem(message, "refused-gold", f"rewards.{metric.name}", row=wrong[0], level=level)
    yield from (
        list(_accepted_wrong(metric, index, task, values))
        or list(_accepted_another(metric, index, task, values))
        or [*_above_one(metric, index, task, values), *_unpaid_forms(metric, index, task, values)]
    )
    guesses = _accepted("guesses", index, values)
    if guesses:
        tried = {answer.row for answer in values if answer.kind == "guesses"}
        yield Problem(
            f"{metric.name} takes a list of guesses as right in {which(sorted(guesses), len(tried))}, such as "
            f"{guesses[min(guesses)].text!r}. Training finds that out. Compare one final answer, rather than look for "
            "the gold in the text.",
            "accepted-guesses",
            f"rewards.{metric.name}",
            row=min(guesses),
            level="warning",
        )
    yield from _below_one(metric, index, values)
    yield from _unpaid_after_reasoning(metric, index, task, values)


def _share_by_chance(metric: Reward, task: Task, numbers: Sequence[int]) -> float:
    """The share of the rows for which one and the same answer may be right.

    A choice in the prompt is the right answer of some rows, and noise may have the form that a row asks for.
    """
    read = sorted(columns_read(metric) & set(task.train.column_names) - NOT_GOLD)
    golds = Counter(str([task.train[number][column] for column in read]) for number in numbers)
    return max(MOST_BY_CHANCE, max(golds.values()) / len(numbers) if len(golds) > 1 else 0.0)


def _accepted(kind: str, index: int, values: Values) -> dict[int, Answer]:
    """The first answer of this kind that counts as right, by row: in the form of the gold, if there is one."""
    return {
        answer.row: answer
        for answer, row in reversed(values.items())
        if answer.kind == kind and (row[index] or 0.0) >= 1
    }


def _accepted_wrong(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """Well-formed wrong answers that count as right, for example since the form alone earns 1."""
    tried = {answer.row for answer in values if answer.kind == "wrong"}
    accepted = _accepted("wrong", index, values)
    if not accepted:
        return
    first = min(accepted)
    answer = accepted[first]
    gold = task.train[first][answer.column]
    shown = answer.text if len(answer.text) <= MAX_SHOWN else f"…{answer.text[-MAX_SHOWN:]}"
    yield Problem(
        f"{metric.name} takes a wrong answer as right in {which(sorted(accepted), len(tried))}: it returns "
        f"{values[answer][index]:.3g} for {shown!r}, where {answer.column} is {gold!r:.{MAX_SHOWN}}. An "
        "accuracy counts every answer with 1 or more. Return 1 for right answers alone, in the order of the "
        "completions, and pay for the form in a reward of its own.",
        "accepted-wrong",
        f"rewards.{metric.name}",
        row=first,
        level="error" if len(accepted) == len(tried) else "warning",
    )


def _accepted_another(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """Right answers of other rows that count as right. A reward that can do without the column may mean it."""
    tried = {answer.row for answer in values if answer.kind == "another"}
    accepted = _accepted("another", index, values)
    if not accepted:
        return
    answer = accepted[min(accepted)]
    yield Problem(
        f"{metric.name} takes the right answer of another row as right in {which(sorted(accepted), len(tried))}: it "
        f"returns {values[answer][index]:.3g} for {answer.text!r:.{MAX_SHOWN}}, where {answer.column} is "
        f"{task.train[answer.row][answer.column]!r:.{MAX_SHOWN}}. Either it looks at the form alone, or it finds the "
        "answer in the whole column: compare each completion with the entry of its own row, "
        f"zip(completions, {answer.column}).",
        "accepted-another",
        f"rewards.{metric.name}",
        row=answer.row,
        level="error" if len(accepted) == len(tried) and answer.column in metric.columns else "warning",
    )


def _below_one(metric: Reward, index: int, values: Values) -> Iterator[Problem]:
    """Rows whose right answer the metric pays for, but in no form as much as an accuracy counts."""
    most: dict[int, float] = {}
    for answer, row in values.items():
        if answer.kind == "answer" and answer.column in columns_read(metric):
            most[answer.row] = max(most.get(answer.row, -math.inf), row[index] or 0.0)
    # A metric that is 0 for everything, or for some rows, is reported by `unpaid_problems`.
    never_pays = max(most.values(), default=1.0) <= 0 and any(row[index] for row in values.values())
    low = [row for row, value in most.items() if value < 1 and (value != 0 or never_pays)]
    if low:
        yield Problem(
            f"{metric.name} returns at most {max(most[row] for row in low):.3g} for the right answer of "
            f"{which(low, len(most))}, in any usual form. An accuracy counts answers with 1 or more, so such rows may "
            "never be right. Return 1 for a right answer; `weight` in the recipe sets what it is worth.",
            "metric-below-one",
            f"rewards.{metric.name}",
            row=low[0],
            level="warning",
        )


def _above_one(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """A metric that gives more than 1 to right answers: what it gives to those that are partly right may be 1 too."""
    right = [row[index] or 0.0 for answer, row in values.items() if answer.kind in ("gold", "answer")]
    if reads_data(metric, task) and max(right, default=0.0) > 1:
        yield Problem(
            f"{metric.name} returns {max(right):.3g} for a right answer. An accuracy counts every answer with 1 or "
            "more, so what it gives to answers that are partly right may count too. Return 1 for a right answer and "
            "less for others; `weight` in the recipe sets what it is worth.",
            "metric-above-one",
            f"rewards.{metric.name}",
            level="warning",
        )


def _unpaid_after_reasoning(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """A metric that takes an answer as right, but in no form after reasoning, such as one of the first number.

    One that wants the answer alone means it, if the prompt does not ask for steps.
    """
    right = {answer for answer, row in values.items() if (row[index] or 0.0) >= 1}
    alone = [
        answer
        for answer in right
        if answer.kind in ("gold", "answer") and (answer.form != "{}" or "step by step" in _prompt(task, answer.row))
    ]
    reasoned = {answer.row for answer in values if answer.kind == "reasoned"}
    paid = {answer.row for answer in right if answer.kind == "reasoned"}
    unpaid = sorted(reasoned & {answer.row for answer in alone} - paid)
    if unpaid:
        first = min((one for one in alone if one.row == unpaid[0]), key=lambda one: one.text)
        others = [one for one in values if one.kind == "reasoned" and one.row == unpaid[0]]
        other = next((one for one in others if first.text in one.text), others[0])
        yield Problem(
            f"{metric.name} takes {first.text!r:.{MAX_SHOWN}} as right, and the same answer after reasoning as wrong "
            f"({other.text!r:.{MAX_SHOWN}}), in {which(unpaid, len(reasoned))}. Models reason before they answer: read "
            "the last number, or what follows the marker.",
            "unpaid-after-reasoning",
            f"rewards.{metric.name}",
            row=unpaid[0],
            level="warning",
        )


def _unpaid_forms(metric: Reward, index: int, task: Task, values: Values) -> Iterator[Problem]:
    """A metric that wants another form of the answer than the prompts ask for."""
    paid = [
        answer
        for answer, row in values.items()
        if answer.form and answer.column in columns_read(metric) and (row[index] or 0.0) >= 1
    ]
    if not paid:
        return
    prompts = [_prompt(task, row) for row in sorted({answer.row for answer in paid})]
    named = [mark for mark in _MARKS if all(mark in prompt for prompt in prompts)]
    wanted = {next((mark for mark in _MARKS if mark in str(answer.form).casefold()), "") for answer in paid}
    if named and wanted.isdisjoint(named):
        fault = f"but not in the form that the prompts name ({' or '.join(named)})"
    elif not any(mark in prompt for mark in wanted for prompt in prompts):
        fault = "and the prompts do not ask for this form"
    else:
        return
    yield Problem(
        f"{metric.name} takes the right answers of {count(len(prompts), 'tried training row')} as "
        f"right, such as {paid[0].text!r:.{MAX_SHOWN}}, {fault}. Let the prompt and the reward (its options) agree.",
        "another-form",
        f"rewards.{metric.name}",
        row=paid[0].row,
        level="warning",
    )


def _prompt(task: Task, row: int) -> str:
    return prompt_text(task.train[row]["prompt"]).casefold()
