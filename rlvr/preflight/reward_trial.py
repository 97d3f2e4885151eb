"""Try the rewards on a few rows before anything is loaded: golds must earn more than empty answers and noise.

A reward that pays everything alike, refuses its own golds, or fails on the first text costs a run; here it costs a
second. The golds are the task's (`Task.gold`); without golds the rewards are tried on the other two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_remote
from rlvr.data.task import Task
from rlvr.errors import Level, Problem
from rlvr.preflight.data_checks import refused_rows
from rlvr.scoring.failures import report
from rlvr.scoring.reward import Reward, apply_gates_and_mask

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

TRIED_ROWS = 16  # of the training split, spread evenly over it
SHOWN_ROWS = 5
STEP = -1  # what functions see as trainer_state.global_step: training begins at 0
NOISE = "qwv zzrt. Ploo banter umf, gree!"  # no number, no code, no sentence: right for no row of any task
MOST_WRONG_GOLDS = 0.1  # share of the golds; above it, the reward does not fit the task

Values = dict[str, list[list[float | None]]]  # of golds, empty answers and noise: a row each, a value per reward


def try_rewards(recipe: Recipe, task: Task, rewards: Sequence[Reward], metric: Reward, scorer: Scorer) -> list[Problem]:
    """Score golds, empty answers and noise for some training rows.

    A failing reward is an error, or a warning with `on_reward_error: mask`. A metric that takes golds as wrong, or
    empty answers as right, is an error if it compares with the data.

    Args:
        metric: the reward that decides whether an answer is right.
        scorer: has the rewards, and the metric too if it is none of them.
    """
    for reward in scorer.rewards:
        if is_remote(reward.where) and (refused := list(refused_rows(reward, task, scorer))):
            return refused
    numbers = list(range(0, len(task.train), max(1, len(task.train) // TRIED_ROWS)))[:TRIED_ROWS]
    rows = [task.train[number] for number in numbers]
    golds = [task.gold(row) if task.gold is not None else None for row in rows]
    with_gold = [place for place, gold in enumerate(golds) if gold is not None]

    texts = [str(golds[place]) for place in with_gold] + [""] * len(rows) + [NOISE] * len(rows)
    scored = _score(task, [rows[place] for place in with_gold] + rows + rows, texts, scorer)
    if scored.failures:
        level: Level = "error" if recipe.settings["on_reward_error"] == "raise" else "warning"
        message = f"The rewards were tried on {len(rows)} rows before training.\n{report(scored.failures)}"
        return [Problem(message, "reward-failed", "rewards", level=level)]

    first_noise = len(with_gold) + len(rows)
    values: Values = {
        "gold": scored.values[: len(with_gold)],
        "empty": scored.values[len(with_gold) : first_noise],
        "noise": scored.values[first_noise:],
    }
    problems = [*_metric_problems(metric, scorer, values, numbers, with_gold), *_weight_problems(rewards, values)]
    if problems:
        return problems
    message = f"the rewards pay {len(with_gold)} golds in full, and neither empty nor senseless answers"
    if not with_gold:
        message = (
            f"the rewards refuse empty and senseless answers; the task {recipe.task.name} has no golds to try them on"
        )
    return [Problem(message, "reward-trial", level="note")]


def _score(task: Task, rows: Sequence[Any], texts: Sequence[str], scorer: Scorer) -> Any:
    completions: list[Any] = [[{"role": "assistant", "content": text}] if task.is_chat else text for text in texts]
    columns = {name: [row[name] for row in rows] for name in task.train.column_names if name != "prompt"}
    token_ids: list[list[int]] = [[0] * len(text) for text in texts]  # only their lengths differ: nothing is tokenised
    prompts = [row["prompt"] for row in rows]
    return scorer.score(prompts, completions, columns, completion_ids=token_ids, step=STEP)


def _metric_problems(
    metric: Reward, scorer: Scorer, values: Values, numbers: Sequence[int], with_gold: Sequence[int]
) -> list[Problem]:
    """Answers that the metric takes as right or wrong against expectation."""
    # A metric that reads a column compares with the data, so its verdict on golds is certain. One that looks at the
    # text alone may want something that no gold of the task has.
    level: Level = "error" if metric.columns else "warning"
    outcome = scorer.rewards.index(metric)
    problems = []
    for name, answer in (("empty", "an empty answer"), ("noise", f"the answer {NOISE!r}")):
        right = [numbers[place] for place, row in enumerate(values[name]) if (row[outcome] or 0.0) >= 1]
        if right:
            message = f"{metric.name} takes {answer} as right in {_rows(right, len(values[name]))}."
            problems.append(Problem(message, "accepted-noise", "rewards", row=right[0], level=level))
    wrong = [numbers[with_gold[place]] for place, row in enumerate(values["gold"]) if (row[outcome] or 0.0) < 1]
    if wrong:
        if len(wrong) <= len(with_gold) * MOST_WRONG_GOLDS:
            level = "warning"
        message = (
            f"{metric.name} takes the task's own gold as wrong in {_rows(wrong, len(with_gold))}: such a row trains "
            "the wrong thing. Do the rewards fit the task (answer format, options)? scripts/score.py --why explains "
            "one."
        )
        problems.append(Problem(message, "refused-gold", "rewards", row=wrong[0], level=level))
    return problems


def _weight_problems(rewards: Sequence[Reward], values: Values) -> list[Problem]:
    """The sum of the rewards, as training sees it, must be higher for golds than for empty answers and noise."""
    means: dict[str, float] = {}
    for name, rows in values.items():
        settled = apply_gates_and_mask([row[: len(rewards)] for row in rows], rewards)
        totals = [
            sum(reward.weight * value for reward, value in zip(rewards, row, strict=True) if value is not None)
            for row in settled
            if None not in row
        ]
        if totals:
            means[name] = sum(totals) / len(totals)
    if "gold" not in means:
        return []
    return [
        Problem(
            f"the sum of the rewards is {means[name]:.3g} for {words} and {means['gold']:.3g} for the task's golds, so "
            "training would not tell them apart. Check the weights, and rewards that pay for form alone.",
            "golds-earn-no-more",
            "rewards",
            level="warning",
        )
        for name, words in (("empty", "empty answers"), ("noise", "senseless ones"))
        if name in means and means[name] >= means["gold"]
    ]


def _rows(numbers: Sequence[int], of: int) -> str:
    """`3 of 16 tried training rows (12, 40, 77)`."""
    shown = ", ".join(map(str, numbers[:SHOWN_ROWS]))
    return f"{len(numbers)} of {of} tried training rows ({shown}{', …' if len(numbers) > SHOWN_ROWS else ''})"
