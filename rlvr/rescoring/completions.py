"""Completions that are already there: reading them from files and run directories, finding their golds, showing them.

Everything here was written by a model or by a data set: what is shown of it goes through `visible` or `one_line`.
A row is named by its number, from 0, in the order in which it was read.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.config.recipe import SPLITS
from rlvr.data.io import Row, missing_column_error, read_rows
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.scoring.registry import FROM_TRAINER
from rlvr.scoring.reward import Reward


@dataclass(frozen=True)
class Source:
    """Rows that were read, each with its completion under "completion", and a sentence for each thing to know of it."""

    rows: list[Row]
    notes: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def read_completions(path: str, column: str = "completion", limit: int | None = None) -> Source:
    """The rows of a file, of standard input ("-"), or of a run directory, with their completions.

    Of a run directory, or its folder of completions, the sampled completions of every step are read in the order of
    the steps; where there are none, those of the evaluations.

    Args:
        path: JSON, JSONL, parquet, a folder, or "-".
        column: where the completion stands. A list of strings there is that many rows with the same columns.
        limit: only the first so many rows.

    Raises:
        InputError: nothing can be read there, or a row has no such column.
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
            raise missing_column_error(where, column, row, "--completion-column says where the completions are.")
        written = row[column]
        several = isinstance(written, list) and written and all(isinstance(item, str) for item in written)
        for completion in written if several else [written]:
            rows.append({**row, "completion": completion})
        if limit is not None and len(rows) >= limit:
            break
    return Source(rows[:limit], notes)


def _read_standard_input() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input.jsonl"
        file.write_bytes(sys.stdin.buffer.read())
        try:
            return read_rows(file)
        except InputError as error:
            raise InputError(str(error).replace(str(file), "standard input")) from None


def _read_folder(folder: Path, limit: int | None) -> tuple[list[Row], tuple[str, ...]]:
    place = folder / "completions" if (folder / "completions").is_dir() else folder
    files = sorted(
        (int(match[1]), file)
        for file in place.iterdir()
        if (match := re.fullmatch(r"completions_(\d{1,18})\.parquet", file.name))
    )
    evaluations = sorted(place.glob("evaluation_*.parquet"))
    if not files:
        if not evaluations:
            raise InputError(
                f"{folder} holds no completions (completions_00001.parquet or the like): name a run directory whose "
                "run has made a step with log_completions: true, or a file."
            )
        return [row for file in evaluations for row in read_rows(file)], ()
    notes = []
    if evaluations:
        names = " and ".join(file.name for file in evaluations)
        notes.append(f"Left out: {names} (greedy, on held-out rows). Name one to score it.")
    rows: list[Row] = []
    before: list[tuple[str, str]] = []
    unreadable, repeated = [], 0
    for _, file in files:
        try:
            more = read_rows(file)
        except InputError:  # a run that was killed, or is being written to right now
            unreadable.append(file.name)
            continue
        texts = [(repr(row.get("prompt")), repr(row.get("completion"))) for row in more]
        if texts == before:  # with several steps a generation, TRL writes the same completions again
            repeated += 1
            continue
        before = texts
        rows += more
        if limit is not None and len(rows) >= limit:
            break
    if repeated:
        notes.append(f"Left out: {repeated} files that repeat the completions of the step before.")
    if unreadable:
        notes.append(f"Left out: {', '.join(unreadable)}, which can't be read.")
    if not rows:
        raise InputError(f"None of the files of completions in {place} can be read.")
    return rows, tuple(notes)


def fill_columns(rows: Sequence[Row], rewards: Sequence[Reward], load: Callable[[], Task], task: str) -> str | None:
    """Adds, in place, the columns that rewards ask for and rows lack: those of the task's row with the same prompt.

    A list that is None by default and that the recipe doesn't set (`keywords: list[str] | None = None`) may be a column
    as well: it is added where the task has it.

    Args:
        load: loads the task; called only if something is missing.
        task: its name, for messages.

    Returns:
        A sentence on what was looked up, or None where nothing was.

    Raises:
        InputError: a reward needs what only a training run has, or a row that lacks a column isn't found.
    """
    for reward in rewards:
        if missing := sorted(_only_in_training(reward.function)):
            raise InputError(
                f"The reward {reward.name} asks for {' and '.join(missing)}, which only a training run has. "
                "Score without it: --rewards '[…]' with the others."
            )
    needed = sorted({column for reward in rewards for column in reward.columns} - {"prompt", "completion"})
    optional = sorted({name for reward in rewards for name in _optional_columns(reward)} - set(needed))
    lacking = {
        number: [name for name in needed if row.get(name) is None] + [name for name in optional if name not in row]
        for number, row in enumerate(rows)
    }
    lacking = {number: names for number, names in lacking.items() if names}
    if not lacking:
        return None
    try:
        known = _by_prompt(load(), [*needed, *optional])
    except InputError:
        if any(column not in row for row in rows for column in needed):
            raise
        return None  # nothing but empty entries and options is missing: the rewards say what they make of that
    filled: dict[str, int] = {}
    for number, names in lacking.items():
        match = known.get(prompt_key(rows[number])) or {}
        for name in names:
            if name in match:
                rows[number][name] = match[name]
                filled[name] = filled.get(name, 0) + 1
    absent = [number for number in lacking if any(column not in rows[number] for column in needed)]
    if absent:
        raise _not_found(rows, absent, needed, known, task)
    if not filled:
        return None
    found = " and ".join(f"{name} of {count:,} rows" for name, count in filled.items())
    return f"Looked up by prompt in the task {task}: {found}."


