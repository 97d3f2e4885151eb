"""Load texts, each with a JSON Schema and the value to extract: paraloq/json_data_extraction (Apache 2.0, 484 rows).

The held-out rows have schemas that no training row has, so held-out accuracy measures new schemas.
"""

from __future__ import annotations

import json
from pathlib import Path

from rlvr import Task
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import to_datasets
from rlvr.data.usable_rows import usable_rows
from rlvr.verifiers.json_value import InvalidJson, InvalidSchema, from_column, schema_fault, validation_fault

HUB_DATASET = "paraloq/json_data_extraction"
INSTRUCTION = (
    "Extract the data of the text as one JSON value that is valid under the schema. Answer with the JSON alone."
)


def json_extraction(
    *,
    path: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 42,
) -> Task:
    """Load texts as chat prompts, with their schemas.

    Args:
        path: a file, a folder with a train file and an optional test file, or a dataset of the hub. The columns are
            text, schema and item (JSON text or values). None downloads the dataset, or uses the cached copy.
        test_fraction: share of the rows to hold out, by schema, if the data has no test split.
        seed: seed of all random choices.

    Rows have `prompt`, `question` (the text), `schema` and `reference` (JSON text), `source` and `id`. Rows are left
    out if their item is not valid under its schema.
    """
    name, source = "json_extraction", path or HUB_DATASET

    def convert(row: Row, number: int, split: str) -> Row | str:
        try:
            schema, item = from_column(row["schema"]), from_column(row["item"])
            if schema_fault(schema):
                return "a schema that is none"
            if validation_fault(schema, item):
                return "an item that is not valid under its schema"
        except (InvalidJson, InvalidSchema):
            return "a schema or an item that can't be read"
        schema_text, text = json.dumps(schema, ensure_ascii=False), row["text"].strip()
        content = f"{INSTRUCTION}\n\nSchema:\n{schema_text}\n\nText:\n{text}"
        return {
            "prompt": [{"role": "user", "content": content}],
            "question": text,
            "schema": schema_text,
            "reference": json.dumps(item, ensure_ascii=False),
            "source": source,
            "id": f"{Path(source).name}-{split}-{number}",
        }

    splits, notes = usable_rows(
        name,
        source,
        read_splits(name, path, HUB_DATASET),
        ("text", "schema", "item"),
        convert,
        test_fraction=test_fraction,
        seed=seed,
        held_out_by="schema",
    )
    return Task(**to_datasets(**splits), notes=tuple(notes), gold=lambda row: row["reference"], answer="reference")
