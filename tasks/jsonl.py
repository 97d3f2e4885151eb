"""Your own data: a JSON, JSONL or parquet file, a folder of them, or a dataset on the Hugging Face hub.

    task:
      name: jsonl
      path: data/train.jsonl
      columns: {question: problem, final_answer: solution_value}     # ours: theirs
      prompt_template: "Question: {question}\\nSolution:"

Data that has a `prompt` column (text, or a list of chat messages) and no template is used as it is, such as the files
that scripts/prepare_data.py writes.

Rows of APPS or TACO, which have a column `input_output`, get the columns that code rewards read (docs/tasks.md).
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlvr.config import schema
from rlvr.data.code import apps as code_apps
from rlvr.data.code import prompts as code_prompts
from rlvr.data.code.io_tests import BadTests
from rlvr.data.io import (
    READABLE,
    Row,
    as_datasets,
    check_choice,
    check_fraction,
    check_whole,
    download_rows,
    hold_out,
    limited,
    missing_column,
    question_key,
    read_rows,
    split_files,
    without,
)
from rlvr.data.task import Task
from rlvr.errors import InputError

# GRPOTrainer gives these names a meaning of its own: it passes them to rewards, or takes them for pictures.
RESERVED = frozenset(
    ("prompts", "completion", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric",
     "image", "images", "environment", "environments")
)  # fmt: skip
TEXT_COLUMNS = frozenset(("question", "final_answer", "source", "id"))


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
    validation_fraction: float = 0.0,
    test_fraction: float = 0.1,
    stop_strings: list[str] | None = None,
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """Any rows, with prompts made by a template or taken as they are.

    Args:
        path: must be given. A file; a folder with a file for each split (train.jsonl, and validation.jsonl and
            test.jsonl if there are such); or the id of a dataset on the hub ("owner/name").
        test_path: a file with the held-out rows, where `path` has none.
        subset: the dataset's configuration on the hub, for those that have several.
        train_split: the split of the hub's dataset to train on.
        columns: our name -> their name. Only these columns are kept then; without it, all are, under their own names.
        prompt_template: the prompt, with {column} for what a row holds (our names or theirs) and {{ }} for real braces.
        system: a system message in front of the prompt; asks for style: chat, or prompts that are messages already.
        style: "text" leaves a prompt that is text as it is, "chat" makes it a user message.
        validation_fraction, test_fraction: the share of the training rows that is held out, where the data comes
            without such a split.
        stop_strings: where the model's own turn ends in plain-text prompts, such as ["\\nQuestion:"].
        limit_train, limit_validation, limit_test: at most so many rows of a split, drawn at random.
        seed: of the splits and limits.

    Training rows that ask the same (`question`, or else the prompt) as a held-out row are dropped. `source` and `id`
    are added where the data has none. A row of APPS or TACO gets `tests` (JSON text), `entry_point`, `prefix` and
    `language` ("python") in place of `input_output`, and a prompt where there is neither a template nor one.
    """
    if path is None:
        raise InputError(
            "Task jsonl: the option path is missing. Write path: and a file, a folder, or a dataset of the hub."
        )
    check_choice("jsonl", "style", style, ("text", "chat"))
    check_fraction("jsonl", "validation_fraction", validation_fraction)
    check_fraction("jsonl", "test_fraction", test_fraction)
    check_whole("jsonl", "seed", seed, 0)
    limits = {"train": limit_train, "validation": limit_validation, "test": limit_test}
    for split, limit in limits.items():
        if limit is not None:
            check_whole("jsonl", f"limit_{split}", limit, 1)
    if stop_strings is not None and not all(isinstance(text, str) and text for text in stop_strings):
        raise InputError('Task jsonl, option stop_strings: every entry should be text, like ["\\nQuestion:"].')
    fields = _fields(prompt_template) if prompt_template is not None else ()
    for ours in columns or {}:
        if ours in RESERVED:
            raise InputError(
                f"Task jsonl, option columns: TRL gives {ours!r} a meaning of its own. Choose another name."
            )

    raw, notes = _read(path, test_path, subset, train_split)
    if "input_output" not in (columns or {}).values():
        raw, more = _with_tests(path, raw, prompt_template)
        notes += more
    shape = _Shape(path, columns, prompt_template, fields, system, style)
    splits = {split: [shape.ours(row, split, index) for index, row in enumerate(rows)] for split, rows in raw.items()}
    if columns is None and (
        ignored := sorted(RESERVED & {name for rows in raw.values() for row in rows for name in row})
    ):
        notes.append(f"Left out the columns {', '.join(ignored)}: TRL gives these names a meaning of its own.")

    train = splits["train"]
    held_keys = {_key(row) for split in ("validation", "test") for row in splits[split]}
    kept = without(train, held_keys, _key)
    if len(kept) < len(train):
        notes.append(f"Dropped {len(train) - len(kept):,} training rows that ask the same as a held-out row.")
    train = kept
    for split, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        if not splits[split] and fraction > 0:
            train, splits[split] = hold_out(train, fraction, f"{seed}/{split}", _key)
            notes.append(
                f"Cut {len(splits[split]):,} rows off the training rows as the {split} split, with seed {seed}."
            )
    if not splits["test"]:
        notes.append("There is no test split: nothing can be said about held-out rows.")
    if not train:
        raise InputError(
            f"Task jsonl: of {len(raw['train'])} training rows of {path} none is left after the held-out rows were "
            "taken away. Lower test_fraction or validation_fraction, or give training rows that differ from them."
        )
    splits["train"] = train
    for split, limit in limits.items():
        before = len(splits[split])
        splits[split] = limited(splits[split], limit, f"{seed}/limit")
        if len(splits[split]) < before:
            notes.append(f"Kept {len(splits[split]):,} of {before:,} {split} rows, as limit_{split} asks.")
    return Task(**_as_datasets(path, splits), stop_strings=tuple(stop_strings or ()), notes=tuple(notes))


# ----------------------------------------------------------------------------------------------------------------------
# Where the rows come from


def _read(
    path: str, test_path: str | None, subset: str | None, train_split: str
) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of the three splits, those that the data has, and what was read as sentences."""
    place = Path(path)
    splits: dict[str, list[Row]] = {"train": [], "validation": [], "test": []}
    if place.is_dir():
        files = {split: split_files(place, split) for split in splits}
        if not files["train"]:
            there = sorted(file for file in place.iterdir() if file.suffix in READABLE)
            if len(there) != 1:
                names = ", ".join(file.name for file in there) or "no data file"
                raise InputError(
                    f"Task jsonl, option path: {place} has no file for the train split, such as train.jsonl. "
                    f"There is: {names}. Rename a file, or write its path."
                )
            files["train"] = there
            files = {split: found if split == "train" else [] for split, found in files.items()}
        splits = {split: [row for file in found for row in read_rows(file)] for split, found in files.items()}
    elif place.exists() or place.suffix in READABLE or not _may_be_hub_id(path):
        splits["train"] = read_rows(place)
    else:
        how_else = "If a local file or folder is meant: there is none at this path."
        found = download_rows(path, subset, how_else)
        if train_split not in found:
            close = schema.nearest(train_split, found)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(found)}."
            raise InputError(f"Task jsonl, option train_split: {path} has no split {train_split!r}. {hint}")
        splits["train"] = found[train_split]
        for split in ("validation", "test"):
            if split != train_split:
                splits[split] = found.get(split, [])
    if test_path is not None:
        splits["test"] = read_rows(Path(test_path))
    read = ", ".join(f"{len(rows):,} {split}" for split, rows in splits.items() if rows)
    return splits, [f"Read {read} rows from {path}{f' and {test_path}' if test_path else ''}."]


