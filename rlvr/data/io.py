"""Read and write rows of data.

Rows are plain dictionaries until a task is complete. `datasets` does not read the JSON, because it guesses types from
the text (an answer "2024-01-01" becomes a date, a column with 7 and 7.5 becomes all floats) and does not report the
invalid line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config import schema
from rlvr.data.hub import download_rows
from rlvr.errors import InputError

if TYPE_CHECKING:
    import pyarrow

READABLE = (".jsonl", ".ndjson", ".json", ".parquet")

Row = dict[str, Any]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSONL, atomically: a reader never sees an incomplete file."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a JSON, JSONL or parquet file.

    A .json file contains a list of objects, or one object a line like a .jsonl file. Blank lines are skipped.

    Raises:
        InputError: the file is missing or empty, has another format, or contains a row that is no JSON object.
    """
    check_data_file(path)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        try:
            rows = list(_with_short_decimals(pyarrow.parquet.read_table(path)).to_pylist())
        except (OSError, pyarrow.ArrowException) as error:
            raise unreadable(path, error, "parquet") from error
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(path, error, "UTF-8 text") from error
        rows = _read_list(path, text) if text.lstrip().startswith("[") else _read_lines(path, text)
    if not rows:
        raise InputError(f"{path} has no rows. Choose another file.", kind="empty-data", path=path)
    return rows


def _with_short_decimals(table: pyarrow.Table) -> pyarrow.Table:
    """The table with columns of 16- and 32-bit floats as the shortest decimals that they stand for: 49.1, as written.

    Their exact values, such as 49.099998474121094, would be golds that no answer has.
    """
    import numpy
    import pyarrow

    for index, column in enumerate(table.schema):
        if pyarrow.types.is_float16(column.type) or pyarrow.types.is_float32(column.type):
            kind = numpy.float16 if pyarrow.types.is_float16(column.type) else numpy.float32
            values = [None if value is None else float(str(kind(value))) for value in table[index].to_pylist()]
            table = table.set_column(index, column.name, pyarrow.array(values, pyarrow.float64()))
    return table


def check_data_file(path: Path) -> None:
    """Check that a file exists and has a known type."""
    if not path.is_file():
        message = f"The file {path.absolute()} does not exist.{_suggest_files(path)}"
        raise InputError(message, kind="file-not-found", path=path)
    if path.suffix not in READABLE:
        message = (
            f"Cannot read {path} as data: unknown type. Use one of {', '.join(READABLE)}. pandas converts CSV: "
            "read_csv(FILE, dtype=str, keep_default_na=False).to_json('train.jsonl', orient='records', lines=True)."
        )
        raise InputError(message, kind="unreadable-file", path=path)


def unreadable(path: Path, error: Exception, form: str) -> InputError:
    """Return the error for a file that is not of its form."""
    return InputError(f"Cannot read {path} as {form}: {error}. Write it anew.", kind="unreadable-file", path=path)


def _read_lines(path: Path, text: str) -> list[Row]:
    rows: list[Row] = []
    # splitlines() would also cut at U+2028 and similar characters, which JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            message = f"{path}, line {number}: invalid JSON ({reason}). Write one object a line."
            raise InputError(message, kind="invalid-json", path=path, line=number) from None
        _check_row(row, len(rows), path, number)
        rows.append(row)
    return rows


