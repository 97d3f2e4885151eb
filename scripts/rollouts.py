#!/usr/bin/env python
"""Export the completions of a run to one file, with their prompts, rewards and other logged columns.

    python scripts/rollouts.py runs/demo-arithmetic                                  # all of training, as JSONL
    python scripts/rollouts.py runs/demo-arithmetic --steps 1:50 --out first.parquet
    python scripts/rollouts.py runs/demo-arithmetic --of trained                     # held-out answers
    python scripts/score.py --config runs/demo-arithmetic/recipe.yaml first.parquet  # score them again

The default is rollouts.jsonl in the run directory. While the run is in progress, give --out elsewhere. A row is one
completion. score.py computes the same scores from the file as from the run directory, in the same order.

Exit codes: 0 written; 2 there is no such run or step, or the file can't be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.errors import InputError
from rlvr.formatting import count, visible

FORMATS = (".jsonl", ".parquet")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="output_dir of a run")
    parser.add_argument("--steps", metavar="FIRST:LAST", help="only these steps, such as 7, 1:50, 50: or :50")
    parser.add_argument(
        "--of",
        choices=("training", "base", "trained"),
        default="training",
        help="source of the completions; default: training",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .jsonl or .parquet file")
    options = parser.parse_args(words)
    out = options.out or options.run_dir / "rollouts.jsonl"
    console.silence_libraries()
    try:
        if out.suffix not in FORMATS:
            message = f"--out {out} has an unknown format. Its name must end in {' or '.join(FORMATS)}."
            raise InputError(message, kind="invalid-flag", key="--out")
        if options.steps is not None and options.of != "training":
            message = (
                f"--steps selects training steps, but the answers of {options.of} belong to no step. Leave it out."
            )
            raise InputError(message, kind="invalid-flag", key="--steps")
        refuse_if_in_use(out.parent, "Choose another file with --out")
        with console.SlowStep(f"Exporting the completions of {options.run_dir}"):
            from rlvr.reward_audit.rollout_file import write_rollouts

            rows, notes = write_rollouts(options.run_dir, options.of, options.steps, out)
    except InputError as error:
        console.error(visible(str(error)))  # messages quote completions
        return 2
    for note in notes:
        console.error(note)
    console.info(f"{out}: {count(rows, 'completion')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
