"""Load MBPP: 974 small tasks for Python functions, each with three asserts (Austin et al., 2021).

The splits are from the paper, by task_id: 601 to 974 train, 511 to 600 validation, 11 to 510 test. Tasks 1 to 10 are
the paper's few-shot examples, in no split. The sanitized version has 427 tasks, checked by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.data.code.assert_tests import find_entry_point, make_assert_tests
from rlvr.data.code.faulty_programs import add_faulty_programs
from rlvr.data.code.io_tests import InvalidTests
from rlvr.data.code.prompts import FUNCTION, build_instruction, format_answer
from rlvr.data.hub import download_rows
from rlvr.data.input_checks import check_integer, require_columns, require_text, row_error
from rlvr.data.io import READABLE, Row, read_rows
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import drop_held_out, notes_on_dropped, require_training_rows, to_datasets

NAME = "mbpp"
HUB_DATASET = "google-research-datasets/mbpp"
SPLITS = {"train": range(601, 975), "validation": range(511, 601), "test": range(11, 511)}


def mbpp(
    *,
    path: str | None = None,
    version: Literal["full", "sanitized"] = "full",
    shown: int = 1,
    tests: Literal["all", "hidden"] = "all",
    answer_format: Literal["fence", "tags", "tool"] = "fence",
    faulty: bool = False,
    solutions: bool = False,
    instruction_role: Literal["system", "user"] = "user",
    seed: int = 42,
) -> Task:
    """Load MBPP from the hub (google-research-datasets/mbpp) or files, as chat prompts for Python functions.

    Args:
        path: the file mbpp.jsonl or sanitized-mbpp.json, a parquet file, or a folder of these with subfolders. task_id
            decides the split. None downloads the dataset or uses the cached copy.
        version: "full" or "sanitized", on the hub.
        shown: number of asserts in the prompt, 0 or more. With 0, the prompt names the function.
        tests: "all" scores with all asserts, as is usual. "hidden" scores only with asserts that the prompt hides.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>. "tool" asks for a
            call of the tool submit (environments/code_repair.py, python_sandbox.py).
        faulty: add the columns faulty_program, the solution with one fault, and solution. Rows for which no fault fails
            a test are left out. The sandbox runs up to four programs per task.
        solutions: add the column solution, which --check submits to an environment for programs.
        instruction_role: role of the message with the instruction.
        seed: seed of the faults.

    Rows have `prompt`, `question`, `tests`, `public_tests`, `entry_point`, `language`, `source` and `id` ("mbpp-601").
    `tests` score a program. The tests are a list of {"assert": statements}. No column contains a solution, unless
    `faulty` or `solutions` adds it. Prompts never contain a solution.
    """
    check_integer(NAME, "shown", shown, 0)
    instruction = build_instruction(FUNCTION, "python", answer_format)
    build_prompt = partial(build_messages, instruction, instruction_role=instruction_role)
    by_id: dict[int, Row] = {}
    invalid: dict[str, list[str]] = {}
    raw = _read(path, version)
    for file, index, row in raw:
        where = f"MBPP, row {index} of {file}"
        number = _task_id(row, index, where)
        if number in by_id:
            raise row_error(where, "task_id", index, f"{number} occurs twice; path may have both versions")
        try:
            by_id[number] = _row(row, index, where, build_prompt, shown, tests)
        except InvalidTests as error:
            invalid.setdefault(str(error), []).append(str(number))
    splits = {split: [row for number, row in by_id.items() if number in SPLITS[split]] for split in SPLITS}
    shown_words = f"up to {shown}" if shown > 1 else shown
    notes = [
        f"Read {len(raw):,} tasks from {path or HUB_DATASET}, split by task_id as in the paper.",
        f"Prompts show {shown_words} of a task's asserts; {'all' if tests == 'all' else 'the others'} score a program.",
        *drop_held_out(splits),
        *notes_on_dropped(invalid, "task"),
    ]
    require_training_rows(NAME, path or HUB_DATASET, splits, notes)
    programs = {f"mbpp-{row['task_id']}": row.get("code") for _, _, row in raw}
    if faulty:
        for split, rows in splits.items():
            splits[split] = add_faulty_programs(rows, programs, seed)
            notes.append(f"A faulty program was found for {len(splits[split]):,} of {len(rows):,} {split} tasks.")
    elif solutions:
        for rows in splits.values():
            for row in rows:
                row["solution"] = programs.get(row["id"])

    def gold(row: Mapping[str, Any]) -> str | None:
        program = programs.get(row["id"])
        return format_answer(program, answer_format) if program and answer_format != "tool" else None

    return Task(**to_datasets(**splits), notes=tuple(notes), gold=gold, answer=None)


def _read(path: str | None, version: str) -> list[tuple[str, int, Row]]:
    """Return the rows, each with its file and its number there."""
    if path is None:
        how_else = "Without a network: set path: mbpp.jsonl (or sanitized-mbpp.json) under task."
        splits = download_rows(HUB_DATASET, version, how_else)
        return [
            (f"{HUB_DATASET}, {split}", number, row) for split in splits for number, row in enumerate(splits[split])
        ]
    place = Path(path)
    files = [place] if not place.is_dir() else [file for file in sorted(place.rglob("*")) if file.suffix in READABLE]
    if not files:
        raise InputError(
            f"Task mbpp, option path: {place} has no data file. Add mbpp.jsonl.", kind="file-not-found", key="path"
        )
    return [(str(file), *one) for file in files for one in enumerate(read_rows(file))]


def _task_id(row: Row, index: int, where: str) -> int:
    require_columns(row, ("task_id",), where, index)
    number = row["task_id"]
    if isinstance(number, bool) or not isinstance(number, int):
        raise row_error(where, "task_id", index, f"{number!r} is no whole number, and it decides the split")
    return number


def _row(
    row: Row,
    index: int,
    where: str,
    build_prompt: Callable[[str], list[Row]],
    shown: int,
    scored_by: str,
) -> Row:
    """Convert a row of either version. The full version calls the question `text`, the sanitized version `prompt`."""
    column = "text" if "text" in row else "prompt"
    require_text(row, (column,), where, index)
    require_columns(row, ("test_list",), where, index)
    text, asserts = row[column], list(row["test_list"] or [])
    setup = [*(row.get("test_imports") or []), row.get("test_setup_code") or ""]
    all_tests = make_assert_tests(asserts, setup)
    scored = all_tests if scored_by == "all" else all_tests[shown:]
    if not scored:
        raise InvalidTests("no asserts but the shown ones" if all_tests else "no asserts")
    entry_point = find_entry_point(asserts, row.get("code"))
    question = f"{text.strip()}\n\n{_describe_tests(entry_point, asserts[:shown], setup)}"
    return {
        "prompt": build_prompt(question),
        "question": text.strip(),
        "tests": scored,
        "public_tests": all_tests[: min(shown, len(asserts))],
        "entry_point": entry_point,
        "language": "python",
        "source": "mbpp",
        "id": f"mbpp-{row['task_id']}",
    }


def _describe_tests(entry_point: str, asserts: Sequence[str], setup: Sequence[str]) -> str:
    """Return the asserts that a prompt shows, with their setup, or the function's name."""
    if not asserts:
        return f"The function is called {entry_point}."
    lines = [code.strip().replace("\r\n", "\n") for code in (*setup, *asserts) if code.strip()]
    tests = "this test" if len(asserts) == 1 else "these tests"
    return f"It should pass {tests}:\n\n```python\n{chr(10).join(lines)}\n```"
