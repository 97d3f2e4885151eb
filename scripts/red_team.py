#!/usr/bin/env python
"""Attack the rewards of a recipe before training: find texts that score without being correct.

    python scripts/red_team.py --config recipes/demo-arithmetic.yaml
    python scripts/red_team.py --config RECIPE --minutes 10 --json findings.json
    python scripts/red_team.py --config runs/demo-arithmetic/recipe.yaml --run_dir runs/demo-arithmetic

The script scores a list of texts on rows of the task, without a model or a GPU. With a run directory, the script also
scores the completions of the run, and writes red_team.json there. Any recipe key can be overridden.
docs/rewards.md#attack-the-rewards-of-a-recipe explains the table.

Exit codes: 0 the rewards hold or are lenient; 1 they are broken or untested; 2 the recipe or an option is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import load_recipe
from rlvr.errors import InputError
from rlvr.formatting import visible


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter, allow_abbrev=False)
    parser.add_argument(
        "--config", required=True, type=Path, metavar="RECIPE", help="recipe of the rewards and the task"
    )
    parser.add_argument(
        "--minutes", type=console.positive_float, default=2.0, metavar="M", help="time to spend; default: 2"
    )
    parser.add_argument("--run_dir", type=Path, metavar="DIR", help="a run: use its completions, write red_team.json")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all findings to OUT")
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    try:
        for folder in filter(None, (options.run_dir, options.json and options.json.parent)):
            if not folder.is_dir():
                raise InputError(
                    f"There is no folder {folder}. Name an existing one.", kind="not-a-folder", path=folder
                )
            refuse_if_in_use(folder, "Wait for its end")
        recipe = load_recipe(options.config, overrides)
        from rlvr.reward_audit.red_team import red_team

        return red_team(recipe, options.minutes, options.run_dir, options.json)
    except InputError as error:
        console.error(visible(str(error)))  # messages quote completions
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