def _with_tests(path: str, raw: dict[str, list[Row]], template: str | None) -> tuple[dict[str, list[Row]], list[str]]:
    """Rows of APPS or TACO with `tests` for `input_output`, and a prompt if nothing else makes one; others as they are.

    Rows whose tests can't be used are left out, which the notes say.
    """
    splits: dict[str, list[Row]] = {}
    dropped: dict[str, list[str]] = {}
    found = False
    for split, rows in raw.items():
        splits[split] = []
        for index, row in enumerate(rows):
            if "input_output" not in row or "tests" in row:
                splits[split].append(row)
                continue
            found = True
            try:
                ours = code_apps.apps_columns(row)
            except BadTests as error:
                dropped.setdefault(str(error), []).append(f"{split} row {index}")
                continue
            if template is None and "prompt" not in row:
                if not isinstance(row.get("question"), str):
                    raise missing_column(f"{path}, {split} row {index}", "question", row, "A prompt is made of it.")
                ours["prompt"] = code_prompts.with_starter(
                    ours["entry_point"], row["question"], row.get("starter_code")
                )
            splits[split].append(ours)
    if not found:
        return raw, []
    notes = ["Made tests of the column input_output; left out the columns input_output and solutions."]
    for why, places in dropped.items():
        named = f"{', '.join(places[:5])}{', …' if len(places) > 5 else ''}"
        notes.append(f"Dropped {len(places):,} rows with {why} ({named}).")
    return splits, notes


def _may_be_hub_id(path: str) -> bool:
    owner, slash, name = path.partition("/")
    return bool(slash and owner and name) and "/" not in name and not path.startswith((".", "~", "/"))


def _source(path: str) -> str:
    """A short name of the data, for the columns `source` and `id`."""
    return Path(path).stem if not _may_be_hub_id(path) or Path(path).suffix in READABLE else path


# ----------------------------------------------------------------------------------------------------------------------
# From their rows to ours


