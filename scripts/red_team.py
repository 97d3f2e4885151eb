#!/usr/bin/env python
"""Attack the rewards of a recipe before training: find texts that earn them without being right.

    python scripts/red_team.py --config recipes/demo-arithmetic.yaml
    python scripts/red_team.py --config RECIPE --minutes 10 --json findings.json
    python scripts/red_team.py --config runs/demo-arithmetic/recipe.yaml --run_dir runs/demo-arithmetic

It needs neither a model nor a GPU. It tries a list of texts on rows of the task. With a run directory, it also tries
the completions of the run, and the report of the run shows the result. Any recipe key can be overridden, as with
run_grpo.py. docs/red-team.md explains the table.

Exit codes: 0 the rewards hold or are lenient; 1 they are broken; 2 the recipe or an option is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.red_team.findings import Findings


VERDICTS = ("holds", "lenient", "untested", "broken")  # from good to bad


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter, allow_abbrev=False)
    parser.add_argument(
        "--config", required=True, type=Path, metavar="RECIPE", help="recipe of the rewards and the task"
    )
    parser.add_argument("--minutes", type=float, default=2.0, metavar="M", help="time to spend; default: 2")
    parser.add_argument("--run_dir", type=Path, metavar="DIR", help="a run: use its completions, update its report")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all findings to OUT")
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    try:
        if not options.minutes > 0:
            raise InputError(
                f"--minutes is {options.minutes:g}, but must be above 0.", kind="out-of-range", key="--minutes"
            )
        for folder in filter(None, (options.run_dir, options.json and options.json.parent)):
            if not folder.is_dir():
                raise InputError(
                    f"There is no folder {folder}. Name an existing one.", kind="not-a-folder", path=folder
                )
            refuse_if_in_use(folder, "Wait for its end")
        recipe = load_recipe(options.config, overrides)
        parts = attack(recipe, options)
        for label, findings in parts.items():
            show(f"{recipe.path}{f', {label}' if label else ''}", findings)
        worst = max(parts.values(), key=lambda findings: VERDICTS.index(findings.verdict))
        content = {**worst.as_dict(), "verdicts": {label: one.verdict for label, one in parts.items() if label}}
        write(content, options.json, options.run_dir)
    except InputError as error:
        from rlvr.rescoring.completions import visible  # messages quote completions

        console.error(visible(str(error)))
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    return 1 if worst.verdict in ("broken", "untested") else 0


def attack(recipe: Recipe, options: argparse.Namespace) -> dict[str, Findings]:
    """Load the task and the rewards, and attack them; mixed tasks one by one, by their labels."""
    with console.SlowStep(f"Loading the rewards and the task {recipe.task_name}"):
        from rlvr.red_team.exercise import attack_recipe
        from rlvr.rescoring.completions import read_completions
        from rlvr.scoring.registry import load_rewards, load_tasks

        rewards = load_rewards(recipe.rewards)
        task = load_tasks(recipe.tasks)
        completions = [] if options.run_dir is None else read_completions(str(options.run_dir)).rows
    console.error(f"{recipe.path}: attacking {', '.join(reward.label for reward in rewards)} …")
    return attack_recipe(
        recipe,
        task,
        rewards,
        seconds=60 * options.minutes,
        completions=completions,
    )


def show(name: str, findings: Findings) -> None:
    console.info(
        console.bold(f"{name}: {findings.texts:,} texts scored, {findings.rows} training rows, ")
        + console.bold(f"{console.duration(findings.seconds)}")
    )
    if findings.unpaid_reference is None:
        console.info(f"  a right answer earns {findings.right:.3g}\n")
    console.info(findings.table())
    console.info()
    for line in findings.sentences():
        console.info(f"  {line}")
    colour = console.red if findings.verdict == "broken" else console.bold
    console.info(f"\n  {colour(f'Verdict: {findings.verdict}')}\n")


def write(content: dict[str, Any], path: Path | None, run_dir: Path | None) -> None:
    """Write the JSON, and the report of the run."""
    from rlvr.artifacts.directory import write_json
    from rlvr.red_team.findings import FILE

    for file in filter(None, (path, run_dir and run_dir / FILE)):
        try:
            write_json(file, content)
        except OSError as error:
            raise InputError(
                f"{file} can't be written: {error.strerror}. Name another file.", kind="unwritable", path=file
            ) from error
        console.info(f"  {file}")
    if run_dir is not None:
        from rlvr import report

        console.info(f"  {report.write_report(run_dir)}")


if __name__ == "__main__":
    sys.exit(main())
