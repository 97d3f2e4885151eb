"""Load your own data: a JSON, JSONL or parquet file, a folder of them, or a dataset on the Hugging Face hub.

    task:
      name: jsonl
      path: data/train.jsonl
      columns: {question: problem, final_answer: solution_value}     # ours: theirs
      prompt_template: "Question: {question}\\nSolution:"

Without a template, data with a `prompt` column (text, or a list of chat messages) is used as it is, such as the files
of scripts/prepare_data.py. Rows of APPS or TACO (column `input_output`) get the columns of the code rewards
(docs/tasks.md).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.config import schema
from rlvr.data.code import apps, prompts
from rlvr.data.code.io_tests import InvalidTests, note_on_unanswered, split_unanswered
from rlvr.data.code.problem_text import parse_statement
from rlvr.data.input_checks import (
    check_fraction,
    check_integer,
    check_limits,
    check_test_path,
    missing_column_error,
    option_error,
)
from rlvr.data.io import Row, read_rows, read_splits
from rlvr.data.row_conversion import RESERVED, RowConverter, template_fields
from rlvr.data.splits import apply_limits, drop_long_prompts, hold_out, question_key, to_datasets
from rlvr.formatting import count

_BLANK_OUTPUT = re.compile(r'"output"\s*:\s*"(?:\\[nrt]|\s)*"')
SHOWN_COLUMNS = 8  # in a note


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
    validation_fraction: float = 0.0,
    test_fraction: float = 0.1,
    stop_strings: list[str] | None = None,
    max_prompt_characters: int | None = None,
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """Load rows; build prompts from a template or take them as they are.

    Args:
        path: required. A file; a folder with a file for each split (train.jsonl, optionally validation.jsonl and
            test.jsonl); or the id of a dataset on the hub ("owner/name").
        test_path: a file with the held-out rows, if `path` has none.
        subset: the configuration of a hub dataset that has several.
        train_split: the split of the hub dataset to train on.
        columns: our name -> their name. Only these columns are kept; by default all are, under their own names.
        prompt_template: the prompt, with {column} for a value of the row (our names or theirs) and {{ }} for braces.
            {final_answer} is refused: it would show the model what is right.
        system: a system message before the prompt; requires style: chat, or prompts that are messages.
        style: "text" keeps a text prompt as it is, "chat" makes it a user message.
        gold: a completion that the reward scores 1, such as "The answer is {final_answer}.", with {column} as in
            `prompt_template` (our names). The check tries the rewards on it. By default the bare final_answer, or the
            column `solution` of a row with `tests`: a program that passes them.
        validation_fraction, test_fraction: share of the training rows to hold out, if the data has no such split.
        stop_strings: ends of the model's own turn in plain-text prompts, such as ["\\nQuestion:"].
        max_prompt_characters: drop rows with longer prompts, and count them.
        limit_train, limit_validation, limit_test: maximal rows of a split, drawn at random.
        seed: seed of the splits and limits.

    Training rows with the question (or else the prompt) of a held-out row are dropped. Missing columns `source` and
    `id` are added. A row of APPS or TACO gets `tests` (JSON text), `entry_point`, `prefix` and `language` ("python")
    instead of `input_output`, and a prompt if it has neither a template nor a prompt.
    """
    if path is None:
        raise InputError(
            "Task jsonl: the option path is missing. Name a file, a folder, or a dataset of the hub.",
            kind="missing-key",
            key="path",
        )
    check_test_path("jsonl", path, test_path)
    check_fraction("jsonl", "validation_fraction", validation_fraction)
    check_fraction("jsonl", "test_fraction", test_fraction)
    check_integer("jsonl", "seed", seed, 0)
    check_limits("jsonl", limit_train=limit_train, limit_validation=limit_validation, limit_test=limit_test)
    check_limits("jsonl", max_prompt_characters=max_prompt_characters)
    if stop_strings is not None and not all(isinstance(text, str) and text for text in stop_strings):
        raise option_error("jsonl", "stop_strings", 'an entry is no text. Write a list like ["\\nQuestion:"].')
    fields = template_fields(prompt_template) if prompt_template is not None else ()
    for ours, theirs in (columns or {}).items():
        if theirs is None:  # YAML reads `question:text` as one name
            fix = f"Put a space after its colon: {{{ours.replace(':', ': ', 1)}}}" if ":" in ours else "Name a column"
            raise option_error("jsonl", "columns", f"{ours!r} names no column of the data. {fix}.")
        if ours in RESERVED:
            raise option_error("jsonl", "columns", f"TRL reserves the name {ours!r}. Choose another name.")

    golds = ("final_answer", (columns or {}).get("final_answer"))
    if shown := next((field for field in fields if field in golds), None):
        problem = (
            f"it shows the right answer, {{{shown}}}, in the prompt. Remove it from the template, or correct columns."
        )
        raise option_error("jsonl", "prompt_template", problem)

    raw, notes = _read(path, test_path, subset, train_split)
    if "input_output" not in (columns or {}).values():
        raw, conversion_notes = _convert_apps_rows(path, raw, prompt_template)
        notes += conversion_notes
    splits: dict[str, list[Row]] = {}
    for split, rows in raw.items():
        place = test_path if split == "test" and test_path is not None else path
        converter = RowConverter(place, columns, prompt_template, fields, system, style)
        splits[split] = [converter.convert(row, split, index) for index, row in enumerate(rows)]
    notes += _drop_unanswered(splits)
    names = {name for rows in raw.values() for row in rows for name in row}
    if columns is None and (ignored := sorted(RESERVED & names)):
        notes.append(f"Left out the columns {', '.join(ignored)}: TRL reserves these names.")
    if columns is not None and (ignored := sorted(names - {"prompt", *columns.values()})):
        more = ", …" if len(ignored) > SHOWN_COLUMNS else ""
        notes.append(f"Left out the columns {', '.join(ignored[:SHOWN_COLUMNS])}{more}: `columns` does not name them.")

    answers = (columns or {}).get("final_answer", "final_answer")
    values = [row.get(answers) for rows in raw.values() for row in rows]
    if booleans := sum(isinstance(gold, bool) for gold in values):
        notes.append(f"The final_answer of {count(booleans, 'row')} is true or false, kept as the text True or False.")
    if floats := sum(isinstance(gold, float) and gold.is_integer() for gold in values):
        notes.append(
            f"The final_answer of {count(floats, 'row')} is a whole number with a decimal point, kept as text such as "
            "72.0. exact_match takes no 72 for it; math_correctness does."
        )
    if lists := sum(isinstance(gold, list) for gold in values):
        notes.append(
            f"The final_answer of {lists:,} rows is a list, kept as JSON text: exact_match takes each of its texts as "
            "right, math_correctness takes it for a tuple or an interval. For numbers in any order, write 1, 2 as text."
        )
    if max_prompt_characters is not None:
        notes += drop_long_prompts(splits, max_prompt_characters)
    train = splits["train"]
    held_out = {_key(row) for split in ("validation", "test") for row in splits[split]}
    kept = [row for row in train if _key(row) not in held_out]
    if len(kept) < len(train):
        notes.append(f"Dropped {len(train) - len(kept):,} training rows that ask the same as a held-out row.")
    train = kept
    for split, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        if not splits[split] and fraction > 0:
            train, splits[split] = hold_out(train, fraction, f"{seed}/{split}", _key)
            notes.append(
                f"Held out {len(splits[split]):,} of the training rows as the {split} split, with seed {seed}."
            )
    if not splits["test"]:
        notes.append("There is no test split, so there is no held-out accuracy.")
    if not train:
        fix = "Lower test_fraction or validation_fraction, raise max_prompt_characters, or add training rows."
        if len(splits["train"]) > 1 and len(set(map(_key, splits["train"]))) == 1:
            fix = "All rows ask the same, or nothing: look at the column that the prompts are made from."
        raise InputError(
            f"Task jsonl: none of the {len(raw['train'])} training rows of {path} is left. {' '.join(notes)} {fix}",
            kind="empty-data",
            key="path",
        )
    splits["train"] = train
    notes += apply_limits(splits, seed, train=limit_train, validation=limit_validation, test=limit_test)
    return Task(
        **_as_datasets(path, splits),
        stop_strings=tuple(stop_strings or ()),
        notes=tuple(notes),
        gold=_gold(gold, train),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Reading


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


def _convert_apps_rows(
    path: str, raw: dict[str, list[Row]], template: str | None
) -> tuple[dict[str, list[Row]], list[str]]:
    """Convert rows of APPS or TACO; other rows stay as they are.

    Returns:
        The splits, without rows whose tests cannot be used, and notes.
    """
    splits: dict[str, list[Row]] = {}
    dropped: dict[str, list[str]] = {}
    has_apps_rows = False
    for split, rows in raw.items():
        splits[split] = []
        for index, row in enumerate(rows):
            if "input_output" not in row or "tests" in row:
                splits[split].append(row)
                continue
            has_apps_rows = True
            try:
                converted = apps.convert_apps_row(row)
            except InvalidTests as error:
                dropped.setdefault(str(error), []).append(f"{split} row {index}")
                continue
            if template is None and "prompt" not in row:
                if not isinstance(row.get("question"), str):
                    raise missing_column_error(
                        f"{path}, {split} row {index}", "question", row, "The prompt needs it.", row=index
                    )
                converted["prompt"] = prompts.build_prompt(
                    converted["entry_point"], row["question"], row.get("starter_code")
                )
            splits[split].append(converted)
    if not has_apps_rows:
        return raw, []
    notes = ["Made tests from the column input_output; left out the columns input_output and solutions."]
    for why, places in dropped.items():
        examples = f"{', '.join(places[:5])}{', …' if len(places) > 5 else ''}"
        notes.append(f"Dropped {len(places):,} rows with {why} ({examples}).")
    return splits, notes


def _drop_unanswered(splits: dict[str, list[Row]]) -> list[str]:
    """Leave out tests without an expected output, in place, and return notes on them. A checker may need none."""
    places = []
    for split, rows in splits.items():
        for index, row in enumerate(rows):
            tests = column = row.get("tests")
            if isinstance(column, str) and _BLANK_OUTPUT.search(column):
                with contextlib.suppress(ValueError, RecursionError):  # the reward names such a row
                    tests = json.loads(column)
            if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests) or row.get("checker"):
                continue
            question: Any = row.get("question", row["prompt"])
            rules = question if isinstance(question, str) else str(question[-1]["content"])
            kept, unanswered = split_unanswered(tests, parse_statement(rules).output_rules)
            if unanswered:
                row["tests"] = json.dumps(kept, ensure_ascii=False) if isinstance(column, str) else kept
                places += [f"{split} row {index} test {number}" for number in unanswered]
    return note_on_unanswered(places)


def _gold(template: str | None, train: list[Row]) -> Callable[[Mapping[str, Any]], str | None] | None:
    """Return the function that writes the gold of a row; None if the bare final_answer is all that is known."""
    if template is not None:
        fields = template_fields(template, "gold")
        if absent := next((field for field in fields if field not in train[0]), None):
            raise option_error("jsonl", "gold", f"the rows have no column {absent}. {schema.hint(absent, train[0])}")
        return lambda row: template.format(**{field: row[field] for field in fields})
    return _solution if any({"tests", "solution"} <= row.keys() for row in train) else None


def _solution(row: Mapping[str, Any]) -> str | None:
    """The reference program of a row with tests, as a completion; None without one."""
    program = row["solution"] if row["tests"] else None
    if not isinstance(program, str) or not program.strip():
        return None
    fenced = f"```{row.get('language') or ''}\n{program.strip()}\n```"
    return program if any(fence in program for fence in ("```", "~~~", "<code>")) else fenced


def _key(row: Row) -> str:
    return question_key(row.get("question", row["prompt"]))


def _as_datasets(path: str, splits: dict[str, list[Row]]) -> dict[str, Any]:
    names = dict.fromkeys(name for rows in splits.values() for row in rows for name in row)
    kinds = {type(row["prompt"]) for rows in splits.values() for row in rows}
    if len(kinds) > 1:
        raise InputError(
            f"Task jsonl: some prompts of {path} are text and some are messages. Write style: chat for messages.",
            kind="invalid-value",
            key="style",
        )
    complete = {split: [{**names, **row} for row in rows] for split, rows in splits.items()}
    try:
        return to_datasets(**complete)
    except (ValueError, TypeError) as error:  # pyarrow's errors are ValueErrors and TypeErrors
        raise InputError(f"Task jsonl: the rows of {path} form no table: {error}.", kind="invalid-row") from error
