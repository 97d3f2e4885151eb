"""Try the rewards on a few rows before anything is loaded: golds must earn more than answers without content.

A reward that pays everything alike, refuses its own golds, hangs, or fails on the first text costs a run; here it costs
seconds. Each tried row has up to four answers: its gold (`Task.gold`), an empty one, noise, and its prompt repeated.
Where a task has no golds, the answers of some rows are tried in the forms that are usual. Fast rewards score one more
answer for every row: a single bad value in the data would otherwise end the run at the step that draws it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_remote
from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.environments.proxies import Environments
from rlvr.errors import Level, Problem
from rlvr.formatting import count
from rlvr.preflight.data_checks import refused_rows
from rlvr.red_team.attacks import NOISE
from rlvr.red_team.target import REFERENCE_FORMS, answer_column
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.failures import report
from rlvr.scoring.registry import companion_function
from rlvr.scoring.results import RewardFailure, Scored
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

TRIED_ROWS = 16  # of the training split, spread evenly over it
SHOWN_ROWS = 5
MAX_SHOWN = 80  # characters of a column and its value in a message
ROWS_WITH_FORMS = 4  # whose right answers are tried in each of REFERENCE_FORMS, if the task has no golds
FAST_S = 1e-3  # for an answer; a reward that takes no longer is tried on every row
MAX_EVERY_ROWS, CHUNK_ROWS = 10_000, 512
STEP = -1  # what functions see as trainer_state.global_step: training begins at 0
MOST_WRONG_GOLDS = 0.1  # share of the golds; above it, the reward does not fit the task
MOST_RIGHT_PROMPTS = 0.5  # share of the prompts that may hold their own answer
MAX_LATE = 2  # answers that time out before a reward is left out of the trial
SINGLE_CALLS_S = 5.0  # of calls with one answer, before the call with all

# Answers without content, and what messages call them.
EMPTY_ANSWERS = {"empty": "an empty answer", "noise": f"the noise {NOISE!r}", "prompt": "the repeated prompt"}
WORDS = {
    "gold": "the task's gold",
    "answer": "the row's right answer",
    "number": "an answer with a number",
    **EMPTY_ANSWERS,
}


@dataclass(frozen=True)
class Answer:
    """A completion to try: one of `WORDS` for a row of the training split."""

    kind: str
    row: int
    text: str


Values = Mapping[Answer, Sequence[float | None]]  # of each reward of the scorer


def try_rewards(
    recipe: Recipe,
    task: Task,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    environments: Environments | None = None,
    skipped: Collection[str] = (),
    label: str = "",
) -> list[Problem]:
    """Score golds and answers without content for some training rows.

    Each failing reward is an error, or a warning with `on_reward_error: mask`. A metric that takes golds as wrong, or
    answers without content as right, is an error if it compares with the data.

    Args:
        metric: the reward that decides whether an answer is right.
        scorer: has the rewards, and the metric too if it is none of them.
        environments: of the recipe. Answers then come without a call, so no gold is tried:
            rlvr/preflight/environment_trial.py plays reference solutions.
        skipped: labels of rewards that can't be tried.
        label: of the task, if it is one of several; `rewards` are then those that apply to it.
    """
    if environments is not None:
        task = replace(task, gold=None)
    problems: list[Problem] = []
    failed = set(skipped)
    tried = [reward for reward in scorer.rewards if reward in rewards or reward == metric]
    for reward in tried:
        if is_remote(reward.where) and (refused := list(refused_rows(reward, task, scorer))):
            problems += refused
            if any(problem.level == "error" for problem in refused):
                failed.add(reward.label)
    numbers = list(range(0, len(task.train), max(1, len(task.train) // TRIED_ROWS)))[:TRIED_ROWS]
    answers = list(_answers(task, numbers, is_played=environments is not None))
    level: Level = "error" if recipe.settings["on_reward_error"] == "raise" else "warning"
    with SlowStep("Trying the rewards") as step:
        of_single_calls = _call_singly(task, answers, scorer, environments, step, level, failed)
        problems += of_single_calls.values()
        failed |= set(of_single_calls)
        step.text = f"Trying the rewards on {len(answers)} answers at once"
        scored = _score(task, answers, scorer, environments, failed)
    of_all = {failure.reward: [other for other in scored.failures if other.reward == failure.reward]
              for failure in scored.failures}  # fmt: skip
    problems += [_failure_problem(failures, answers, scorer, level) for failures in of_all.values()]
    failed |= set(of_all)
    if environments is None:
        fast = [one for one in tried if scored.seconds[one.label] <= FAST_S * len(answers) and one.label not in failed]
        of_every_row = list(_every_row_problems(fast, task, scorer, level))
        problems += of_every_row
        failed |= {one.label for one in fast if f"rewards.{one.name}" in {problem.key for problem in of_every_row}}
    indices = [scorer.rewards.index(reward) for reward in tried]
    # None where a reward failed.
    values = {answer: [row[index] for index in indices] for answer, row in zip(answers, scored.values, strict=True)}
    problems += _metric_problems(metric, tried.index(metric), values)
    problems += _payment_problems(rewards, metric, values)
    problems += _unscored_problems([None if one.label in failed else one for one in tried], values)
    of_scorer = dict(zip(answers, scored.values, strict=True))
    problems += _unpaid_problems([one for one in rewards if one.label not in failed], metric, task, scorer, of_scorer)
    if not failed:
        problems += _weight_problems(rewards, values, label)
    if problems or failed:
        return problems
    golds = sum(answer.kind == "gold" for answer in answers)
    names = ", ".join(reward.label for reward in rewards)
    about_golds = (
        f"{metric.name} takes all {golds} tried golds as right"
        if golds
        else "golds are not tried with an environment"
        if recipe.environments
        else f"no golds were tried: the task {label or recipe.task.name} makes no completions of them"
    )
    of_task = f"{label}: " if label else ""
    message = (
        f"{of_task}each reward ({names}) pays nothing for an empty answer, noise, or the repeated prompt; {about_golds}"
    )
    return [Problem(message, "reward-trial", level="note")]


def _answers(task: Task, numbers: Sequence[int], *, is_played: bool) -> Iterator[Answer]:
    """Each answer to try.

    Args:
        is_played: whether completions call tools, so that none is right without a call.
    """
    for number in numbers:
        row = task.train[number]
        gold = task.gold(row) if task.gold is not None else None
        if gold is not None:
            yield Answer("gold", number, str(gold))
        elif not is_played and number in numbers[:ROWS_WITH_FORMS] and (column := answer_column(row)):
            for form in REFERENCE_FORMS:
                yield Answer("answer", number, form.format(row[column]))
        yield Answer("empty", number, "")
        yield Answer("noise", number, NOISE)
        prompt = row["prompt"]
        yield Answer("prompt", number, prompt if isinstance(prompt, str) else str(prompt[-1]["content"]))


def _score(
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


def _call_singly(
    task: Task,
    answers: Sequence[Answer],
    scorer: Scorer,
    environments: Environments | None,
    step: SlowStep,
    level: Level,
    skipped: Collection[str],
) -> dict[str, Problem]:
    """Score one answer at a time, so that rewards that hang or can't be called are found soon; by their labels."""
    late: dict[str, list[Answer]] = {}
    problems: dict[str, Problem] = {}
    started = time.monotonic()
    first_row = sum(answer.row == answers[0].row for answer in answers)
    for number, answer in enumerate(answers):
        limit_s = SINGLE_CALLS_S + (MAX_LATE * scorer.timeout_s if late else 0.0)
        if number >= first_row and time.monotonic() - started > limit_s:
            break
        step.text = f"Trying the rewards on {WORDS[answer.kind]} (training row {answer.row})"
        hanging = [label for label, of_reward in late.items() if len(of_reward) >= MAX_LATE]
        for failure in _score(task, [answer], scorer, environments, {*skipped, *problems, *hanging}).failures:
            if failure.kind == "unavailable":
                problems[failure.reward] = _failure_problem([failure], [answer], scorer, level)
            elif failure.kind == "timeout":
                late.setdefault(failure.reward, []).append(answer)
        if number == 0 and not late:
            started = time.monotonic()  # the first call may wait for imports
    for label, late_answers in late.items():
        where = " and ".join(f"on {WORDS[answer.kind]} (training row {answer.row})" for answer in late_answers)
        reward = _reward(label, scorer)
        problems[label] = Problem(
            f"The reward {reward.name} did not return within {scorer.timeout_s:g} s {where}. Give what can hang in it "
            "a timeout (requests, regular expressions, loops over text), or raise reward_timeout_s if it is only slow.",
            "reward-timeout", f"rewards.{reward.name}", row=late_answers[0].row, level=level,
        )  # fmt: skip
    return problems


