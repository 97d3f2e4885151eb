"""HumanEval: 164 Python functions to be completed, for evaluation only (Chen et al., 2021).

Each row has a prompt, which is the beginning of a program (imports, a signature and a docstring), and a function
`check(candidate)` full of asserts. Base models go on where the prompt stops. Chat models write the whole function; they
may still leave out the imports and the other functions of the prompt, so the column `prefix` holds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rlvr.data.code.assert_tests import split_check
from rlvr.data.code.io_tests import BadTests
from rlvr.data.code.prompts import ANSWER_FORMATS, COMPLETION, as_messages, instruction
from rlvr.data.io import Row, as_datasets, check_choice, check_whole, download_rows, limited, missing_column, read_rows
from rlvr.data.task import Task
from rlvr.errors import InputError

HUB_DATASET = "openai/openai_humaneval"


def humaneval(
    *,
    path: str | None = None,
    split: Literal["test"] = "test",
    partial_credit: bool = True,
    answer_format: Literal["fence", "tags"] = "fence",
    instruction_role: Literal["system", "user"] = "user",
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """HumanEval from the hub (openai/openai_humaneval), or from a file, as chat prompts; all rows are test rows.

    Args:
        path: HumanEval.jsonl, or a parquet file. None downloads the dataset, or takes the cached copy.
        split: "test". There is no other one.
        partial_credit: makes a test of each assert, where `check` is nothing but asserts (157 of the 164). Otherwise
            `check` as a whole is the only test. A program passes all tests in one form if it does in the other.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: who asks for it.
        limit_test: at most so many rows, drawn at random.
        seed: of the limit.

    Rows have `prompt`, `question` (the beginning of the program), `prefix` (the same, to be put in front of a program
    that is only its continuation), `tests` (a list of {"assert": statements}), `entry_point`, `language` ("python"),
    `source` ("humaneval") and `id` ("HumanEval/0"). No column holds a solution.
    """
    name = "humaneval"
    if split != "test":
        raise InputError(
            f"Task {name}, option split: there is no split {split!r}. HumanEval has 164 problems and is a yardstick: "
            "whoever trains on them can't say any more what a model has learnt. Train on mbpp, and evaluate on this."
        )
    check_choice(name, "answer_format", answer_format, ANSWER_FORMATS)
    check_choice(name, "instruction_role", instruction_role, ("system", "user"))
    check_whole(name, "seed", seed, 0)
    if limit_test is not None:
        check_whole(name, "limit_test", limit_test, 1)
    asked = instruction(COMPLETION, "python", answer_format)
    raw = _read(path)
    rows = []
    for index, row in enumerate(raw):
        where = f"HumanEval, row {index} of {path or HUB_DATASET}"
        try:
            rows.append(_row(row, where, asked, instruction_role, partial_credit))
        except BadTests as error:
            raise InputError(f"{where}: {error}. Mend or remove the row.") from error
    kept = limited(rows, limit_test, f"{seed}/limit")
    notes = [f"Read {len(raw):,} problems from {path or HUB_DATASET}, all of them test rows: none is for training."]
    if partial_credit:
        whole = sum(len(row["tests"]) == 1 and "check(" in row["tests"][0]["assert"] for row in rows)
        notes.append(f"Each assert is a test of its own; {whole} problems have a check that can't be taken apart.")
    if len(kept) < len(rows):
        notes.append(f"Kept {len(kept):,} of {len(rows):,} test rows, as limit_test asks.")
    return Task(**as_datasets(train=[], validation=[], test=kept), notes=tuple(notes))


def _read(path: str | None) -> list[Row]:
    if path is not None:
        return read_rows(Path(path))
    how_else = (
        "Without the network: put HumanEval.jsonl somewhere and set path: FILE under task. With it: see that "
        "HF_HUB_OFFLINE is unset."
    )
    return [row for split in download_rows(HUB_DATASET, None, how_else).values() for row in split]


def _row(row: Row, where: str, asked: str, role: str, partial_credit: bool) -> Row:
    for column in ("task_id", "prompt", "entry_point", "test"):
        if column not in row:
            raise missing_column(where, column, row)
        if not isinstance(row[column], str) or not row[column].strip():
            raise InputError(f"{where}: its {column} is {row[column]!r}, but should be text.")
    tests = split_check(row["test"], row["entry_point"])
    if not partial_credit:
        tests = [{"assert": f"{row['test'].strip()}\n\ncheck({row['entry_point']})"}]
    return {
        "prompt": as_messages(asked, f"```python\n{row['prompt'].strip()}\n```", role),
        "question": row["prompt"].strip(),
        "prefix": row["prompt"],
        "tests": tests,
        "entry_point": row["entry_point"],
        "language": "python",
        "source": "humaneval",
        "id": row["task_id"],
    }
