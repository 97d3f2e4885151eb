"""Load your own data: a JSON, JSONL or parquet file, a folder of files, or a dataset of the hub.

    task:
      name: jsonl
      path: data/train.jsonl
      columns: {question: problem, final_answer: solution_value}     # ours: theirs
      prompt_template: "Question: {question}\\nSolution:"

Without a template, the column `prompt` (text, or a list of chat messages) is used as it is. The files of
scripts/prepare_data.py have this column. Rows of APPS or TACO (column `input_output`) get the columns of the code
rewards (docs/data.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.config import schema
from rlvr.data.code.apps import convert_apps_rows, drop_unanswered
from rlvr.data.input_checks import option_error
from rlvr.data.io import Row, read_rows, read_splits
from rlvr.data.row_conversion import RowConverter, check_columns, notes_on_columns, template_fields
from rlvr.data.splits import drop_held_out, hold_out_test, require_training_rows, to_datasets


def jsonl(
    *,
    path: str | None = None,
    test_path: str | None = None,
    subset: str | None = None,
    train_split: str = "train",
    columns: dict[str, str] | None = None,
    prompt_template: str | None = None,
    system: str | None = None,
    style: Literal["text", "chat"] = "text",
    gold: str | None = None,
    test_fraction: float = 0.1,
    stop_strings: list[str] | None = None,
    seed: int = 42,
) -> Task:
    """Load rows, and build prompts from a template or take the prompts as they are.

    Args:
        path: required. A file, a folder with a file for each split, or the id of a hub dataset ("owner/name"). A folder
            has train.jsonl, and optionally validation.jsonl and test.jsonl.
        test_path: a file with the held-out rows, if `path` has none.
        subset: the configuration of a hub dataset that has several.
        train_split: the split of the hub dataset to train on.
        columns: our name -> their name. Only these columns and `prompt` are kept. By default, all columns are kept.
        prompt_template: the prompt, with {column} for a value of the row (our names or theirs) and {{ }} for braces.
            The column final_answer is an error, because the prompt would show the answer.
        system: a system message before the prompt. Requires `style: chat`, or prompts that are messages.
        style: "text" keeps a text prompt as it is, "chat" makes it a user message.
        gold: a completion that the rewards score 1, such as "The answer is {final_answer}.". {column} works as in
            `prompt_template`, with our names. The check tries the rewards on this completion. By default the bare
            final_answer, or the program in the column `solution` of a row with `tests`.
        test_fraction: share of the training rows to hold out, if the data has no test split.
        stop_strings: ends of the model's own turn in plain-text prompts, such as ["\\nQuestion:"].
        seed: seed of the splits.

    Training rows with the question (or else the prompt) of a held-out row are dropped. Missing columns `source` and
    `id` are added. A row of APPS or TACO gets `tests` (JSON text), `entry_point`, `prefix` and `language` ("python")
    instead of `input_output`. Such a row also gets a prompt if there is neither a template nor a prompt.
    """
    if path is None:
        message = "Task jsonl: the option path is missing. Name a file, a folder, or a dataset of the hub."
        raise InputError(message, kind="missing-key", key="path")
    if stop_strings is not None and not all(isinstance(text, str) and text for text in stop_strings):
        raise option_error("jsonl", "stop_strings", 'an entry is no text. Write a list like ["\\nQuestion:"].')
    fields = template_fields(prompt_template) if prompt_template is not None else ()
    check_columns(columns or {}, fields)
    raw, notes = _read(path, test_path, subset, train_split)
    if "input_output" not in (columns or {}).values():
        raw, conversion_notes = convert_apps_rows(path, raw, prompt_template)
        notes += conversion_notes
    splits: dict[str, list[Row]] = {}
    for split, rows in raw.items():
        place = test_path if split == "test" and test_path is not None else path
        converter = RowConverter(place, columns, prompt_template, fields, system, style)
        splits[split] = [converter.convert(row, split, index) for index, row in enumerate(rows)]
    notes += drop_unanswered(splits)
    notes += notes_on_columns([row for rows in raw.values() for row in rows], columns)
    notes += _hold_out(path, splits, test_fraction, seed)
    try:
        datasets = to_datasets(**splits)
    except (ValueError, TypeError) as error:  # pyarrow's errors are ValueErrors and TypeErrors
        raise InputError(f"Task jsonl: the rows of {path} form no table: {error}.", kind="invalid-row") from error
    return Task(
        **datasets, stop_strings=tuple(stop_strings or ()), notes=tuple(notes), gold=_gold(gold, splits["train"])
    )


def _read(
    path: str, test_path: str | None, subset: str | None, train_split: str
) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of the three splits, and notes on them."""
    raw = read_splits("jsonl", path, subset=subset)
    training = "train" if Path(path).exists() else train_split
    if training not in raw:
        problem = f"{path} has no split {training!r}. {schema.hint(training, raw)}"
        raise option_error("jsonl", "train_split", problem)
    held_out = {split: raw.get(split, []) if split != training else [] for split in ("validation", "test")}
    splits = {"train": raw[training], **held_out}
    if test_path is not None:
        splits["test"] = read_rows(Path(test_path))
    counts = ", ".join(f"{len(rows):,} {split}" for split, rows in splits.items() if rows)
    return splits, [f"Read {counts} rows from {path}{f' and {test_path}' if test_path else ''}."]


def _hold_out(path: str, splits: dict[str, list[Row]], test_fraction: float, seed: int) -> list[str]:
    """Drop training rows that ask the same as a held-out row, in place. Without a test split, hold out some rows."""
    notes = [*drop_held_out(splits), *hold_out_test("jsonl", splits, test_fraction, seed)]
    if not splits["test"]:
        notes.append("There is no test split, so there is no held-out accuracy.")
    require_training_rows("jsonl", path, splits, notes)
    return notes


def _gold(template: str | None, train: list[Row]) -> Callable[[Mapping[str, Any]], str | None] | None:
    """Return the function that writes a row's reference completion, or None if only the bare final_answer is known."""
    if template is not None:
        fields = template_fields(template, "gold")
        if absent := next((field for field in fields if field not in train[0]), None):
            raise option_error("jsonl", "gold", f"the rows have no column {absent}. {schema.hint(absent, train[0])}")
        return lambda row: template.format(**{field: row[field] for field in fields})
    return _solution if any({"tests", "solution"} <= row.keys() for row in train) else None


def _solution(row: Mapping[str, Any]) -> str | None:
    """Return the reference program of a row with tests, as a completion, or None."""
    program = row["solution"] if row["tests"] else None
    if not isinstance(program, str) or not program.strip():
        return None
    fenced = f"```{row.get('language') or ''}\n{program.strip()}\n```"
    return program if any(fence in program for fence in ("```", "~~~", "<code>")) else fenced
