"""Attack the rewards before anything is loaded, for `--check --thorough`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlvr.config.recipe import Recipe
from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.errors import InputError, Problem
from rlvr.red_team.exercise import attack, scorer_for
from rlvr.scoring.reward import Reward

SECONDS = 30.0
EVALUATIONS = 8000


def attack_rewards(recipe: Recipe, task: Task, rewards: Sequence[Reward]) -> list[Problem]:
    """The verdict of a short red-team exercise on each task: a warning if its rewards are broken, else a note."""
    if not task.parts:
        return [_attack(recipe, task, rewards)]
    problems = []
    for label, part in task.parts.items():
        problem = _attack(recipe, part, [reward for reward in rewards if reward.applies(label)])
        problems.append(replace(problem, message=f"{label}: {problem.message}"))
    return problems


def _attack(recipe: Recipe, task: Task, rewards: Sequence[Reward]) -> Problem:
    try:
        with SlowStep(f"Attacking the rewards, for up to {SECONDS:g} s"), scorer_for(recipe, rewards) as scorer:
            findings = attack(task, rewards, scorer, seconds=SECONDS, evaluations=EVALUATIONS)
    except InputError as error:
        return Problem(f"the rewards were not attacked: {error}", "red-team", level="note")
    message = (
        f"the red team tried {findings.texts:,} texts on the rewards. Verdict: {findings.verdict}. "
        f"{' '.join(findings.sentences())}"
    )
    if not recipe.task.parts:  # which the script takes
        message += f" `python scripts/red_team.py --config {recipe.path}` tries more."
    return Problem(message, "red-team", "rewards", level="warning" if findings.verdict == "broken" else "note")