def _not_found(
    rows: Sequence[Row], absent: Sequence[int], needed: Sequence[str], known: dict[str, Row | None], task: str
) -> InputError:
    row = rows[absent[0]]
    missing = " and ".join(column for column in needed if column not in row)
    which = f"{len(absent)} of {len(rows)} rows lack {missing}"
    key = prompt_key(row)
    if not key:
        return InputError(f"{which}, and have no prompt to look it up by; the first is row {absent[0]}. Add {missing}.")
    if key not in known:
        why = f"their prompt is none of the task {task}'s"
    elif known[key] is None:
        why = f"their prompt stands in the task {task} several times, with different ones"
    else:
        why = f"the task {task} doesn't give it"
    prompt = one_line(as_text(_asked(row)), 80)
    return InputError(
        f"{which}, and {why}; the first is row {absent[0]} ({prompt}). Add {missing} to the "
        "file, or name the recipe (and the options of its task) that the prompts came from."
    )


def _only_in_training(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    required = {parameter.name for parameter in parameters if parameter.default is parameter.empty}
    return required & (FROM_TRAINER - {"prompts", "completions", "log_extra", "log_metric"})


def _optional_columns(reward: Reward) -> set[str]:
    parameters = inspect.signature(reward.function).parameters
    return {
        name
        for name, parameter in parameters.items()
        if parameter.default is None and str(parameter.annotation).startswith(("list", "Sequence"))
    } - FROM_TRAINER.union(reward.options)


def _by_prompt(task: Task, needed: Sequence[str]) -> dict[str, Row | None]:
    """The needed columns of every row of the task, by its prompt, its question and the last message of its prompt.

    None stands for a prompt that several rows share, but not what is needed: any of them may be meant.
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
    """What a row is looked up and grouped by: its prompt, or else its question; "" where it has neither."""
    return _key(_asked(row))


def _asked(row: Row) -> Any:
    return row.get("prompt") or row.get("question")


def _key(prompt: Any) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    if isinstance(prompt, list):  # of messages, to whose role and content parquet may have added nulls
        return _dumped([(item.get("role"), item.get("content")) if isinstance(item, dict) else item for item in prompt])
    return _dumped(prompt)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "(nested too deeply to be read)"


# ----------------------------------------------------------------------------------------------------------------------
# Showing


def as_text(content: Any) -> str:
    """A prompt or a completion as a person reads it: text as it is, messages after their roles, the rest as JSON."""
    if isinstance(content, str):
        return content
    messages = content if isinstance(content, list) else []
    if messages and all(isinstance(item, dict) and isinstance(item.get("content"), str) for item in messages):
        return "\n".join(f"[{item.get('role', '?')}] {item['content']}" for item in messages)
    return _dumped(content)


_UNSEEN = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_BEYOND = re.compile(r"[\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]")


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would act on, or that can't be seen; line ends stay.

    Control characters, marks that turn the direction of writing, spaces without width, line separators, surrogates.
    """
    return _BEYOND.sub(_escaped, _UNSEEN.sub(_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def one_line(text: str, most: int, *, end: bool = False) -> str:
    """At most `most` characters of the text's beginning, or of its end, on one line and `visible`."""
    # Cut before it is escaped: a completion may have a million characters.
    text = text.strip()
    cut = len(text) > most
    part = (text[-most:] if end else text[:most]) if cut else text
    shown = visible(part.replace("\n", " ⏎ "))
    if len(shown) > most:
        cut, shown = True, shown[-most:] if end else shown[:most]
    return (f"…{shown}" if end else f"{shown}…") if cut else shown
