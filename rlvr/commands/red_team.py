"""Attack the rewards of a recipe, show the findings and keep them: scripts/red_team.py."""

from __future__ import annotations

from pathlib import Path

from rlvr import console, report
from rlvr.artifacts.directory import write_json
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.red_team.exercise import attack_recipe
from rlvr.red_team.findings import FILE, Findings
from rlvr.rescoring.completions import read_completions
from rlvr.scoring.registry import load_rewards, load_tasks

VERDICTS = ("holds", "lenient", "untested", "broken")  # from good to bad


def attack(recipe: Recipe, minutes: float, run_dir: Path | None, file: Path | None) -> int:
    """Attack the rewards, mixed tasks one by one; return the exit code.

    Args:
        run_dir: a run, whose completions are tried too, and whose report gets the findings.
        file: for the findings.
    """
    with console.SlowStep(f"Loading the rewards and the task {recipe.task_name}"):
        rewards, task = load_rewards(recipe.rewards), load_tasks(recipe.tasks)
        completions = [] if run_dir is None else read_completions(str(run_dir)).rows
    console.error(f"{recipe.path}: attacking {', '.join(reward.label for reward in rewards)} …")
    parts = attack_recipe(recipe, task, rewards, seconds=60 * minutes, completions=completions)
    for label, findings in parts.items():
        _show(f"{recipe.path}{f', {label}' if label else ''}", findings)
    worst = max(parts.values(), key=lambda findings: VERDICTS.index(findings.verdict))
    content = {**worst.as_dict(), "verdicts": {label: one.verdict for label, one in parts.items() if label}}
    for path in filter(None, (file, run_dir and run_dir / FILE)):
        try:
            write_json(path, content)
        except OSError as error:
            raise InputError(
                f"{path} can't be written: {error.strerror}. Name another file.", kind="unwritable", path=path
            ) from error
        console.info(f"  {path}")
    if run_dir is not None:
        console.info(f"  {report.write_report(run_dir)}")
    return 1 if worst.verdict in ("broken", "untested") else 0


def _show(name: str, findings: Findings) -> None:
    tried = f"{findings.texts:,} texts scored, {findings.rows} training rows, {console.duration(findings.seconds)}"
    console.info(console.bold(f"{name}: {tried}"))
    if findings.unpaid_reference is None:
        console.info(f"  a right answer earns {findings.right:.3g}\n")
    console.info("\n".join([findings.table(), "", *(f"  {line}" for line in findings.sentences())]))
    colour = console.red if findings.verdict == "broken" else console.bold
    console.info(f"\n  {colour(f'Verdict: {findings.verdict}')}\n")
