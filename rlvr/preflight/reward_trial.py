"""Try the rewards on a few rows before anything is loaded: golds must earn more than answers without content.

A reward that pays everything alike, refuses its own golds, hangs, or fails on the first text costs a run; here it costs
seconds. trial_answers.py has the answers, and metric_verdicts.py and trial_verdicts.py have what their scores say. Fast
rewards score one more answer for every row: a single bad value in the data would otherwise end the run at the step
that draws it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_remote
from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.environments.proxies import Environments
from rlvr.errors import Level, Problem
from rlvr.formatting import count
from rlvr.preflight.data_checks import refused_rows
from rlvr.preflight.metric_verdicts import metric_problems
from rlvr.preflight.trial_answers import (
    WORDS,
    Answer,
    Values,
    answers_to_try,
    paid_form,
    right_answers,
    score_answers,
)
from rlvr.preflight.trial_verdicts import (
    payment_problems,
    unpaid_problems,
    unpaid_rows,
    unscored_problems,
    weight_problems,
)
from rlvr.red_team.copying import try_copies
from rlvr.red_team.target import Target
from rlvr.scoring.failures import report
from rlvr.scoring.registry import companion_function
from rlvr.scoring.results import RewardFailure
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

TRIED_ROWS = 16  # of the training split, spread evenly over it
FAST_S = 1e-3  # for an answer; a reward that takes no longer is tried on every row
MAX_EVERY_ROWS, CHUNK_ROWS = 10_000, 512
LEAST_PAID = 0.5  # share of the right answers; if fewer are paid, the reward wants another form
MAX_LATE = 2  # answers that time out before a reward is left out of the trial
SINGLE_CALLS_S = 5.0  # of calls with one answer, before the call with all


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
    answers = answers_to_try(task, numbers, metric, is_played=environments is not None)
    level: Level = "error" if recipe.settings["on_reward_error"] == "raise" else "warning"
    with SlowStep("Trying the rewards") as step:
        of_single_calls = _call_singly(task, answers, scorer, environments, step, level, failed)
        problems += of_single_calls.values()
        failed |= set(of_single_calls)
        step.text = f"Trying the rewards on {len(answers)} answers at once"
        scored = score_answers(task, answers, scorer, environments, failed)
    of_all = {
        failure.reward: [other for other in scored.failures if other.reward == failure.reward]
        for failure in scored.failures
    }
    problems += [_failure_problem(failures, answers, scorer, level) for failures in of_all.values()]
    failed |= set(of_all)
    of_scorer = dict(zip(answers, scored.values, strict=True))
    of_every_row: list[Problem] = []
    if environments is None:
        fast = [one for one in tried if scored.seconds[one.label] <= FAST_S * len(answers) and one.label not in failed]
        of_every_row = list(_every_row_problems(fast, task, scorer, of_scorer, level))
        broken = [problem for problem in of_every_row if problem.kind == "reward-failed"]
        problems += broken
        failed |= {one.label for one in fast if f"rewards.{one.name}" in {problem.key for problem in broken}}
    indices = [scorer.rewards.index(reward) for reward in tried]
    # None where a reward failed.
    values = {answer: [row[index] for index in indices] for answer, row in zip(answers, scored.values, strict=True)}
    verdicts = [
        *metric_problems(metric, tried.index(metric), task, values),
        *payment_problems(rewards, metric, values),
        *unscored_problems([None if one.label in failed else one for one in tried], values),
        *unpaid_problems(
            [one for one in rewards if one.label not in failed],
            metric,
            task,
            scorer,
            of_scorer,
            is_played=environments is not None,
        ),
    ]
    # A refused gold is said with its reason; else what all rows say goes before what some do.
    explained = {problem.key for problem in verdicts if problem.kind == "refused-gold"}
    partly = [one for one in of_every_row if one.kind == "pays-for-some-rows" and one.key not in explained]
    known = {(problem.kind, problem.key) for problem in partly}
    problems += [problem for problem in verdicts if (problem.kind, problem.key) not in known] + partly
    if not failed:
        problems += weight_problems(rewards, values, label)
        is_known = any(problem.kind in ("accepted-noise", "paid-noise") for problem in problems)
        if environments is None and not is_known and all(reward in fast for reward in rewards):
            problems += _copying_problems(task, rewards, scorer)
    if problems or failed:
        return problems
    golds = sum(answer.kind == "gold" for answer in answers)
    right = {answer.row for answer in answers if answer.kind == "answer" and answer.column in columns_read(metric)}
    index = tried.index(metric)
    example = next((one.text for one, row in values.items() if one.kind == "answer" and (row[index] or 0.0) >= 1), "")
    names = ", ".join(reward.label for reward in rewards)
    about_golds = (
        f"{metric.name} takes all {golds} tried golds as right"
        if golds
        else f"{metric.name} takes the right answers of {count(len(right), 'row')} as right, such as {example!r}"
        if right
        else "golds are not tried with an environment"
        if recipe.environments
        else f"no golds were tried: the task {label or recipe.task.name} makes no completions of them"
    )
    of_task = f"{label}: " if label else ""
    message = (
        f"{of_task}each reward ({names}) pays nothing for an empty answer, noise, or the repeated prompt; {about_golds}"
    )
    return [Problem(message, "reward-trial", level="note")]


def _copying_problems(task: Task, rewards: Sequence[Reward], scorer: Scorer) -> Iterator[Problem]:
    """Rewards that a copied part of the prompt earns, as the red team judges it."""
    target = Target(task, rewards, scorer)
    target.try_texts([()])
    copying = try_copies(target, target.right_totals())
    if copying is not None and copying.breaks and not target.pays_no_reference:
        yield Problem(" ".join(copying.sentences()), "accepted-copy", "rewards", level="warning")


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
        for failure in score_answers(task, [answer], scorer, environments, {*skipped, *problems, *hanging}).failures:
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
            "reward-timeout",
            f"rewards.{reward.name}",
            row=late_answers[0].row,
            level=level,
        )
    return problems


def _every_row_problems(
    rewards: Sequence[Reward], task: Task, scorer: Scorer, values: Values, level: Level
) -> Iterator[Problem]:
    """Rewards that fail for some training row, or pay for the right answers of most rows and not of others.

    Each scores two answers of every row: the right one, and 42, in a form that it pays for. Rewards with a
    `validate_rows` look at the rows themselves.
    """
    asked = [
        reward
        for reward in rewards
        if columns_read(reward)
        and not is_remote(reward.where)
        and companion_function(reward.function, "validate_rows") is None
    ]
    numbers = range(0, len(task.train), max(1, -(-len(task.train) // MAX_EVERY_ROWS)))
    with SlowStep("Trying the rewards on every training row"):
        for reward in asked:
            yield from _row_problems(reward, task, numbers, scorer, values, level)


def _row_problems(
    reward: Reward, task: Task, numbers: range, scorer: Scorer, values: Values, level: Level
) -> Iterator[Problem]:
    index = scorer.rewards.index(reward)
    others = {one.label for one in scorer.rewards} - {reward.label}
    form = paid_form(values, index)
    paid: list[Answer] = []
    unpaid: list[Answer] = []
    for start in range(0, len(numbers), CHUNK_ROWS):
        rows = numbers[start : start + CHUNK_ROWS]
        answers = [Answer("number", row, form.format(42)) for row in rows]
        answers += right_answers(task, rows, form, columns_read(reward))
        scored = score_answers(task, answers, scorer, None, others)
        if scored.failures:
            yield _failure_problem(scored.failures, answers, scorer, level)
            return
        for answer, row in zip(answers, scored.values, strict=True):
            if answer.kind != "number":
                (paid if (row[index] or 0.0) > 0 else unpaid).append(answer)
    if unpaid and len(paid) >= LEAST_PAID * (len(paid) + len(unpaid)):
        yield unpaid_rows(reward, task, [answer.row for answer in unpaid], len(paid), unpaid[0])


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
