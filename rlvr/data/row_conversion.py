"""Convert rows of a user's data to rows of a task: build the prompt from a template, and rename columns."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data.input_checks import missing, missing_column_error, option_error, row_error
from rlvr.data.io import READABLE, Row, may_be_hub_id
from rlvr.data.task import RESERVED_COLUMNS, TEXT_COLUMNS
from rlvr.errors import InputError

SHOWN_COLUMNS = 8  # in a note


def build_messages(instruction: str, question: str, instruction_role: str) -> list[dict[str, Any]]:
    """Build a chat prompt: one user message, or a system message with the instruction before it."""
    if instruction_role == "system":
        return [{"role": "system", "content": instruction}, {"role": "user", "content": question}]
    return [{"role": "user", "content": f"{instruction}\n\n{question}"}]


def template_fields(template: str, option: str = "prompt_template") -> tuple[str, ...]:
    """Return the columns that a template names."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise option_error("jsonl", option, f"{error}. Double literal braces: {{{{ and }}}}.") from error
    fields = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.replace("_", "a").replace("-", "a").replace(" ", "a").isalnum() or form or conversion:
            field = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            problem = f"{field} names no column. Double literal braces, as in \\boxed{{{{}}}}."
            raise option_error("jsonl", option, problem)
        fields.append(name)
    if not fields:
        raise option_error("jsonl", option, "it names no column, so it is equal in all rows. Add one, like {question}.")
    return tuple(fields)


def check_columns(columns: Mapping[str, str | None], fields: Sequence[str]) -> None:
    """Check the option `columns`, and that the prompt template, with these fields, does not show the answer."""
    for ours, theirs in columns.items():
        if theirs is None:  # YAML reads `question:text` as one name
            fix = f"Put a space after its colon: {{{ours.replace(':', ': ', 1)}}}" if ":" in ours else "Name a column"
            raise option_error("jsonl", "columns", f"{ours!r} names no column of the data. {fix}.")
        if ours in RESERVED_COLUMNS:
            raise option_error("jsonl", "columns", f"TRL reserves the name {ours!r}. Choose another name.")
    golds = ("final_answer", columns.get("final_answer"))
    if shown := next((field for field in fields if field in golds), None):
        problem = f"it shows the right answer, {{{shown}}}, in the prompt. Remove it there, or correct columns."
        raise option_error("jsonl", "prompt_template", problem)


def notes_on_columns(rows: Sequence[Row], columns: Mapping[str, str] | None) -> list[str]:
    """Return notes on columns that are left out."""
    notes, names = [], {name for row in rows for name in row}
    if columns is None and (ignored := sorted(RESERVED_COLUMNS & names)):
        notes.append(f"Left out the columns {', '.join(ignored)}: TRL reserves these names.")
    used = {name if name in names else name.partition(".")[0] for name in (columns or {}).values()}
    if columns is not None and (ignored := sorted(names - {"prompt", *used})):
        more = ", …" if len(ignored) > SHOWN_COLUMNS else ""
        notes.append(f"Left out the columns {', '.join(ignored[:SHOWN_COLUMNS])}{more}: `columns` does not name them.")
    return notes


