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
from typing import TYPE_CHECKING

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.data.io import write_rows
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.data.io import Row

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
            rows, notes = read(options.run_dir, options.of)
            if options.steps is not None:
                rows = of_steps(rows, options.steps)
            write(out, rows)
    except InputError as error:
        from rlvr.rescoring.completions import visible  # messages quote completions

        console.error(visible(str(error)))
        return 2
    for note in notes:
        console.error(note)
    console.info(f"{out}: {len(rows):,} completion{'s' * (len(rows) != 1)}")
    return 0


def read(run_dir: Path, of: str) -> tuple[list[Row], tuple[str, ...]]:
    """Read the rows, and a sentence for each file that was left out.

    Raises:
        InputError: of kind "not-a-run", "no-completions" or "later-format".
    """
    from rlvr.artifacts.directory import read_status
    from rlvr.rescoring.completions import read_completions

    if not run_dir.is_dir():
        message = f"There is no folder {run_dir.absolute()}. Give the output_dir of a run."
        raise InputError(message, kind="not-a-run", path=run_dir)
    read_status(run_dir)  # refuses a run of a later version
    folder = run_dir / "completions"
    if of == "training":
        if not any(folder.glob("completions_*.parquet")):
            raise InputError(
                f"{run_dir} holds no completions of training (completions/completions_00001.parquet and so on): the "
                "run has made no step yet, or its recipe has log_completions: false. Name another run.",
                kind="no-completions",
                path=run_dir,
            )
        source = read_completions(str(folder))
        return source.rows, tuple(note for note in source.notes if "evaluation_" not in note)
    file = folder / f"evaluation_{of}.parquet"
    if not file.is_file():
        message = f"{run_dir} holds no {file.relative_to(run_dir)}: the {of} model was not evaluated."
        raise InputError(message, kind="no-completions", path=file)
    return read_completions(str(file)).rows, ()


def of_steps(rows: Sequence[Row], selection: str) -> list[Row]:
    """Select the rows of the steps FIRST to LAST, both included."""
    first, colon, last = selection.partition(":")
    try:
        low = int(first) if first.strip() else 0
        high = int(last) if last.strip() else (low if not colon else sys.maxsize)
    except ValueError:
        message = f"--steps {selection} is invalid. Write FIRST:LAST, such as 1:50, or one step, such as 7."
        raise InputError(message, kind="invalid-flag", key="--steps") from None
    if high < low:
        message = f"--steps {selection} begins after its end. Write {high}:{low}."
        raise InputError(message, kind="invalid-flag", key="--steps")
    selected = [row for row in rows if isinstance(row.get("step"), int) and low <= row["step"] <= high]
    if not selected:
        steps = sorted({row["step"] for row in rows if isinstance(row.get("step"), int)})
        known = f"The run has {len(steps)} steps from {steps[0]} to {steps[-1]}." if steps else "No row has a step."
        message = f"--steps {selection} selects no completion. {known}"
        raise InputError(message, kind="invalid-flag", key="--steps")
    return selected


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write the file atomically.

    Raises:
        InputError: of kind "unwritable".
    """
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            # A column that only some steps have, such as one that a reward logs now and then, is null in the others.
            columns = {name: None for row in rows for name in row}
            try:
                table = pa.Table.from_pylist([{**columns, **row} for row in rows])
            except pa.ArrowException as error:
                message = f"The rows don't fit one parquet table: {error}. Write a .jsonl file."
                raise InputError(message, kind="unwritable", key="--out") from None
            pq.write_table(table, part)
            part.replace(path)
        else:
            write_rows(path, rows)
    except OSError as error:
        raise InputError(
            f"--out {path} can't be written: {error.strerror}. Name a file in an existing folder.",
            kind="unwritable",
            key="--out",
            path=path,
        ) from error
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
