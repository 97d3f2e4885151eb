"""Check the rewards: equal within groups, falling, flat, or one traded for another."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlvr.formatting import number
from rlvr.health.run_metrics import EDGE, Finding, RunMetrics, percent, reward_weights
from rlvr.health.trends import MIN_LINES, SHORT_WINDOW, WINDOW, compare_means, drop_from_best, noise

FLAT_WINDOWS = 5  # a reward that does not move for so many windows is flat


def no_spread(run: RunMetrics) -> Iterator[Finding]:
    """Groups whose completions all get the same reward, so that their advantages are 0.

    The reward's position in its range tells the cause.
    """
    at_level = run.level("frac_reward_zero_std", [("alarm", 0.9, 0.8), ("warning", 0.7, 0.55)])
    if at_level is None:
        return
    level, since = at_level
    reward = number(run.recent("reward")) if run["reward"] else "unknown"
    # A reward that no completion ever earned has a range of 0: the total would seem to be at its maximum.
    main = run.main_rewards() or set(run.reward_names())
    unearned = any(value <= 0 for name, value in run.constant_rewards().items() if name in main)
    position = 0.0 if unearned else run.position()
    if position is not None and position > 0.8:
        if run.has_risen():
            level, kind, cause = "note", "mostly-solved", "most are solved"
            fix = "Take harder rows, or stop when the validation no longer rises."
        else:
            kind, cause, fix = "too-easy", "the task is too easy", "Take harder rows (pass_rates, docs/algorithms.md)."
    elif position is not None and position < 0.2:
        kind, cause = "too-hard", "the task is too hard"
        fix = "Take easier rows (pass_rates, docs/algorithms.md), or reward partial solutions."
        if unearned or run.recent("reward") == 0:
            cause = "the task is too hard, or the reward does not find the answers"
            fix = f"Read some completions and their scores (scripts/score.py --config RECIPE RUN --why 0). {fix}"
        if run.relative_rise() < -EDGE or run.reward_drop():
            kind, cause = "lost-ability", "the model has lost what it could do"
            fix = f"Lower {run.key('learning_rate')} and start again."
    elif run.is_repetitive():
        kind, cause = "repetitive-groups", "the completions of a group are almost the same"
        fix = f"Raise {run.key('temperature')}."
    else:
        kind, cause = "too-easy-or-too-hard", "the prompts are too easy or too hard"
        fix = "Filter the rows (pass_rates, docs/algorithms.md), or set dynamic_sampling."
    share = percent(run.recent("frac_reward_zero_std"))
    problem = f"in {share} of the groups all rewards are equal, at a mean reward of {reward}: {cause}"
    yield Finding(level, kind, "frac_reward_zero_std", problem, fix, since)


def reward_falls(run: RunMetrics) -> Iterator[Finding]:
    drop = run.reward_drop()
    if drop is None:
        return
    level = "alarm" if -drop.size > 0.3 * run.range_width() else "warning"
    fix = f"Lower {run.key('learning_rate')} or raise {run.key('beta')}, and resume from before the fall."
    if run.settings.get("curriculum") == "easy_first":
        level, fix = "note", "A curriculum gets harder by design: compare with the validation."
    problem = f"the reward falls, {drop} since step {drop.since_step:,}"
    yield Finding(level, "reward-falls", "reward", problem, fix, drop.since_step)


def reward_flat(run: RunMetrics) -> Iterator[Finding]:
    reward, lines = run["reward"], FLAT_WINDOWS * WINDOW
    if len(reward) < lines or run.is_at_maximum():
        return
    change = compare_means(reward.last(lines)[:WINDOW], reward.last(WINDOW))
    # A slow rise is no finding: the change must be well within chance.
    if change.is_significant(2.0) or abs(change.size) > 0.02 * run.range_width():
        return
    figures = f"{change} in {lines} log lines"
    if run.has_risen():
        level, problem = "note", f"the reward no longer rises: {figures}"
        fix = "It may be at its best: measure, and stop if so."
    else:
        level, problem = "warning", f"the reward has not moved: {figures}"
        fix = f"Raise {run.key('learning_rate')} or num_generations, and read some completions."
    yield Finding(level, "reward-flat", "reward", problem, fix, reward.steps[-lines])


def constant_reward(run: RunMetrics) -> Iterator[Finding]:
    """One of several rewards that has the same value for all completions, so that it changes no advantage."""
    weights = reward_weights(run.settings)
    total = sum(map(abs, weights.values()))
    for name, value in run.constant_rewards().items() if len(run.reward_names()) > 1 else ():
        share = f" ({percent(abs(weights[name]) / total)} of the weights)" if weights.get(name) else ""
        every = "nearly every" if run.range_width(name) else "every"
        level, fix = "note", "Remove it, or let it ask for more."
        if value <= 0:
            level = "warning"
            fix = (
                "The model never produces what it asks for: show an example in the prompt, change the form, or remove "
                "it. Only a penalty may stay 0. Read some completions (scripts/score.py --config RECIPE RUN --why 0)."
            )
        metric = f"rewards/{name}/mean"
        problem = f"the reward {name}{share} has been {number(value)} for {every} completion"
        yield Finding(level, "constant-reward", metric, problem, fix, run[metric].steps[0])


def trade_off(run: RunMetrics) -> Iterator[Finding]:
    """One reward at its maximum while another falls: the model serves the cheaper one."""
    saturated = [name for name in run.reward_names() if run.is_at_maximum(name) and run.range_width(name) > 0]
    for name in run.reward_names():
        metric, others = f"rewards/{name}/mean", [other for other in saturated if other != name]
        drop = drop_from_best(run[metric], WINDOW)
        if others and drop and -drop.size > 0.1 * run.range_width(name) and drop.is_significant(4.0):
            problem = f"the reward {name} falls, {drop}, while {others[0]} is at its maximum"
            fix = f"Give {name} more weight, or make it the gate of {others[0]}."
            yield Finding("warning", "trade-off", metric, problem, fix, drop.since_step)


def validation_falls(run: RunMetrics) -> Iterator[Finding]:
    """Three measurements clearly below three earlier ones, while the training reward rises."""
    metric = "eval_accuracy" if run["eval_accuracy"] else "eval_reward"
    series, reward = run[metric], run["reward"]
    drop = drop_from_best(series, 3)
    if drop is None:
        return
    width = 1.0 if metric == "eval_accuracy" else run.range_width()
    error = noise(series.values) * math.sqrt(2 / 3)  # of the difference of two means of three
    best, step = max(zip(series.values, series.steps, strict=True))
    before, after = reward.until(step)[-SHORT_WINDOW:], reward.after(step)[-SHORT_WINDOW:]
    if min(len(before), len(after)) < MIN_LINES or -drop.size <= max(0.05 * width, 4 * error):
        return
    if compare_means(before, after).size > 0:
        figures = f"{number(best)} → {number(drop.after)} since step {step:,}"
        problem = f"the validation falls, {figures}, while the reward rises"
        fix = f"Take the checkpoint of step {step:,}. Look for wrong completions with a high reward."
        yield Finding("warning", "validation-falls", metric, problem, fix, step)
