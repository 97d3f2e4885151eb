"""Load selected rows and columns of large datasets.

CodeContests has several gigabytes, mostly solutions. Parquet files and downloaded datasets are read in batches, and
rows outside the selection never become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.data.io import READABLE, Row, find_split_files, load_hub_dataset, read_rows
from rlvr.errors import InputError

if TYPE_CHECKING:
    import pyarrow

_BATCH = 256


@dataclass(frozen=True)
class RowSelection:
    """Columns and rows to read.

    Attributes:
        columns: columns to keep, if the data has them.
        band: a column of numbers, its lowest and its highest value. Rows outside are skipped and counted. Data without
            that column is read completely.
    """

    columns: tuple[str, ...]
    band: tuple[str, float, float] | None = None


@dataclass(frozen=True)
class LoadedRows:
    """Rows that were read, and the number of skipped rows outside the band."""

    rows: list[Row]
    skipped: int = 0


def read_split(folder: Path, split: str, selection: RowSelection) -> LoadedRows:
    """Read a split from a folder (train-00000-of-00039.parquet, train.jsonl, …); without such files it has no rows."""
    parts = [read_file(file, selection) for file in find_split_files(folder, split)]
    return LoadedRows([row for part in parts for row in part.rows], sum(part.skipped for part in parts))


def read_file(path: Path, selection: RowSelection) -> LoadedRows:
    """Read a JSON, JSONL or parquet file.

    Raises:
        InputError: as in `rlvr.data.io.read_rows`.
    """
    if path.suffix != ".parquet" or not path.is_file():
        rows = read_rows(path)
        kept = [row for row in rows if _is_inside(row, selection.band)]
        return LoadedRows([_select_columns(row, selection.columns) for row in kept], len(rows) - len(kept))

    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in selection.columns if name in file.schema_arrow.names]
        band = (
            [selection.band[0]] if selection.band is not None and selection.band[0] in file.schema_arrow.names else []
        )
        batches = file.iter_batches(batch_size=_BATCH, columns=list(dict.fromkeys(columns + band)))
        return _gather(batches, selection)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"Cannot read {path} as parquet: {error}.", kind="unreadable-file", path=path) from error


def download_split(
    dataset: str, splits: Sequence[str], selection: RowSelection, how_else: str
) -> dict[str, LoadedRows]:
    """Load splits of a dataset from the Hugging Face hub or its cache; a missing split has no rows.

    Args:
        how_else: as in `rlvr.data.io.load_hub_dataset`.
    """
    loaded = load_hub_dataset(dataset, None, how_else)
    rows = {}
    for split in splits:
        if split not in loaded:
            rows[split] = LoadedRows([])
            continue
        names = loaded[split].column_names
        columns = [name for name in selection.columns if name in names]
        band = [selection.band[0]] if selection.band is not None and selection.band[0] in names else []
        table = loaded[split].select_columns(list(dict.fromkeys(columns + band))).with_format("arrow")
        batches = (batch for piece in table.iter(_BATCH) for batch in piece.to_batches())
        rows[split] = _gather(batches, selection)
    return rows


def find_only_file(folder: Path) -> Path | None:
    """Return the only data file of a folder; None if there are none or several."""
    files = [file for file in sorted(folder.iterdir()) if file.suffix in READABLE]
    return files[0] if len(files) == 1 else None


def _gather(batches: Iterable[pyarrow.RecordBatch], selection: RowSelection) -> LoadedRows:
    import pyarrow.compute

    rows: list[Row] = []
    skipped = 0
    for batch in batches:
        before = batch.num_rows
        if selection.band is not None and selection.band[0] in batch.schema.names:
            name, low, high = selection.band
            column = batch.column(name)
            inside = pyarrow.compute.and_(
                pyarrow.compute.greater_equal(column, low), pyarrow.compute.less_equal(column, high)
            )
            batch = batch.filter(inside)  # also drops rows without a number
        skipped += before - batch.num_rows
        rows += [_select_columns(row, selection.columns) for row in batch.to_pylist()]
    return LoadedRows(rows, skipped)


def _is_inside(row: Row, band: tuple[str, float, float] | None) -> bool:
    if band is None or band[0] not in row:
        return True
    value: Any = row[band[0]]
    return isinstance(value, int | float) and band[1] <= value <= band[2]


def _select_columns(row: Row, columns: Sequence[str]) -> Row:
    return {name: row[name] for name in columns if name in row}
