"""Attack the rewards before anything is loaded, for `--check --thorough`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr.config.recipe import Recipe
from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.errors import InputError, Problem
from rlvr.red_team.exercise import attack_recipe
from rlvr.scoring.reward import Reward

SECONDS = 30.0


def attack_rewards(recipe: Recipe, task: Task, rewards: Sequence[Reward]) -> Iterator[Problem]:
    """The verdict of a short red-team exercise on each task; a warning if its rewards are broken or untested."""
    try:
        with SlowStep(f"Attacking the rewards, for up to {SECONDS:g} s"):
            parts = attack_recipe(recipe, task, rewards, seconds=SECONDS)
    except InputError as error:
        yield Problem(f"the rewards were not attacked: {error}", "red-team", level="note")
        return
    for label, findings in parts.items():
        message = (
            f"{label}: " * bool(label) + f"the red team tried {findings.texts:,} texts on the rewards. Verdict: "
            f"{findings.verdict}. {' '.join(findings.sentences())} "
            f"`python scripts/red_team.py --config {recipe.path}` tries more."
        )
        yield Problem(
            message, "red-team", "rewards", level="warning" if findings.verdict in ("broken", "untested") else "note"
        )
