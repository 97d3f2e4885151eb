"""Signs in the reward: what teaches nothing, falls, stands still, or is earned at the cost of something else."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlvr.formatting import number
from rlvr.health.finding import Finding, percent
from rlvr.health.run_metrics import LEAST, NEAR, RunMetrics
from rlvr.health.trends import change, fall, noise

FLAT = 5  # windows in which a reward that does not move is called flat


def no_spread(run: RunMetrics) -> Iterator[Finding]:
    """Groups whose completions all get the same reward teach nothing; the reward's place in its range says why."""
    held = run.held("frac_reward_zero_std", [("alarm", 0.9, 0.8), ("warning", 0.7, 0.55)])
    if held is None:
        return
    level, since = held
    reward = number(run.now("reward")) if run["reward"] else "unknown"
    # A reward that nobody ever earned has a range of 0, so that the others alone seem to be at their top.
    main = run.heaviest() or set(run.names())
    place = 0.0 if main & set(run.unearned()) else run.place()
    if place is not None and place > 0.8:
        if run.has_risen():
            level, why = "note", "most are solved"
            advice = "harder rows would teach more; stop when the validation no longer rises"
        else:
            why, advice = "the task is too easy", "take harder rows (scripts/filter_by_pass_rate.py)"
    elif place is not None and place < 0.2:
        why = "the task is too hard"
        advice = "take easier rows (scripts/filter_by_pass_rate.py), or pay for partial work"
        if run.since_start() < -NEAR or run.has_fallen():
            why, advice = "the model has lost what it could", f"lower {run.setting('learning_rate')} and start again"
    elif run.is_repetitive():
        why, advice = "a group's completions are almost the same", f"raise {run.setting('temperature')}"
    else:
        why = "the prompts are too hard or too easy"
        advice = "filter the rows (scripts/filter_by_pass_rate.py), or set dynamic_sampling"
    yield Finding(
        level,
        "frac_reward_zero_std",
        f"{percent(run.now('frac_reward_zero_std'))} of the groups have no spread at reward {reward}: {why}",
        advice,
        since,
    )


def reward_falls(run: RunMetrics) -> Iterator[Finding]:
    fell = run.has_fallen()
    if fell is None:
        return
    by_design = run.settings.get("curriculum") == "easy_first"
    advice = f"lower {run.setting('learning_rate')} or raise {run.setting('beta')}, and resume from before the fall"
    yield Finding(
        "note" if by_design else "alarm" if -fell.size > 0.3 * run.span() else "warning",
        "reward",
        f"the reward falls, {number(fell.before)} → {number(fell.after)} since step {fell.since_step:,}",
        "a curriculum gets harder as it goes: compare with the validation" if by_design else advice,
        fell.since_step,
    )


def reward_flat(run: RunMetrics) -> Iterator[Finding]:
    reward, length = run["reward"], FLAT * run.window
    if len(reward) < length or run.is_at_top():
        return
    moved = change(reward.last(length)[: run.window], reward.last(run.window))
    # Well inside chance: a slow rise is none of our business.
    if moved.is_real(2.0) or abs(moved.size) > 0.02 * run.span():
        return
    level, since = ("note", "no longer moves") if run.has_risen() else ("warning", "has not moved")
    yield Finding(
        level,
        "reward",
        f"the reward {since}: {number(moved.before)} → {number(moved.after)} in {length} log lines",
        "it may be as good as it gets; measure, and stop if so"
        if level == "note"
        else f"raise {run.setting('learning_rate')} or num_generations, and read some completions",
        reward.steps[-length],
    )


def unearned(run: RunMetrics) -> Iterator[Finding]:
    for name in run.unearned():
        if len(run.names()) > 1:
            main = name in run.heaviest()
            yield Finding(
                "warning" if main else "note",
                f"rewards/{name}/mean",
                f"{name} has been 0 for every completion so far",
                "fine for a penalty; else the task is too hard, or the reward does not find the answers: read some "
                "completions (scripts/score.py --why)",
                run[f"rewards/{name}/mean"].steps[0],
            )


def trade_off(run: RunMetrics) -> Iterator[Finding]:
    """One reward at its top while another falls: the cheaper one is served at the other's cost."""
    saturated = [name for name in run.names() if run.is_at_top(name) and run.span(name) > 0]
    for name in run.names():
        fell = fall(run[f"rewards/{name}/mean"], run.window)
        others = [other for other in saturated if other != name]
        if others and fell and -fell.size > 0.1 * run.span(name) and fell.is_real(4.0):
            yield Finding(
                "warning",
                f"rewards/{name}/mean",
                f"{name} falls, {number(fell.before)} → {number(fell.after)}, while {others[0]} is at its top",
                f"give {name} more weight, or make it the gate of {others[0]}",
                fell.since_step,
            )


def validation_falls(run: RunMetrics) -> Iterator[Finding]:
    """Three measurements clearly below three earlier ones, while the reward in training went up."""
    key = "eval_accuracy" if run["eval_accuracy"] else "eval_reward"
    series, reward = run[key], run["reward"]
    fell = fall(series, 3)
    if fell is None:
        return
    span = 1.0 if key == "eval_accuracy" else run.span()
    error = noise(series.values) * math.sqrt(2 / 3)  # of the difference of two means of three
    best, step = max(zip(series.values, series.steps, strict=True))
    before, after = reward.until(step)[-run.short :], reward.since(step)[-run.short :]
    if min(len(before), len(after)) < LEAST or -fell.size <= max(0.05 * span, 4 * error):
        return
    if change(before, after).size > 0:
        yield Finding(
            "warning",
            key,
            f"validation falls, {number(best)} → {number(fell.after)} since step {step:,}, while the reward rises",
            f"take the checkpoint of step {step:,}; look for completions that please the reward and are wrong",
            step,
        )
