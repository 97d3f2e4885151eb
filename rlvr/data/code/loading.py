"""Load selected rows and columns of large datasets.

CodeContests has several gigabytes, mostly solutions. Parquet files and downloaded datasets are read in batches, and
rows outside the selection never become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.dataset

from rlvr.data.hub import load_hub_dataset
from rlvr.data.io import Row, check_data_file, read_rows, unreadable

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
    band: tuple[str, float, float]


@dataclass(frozen=True)
class LoadedRows:
    """Rows that were read, and the number of skipped rows outside the band."""

    rows: list[Row]
    skipped: int = 0


def read_files(files: Iterable[Path], selection: RowSelection) -> LoadedRows:
    """Read the files of a split; see `read_file`."""
    parts = [read_file(file, selection) for file in files]
    return LoadedRows([row for part in parts for row in part.rows], sum(part.skipped for part in parts))


def read_file(path: Path, selection: RowSelection) -> LoadedRows:
    """Read a JSON, JSONL or parquet file.

    Raises:
        InputError: as in `rlvr.data.io.read_rows`.
    """
    check_data_file(path)
    if path.suffix != ".parquet":
        rows = read_rows(path)
        kept = [row for row in rows if _is_inside(row, selection.band)]
        columns = [{name: row[name] for name in selection.columns if name in row} for row in kept]
        return LoadedRows(columns, len(rows) - len(kept))

    try:
        return _select(pyarrow.dataset.dataset(path), selection)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, error, "parquet") from error


def download_split(
    dataset: str, splits: Sequence[str], selection: RowSelection, how_else: str
) -> dict[str, LoadedRows]:
    """Load splits of a dataset from the Hugging Face hub or its cache; a missing split has no rows.

    Args:
        how_else: as in `rlvr.data.hub.download_rows`.
    """
    loaded = load_hub_dataset(dataset, None, how_else)
    tables = {split: pyarrow.dataset.dataset(loaded[split].data.table) for split in splits if split in loaded}
    return {split: _select(tables[split], selection) if split in tables else LoadedRows([]) for split in splits}


def _select(data: pyarrow.dataset.Dataset, selection: RowSelection) -> LoadedRows:
    name, low, high = selection.band
    column = pyarrow.compute.field(name)
    inside = (column >= low) & (column <= high) if name in data.schema.names else None  # drops rows without a number
    columns = [name for name in selection.columns if name in data.schema.names]
    batches = data.to_batches(columns=columns, filter=inside, batch_size=_BATCH)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return LoadedRows(rows, data.count_rows() - len(rows))


def _is_inside(row: Row, band: tuple[str, float, float]) -> bool:
    name, low, high = band
    return name not in row or (isinstance(row[name], int | float) and low <= row[name] <= high)
