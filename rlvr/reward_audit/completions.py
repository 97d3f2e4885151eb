"""Read existing completions from files and run directories, add missing columns, and make their text safe to print.

Models and data sets wrote these texts: print them only through `visible` or `one_line`. Rows are numbered from 0, in
the order in which they are read.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.config.specs import SPLITS
from rlvr.data.input_checks import missing, missing_column_error, row_error
from rlvr.data.io import Row, read_rows
from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import FROM_TRAINER, Task
from rlvr.environments.transcript import as_json, as_text, without_nulls
from rlvr.errors import InputError
from rlvr.formatting import count, one_line
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import named_parameters


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


def fill_columns(rows: Sequence[Row], rewards: Sequence[Reward], load: Callable[[], Task], task: str) -> str | None:
    """Add, in place, missing columns that rewards ask for, from the task's row with the same prompt.

    Optional columns, such as `language` of programs, are added if the task has them.

    Args:
        load: loads the task; called only if a column is missing.
        task: its name, for messages.

    Returns:
        A sentence on the added columns, or None without any.

    Raises:
        InputError: of kind "needs-training" (a reward asks for an argument that only training has) or
            "missing-column".
    """
    for reward in rewards:
        if missing := sorted(_only_in_training(reward.function)):
            raise InputError(
                f"The reward {reward.name} asks for {' and '.join(missing)}, which only a training run has. "
                "Score without it: --rewards '[…]' with the other rewards.",
                kind="needs-training",
                key=reward.name,
            )
    needed = sorted({column for reward in rewards for column in reward.columns} - {"prompt", "completion"})
    if any(reward.applies_to is not None for reward in rewards):
        needed.append(TASK)
    options = [named_parameters(reward.function, required=False).items() for reward in rewards]
    # An option with a number as its default is a setting; the others may be columns of the task.
    settable = {name for own in options for name, one in own if not isinstance(one.default, bool | int | float)}
    optional = sorted(settable.difference(needed, *(reward.options for reward in rewards)))
    lacking = {}
    for number, row in enumerate(rows):
        names = [name for name in needed if row.get(name) is None] + [name for name in optional if name not in row]
        if names:
            lacking[number] = names
    if not lacking:
        return None
    try:
        known = _by_prompt(load(), [*needed, *optional])
    except InputError:
        if any(column not in row for row in rows for column in needed):
            raise
        return None  # only empty entries and options are missing: the rewards handle these
    filled: Counter[str] = Counter()
    for number, names in lacking.items():
        match = known.get(prompt_key(rows[number])) or {}
        added = {name: match[name] for name in names if name in match}
        rows[number].update(added)
        filled.update(added.keys())
    absent = [number for number in lacking if any(column not in rows[number] for column in needed)]
    if absent:
        raise _not_found(rows, absent, needed, known, task)
    if not filled:
        return None
    columns = " and ".join(f"{name} of {count:,} rows" for name, count in filled.items())
    return f"Added from the task {task}, by prompt: {columns}."


def _not_found(
    rows: Sequence[Row], absent: Sequence[int], needed: Sequence[str], known: dict[str, Row | None], task: str
) -> InputError:
    row = rows[absent[0]]
    missing = " and ".join(column for column in needed if column not in row)
    problem = f"{len(absent)} of {len(rows)} rows have no {missing}; the first is row {absent[0]}"
    fix = f"Add {missing} to the file"
    key = prompt_key(row)
    if key:
        fix += ", or use the recipe and the task options that the prompts came from"
        problem += f" ({one_line(as_text(_prompt_or_question(row)), 80)})"
    if not key:
        cause = "it can't be looked up, because they have no prompt"
    elif key not in known:
        cause = f"the task {task} does not have this prompt"
    elif known[key] is None:
        cause = f"the task {task} has this prompt several times, with different values"
    else:
        cause = f"the task {task} does not have this column"
    first_missing = next(column for column in needed if column not in row)
    return InputError(f"{problem}: {cause}. {fix}.", kind="missing-column", key=first_missing, row=absent[0])


def _only_in_training(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    required = {parameter.name for parameter in parameters if parameter.default is parameter.empty}
    return required & (FROM_TRAINER - {"prompts", "completions", "log_extra", "log_metric"})


def _by_prompt(task: Task, needed: Sequence[str]) -> dict[str, Row | None]:
    """The needed columns of every row of the task, by prompt, by question and by the last message of the prompt.

    None marks an ambiguous prompt: several rows share it, with different values.
    """
    known: dict[str, Row | None] = {}
    for split in SPLITS:
        for row in task.split(split):
            columns = {column: row[column] for column in needed if column in row}
            keys = {_key(row["prompt"]), _key(row.get("question"))}
            if isinstance(row["prompt"], list):
                keys.add(_key(row["prompt"][-1].get("content")))
            for key in keys - {""}:
                if known.setdefault(key, columns) != columns:
                    known[key] = None
    return known


def prompt_key(row: Row) -> str:
    """The key for lookups and groups: the prompt, or else the question; "" without both."""
    return _key(_prompt_or_question(row))


def _prompt_or_question(row: Row) -> Any:
    return row.get("prompt") or row.get("question")


def _key(prompt: Any) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    if isinstance(prompt, list):  # of messages; parquet may have added nulls to role and content
        prompt = [(item.get("role"), item.get("content")) if isinstance(item, dict) else item for item in prompt]
    return as_json(prompt)