def _fields(template: str) -> tuple[str, ...]:
    """The columns that a prompt template names."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InputError(
            f"Task jsonl, option prompt_template: {error}. Double the braces that are meant as braces: {{{{ and }}}}."
        ) from error
    fields = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.replace("_", "a").replace("-", "a").replace(" ", "a").isalnum() or form or conversion:
            written = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            raise InputError(
                f"Task jsonl, option prompt_template: {written} is not the name of a column. "
                "Double the braces that are meant as braces, as in \\boxed{{}}."
            )
        fields.append(name)
    if not fields:
        raise InputError(
            "Task jsonl, option prompt_template: it names no column, so every prompt would be the same. "
            "Put the question in, like {question}."
        )
    return tuple(fields)


@dataclass(frozen=True)
class _Shape:
    """How a row of theirs becomes a row of ours; the options of `jsonl` of the same names."""

    path: str
    columns: dict[str, str] | None
    template: str | None
    fields: tuple[str, ...]
    system: str | None
    style: str

    def ours(self, row: Row, split: str, index: int) -> Row:
        where = f"{self.path}, {split} row {index}"
        kept = self._kept(row, where)
        prompt = self._finished(self._prompt(row, kept, where), where)
        kept.pop("prompt", None)
        kept.setdefault("source", None)
        kept.setdefault("id", None)
        for name in TEXT_COLUMNS & kept.keys():
            value = kept[name]
            if value is None:
                if name not in ("source", "id"):
                    raise InputError(f"{where}: {name} is empty. Fill it in or remove the row.")
                value = _source(self.path) if name == "source" else f"{_source(self.path)}-{split}-{index}"
            # Numbers in JSON become text, as they are written: verifiers compare text with text.
            kept[name] = value if isinstance(value, str) else str(value)
        return {"prompt": prompt, **kept}

    def _kept(self, row: Row, where: str) -> Row:
        """The columns that go on, under our names."""
        if self.columns is None:
            return {name: value for name, value in row.items() if name not in RESERVED}
        kept = {"prompt": row["prompt"]} if "prompt" in row else {}
        for ours, theirs in self.columns.items():
            if theirs not in row:
                raise missing_column(where, theirs, row, f"It was asked for by columns: {{{ours}: {theirs}}}.")
            kept[ours] = row[theirs]
        return kept

    def _prompt(self, row: Row, kept: Row, where: str) -> Any:
        if self.template is None:
            if "prompt" not in kept:
                raise missing_column(where, "prompt", row, "Give a prompt_template, or columns: {prompt: THEIR NAME}.")
            return kept["prompt"]
        known = {**row, **kept}
        for field in self.fields:
            if field not in known:
                raise missing_column(where, field, known, "It stands in prompt_template.")
            if known[field] is None:
                raise InputError(
                    f"{where}: {field} is empty, but prompt_template needs it. Fill it in or remove the row."
                )
        return self.template.format(**{field: known[field] for field in self.fields})

    def _finished(self, prompt: Any, where: str) -> str | list[dict[str, Any]]:
        """The prompt as the trainer takes it: text or messages, with the system message in front."""
        if isinstance(prompt, str):
            if not prompt.strip():
                raise InputError(f"{where}: its prompt is empty. Fill it in or remove the row.")
            if self.style == "text" and self.system is not None:
                raise InputError(
                    "Task jsonl, option system: plain-text prompts have no system message. Write style: chat, or put "
                    "the words into prompt_template."
                )
            if self.style == "text":
                return prompt
            prompt = [{"role": "user", "content": prompt}]
        elif not _are_messages(prompt):
            raise InputError(
                f'{where}: its prompt should be text or a list of messages like {{"role": "user", "content": "…"}}, '
                f"not {type(prompt).__name__}."
            )
        if self.system is not None and prompt[0]["role"] != "system":
            prompt = [{"role": "system", "content": self.system}, *prompt]
        return list(prompt)


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and len(prompt) > 0
        and all(isinstance(message, dict) and {"role", "content"} <= message.keys() for message in prompt)
    )


def _key(row: Row) -> str:
    return question_key(row.get("question", row["prompt"]))


def _as_datasets(path: str, splits: dict[str, list[Row]]) -> dict[str, Any]:
    names = dict.fromkeys(name for rows in splits.values() for row in rows for name in row)  # in their order
    kinds = {type(row["prompt"]) for rows in splits.values() for row in rows}
    if len(kinds) > 1:
        raise InputError(
            f"Task jsonl: some prompts of {path} are text and some are messages. Write style: chat for messages."
        )
    complete = {split: [{**names, **row} for row in rows] for split, rows in splits.items()}
    try:
        return as_datasets(**complete)
    except (ValueError, TypeError) as error:  # pyarrow's errors are ValueErrors and TypeErrors
        raise InputError(f"Task jsonl: the rows of {path} don't form a table: {error}.") from error
