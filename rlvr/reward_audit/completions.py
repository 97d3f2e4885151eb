"""Read existing completions from files and run directories.

Models and data sets wrote these texts: print them only through `visible` or `one_line`. Rows are numbered from 0, in
the order in which they are read.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data.input_checks import missing, missing_column_error, row_error
from rlvr.data.io import Row, read_rows
from rlvr.environments.transcript import as_json, without_nulls
from rlvr.errors import InputError
from rlvr.formatting import count


@dataclass(frozen=True)
class CompletionRows:
    """Rows with their completions under "completion", and sentences on files that were left out."""

    rows: list[Row]
    notes: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def read_completions(path: str, column: str = "completion", limit: int | None = None) -> CompletionRows:
    """Read the rows of a file, of standard input ("-"), or of a run directory.

    From a run directory, or its folder of completions, it reads the sampled completions in the order of the steps;
    without any, those of the evaluations.

    Args:
        path: JSON, JSONL, parquet, a folder, or "-".
        column: column of the completion. A list of strings counts as several rows with the same other columns.
        limit: maximum number of rows.

    Raises:
        InputError: of kind "no-completions" or "missing-column", or the file can't be read.
    """
    notes: tuple[str, ...] = ()
    if path == "-":
        raw = _read_standard_input()
    elif Path(path).is_dir():
        raw, notes = _read_folder(Path(path), limit)
    else:
        raw = read_rows(Path(path))
    rows: list[Row] = []
    for number, row in enumerate(raw):
        if column not in row:
            where = f"Row {number} of {'standard input' if path == '-' else path}"
            hint = "Name the column of the completions with --completion_column."
            raise missing_column_error(where, column, row, hint)
        gold, value = row.get("final_answer"), row[column]
        if isinstance(gold, int | float) and not isinstance(gold, bool):  # as the task jsonl reads numbers
            if problem := missing(gold):
                raise row_error(f"{path}, row {number}", "final_answer", number, problem)
            row = {**row, "final_answer": str(gold)}
        several = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
        row = {**row, **({"prompt": without_nulls(row["prompt"])} if "prompt" in row else {})}
        rows += [{**row, "completion": without_nulls(one)} for one in (value if several else [value])]
        if limit is not None and len(rows) >= limit:
            break
    rows = rows[:limit]
    if empty := [number for number, row in enumerate(rows) if row["completion"] is None]:
        notes = (*notes, f"{count(len(empty), 'completion')} null, scored as empty text (first: row {empty[0]}).")
    return CompletionRows(rows, notes)


def _read_standard_input() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input.jsonl"
        file.write_bytes(sys.stdin.buffer.read())
        try:
            return read_rows(file)
        except InputError as error:
            message = str(error).replace(str(file), "standard input")
            raise InputError(message, kind=error.kind, key=error.key, row=error.row) from None


def _read_folder(folder: Path, limit: int | None) -> tuple[list[Row], tuple[str, ...]]:
    source = folder / "completions" if (folder / "completions").is_dir() else folder
    files = sorted(
        (int(match[1]), file)
        for file in source.iterdir()
        if (match := re.fullmatch(r"completions_(\d{1,18})\.parquet", file.name))
    )
    evaluations = sorted(source.glob("evaluation_*.parquet"))
    if not files and not evaluations:
        raise InputError(
            f"{folder} holds no completions (completions_00001.parquet and so on). Name a file, or the directory of a "
            "run that made a step with log_completions: true.",
            kind="no-completions",
            path=folder,
        )
    if not files:
        return [row for file in evaluations for row in read_rows(file)], ()
    notes = []
    if evaluations:
        names = " and ".join(file.name for file in evaluations)
        notes.append(f"Left out: {names} (greedy, on held-out rows). Name one to score it.")
    rows: list[Row] = []
    previous: list[tuple[str, str]] = []
    unreadable, repeated = [], 0
    for _, file in files:
        try:
            step_rows = read_rows(file)
        except InputError:  # a killed run, or one that is in progress
            unreadable.append(file.name)
            continue
        texts = [(repr(row.get("prompt")), repr(row.get("completion"))) for row in step_rows]
        if texts == previous:  # with several steps per generation, TRL writes the same completions again
            repeated += 1
            continue
        previous = texts
        rows += step_rows
        if limit is not None and len(rows) >= limit:
            break
    if repeated:
        notes.append(f"Left out: {repeated} files that repeat the completions of the step before.")
    if unreadable:
        notes.append(f"Left out: {', '.join(unreadable)}, which can't be read.")
    if not rows:
        message = f"None of the files of completions in {source} can be read."
        raise InputError(message, kind="no-completions", path=source)
    return rows, tuple(notes)


def prompt_key(row: Row) -> str:
    """The key for lookups and groups: the prompt, or else the question; "" without both."""
    return key_of(prompt_or_question(row))


def prompt_or_question(row: Row) -> Any:
    return row.get("prompt") or row.get("question")


def key_of(prompt: Any) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    if isinstance(prompt, list):  # of messages; parquet may have added nulls to role and content
        prompt = [(item.get("role"), item.get("content")) if isinstance(item, dict) else item for item in prompt]
    return as_json(prompt)