def _every_row_problems(rewards: Sequence[Reward], task: Task, scorer: Scorer, level: Level) -> Iterator[Problem]:
    """Rewards that fail for some training row: each scores one answer with a number for it.

    Rewards with a `validate_rows` look at the rows themselves.
    """
    asked = [reward for reward in rewards if reward.columns and not is_remote(reward.where)
             and companion_function(reward.function, "validate_rows") is None]  # fmt: skip
    numbers = range(0, len(task.train), max(1, -(-len(task.train) // MAX_EVERY_ROWS)))
    with SlowStep("Trying the rewards on every training row"):
        for start in range(0, len(numbers) if asked else 0, CHUNK_ROWS):
            answers = [Answer("number", number, "The answer is 42.") for number in numbers[start : start + CHUNK_ROWS]]
            skipped = {one.label for one in scorer.rewards} - {one.label for one in asked}
            failures = _score(task, answers, scorer, None, skipped).failures
            for reward in [one for one in asked if any(failure.reward == one.label for failure in failures)]:
                asked.remove(reward)
                of_reward = [failure for failure in failures if failure.reward == reward.label]
                yield _failure_problem(of_reward, answers, scorer, level)
            if not asked:
                return


def _reward(label: str, scorer: Scorer) -> Reward:
    return next(reward for reward in scorer.rewards if reward.label == label)


def _failure_problem(
    failures: Sequence[RewardFailure], answers: Sequence[Answer], scorer: Scorer, level: Level
) -> Problem:
    """The problem of one reward with these failures."""
    message = report(failures).replace("\n\n", "\n")
    place = next((failure.row for failure in failures if failure.row is not None), None)
    failed = answers[place] if place is not None else None
    if not all(failure.kind == "unavailable" for failure in failures):
        message += f"\nIt was tried on {count(len(answers), 'answer')} before training"
        message += f"; row {place} is {WORDS[failed.kind]} (training row {failed.row})." if failed else "."
    row = failed.row if failed else None
    key = f"rewards.{_reward(failures[0].reward, scorer).name}"
    return Problem(message, "reward-failed", key, row=row, level=level)


def _metric_problems(metric: Reward, index: int, values: Values) -> Iterator[Problem]:
    """Answers that the metric, the reward of this index, takes as right or wrong against expectation."""
    # A metric that reads a column compares with the data, so its verdict on golds is certain. One that looks at the
    # text alone may want something that no gold of the task has.
    level: Level = "error" if metric.columns else "warning"
    for kind, words in EMPTY_ANSWERS.items():
        scores = {answer.row: row[index] or 0.0 for answer, row in values.items() if answer.kind == kind}
        right = [row for row, score in scores.items() if score >= 1]
        if right:
            message = f"{metric.name} takes {words} as right in {_rows(right, len(scores))}."
            # An example or a choice in the prompt is the right answer of some rows by chance.
            by_chance = kind == "prompt" and len(right) <= MOST_RIGHT_PROMPTS * len(scores)
            of_kind: Level = "warning" if by_chance else level
            yield Problem(message, "accepted-noise", f"rewards.{metric.name}", row=right[0], level=of_kind)
    golds = {answer.row: row[index] for answer, row in values.items() if answer.kind == "gold"}
    wrong = [row for row, score in golds.items() if score is not None and score < 1]
    if wrong:
        message = (
            f"{metric.name} takes the task's own gold as wrong in {_rows(wrong, len(golds))}: such a row trains the "
            "wrong thing. Do the rewards fit the task (answer format, options)? scripts/score.py --why explains one."
        )
        level = "warning" if len(wrong) <= len(golds) * MOST_WRONG_GOLDS else level
        yield Problem(message, "refused-gold", f"rewards.{metric.name}", row=wrong[0], level=level)


def _payment_problems(rewards: Sequence[Reward], metric: Reward, values: Values) -> Iterator[Problem]:
    """Rewards that pay for answers without content, where their gates let them."""
    names = [reward.name for reward in rewards]
    for index, reward in enumerate(rewards):
        gate = names.index(reward.gate) if reward.gate is not None else None
        payments: dict[tuple[str, str], list[str]] = {}  # score and rows -> the answers that earn it
        first_row = None
        for kind, words in EMPTY_ANSWERS.items():
            scores = {answer.row: row[index] or 0.0 for answer, row in values.items() if answer.kind == kind
                      and (gate is None or (row[gate] or 0.0) > 0)}  # fmt: skip
            paid = [row for row, score in scores.items() if score * reward.weight > 0]
            if not paid or (reward is metric and max(scores.values()) >= 1):  # else `_metric_problems` reports it
                continue
            tried = sum(answer.kind == kind for answer in values)
            most = max((scores[row] for row in paid), key=abs)
            score = f"{'up to ' if len(paid) > 1 else ''}{most:.3g}"
            payments.setdefault((score, _rows(paid, tried)), []).append(words)
            first_row = paid[0] if first_row is None else first_row
        if payments:
            listed = "; ".join(
                f"{score} for {' and '.join(answers)} in {rows}" for (score, rows), answers in payments.items()
            )
            # A gate is another reward of the recipe, which applies to at least the same tasks.
            can_gate = metric in rewards and metric.name not in (reward.name, reward.gate)
            if metric.applies_to is not None:
                can_gate = can_gate and set(reward.applies_to or ("",)) <= set(metric.applies_to)
            gating = f", or set `gate: {metric.name}` for the reward in the recipe" if can_gate else ""
            yield Problem(
                f"The reward {reward.name} pays for answers without content ({listed}). Training finds "
                f"such answers first. Return 0 for them{gating}.",
                "paid-noise", f"rewards.{reward.name}", row=first_row, level="warning",
            )  # fmt: skip


def _unscored_problems(rewards: Sequence[Reward | None], values: Values) -> Iterator[Problem]:
    """Rewards that score no answer at all, or none without content. None stands for a reward that failed."""
    for index, reward in enumerate(rewards):
        if reward is None:
            continue
        rows = {answer.row for answer, row in values.items() if row[index] is not None}  # it applies to these
        missed = {answer.kind for answer, row in values.items() if row[index] is None and answer.row in rows}
        words = [words for kind, words in EMPTY_ANSWERS.items() if kind in missed]
        if not rows:
            fault = f"all {len(values)} tried answers: each such row leaves the update, so nothing would be trained"
        elif words:
            fault = f"{', '.join(words)}: such answers leave the update and the accuracy, so they cost nothing"
        else:
            continue
        yield Problem(
            f"The reward {reward.name} returns None for {fault}. Return 0 for a wrong answer, and None only for a "
            "failure of the reward itself.",
            "unscored-rows", f"rewards.{reward.name}", level="warning",
        )  # fmt: skip


def _unpaid_problems(
    rewards: Sequence[Reward], metric: Reward, task: Task, scorer: Scorer, values: Values
) -> Iterator[Problem]:
    """Rewards that compare with the data and pay for no answer, right ones included. `values` are of all the scorer's.

    A reward that compares text with a list of messages is one. That is certain if it pays for the same answers as text.
    """
    others = {reward.label for reward in scorer.rewards}
    for reward in rewards:
        index = scorer.rewards.index(reward)
        right = [answer for answer in values if answer.kind == "gold" and reward.columns
                 or answer.kind == "answer" and answer_column(task.train[answer.row]) in reward.columns]  # fmt: skip
        paid = {answer.row for answer in right if (values[answer][index] or 0) > 0}
        unpaid = sorted({answer.row for answer in right} - paid)
        if paid and unpaid and right[0].kind == "answer":
            yield Problem(
                f"The reward {reward.name} pays for the right answer of training row {min(paid)}, but not for that of "
                f"{count(len(unpaid), 'other tried row')} ({', '.join(map(str, unpaid))}) in any usual form. It gets "
                "lists with one entry for each completion: does it compare each with the entry of its own row, and is "
                "the data right?",
                "pays-for-some-rows", f"rewards.{reward.name}", row=unpaid[0], level="warning",
            )  # fmt: skip
        if not right or any((row[index] or 0) != 0 for row in values.values()):
            continue
        if all(row[index] is None for row in values.values()):
            continue  # `_unscored_problems` reports it
        as_text = _score(task, right, scorer, None, others - {reward.label}, as_text=True) if task.is_chat else None
        rows = count(len({answer.row for answer in right}), "tried training row")
        what = f"pays nothing for the right answers of {rows}"
        if as_text is not None and any((row[index] or 0) > 0 for row in as_text.values):
            yield Problem(
                f"The reward {reward.name} {what}, and pays for the same as plain text. "
                "Completions of chat prompts are lists of messages: compare rlvr.completion_text(completion), or "
                'completion[-1]["content"].',
                "pays-for-no-answer", f"rewards.{reward.name}", level="error",
            )  # fmt: skip
        elif right[0].kind == "answer" or reward is not metric:  # `_metric_problems` reports golds
            forms = " or ".join(f"`{form.format('42')}`" for form in REFERENCE_FORMS).replace("\n", " ")
            tried = f", as {forms}" if right[0].kind == "answer" else ""
            column = answer_column(task.train[right[0].row])
            column = column if column in reward.columns else reward.columns[0]
            got = f"{column}={task.train[right[0].row][column]!r}"[:MAX_SHOWN]
            yield Problem(
                f"The reward {reward.name} {what}{tried}, and for nothing else. In training row "
                f"{right[0].row} it gets {got}: a number and its text differ. No fault if it wants another form of the "
                "answer: a `gold` of the task has it tried (docs/check.md).",
                "pays-for-no-answer", f"rewards.{reward.name}", level="warning",
            )  # fmt: skip


def _weight_problems(rewards: Sequence[Reward], values: Values, label: str) -> Iterator[Problem]:
    """The sum of the rewards, as training sees it, must be higher for golds than for answers without content."""
    means: dict[str, float] = {}
    for kind in WORDS:
        rows = [row[: len(rewards)] for answer, row in values.items() if answer.kind == kind]
        totals = [total(row, rewards) for row in apply_gates_and_mask(rows, rewards, [label] * len(rows))]
        scored = [value for value in totals if value is not None]
        if scored:
            means[kind] = sum(scored) / len(scored)
    for kind, words in EMPTY_ANSWERS.items():
        if "gold" in means and kind in means and means[kind] >= means["gold"]:
            yield Problem(
                f"the sum of the rewards is {means[kind]:.3g} for {words} and {means['gold']:.3g} for the task's "
                "golds, so training would not tell them apart. Check the weights, and rewards that pay for form alone.",
                "golds-earn-no-more", "rewards", level="warning",
            )  # fmt: skip


def _rows(numbers: Sequence[int], of: int) -> str:
    """`3 of 16 tried training rows (12, 40, 77)`, or `all 16 tried training rows`."""
    if len(numbers) == of > 1:
        return f"all {of} tried training rows"
    shown = ", ".join(map(str, numbers[:SHOWN_ROWS]))
    return f"{len(numbers)} of {of} tried training rows ({shown}{', …' if len(numbers) > SHOWN_ROWS else ''})"
