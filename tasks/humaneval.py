"""Load HumanEval: 164 Python functions to complete, for evaluation only (Chen et al., 2021).

A row has the beginning of a program (imports, a signature and a docstring), and a function `check(candidate)` of
asserts. Base models continue the beginning. Chat models write the whole function, but may leave out imports and other
functions. So the column `prefix` contains the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rlvr import Task
from rlvr.data.code.assert_tests import split_check
from rlvr.data.code.io_tests import InvalidTests
from rlvr.data.code.prompts import COMPLETION, build_instruction, format_answer
from rlvr.data.input_checks import require_text, row_error
from rlvr.data.io import Row, read_splits
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import to_datasets

HUB_DATASET = "openai/openai_humaneval"


def humaneval(
    *,
    path: str | None = None,
    answer_format: Literal["fence", "tags"] = "fence",
    instruction_role: Literal["system", "user"] = "user",
) -> Task:
    """Load HumanEval from the hub (openai/openai_humaneval) or a file, as chat prompts. All rows are test rows.

    Args:
        path: HumanEval.jsonl, or a parquet file. None downloads the dataset or uses the cached copy.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: role of the message with the instruction.

    Rows have `prompt`, `question`, `prefix`, `tests`, `entry_point`, `language`, `source` and `id` ("HumanEval/0").
    `question` and `prefix` are the beginning of the program. The judge puts `prefix` before a program.
    `tests` is a list of {"assert": statements}: the asserts of `check`, or all of `check` if it has other statements.
    No column contains a solution.
    """
    task_instruction = build_instruction(COMPLETION, "python", answer_format)
    raw = [row for split in read_splits("humaneval", path, HUB_DATASET).values() for row in split]
    rows = []
    for index, row in enumerate(raw):
        where = f"HumanEval, row {index} of {path or HUB_DATASET}"
        try:
            rows.append(_row(row, index, where, task_instruction, instruction_role))
        except InvalidTests as error:
            raise row_error(where, "test", index, str(error)) from error
    whole = sum(len(row["tests"]) == 1 and "check(" in row["tests"][0]["assert"] for row in rows)
    notes = (
        f"Read {len(raw):,} problems from {path or HUB_DATASET}, all of them test rows.",
        f"Each assert is a test; {whole} problems have a check that cannot be split.",
    )
    splits: dict[str, list[Row]] = {"train": [], "validation": [], "test": rows}
    solutions = {row["task_id"]: row.get("canonical_solution") for row in raw}

    def gold(row: Mapping[str, Any]) -> str | None:
        solution = solutions[row["id"]]
        return format_answer(row["prefix"] + solution, answer_format) if solution else None

    return Task(**to_datasets(**splits), notes=notes, gold=gold, answer=None)


def _row(row: Row, index: int, where: str, task_instruction: str, role: str) -> Row:
    require_text(row, ("task_id", "prompt", "entry_point", "test"), where, index)
    return {
        "prompt": build_messages(task_instruction, f"```python\n{row['prompt'].strip()}\n```", role),
        "question": row["prompt"].strip(),
        "prefix": row["prompt"],
        "tests": split_check(row["test"], row["entry_point"]),
        "entry_point": row["entry_point"],
        "language": "python",
        "source": "humaneval",
        "id": row["task_id"],
    }
