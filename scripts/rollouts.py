#!/usr/bin/env python
"""Exports the completions of a run to one file, with their prompts, rewards and whatever else was logged of them.

    python scripts/rollouts.py runs/demo-arithmetic                                  # all of training, as JSONL
    python scripts/rollouts.py runs/demo-arithmetic --steps 1:50 --out first.parquet
    python scripts/rollouts.py runs/demo-arithmetic --of trained                     # the held-out answers afterwards
    python scripts/score.py --config runs/demo-arithmetic/recipe.yaml first.parquet  # score them again

The default is rollouts.jsonl in the run directory. A row is one completion; score.py finds the same rewards in the file
as in the run directory, in the same order.

Exit codes: 0 written; 2 there is no such run or step, or the file can't be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr/, wherever this is started from

from rlvr import console
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.data.io import Row

FORMATS = (".jsonl", ".parquet")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the folder that a run wrote to")
    parser.add_argument("--steps", metavar="FIRST:LAST", help="only these steps; 7, 1:50, 50: and :50 are understood")
    parser.add_argument(
        "--of", choices=("training", "base", "trained"), default="training", help="whose completions; default: training"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .jsonl or .parquet file")
    options = parser.parse_args(words)
    out = options.out or options.run_dir / "rollouts.jsonl"
    console.silence_libraries()
    try:
        if out.suffix not in FORMATS:
            raise InputError(f"--out {out} should end in {' or '.join(FORMATS)}.")
        if options.steps is not None and options.of != "training":
            raise InputError(f"--steps is about training; the answers of {options.of} belong to no step. Leave it out.")
        rows, notes = read(options.run_dir, options.of)
        if options.steps is not None:
            rows = of_steps(rows, options.steps)
        write(out, rows)
    except InputError as error:
        from rlvr.rescoring.completions import visible  # messages quote what a model wrote

        console.error(visible(str(error)))
        return 2
    for note in notes:
        console.error(note)
    console.info(f"{out}: {len(rows):,} completion{'s' * (len(rows) != 1)}")
    return 0


def read(run_dir: Path, of: str) -> tuple[list[Row], tuple[str, ...]]:
    """The rows, and a sentence for each file that was left out.

    Raises:
        InputError: there is no such folder, it holds none of these completions, or a later version wrote it.
    """
    from rlvr.artifacts.directory import read_status
    from rlvr.rescoring.completions import read_completions

    if not run_dir.is_dir():
        raise InputError(f"There is no folder {run_dir}: give the one that a run wrote to (its recipe's output_dir).")
    read_status(run_dir)  # refuses what a later version wrote
    folder = run_dir / "completions"
    if of == "training":
        if not any(folder.glob("completions_*.parquet")):
            raise InputError(
                f"{run_dir} holds no completions of training (completions/completions_00001.parquet or the like): the "
                "run has made no step yet, its recipe says log_completions: false, or it is no run directory."
            )
        source = read_completions(str(folder))
        return source.rows, tuple(note for note in source.notes if "evaluation_" not in note)
    file = folder / f"evaluation_{of}.parquet"
    if not file.is_file():
        raise InputError(f"{run_dir} holds no {file.relative_to(run_dir)}: the {of} model was not evaluated there.")
    return read_completions(str(file)).rows, ()


def of_steps(rows: Sequence[Row], asked: str) -> list[Row]:
    """The rows of the steps from FIRST to LAST, both included."""
    first, colon, last = asked.partition(":")
    try:
        low = int(first) if first.strip() else 0
        high = int(last) if last.strip() else (low if not colon else sys.maxsize)
    except ValueError:
        raise InputError(f"--steps {asked} should be FIRST:LAST, like 1:50, or one step, like 7.") from None
    if high < low:
        raise InputError(f"--steps {asked} begins after its end. Write {high}:{low}.")
    found = [row for row in rows if isinstance(row.get("step"), int) and low <= row["step"] <= high]
    if not found:
        steps = sorted({row["step"] for row in rows if isinstance(row.get("step"), int)})
        there = (
            f"there are completions of {len(steps)} steps from {steps[0]} to {steps[-1]}"
            if steps
            else "no row says its step"
        )
        raise InputError(f"--steps {asked}: no completion is of these steps; {there}.")
    return found


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes the file whole, or leaves what was there.

    Raises:
        InputError: it can't be written.
    """
    beside = path.with_name(f".{path.name}.tmp")
    try:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            # A column that only some steps have, such as what a reward logged now and then, is null in the others.
            columns = {name: None for row in rows for name in row}
            try:
                table = pa.Table.from_pylist([{**columns, **row} for row in rows])
            except pa.ArrowException as error:
                raise InputError(f"Not all rows fit one parquet table ({error}): write a .jsonl file.") from None
            pq.write_table(table, beside)
        else:
            with beside.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        beside.replace(path)
    except OSError as error:
        raise InputError(
            f"--out {path} can't be written: {error.strerror}. Name a file in a folder that exists."
        ) from error
    finally:
        beside.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
