"""Write the completions of a run to one file: scripts/rollouts.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr.artifacts.directory import read_status
from rlvr.data.io import Row, write_rows
from rlvr.errors import InputError
from rlvr.reward_audit.completions import read_completions


def write_rollouts(run_dir: Path, of: str, steps: str | None, path: Path) -> tuple[int, tuple[str, ...]]:
    """Write a .jsonl or .parquet file.

    Args:
        of: "training", or the model of an evaluation: "base" or "trained".
        steps: FIRST:LAST, both included; None for all.

    Returns:
        The number of rows, and a sentence for each file that was left out.

    Raises:
        InputError: of kind "not-a-run", "no-completions", "later-format", "invalid-flag" or "unwritable".
    """
    rows, notes = _read(run_dir, of)
    if steps is not None:
        rows = _of_steps(rows, steps)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.suffix == ".parquet":
            # A column that only some steps have, such as one that a reward logs now and then, is null in the others.
            columns = {name: None for row in rows for name in row}
            pq.write_table(pa.Table.from_pylist([{**columns, **row} for row in rows]), part)
            part.replace(path)
        else:
            write_rows(path, rows)
    except pa.ArrowException as error:
        message = f"The rows don't fit one parquet table: {error}. Write a .jsonl file."
        raise InputError(message, kind="unwritable", key="--out") from None
    except OSError as error:
        message = f"--out {path} can't be written: {error.strerror}. Name a file in an existing folder."
        raise InputError(message, kind="unwritable", key="--out", path=path) from error
    finally:
        part.unlink(missing_ok=True)
    return len(rows), notes


def _read(run_dir: Path, of: str) -> tuple[list[Row], tuple[str, ...]]:
    if not run_dir.is_dir():
        message = f"There is no folder {run_dir.absolute()}. Give the output_dir of a run."
        raise InputError(message, kind="not-a-run", path=run_dir)
    read_status(run_dir)  # refuses a run of a later version
    folder = run_dir / "completions"
    if of != "training":
        file = folder / f"evaluation_{of}.parquet"
        if not file.is_file():
            message = f"{run_dir} holds no {file.relative_to(run_dir)}: the {of} model was not evaluated."
            raise InputError(message, kind="no-completions", path=file)
        return read_completions(str(file)).rows, ()
    if not any(folder.glob("completions_*.parquet")):
        raise InputError(
            f"{run_dir} holds no completions of training (completions/completions_00001.parquet and so on): the "
            "run has made no step yet, or its recipe has log_completions: false. Name another run.",
            kind="no-completions",
            path=run_dir,
        )
    source = read_completions(str(folder))
    return source.rows, tuple(note for note in source.notes if "evaluation_" not in note)


def _of_steps(rows: Sequence[Row], selection: str) -> list[Row]:
    first, colon, last = selection.partition(":")
    try:
        low = int(first) if first.strip() else 0
        high = int(last) if last.strip() else (low if not colon else sys.maxsize)
    except ValueError:
        message = f"--steps {selection} is invalid. Write FIRST:LAST, such as 1:50, or one step, such as 7."
        raise InputError(message, kind="invalid-flag", key="--steps") from None
    selected = [row for row in rows if isinstance(row.get("step"), int) and low <= row["step"] <= high]
    if not selected:
        steps = sorted({row["step"] for row in rows if isinstance(row.get("step"), int)})
        known = f"The run has {len(steps)} steps from {steps[0]} to {steps[-1]}." if steps else "No row has a step."
        message = f"--steps {selection} selects no completion. {known}"
        raise InputError(message, kind="invalid-flag", key="--steps")
    return selected