def _read_list(path: Path, text: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        message = f"{path}: invalid JSON ({error}). Write a list of objects."
        raise InputError(message, kind="invalid-json", path=path, line=line) from None
    for number, row in enumerate(rows):
        _check_row(row, number, path)
    return list(rows)


def _check_row(row: Any, number: int, path: Path, line: int | None = None) -> None:
    if not isinstance(row, dict):
        where = f"{path}, entry {number + 1} of the list" if line is None else f"{path}, line {line}"
        message = f'{where}: {row!r:.40} is no row. Write an object, like {{"question": "…", "final_answer": "…"}}.'
        raise InputError(message, kind="invalid-row", row=number, path=path, line=line)


def find_split_files(folder: Path, split: str) -> list[Path]:
    """List the files of a split in a folder: test.jsonl, gsm8k_test.jsonl, test-00000-of-00002.parquet, …

    Or in a folder of the split's name, which a channel of a SageMaker job is.
    """
    files = [
        file
        for file in sorted(folder.iterdir())
        if file.suffix in READABLE and (file.stem.startswith(split) or file.stem.endswith(split))
    ]
    if not files and (folder / split).is_dir():
        files = [file for file in sorted((folder / split).iterdir()) if file.suffix in READABLE]
    if len(files) > 1 and not all("-of-" in file.stem for file in files):
        names = ", ".join(file.name for file in files)
        message = f"Several files in {folder} could be the {split} split: {names}. Keep one of them."
        raise InputError(message, kind="ambiguous-split", path=folder)
    return files


def find_splits(folder: Path, task: str, validation: str = "validation") -> dict[str, list[Path]]:
    """List the files of all splits in a folder. If it has only one file, that has the training rows.

    Args:
        validation: what the names of the validation split's files begin or end with.
    """
    names = {"train": "train", "validation": validation, "test": "test"}
    splits = {split: find_split_files(folder, name) for split, name in names.items()}
    files = sorted(file for file in folder.iterdir() if file.suffix in READABLE)
    if not splits["train"] and len(files) == 1:
        return {"train": files, "validation": [], "test": []}
    if not splits["train"]:
        message = (
            f"Task {task}, option path: {folder} has no file for the train split, such as train.jsonl. It has: "
            f"{', '.join(file.name for file in files) or 'no data file'}. Rename a file, or name the file in path."
        )
        raise InputError(message, kind="missing-split", key="path")
    return splits


def read_splits(task: str, path: str | None, dataset: str = "", subset: str | None = None) -> dict[str, list[Row]]:
    """Read the rows of each split that the data has.

    Args:
        path: a file, whose rows are training rows; a folder with a file for each split; or the id of a dataset of the
            hub. None downloads `dataset`, or uses the cached copy.
        dataset, subset: a dataset of the hub, and its configuration if it has several.
    """
    place = Path(path or "")
    if path is None or (not place.exists() and place.suffix not in READABLE and may_be_hub_id(path)):
        how_else = "Without a network: put its files into a folder, and set path: FOLDER under task."
        how_else = how_else if path is None else "There is no local file or folder of this name either."
        return download_rows(path or dataset, subset, how_else)
    if place.is_dir():
        splits = find_splits(place, task)
        return {split: [row for file in files for row in read_rows(file)] for split, files in splits.items()}
    return {"train": read_rows(place)}


def may_be_hub_id(path: str) -> bool:
    """Whether a path has the form OWNER/NAME."""
    owner, slash, name = path.partition("/")
    return bool(slash and owner and name) and "/" not in name and not path.startswith((".", "~", "/"))


def _suggest_files(path: Path) -> str:
    """Suggest the file that a missing path may be a misspelling of."""
    if not path.parent.is_dir():
        return f" Nor does the folder {path.parent}. Relative paths start from the working directory, {Path.cwd()}."
    names = sorted(file.name for file in path.parent.iterdir() if file.suffix in READABLE)
    if close := schema.nearest(path.name, names):
        return f" Did you mean {close[0]}?"
    return f" The folder {path.parent.absolute()} has {', '.join(names[:8]) or 'no data file'}."


def pack(value: Any) -> str:
    """Encode a value as JSON for a column of the data. `unpack` restores tuples and keys that are no strings."""
    return json.dumps(_tagged(value), ensure_ascii=False)


def unpack(text: str) -> Any:
    """Decode the JSON of `pack`."""
    return _untagged(json.loads(text))


def _tagged(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"__tuple__": [_tagged(item) for item in value]}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _tagged(item) for key, item in value.items()}
        return {"__items__": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
    return value


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"__tuple__"}:
            return tuple(_untagged(item) for item in value["__tuple__"])
        if value.keys() == {"__items__"}:
            return {_untagged(key): _untagged(item) for key, item in value["__items__"]}
        return {key: _untagged(item) for key, item in value.items()}
    return value
