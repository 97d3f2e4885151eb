"""Rows of data sets of programming problems, which are large: only the columns and the rows that are asked for.

CodeContests has 13,610 problems in several gigabytes, most of them other people's solutions. Parquet files, and what
the `datasets` package has downloaded, are read a piece at a time; a row that isn't wanted never becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.data.io import READABLE, Row, read_rows, split_files
from rlvr.errors import InputError

if TYPE_CHECKING:
    import pyarrow

_BATCH = 256


@dataclass(frozen=True)
class Wanted:
    """What is read of a data set.

    Attributes:
        columns: those that a row should have; one that the data lacks is left out.
        band: a column of numbers and the limits that it should lie in, both included. Rows are skipped and counted
            where it lies outside; data without that column is read whole.
    """

    columns: tuple[str, ...]
    band: tuple[str, float, float] | None = None


@dataclass(frozen=True)
class Found:
    """Rows that were read, and how many were skipped for lying outside the band."""

    rows: list[Row]
    skipped: int = 0


def read_split(place: Path, split: str, wanted: Wanted) -> Found:
    """The rows of a split in a folder (train-00000-of-00039.parquet, train.jsonl, …), none if it has no such file."""
    found = [read_file(file, wanted) for file in split_files(place, split)]
    return Found([row for part in found for row in part.rows], sum(part.skipped for part in found))


def read_file(path: Path, wanted: Wanted) -> Found:
    """The rows of a JSON, JSONL or parquet file.

    Raises:
        InputError: as `rlvr.data.io.read_rows`.
    """
    if path.suffix != ".parquet" or not path.is_file():
        rows = read_rows(path)
        kept = [row for row in rows if _inside(row, wanted.band)]
        return Found([_chosen(row, wanted.columns) for row in kept], len(rows) - len(kept))

    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        there = [name for name in wanted.columns if name in file.schema_arrow.names]
        band = [wanted.band[0]] if wanted.band is not None and wanted.band[0] in file.schema_arrow.names else []
        batches = file.iter_batches(batch_size=_BATCH, columns=list(dict.fromkeys(there + band)))
        return _gathered(batches, wanted)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} can't be read as parquet: {error}.") from error


def download_split(dataset: str, splits: Sequence[str], wanted: Wanted, how_else: str) -> dict[str, Found]:
    """Splits of a data set on the Hugging Face hub, or of its cached copy; one that it lacks has no rows.

    Args:
        how_else: a sentence for the error message that says how to do without the hub.
    """
    from datasets import load_dataset

    try:
        loaded = load_dataset(dataset)
    except Exception as error:  # the hub's client raises errors of several libraries, and each means: no data
        reason = " ".join(str(error).split())
        raise InputError(
            f"Tried to download the dataset {dataset} from the Hugging Face hub, which failed, and no copy is cached "
            f"here: {reason.rstrip('.')}. {how_else}"
        ) from error
    found = {}
    for split in splits:
        if split not in loaded:
            found[split] = Found([])
            continue
        names = loaded[split].column_names
        columns = [name for name in wanted.columns if name in names]
        band = [wanted.band[0]] if wanted.band is not None and wanted.band[0] in names else []
        table = loaded[split].select_columns(list(dict.fromkeys(columns + band))).with_format("arrow")
        found[split] = _gathered((batch for piece in table.iter(_BATCH) for batch in piece.to_batches()), wanted)
    return found


def only_file(folder: Path) -> Path | None:
    """The one data file of a folder, or None."""
    there = [file for file in sorted(folder.iterdir()) if file.suffix in READABLE]
    return there[0] if len(there) == 1 else None


def _gathered(batches: Iterable[pyarrow.RecordBatch], wanted: Wanted) -> Found:
    import pyarrow.compute

    rows: list[Row] = []
    skipped = 0
    for batch in batches:
        before = batch.num_rows
        if wanted.band is not None and wanted.band[0] in batch.schema.names:
            name, low, high = wanted.band
            column = batch.column(name)
            inside = pyarrow.compute.and_(
                pyarrow.compute.greater_equal(column, low), pyarrow.compute.less_equal(column, high)
            )
            batch = batch.filter(inside)  # a row whose number is missing goes too
        skipped += before - batch.num_rows
        rows += [_chosen(row, wanted.columns) for row in batch.to_pylist()]
    return Found(rows, skipped)


def _inside(row: Row, band: tuple[str, float, float] | None) -> bool:
    if band is None or band[0] not in row:
        return True
    value: Any = row[band[0]]
    return isinstance(value, int | float) and band[1] <= value <= band[2]


def _chosen(row: Row, columns: Sequence[str]) -> Row:
    return {name: row[name] for name in columns if name in row}
