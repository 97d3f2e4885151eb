"""Rows of data: reading them from files, checking them, and splitting them so that held-out means held out.

Rows are plain dictionaries until a task has finished with them. JSON is read here and not by `datasets`, because that
guesses types from the text (an answer "2024-01-01" becomes a date, a column with 7 and 7.5 becomes all floats) and
cannot say in which line a file is broken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config import schema
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

READABLE = (".jsonl", ".ndjson", ".json", ".parquet")

Row = dict[str, Any]


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def read_rows(path: Path) -> list[Row]:
    """The rows of a JSON, JSONL or parquet file; never none.

    A .json file holds a list of objects, or one object a line like a .jsonl file. Blank lines are skipped.

    Raises:
        InputError: no such file, another format, broken JSON (with the line), a row that is no object, or no rows.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.{_beside(path)}")
    if path.suffix not in READABLE:
        raise InputError(f"{path} can't be read as data: its name should end in {', '.join(READABLE)}.")
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} can't be read: {error}. Data files are text in UTF-8.") from error
        rows = _read_list(path, text) if text.lstrip().startswith("[") else _read_lines(path, text)
    if not rows:
        raise InputError(f"{path} holds no rows.")
    return rows


def _read_lines(path: Path, text: str) -> list[Row]:
    rows = []
    # Not splitlines(): that would also cut at U+2028 and its kin, which JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: not valid JSON ({error}). Each line should be one object."
            ) from None
        if not isinstance(row, dict):
            raise InputError(
                f"{path}, line {number}: {_kind(row)}, but each line should be one object, "
                'like {"question": "…", "final_answer": "…"}.'
            )
        rows.append(row)
    return rows


def _read_list(path: Path, text: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not valid JSON ({error.msg}).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}).") from None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: entry {number} of the list is {_kind(row)}, but each should be an object.")
    return list(rows)


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_table(path).to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} can't be read as parquet: {error}.") from error


def download_rows(dataset: str, subset: str | None, how_else: str) -> dict[str, list[Row]]:
    """Every split of a dataset on the Hugging Face hub, or of its cached copy.

    Args:
        dataset, subset: as in `datasets.load_dataset`.
        how_else: a sentence for the error message that says how to do without the hub.
    """
    from datasets import load_dataset

    try:
        splits = load_dataset(dataset, subset)
    except Exception as error:  # the hub's client raises errors of several libraries, and each means: no data
        wanted = f"{dataset} (subset {subset})" if subset else dataset
        reason = " ".join(str(error).split())
        raise InputError(
            f"Tried to download the dataset {wanted} from the Hugging Face hub, which failed, and no copy is cached "
            f"here: {reason.rstrip('.')}. {how_else}"
        ) from error
    return {str(name): list(split) for name, split in splits.items()}


def split_files(folder: Path, split: str, suffixes: tuple[str, ...] = READABLE) -> list[Path]:
    """The files of a folder that hold a split: test.jsonl, gsm8k_test.jsonl, test-00000-of-00002.parquet, …"""
    found = [
        file
        for file in sorted(folder.iterdir())
        if file.suffix in suffixes and (file.stem.startswith(split) or file.stem.endswith(split))
    ]
    if len(found) > 1 and not all("-of-" in file.stem for file in found):
        names = ", ".join(file.name for file in found)
        raise InputError(f"In {folder} several files could be the {split} split: {names}. Leave one there.")
    return found


def _beside(path: Path) -> str:
    """A hint at the files that a missing one may be a misspelling of."""
    if not path.parent.is_dir():
        return f" There is no folder {path.parent} either; relative paths start from {Path.cwd()}."
    there = sorted(file.name for file in path.parent.iterdir() if file.suffix in READABLE)
    close = schema.nearest(path.name, there)
    if close:
        return f" Did you mean {close[0]}?"
    return f" In {path.parent} there is: {', '.join(there[:8]) or 'no data file'}."


def _kind(value: object) -> str:
    names = {
        list: "a list",
        str: "text",
        int: "a number",
        float: "a number",
        bool: "a truth value",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def pack(value: Any) -> str:
    """JSON that `unpack` turns into the very same value: tuples survive, and keys that are no text.

    For a column of the data that carries what a verifier needs.
    """
    return json.dumps(_tagged(value), ensure_ascii=False)


def unpack(text: str) -> Any:
    """What `pack` packed."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Checking


def missing_column(where: str, column: str, there: Iterable[str], how: str = "") -> InputError:
    """The error for a column that the data does not have, with the nearest one that it has."""
    names = list(there)
    close = schema.nearest(column, names)
    hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(names) or 'none'}."
    return InputError(f"{where} has no column {column!r}. {hint}{' ' + how if how else ''}")


def check_choice(task: str, option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(
            f"Task {task}, option {option}: {value!r} is none of {', '.join(choices)}. Write one of these."
        )


def check_whole(task: str, option: str, value: object, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limits = f"from {least} to {most}" if most is not None else f"of {least} or more"
        raise InputError(f"Task {task}, option {option}: {value!r} is not a whole number {limits}.")


def check_fraction(task: str, option: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError(
            f"Task {task}, option {option}: {value!r} is not a fraction of the rows. Write a number from 0 to below 1, "
            "like 0.1."
        )


# ----------------------------------------------------------------------------------------------------------------------
# Splitting


def question_key(question: object) -> str:
    """What two rows have in common if they ask the same: the text, whatever its case and spacing."""
    text = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
    return " ".join(text.split()).casefold()


def without(rows: list[Row], keys: set[str], key: Callable[[Row], str]) -> list[Row]:
    """The rows whose key is not among `keys`: what must be left of the training rows where others are held out."""
    return [row for row in rows if key(row) not in keys]


def hold_out(rows: list[Row], fraction: float, seed: str, key: Callable[[Row], str]) -> tuple[list[Row], list[Row]]:
    """Cuts a random `fraction` off: (the rest, the held-out rows), both in the order that they came in.

    Rows with the same key go to the same side, so the held-out share can come out a little larger than asked for.
    """
    wanted = round(fraction * len(rows))
    if wanted == 0:
        return rows, []
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[key(row)] = sizes.get(key(row), 0) + 1
    names = list(sizes)
    random.Random(seed).shuffle(names)
    held: set[str] = set()
    count = 0
    for name in names:
        if count >= wanted:
            break
        held.add(name)
        count += sizes[name]
    return [row for row in rows if key(row) not in held], [row for row in rows if key(row) in held]


def limited(rows: list[Row], limit: int | None, seed: str) -> list[Row]:
    """At most `limit` rows, drawn at random and left in their order; a larger limit with the same seed adds to them."""
    if limit is None or limit >= len(rows):
        return rows
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    return [rows[index] for index in sorted(order[:limit])]


def as_datasets(**splits: list[Row]) -> dict[str, Dataset]:
    """One `datasets.Dataset` a split, all with the same columns and types, those without rows too.

    A column whose entries are objects of different shapes (tests of several kinds) is kept as it is, as JSON.
    """
    from datasets import Dataset

    together = Dataset.from_list([row for rows in splits.values() for row in rows], on_mixed_types="use_json")
    datasets, start = {}, 0
    for name, rows in splits.items():
        # An empty range that starts behind the last row is refused, an empty list is not.
        datasets[name] = together.select(range(start, start + len(rows)) if rows else [])
        start += len(rows)
    return datasets
