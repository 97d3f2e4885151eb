#!/usr/bin/env python
"""Score existing completions with the rewards of a recipe, and explain single scores.

    python scripts/score.py --config recipes/demo-arithmetic.yaml runs/demo-arithmetic              # a run
    python scripts/score.py --config RECIPE completions.jsonl --why 17                              # explain one row
    python scripts/score.py --config RECIPE completions.jsonl --rewards.math_correctness.options.prose false

It needs neither a model nor a GPU. FILE is JSON, JSONL or parquet with a column `completion`, a run directory (its
sampled completions), or - for JSONL on standard input. Columns that a reward needs and the file lacks, such as
final_answer, are looked up in the recipe's task by the row's prompt. Any recipe key can be overridden behind FILE, as
with run_grpo.py.

Exit codes: 0 scored; 2 the recipe, a reward or the file is wrong.
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
    parser = argparse.ArgumentParser(
        usage="score.py --config RECIPE FILE [--why ROW] [--limit N] [--json OUT]\n"
        "                [--completion_column NAME] [--key value …]",
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", required=True, type=Path, metavar="RECIPE", help="recipe of the rewards and the task"
    )
    parser.add_argument("file", metavar="FILE", help="completions; before any override")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--why", type=int, metavar="ROW", help="explain the score of one row; rows are counted from 0")
    parser.add_argument("--limit", type=console.positive_int, metavar="N", help="read only the first N rows")
    parser.add_argument(
        "--completion_column", default="completion", metavar="NAME", help="column to score; default: completion"
    )
    either.add_argument("--json", type=Path, metavar="OUT", help="write all statistics and each row's scores to OUT")
    words = sys.argv[1:] if words is None else list(words)
    options, overrides = parser.parse_known_args(words)
    file = options.file
    before = words[words.index(file) - 1] if file in words[1:] else ""
    if before in overrides and "=" not in before:
        parser.error(f"FILE stands before overrides, or write {before}={file}")

    console.silence_libraries()
    try:
        if options.json is not None and options.json.resolve() == Path(file).resolve():
            message = f"--json {options.json} would overwrite the completions. Name another file."
            raise InputError(message, kind="invalid-flag", key="--json")
        if options.json is not None:
            refuse_if_in_use(options.json.parent, "Name another file with --json")
        recipe = load_recipe(options.config, overrides)
        from rlvr.reward_audit import score_file

        if options.why is not None:
            return score_file.explain_row(recipe, file, options.completion_column, options.limit, options.why)
        return score_file.score_file(recipe, file, options.completion_column, options.limit, options.json)
    except InputError as error:
        console.error(visible(str(error)))  # messages quote completions
        return 2


if __name__ == "__main__":
    sys.exit(main())