@dataclass(frozen=True)
class RowConverter:
    """Convert rows of the data to rows of the task; the fields are options of `jsonl`."""

    path: str
    columns: dict[str, str] | None
    template: str | None
    fields: tuple[str, ...]
    system: str | None
    style: str

    def convert(self, row: Row, split: str, index: int) -> Row:
        where = f"{self.path}, {split} row {index}"
        for name in ("image", "images"):
            images = row.get(name)
            if any(map(_is_image, images if isinstance(images, list) else [images])):
                problem = "it holds an image, which the model would not see. Set it to null if the prompt needs none"
                raise row_error(where, name, index, problem)
        kept = self._select_columns(row, where, index)
        prompt = self._complete_prompt(self._build_prompt(row, kept, where, index), where, index)
        kept.pop("prompt", None)
        kept.setdefault("source", None)
        kept.setdefault("id", None)
        for name in TEXT_COLUMNS & kept.keys():
            value = kept[name]
            if problem := missing(value) or ("it is blank" if name == "question" and not str(value).strip() else ""):
                if name not in ("source", "id"):
                    raise row_error(where, name, index, problem)
                value = _source(self.path) if name == "source" else f"{_source(self.path)}-{split}-{index}"
            # Verifiers compare text with text.
            kept[name] = _as_text(value)
        return {"prompt": prompt, **kept}

    def _select_columns(self, row: Row, where: str, index: int) -> Row:
        """Return the columns to keep, under our names."""
        if self.columns is None:
            return {name: value for name, value in row.items() if name not in RESERVED_COLUMNS}
        kept = {"prompt": row["prompt"]} if "prompt" in row else {}
        for ours, theirs in self.columns.items():
            try:
                kept[ours] = _value(row, theirs)
            except KeyError:
                swap = f" It is {{ours: theirs}}: write {{{theirs}: {ours}}}." if ours in row else ""
                hint = f"The option columns names it: {{{ours}: {theirs}}}.{swap}"
                raise missing_column_error(where, theirs, row, hint, row=index) from None
        return kept

    def _build_prompt(self, row: Row, kept: Row, where: str, index: int) -> Any:
        if self.template is None:
            if "prompt" not in kept:
                raise missing_column_error(
                    where, "prompt", row, "Set prompt_template, or columns: {prompt: THEIR NAME}.", row=index
                )
            return kept["prompt"]
        values = {**row, **kept}
        for field in self.fields:
            if field not in values:
                hint = f"The option prompt_template names it. Correct it, or set columns: {{{field}: THEIR NAME}}."
                raise missing_column_error(where, field, values, hint, row=index)
            if problem := missing(values[field]):
                raise row_error(where, field, index, f"{problem}, but prompt_template needs it")
            if isinstance(values[field], list | dict):
                kind = type(values[field]).__name__
                raise row_error(where, field, index, f"it is a {kind}, but prompt_template needs text or a number")
        if not any(str(values[field]).strip() for field in self.fields):
            raise row_error(where, self.fields[0], index, "it is blank, but prompt_template needs it")
        return self.template.format(**{field: values[field] for field in self.fields})

    def _complete_prompt(self, prompt: Any, where: str, index: int) -> str | list[dict[str, Any]]:
        """Return the prompt for the trainer: text, or messages with the system message first."""
        if isinstance(prompt, str):
            if not prompt.strip():
                raise row_error(where, "prompt", index, "it is empty")
            if self.style == "text" and self.system is not None:
                raise option_error(
                    "jsonl",
                    "system",
                    "plain-text prompts have no system message. Write style: chat, or use prompt_template.",
                )
            if self.style == "text":
                return prompt
            prompt = [{"role": "user", "content": prompt}]
        elif not _are_messages(prompt):
            raise InputError(
                f"{where}: its prompt is neither text nor a list of messages. "
                'Write messages like {"role": "user", "content": "…"}.',
                kind="invalid-row",
                key="prompt",
                row=index,
            )
        if self.system is not None and prompt[0]["role"] != "system":
            prompt = [{"role": "system", "content": self.system}, *prompt]
        return list(prompt)


def _is_image(value: Any) -> bool:
    """Whether a value of a column of images is one: not None, "", nan, or datasets' mapping of None."""
    return bool(any(value.values()) if isinstance(value, dict) else value) and value == value


def _value(row: Row, column: str) -> Any:
    """Return the value of a column, or one inside it: reward_model.ground_truth. A column's own name may hold dots."""
    head, dot, inner = column.partition(".")
    if column not in row and dot and isinstance(row.get(head), dict):
        return _value(row[head], inner)
    return row[column]


def _source(path: str) -> str:
    """Return a short name of the data, for the columns `source` and `id`."""
    return Path(path).stem if not may_be_hub_id(path) or Path(path).suffix in READABLE else path


def _as_text(value: Any) -> str:
    """Return the text of a value: JSON for a list or an object."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str) else str(value)


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and len(prompt) > 0
        and all(isinstance(message, dict) and {"role", "content"} <= message.keys() for message in prompt)
    )
