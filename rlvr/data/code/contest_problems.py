"""Problems of CodeContests, read from either of two formats, and the tests that score them fairly.

The formats are that of the hub (deepmind/code_contests), and the prepared one of the CodeFu experiment, whose prompts
contain a ChatML turn and one of 60 introductions. Of these only the problem is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data.code import io_tests, problem_text
from rlvr.data.code.loading import LoadedRows, RowSelection, download_split, read_file, read_files
from rlvr.data.input_checks import require_columns
from rlvr.data.io import Row, find_splits
from rlvr.data.splits import limit_rows, notes_on_dropped, question_key
from rlvr.errors import InputError

HUB_DATASET = "deepmind/code_contests"
_HUB_COLUMNS = (
    *("name", "description", "public_tests", "private_tests", "time_limit", "memory_limit_bytes", "cf_rating"),
    *("input_file", "output_file"),
)
_PREPARED_COLUMNS = ("prompt", "reward_model")
# A problem with limits outside these is dropped.
_LONGEST_S, _LEAST_MB, _MOST_MB = 60.0, 4, 4096


@dataclass(frozen=True)
class ContestProblem:
    id: str
    rating: int
    question: str
    public: list[io_tests.Test]
    private: list[io_tests.Test]
    time_s: float
    memory_mb: float
    files: str  # named by the columns of the dataset; "" for standard input and output
    unanswered: list[str]  # tests without an expected output, which were left out


def read_contests(path: str | None, test_path: str | None, band: tuple[int, int]) -> dict[str, LoadedRows]:
    """Return the rows of the three splits in either format, without those known to be outside the band."""
    selection = RowSelection((*_HUB_COLUMNS, *_PREPARED_COLUMNS), band=("cf_rating", *band))
    names = {"train": "train", "validation": "valid", "test": "test"}
    if path is None:
        how_else = (
            "Without a network: put parquet or JSONL files (train*, valid*, test*) into a folder and set path: FOLDER "
            "under task."
        )
        loaded = download_split(HUB_DATASET, tuple(names.values()), selection, how_else)
        splits = {split: loaded[theirs] for split, theirs in names.items()}
    else:
        files = {"train": [Path(path)]}
        if Path(path).is_dir():
            files = find_splits(Path(path), "code_contests", names["validation"])
        splits = {split: read_files(files.get(split, []), selection) for split in names}
    if test_path is not None:
        splits["test"] = read_file(Path(test_path), selection)
    return splits


def choose_problems(
    raw: Mapping[str, LoadedRows],
    place: str,
    band: tuple[int, int],
    tests: str,
    max_tests: int | None,
    seed: int,
) -> tuple[dict[str, list[tuple[ContestProblem, list[io_tests.Test]]]], list[str]]:
    """Return the usable problems of each split with the tests that score a program, and notes on the others.

    Args:
        raw: as `read_contests` returns it.
        place: where the rows are from, for messages.
        tests: "private", "public" or "all".
    """
    dropped: dict[str, list[str]] = {}  # ids of problems by reason
    left_out: Counter[str] = Counter()  # tests by reason
    outside, unanswered, seen = 0, list[str](), set[str]()
    splits: dict[str, list[tuple[ContestProblem, list[io_tests.Test]]]] = {"train": [], "validation": [], "test": []}
    # Held-out problems first, so that duplicates are dropped from the training rows.
    for split in ("test", "validation", "train"):
        outside += raw[split].skipped
        for number, row in enumerate(raw[split].rows):
            row = _to_hub_format(row, number, f"{place}, {split} row {number}")
            if not band[0] <= (row.get("cf_rating") or 0) <= band[1]:
                outside += 1
                continue
            name = _problem_id(str(row["name"]))
            try:
                problem = _read_problem(row, name)
                scored = _select_tests(problem, tests, left_out)
                if (key := question_key(problem.question)) in seen:
                    raise io_tests.InvalidTests("the statement of another problem")
            except io_tests.InvalidTests as error:
                dropped.setdefault(str(error), []).append(name)
                continue
            seen.add(key)
            unanswered += problem.unanswered
            drawn = limit_rows(scored, max_tests, f"{seed}/tests/{name}")
            left_out["at random, since they were more than max_tests"] += len(scored) - len(drawn)
            splits[split].append((problem, drawn))
    notes = [f"Dropped {outside:,} problems with a rating outside the band, or none."] if outside else []
    notes += notes_on_dropped(dropped, "problem")
    notes += [f"Left out {number:,} tests {words}." for words, number in left_out.items() if number]
    return splits, notes + io_tests.note_on_unanswered(unanswered)


def _read_problem(row: Row, name: str) -> ContestProblem:
    """Read a row of the hub's format.

    Raises:
        InvalidTests: it is unusable.
    """
    if not isinstance(row["description"], str) or not row["description"].strip():
        raise io_tests.InvalidTests("no statement")
    public = io_tests.pair_tests(row.get("public_tests"))
    private = io_tests.pair_tests(row["private_tests"])
    rules = problem_text.parse_statement(row["description"]).output_rules
    public, without_output = io_tests.split_unanswered(public, rules)
    unanswered = [f"{name} public test {number}" for number in without_output]
    private, without_output = io_tests.split_unanswered(private, rules)
    unanswered += [f"{name} private test {number}" for number in without_output]
    time_s, memory_mb = _seconds(row.get("time_limit")), (row.get("memory_limit_bytes") or 0) / 1e6
    if not 0 < time_s <= _LONGEST_S or not _LEAST_MB <= memory_mb <= _MOST_MB:
        raise io_tests.InvalidTests("no plausible time and memory limits")
    files = f"{row.get('input_file') or ''} {row.get('output_file') or ''}".strip()
    question = row["description"].strip()
    return ContestProblem(
        name, int(row.get("cf_rating") or 0), question, public, private, time_s, memory_mb, files, unanswered
    )


def _to_hub_format(row: Row, index: int, where: str) -> Row:
    """Convert a row of the prepared format; its prompt contains the statement."""
    if "reward_model" in row:
        prompt = row.get("prompt")
        if isinstance(prompt, list):
            prompt = "\n".join(str(message.get("content", "")) for message in prompt if message.get("role") == "user")
        truth = (row["reward_model"] or {}).get("ground_truth")
        if not isinstance(prompt, str) or not isinstance(truth, dict):
            raise InputError(
                f"{where}: it has the column reward_model, but neither the prompt nor the reward_model.ground_truth of "
                "the prepared format, which docs/data.md describes.",
                kind="invalid-row",
                key="reward_model",
                row=index,
            )
        row = {**truth, "description": problem_text.strip_prompt(prompt)}
    required = ("name", "description", "private_tests")
    require_columns(row, required, where, index, "docs/data.md describes both formats.")
    return row


def _problem_id(name: str) -> str:
    """Return 177_A2 for "177_A2. Good Matrix Elements"; names of other sites stay as they are."""
    match = re.match(r"(\d+_[A-Z]+\d*)\. ", name)
    return match[1] if match else name.strip()


def _seconds(limit: Any) -> float:
    if not isinstance(limit, dict):
        return 0.0
    return float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9


def _select_tests(problem: ContestProblem, source: str, left_out: Counter[str]) -> list[io_tests.Test]:
    """Return the tests that score a program, and count the others.

    Raises:
        InvalidTests: they cannot score it fairly.
    """
    chosen = {"private": problem.private, "public": problem.public, "all": [*problem.public, *problem.private]}[source]
    whole = io_tests.drop_truncated(chosen)
    once = io_tests.drop_shown(whole)
    unseen = io_tests.drop_shown(once, problem.public) if source == "private" else once
    statement = problem_text.parse_statement(problem.question)
    all_tests = [*problem.public, *problem.private]
    for reason, applies in (
        ("too few tests", not unseen),
        ("a statement that depends on an image", problem_text.depends_on_image(statement)),
        ("a dialogue with another program", problem_text.is_interactive(statement)),
        ("files instead of standard input and output", bool(problem.files or problem_text.named_files(statement))),
        ("several right answers, which need a checker", _has_several_answers(problem, statement, all_tests)),
    ):
        if applies:
            raise io_tests.InvalidTests(reason)
    left_out["that are truncated"] += len(chosen) - len(whole)
    left_out["that occur twice"] += len(whole) - len(once)
    left_out["that the statement shows"] += len(once) - len(unseen)
    return unseen


def _has_several_answers(
    problem: ContestProblem, statement: problem_text.ProblemStatement, tests: Iterable[io_tests.Test]
) -> bool:
    tests = io_tests.drop_truncated(list(tests))
    return (
        problem.id in problem_text.KNOWN_SEVERAL_ANSWERS
        or problem_text.find_several_answers(statement, (test["output"] for test in tests)) is not None
        or (problem_text.find_tolerance(statement) is None and io_tests.has_contradictions(tests))
    )
