"""Check a recipe for `run_grpo.py --check`, and print what a check or a run will do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rlvr import console
from rlvr.artifacts.resumption import Resumption
from rlvr.config.recipe import Recipe
from rlvr.config.recipe_writer import text_in_full
from rlvr.errors import Problem, problems_as_json
from rlvr.formatting import count
from rlvr.preflight.components import TargetMachine as TargetMachine  # for run_grpo.py
from rlvr.preflight.prepare import prepare_run

DETAILS = ("data", "memory")  # kinds of notes


def check(
    recipe: Recipe, target: TargetMachine, known: Sequence[Problem], *, as_json: bool = False, show: bool = False
) -> int:
    """Report all problems in one pass; return the exit code.

    Args:
        known: errors of the recipe's text, already printed.
        show: also print the recipe with all of its keys.

    Raises:
        InputError: with all errors.
    """
    console.silence_loading_bars()
    with prepare_run(recipe, target, only_check=True, known_problems=known) as prepared:
        if as_json:
            console.print_json(problems_as_json(prepared.remarks, asdict(prepared.plan)))
            return 0
        introduce(recipe, prepared.remarks, details=show)
        if show:
            console.info(f"\n{text_in_full(recipe)}")
        warnings = sum(remark.level == "warning" for remark in prepared.remarks)
        console.info(f"No errors, {count(warnings, 'warning')}: see above." if warnings else "No problems found.")
        return 0


def introduce(
    recipe: Recipe, remarks: Iterable[Problem], resumption: Resumption | None = None, *, details: bool = False
) -> None:
    """Print what will run. A run that continues printed the notes when it began: one line, and its warnings.

    Args:
        details: also print what was done to the rows, and the table of memory.
    """
    rewards = " + ".join(f"{spec.weight:g} x {spec.name}" for spec in recipe.rewards)
    line = f"{recipe.path}: {recipe.settings['model_name_or_path']} on {recipe.task_name}, reward = {rewards}"
    if resumption is not None and not resumption.fresh:
        line = "; ".join([line, *resumption.notes])
        remarks = [remark for remark in remarks if remark.level == "warning"]
    console.info(line)
    for remark in remarks:
        if remark.kind in DETAILS and remark.level == "note" and not details:
            continue
        console.info(f"  {remark}")
