"""MBPP: 974 small tasks for Python functions, each with three asserts (Austin et al., 2021).

Its splits are those of the paper, by task_id: 601 to 974 train, 511 to 600 validation, 11 to 510 test. 1 to 10 are the
paper's few-shot examples, and in no split. The sanitized version holds 427 of them, checked by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlvr.data.code.assert_tests import entry_point_of, with_setup
from rlvr.data.code.io_tests import BadTests
from rlvr.data.code.prompts import ANSWER_FORMATS, FUNCTION, as_answer, as_messages, instruction
from rlvr.data.io import (
    READABLE,
    Row,
    as_datasets,
    check_choice,
    check_whole,
    download_rows,
    limited,
    missing_column,
    question_key,
    read_rows,
    without,
)
from rlvr.data.task import Task
from rlvr.errors import InputError

HUB_DATASET = "google-research-datasets/mbpp"
SPLITS = {"train": range(601, 975), "validation": range(511, 601), "test": range(11, 511)}


def mbpp(
    *,
    path: str | None = None,
    version: Literal["full", "sanitized"] = "full",
    shown: int = 1,
    tests: Literal["all", "hidden"] = "all",
    challenge: bool = False,
    answer_format: Literal["fence", "tags"] = "fence",
    instruction_role: Literal["system", "user"] = "user",
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """MBPP from the hub (google-research-datasets/mbpp), or from files, as chat prompts for Python functions.

    Args:
        path: mbpp.jsonl, sanitized-mbpp.json, a parquet file, or a folder of these; rows go to the paper's splits by
            their task_id. None downloads the dataset, or takes the cached copy.
        version: "full" or "sanitized", on the hub; files hold one of them.
        shown: how many of the asserts stand in the prompt, 0 or more. Without any, the prompt names the function.
        tests: "all" also scores by the shown asserts, as is usual; "hidden" by the others only.
        challenge: adds the challenge asserts, which 11 tasks have, to those that are not shown.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: who asks for it.
        limit_train, limit_validation, limit_test: at most so many tasks of a split, drawn at random.
        seed: of the limits.

    Rows have `prompt`, `question`, `tests` and `public_tests` (lists of {"assert": statements}; `tests` is what is
    scored), `entry_point`, `language` ("python"), `source` ("mbpp") and `id` ("mbpp-601"). No column holds a solution.
    """
    name = "mbpp"
    check_choice(name, "version", version, ("full", "sanitized"))
    check_choice(name, "tests", tests, ("all", "hidden"))
    check_choice(name, "answer_format", answer_format, ANSWER_FORMATS)
    check_choice(name, "instruction_role", instruction_role, ("system", "user"))
    check_whole(name, "shown", shown, 0)
    check_whole(name, "seed", seed, 0)
    limits = {"train": limit_train, "validation": limit_validation, "test": limit_test}
    for split, limit in limits.items():
        if limit is not None:
            check_whole(name, f"limit_{split}", limit, 1)

    asked = instruction(FUNCTION, "python", answer_format)
    by_id: dict[int, Row] = {}
    few_shot = 0
    broken: dict[str, list[str]] = {}
    raw = _read(path, version)
    for index, row in enumerate(raw):
        where = f"MBPP, row {index} of {path or HUB_DATASET}"
        number = _number(row, where)
        if number in by_id:
            raise InputError(f"{where}: there are two rows with task_id {number}. Remove one, or name one file.")
        if not any(number in numbers for numbers in SPLITS.values()):
            few_shot += 1
            continue
        try:
            by_id[number] = _row(row, number, where, asked, instruction_role, shown, tests, challenge)
        except BadTests as error:
            broken.setdefault(str(error), []).append(str(number))
    splits = {split: [row for number, row in by_id.items() if number in SPLITS[split]] for split in SPLITS}
    held = {question_key(row["question"]) for split in ("validation", "test") for row in splits[split]}
    train = without(splits["train"], held, lambda row: question_key(row["question"]))
    doubled = len(splits["train"]) - len(train)
    splits["train"] = train
    if not train:
        raise InputError(
            f"Task {name}: {path or HUB_DATASET} has no usable tasks to train on, which are those with task_id 601 to "
            f"974. {' '.join(_reasons(broken))} Give a file that has some, or change the options shown and tests."
        )
    notes = [
        f"Read {len(raw):,} tasks from {path or HUB_DATASET}; {', '.join(f'{len(splits[s]):,} {s}' for s in SPLITS)}, "
        "split by task_id as in the paper.",
        f"Prompts show {shown} of a task's asserts; {'all' if tests == 'all' else 'the others'} are scored.",
    ]
    if few_shot:
        notes.append(f"Left out the {few_shot} few-shot examples of the paper.")
    if doubled:
        notes.append(f"Dropped {doubled} training tasks that are also asked in a held-out split.")
    notes += _reasons(broken)
    for split, limit in limits.items():
        before = len(splits[split])
        splits[split] = limited(splits[split], limit, f"{seed}/limit")
        if len(splits[split]) < before:
            notes.append(f"Kept {len(splits[split]):,} of {before:,} {split} tasks, as limit_{split} asks.")
    programs = {f"mbpp-{_number(row, '')}": row.get("code") for row in raw}

    def gold(row: Mapping[str, Any]) -> str | None:
        program = programs.get(row["id"])
        return as_answer(program, answer_format) if program else None

    return Task(**as_datasets(**splits), notes=tuple(notes), gold=gold)


def _reasons(broken: dict[str, list[str]]) -> list[str]:
    return [
        f"Dropped {len(numbers)} tasks with {why} ({', '.join(numbers[:5])}{', …' if len(numbers) > 5 else ''})."
        for why, numbers in broken.items()
    ]


def _read(path: str | None, version: str) -> list[Row]:
    if path is None:
        how_else = (
            "Without the network: put mbpp.jsonl (or sanitized-mbpp.json) somewhere and set path: FILE under task. "
            "With it: see that HF_HUB_OFFLINE is unset."
        )
        return [row for split in download_rows(HUB_DATASET, version, how_else).values() for row in split]
    place = Path(path)
    if not place.is_dir():
        return read_rows(place)
    files = [file for file in sorted(place.rglob("*")) if file.suffix in READABLE]
    if not files:
        raise InputError(f"Task mbpp, option path: {place} has no data file, such as mbpp.jsonl.")
    return [row for file in files for row in read_rows(file)]


def _number(row: Row, where: str) -> int:
    if "task_id" not in row:
        raise missing_column(where, "task_id", row)
    number = row["task_id"]
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError(f"{where}: its task_id is {number!r}, but should be a whole number, which says its split.")
    return number


def _row(row: Row, number: int, where: str, asked: str, role: str, shown: int, which: str, challenge: bool) -> Row:
    """A task in either version: the full one calls its sentence `text`, the sanitized one `prompt`."""
    column = "text" if "text" in row else "prompt"
    if column not in row:
        raise missing_column(where, "text", row)
    if "test_list" not in row:
        raise missing_column(where, "test_list", row)
    text, asserts = row[column], list(row["test_list"] or [])
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: its {column} is {text!r}, but should be text.")
    setup = [*(row.get("test_imports") or []), row.get("test_setup_code") or ""]
    every = with_setup([*asserts, *(row.get("challenge_test_list") or [] if challenge else [])], setup)
    scored = every if which == "all" else every[shown:]
    if not scored:
        raise BadTests("no asserts but the shown ones" if every else "no asserts")
    entry_point = entry_point_of(asserts, row.get("code"))
    question = f"{text.strip()}\n\n{_about_tests(entry_point, asserts[:shown], setup)}"
    return {
        "prompt": as_messages(asked, question, role),
        "question": text.strip(),
        "tests": scored,
        "public_tests": every[: min(shown, len(asserts))],
        "entry_point": entry_point,
        "language": "python",
        "source": "mbpp",
        "id": f"mbpp-{number}",
    }


def _about_tests(entry_point: str, asserts: Sequence[str], setup: Sequence[str]) -> str:
    """The asserts that a prompt shows, with the statements that run before them, or the function's name."""
    if not asserts:
        return f"The function is called {entry_point}."
    lines = [code.strip().replace("\r\n", "\n") for code in (*setup, *asserts) if code.strip()]
    tests = "this test" if len(asserts) == 1 else "these tests"
    return f"It should pass {tests}:\n\n```python\n{chr(10).join(lines)}\n```"
