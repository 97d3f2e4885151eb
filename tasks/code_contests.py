"""Load CodeContests: 13,610 problems of programming contests with tests, in a band of difficulty.

Two formats are read: that of the hub (deepmind/code_contests), and the prepared one of the CodeFu experiment, whose
prompts contain a ChatML turn and one of 60 introductions. Of these only the problem is kept; the prompt is a chat
message for the model's own template.

Private tests score a program. Problems that cannot be scored fairly are dropped and counted by reason; docs/tasks.md
has the error rates of these rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.data.code import io_tests, problem_text
from rlvr.data.code.loading import LoadedRows, RowSelection, download_split, read_file, read_files
from rlvr.data.code.prompts import STDIN, build_instruction, build_messages
from rlvr.data.input_checks import (
    check_fraction,
    check_integer,
    check_limits,
    check_test_path,
    missing_column_error,
    option_error,
)
from rlvr.data.io import Row, find_splits
from rlvr.data.splits import apply_limits, hold_out, limit_rows, question_key, to_datasets

HUB_DATASET = "deepmind/code_contests"
TIERS = {"easy": (800, 1000), "hard": (1100, 2200), "expert": (2300, 3500)}
_HUB_COLUMNS = (
    *("name", "description", "public_tests", "private_tests", "time_limit", "memory_limit_bytes", "cf_rating"),
    *("input_file", "output_file"),
)
_PREPARED_COLUMNS = ("prompt", "reward_model")
# A problem with limits outside these is dropped.
_LONGEST_S, _LEAST_MB, _MOST_MB = 60.0, 4, 4096

# Reasons to drop a problem. The option `keep` keeps those in KEEPABLE.
REASONS = {
    "rating": "with a rating outside the band, or none",
    "broken": "with an unreadable statement or tests, or unequal numbers of inputs and outputs",
    "limits": "without plausible time and memory limits",
    "no_tests": "with too few tests",
    "image": "whose statement depends on an image",
    "interactive": "that are interactive",
    "files": "that read or write files instead of standard input and output",
    "several_answers": "with several right answers, which need a checker",
    "doubled": "that occur twice, under different names",
}
KEEPABLE = ("image", "interactive", "files", "several_answers")


@dataclass(frozen=True)
class _ContestProblem:
    id: str
    rating: int
    question: str
    public: list[io_tests.Test]
    private: list[io_tests.Test]
    time_s: float
    memory_mb: float
    files: str  # named by the columns of the dataset; "" for standard input and output
    unanswered: list[str]  # tests without an expected output, which were left out


@dataclass
class _DropLog:
    """Ids of dropped problems by reason, and numbers of dropped tests."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    unread: int = 0  # rows outside the band; only their rating was read
    tests: Counter[str] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)

    def drop(self, reason: str, problem: str) -> None:
        self.problems.setdefault(reason, []).append(problem)

    def notes(self, name_all: bool) -> list[str]:
        notes = []
        for reason, words in REASONS.items():
            ids = self.problems.get(reason, [])
            count = len(ids) + (self.unread if reason == "rating" else 0)
            if count:
                examples = ids if name_all else ids[:5]
                listed = f" ({', '.join(examples)}{', …' if len(examples) < count else ''})" if examples else ""
                notes.append(f"Dropped {count:,} problems {words}{listed}.")
        notes += [f"Left out {count:,} tests {words}." for words, count in self.tests.items() if count]
        return notes + io_tests.note_on_unanswered(self.unanswered, name_all)


def code_contests(
    *,
    path: str | None = None,
    test_path: str | None = None,
    language: Literal["cpp", "python"] = "cpp",
    tier: Literal["easy", "hard", "expert"] = "easy",
    rating: list[int] | None = None,
    tests: Literal["private", "public", "all"] = "private",
    generated: bool = False,
    min_tests: int = 1,
    max_tests: int | None = None,
    time_factor: float = 1.0,
    answer_format: Literal["fence", "tags"] = "fence",
    instruction_role: Literal["system", "user"] = "user",
    keep: list[str] | None = None,
    name_dropped: bool = False,
    validation_fraction: float = 0.0,
    test_fraction: float = 0.1,
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """Load problems of CodeContests from the hub, or from files, in a band of difficulty.

    Args:
        path: a parquet, JSONL or JSON file, or a folder with files for each split (train*, valid*, test*). The columns
            tell the format. None downloads the dataset (several GB) or uses the cached copy.
        test_path: a file with the held-out rows, if `path` has none.
        language: language of the programs; "cpp" is C++17.
        tier: "easy" is a rating of 800 to 1000, "hard" 1100 to 2200, "expert" 2300 to 3500.
        rating: [lowest, highest], instead of a tier.
        tests: the tests that score a program. "private" are those that the statement does not show.
        generated: add the generated tests of the dataset to the private ones; only the hub's format has them.
        min_tests: drop problems with fewer tests.
        max_tests: maximal tests of a problem, drawn at random.
        time_factor: factor of the time limits, which were set for C++.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: role of the message with the instruction. Reasoning models want all in the user's turn.
        keep: kinds of problems to keep: image, interactive, files, several_answers.
        name_dropped: name all dropped problems and tests in the notes, instead of five of each kind.
        validation_fraction, test_fraction: share of the training problems to hold out, if the data has no such split.
        limit_train, limit_validation, limit_test: maximal problems of a split, drawn at random.
        seed: seed of all random choices.

    Rows have `prompt`, `question` (the statement), `tests` (which score a program) and `public_tests` (lists of
    {"input", "output"}), `time_s`, `memory_mb`, `comparison` and `tolerance` (as the judge takes them), `language`,
    `difficulty` (the rating, as text), `source` ("code_contests") and `id` ("177_A2").
    """
    name = "code_contests"
    check_test_path(name, path, test_path)
    check_fraction(name, "validation_fraction", validation_fraction)
    check_fraction(name, "test_fraction", test_fraction)
    check_integer(name, "seed", seed, 0)
    check_integer(name, "min_tests", min_tests, 1)
    check_limits(
        name, max_tests=max_tests, limit_train=limit_train, limit_validation=limit_validation, limit_test=limit_test
    )
    if isinstance(time_factor, bool) or not isinstance(time_factor, int | float) or not 0.1 <= time_factor <= 100:
        raise option_error(name, "time_factor", f"{time_factor!r} is not a number from 0.1 to 100.")
    if unknown := [kind for kind in keep or [] if kind not in KEEPABLE]:
        raise option_error(name, "keep", f"{unknown[0]!r} is none of {', '.join(KEEPABLE)}. Write one of these.")
    low, high = _band(tier, rating)

    dropped = _DropLog()
    raw = _read(path, test_path, low, high, generated)
    task_instruction = build_instruction(STDIN, language, answer_format)
    seen: set[str] = set()
    splits: dict[str, list[Row]] = {}
    # Held-out problems first, so that duplicates are dropped from the training rows.
    for split in ("test", "validation", "train"):
        dropped.unread += raw[split].skipped
        splits[split] = []
        for number, row in enumerate(raw[split].rows):
            where = f"{path or HUB_DATASET}, {split} row {number}"
            problem = _read_problem(row, number, where, (low, high), generated, dropped)
            if problem is None:
                continue
            scored = _select_tests(problem, tests, min_tests, set(keep or ()), dropped)
            if scored is None:
                continue
            key = question_key(problem.question)
            if key in seen:
                dropped.drop("doubled", problem.id)
                continue
            seen.add(key)
            drawn = limit_rows(scored, max_tests, f"{seed}/tests/{problem.id}")
            dropped.tests["at random, since they were more than max_tests"] += len(scored) - len(drawn)
            splits[split].append(_row(problem, drawn, task_instruction, instruction_role, language, time_factor))

    total = sum(len(loaded.rows) + loaded.skipped for loaded in raw.values())
    left = sum(len(rows) for rows in splits.values())
    notes = [
        f"Kept {left:,} of {total:,} problems of {path or HUB_DATASET}{f' and {test_path}' if test_path else ''}, all "
        f"with a rating from {low} to {high}.",
        *dropped.notes(name_dropped),
    ]
    if not splits["train"]:
        raise InputError(
            f"Task {name}: none of {total:,} problems of {path or HUB_DATASET} is left to train on. "
            f"{' '.join(notes[1:])} Choose another tier or rating, or keep some kinds of problems.",
            kind="empty-data",
            key="rating" if rating is not None else "tier",
        )
    for split, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        if not splits[split] and fraction > 0:
            splits["train"], splits[split] = hold_out(
                splits["train"], fraction, f"{seed}/{split}", lambda row: question_key(row["question"])
            )
            notes.append(
                f"Held out {len(splits[split]):,} of the training problems as the {split} split, with seed {seed}."
            )
    notes += apply_limits(splits, seed, train=limit_train, validation=limit_validation, test=limit_test)
    if max_tests is not None:
        notes.append(f"Drew at most {max_tests} tests a problem with seed {seed}.")
    compared = Counter(row["comparison"] for rows in splits.values() for row in rows)
    notes.append(f"Outputs are compared by {', '.join(f'{how} ({count:,})' for how, count in compared.most_common())}.")
    return Task(
        **to_datasets(**{split: splits[split] for split in ("train", "validation", "test")}),
        notes=tuple(notes),
        answer=None,
    )


def _band(tier: str, rating: Any) -> tuple[int, int]:
    if rating is None:
        return TIERS[tier]
    whole = isinstance(rating, list | tuple) and len(rating) == 2 and all(type(limit) is int for limit in rating)
    if not whole or rating[0] > rating[1]:
        raise option_error(
            "code_contests", "rating", f"{rating!r} is no pair of a lowest and a highest rating. Write [1200, 1600]."
        )
    return rating[0], rating[1]


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def _read(path: str | None, test_path: str | None, low: int, high: int, generated: bool) -> dict[str, LoadedRows]:
    """Return the rows of the three splits in either format, without those known to be outside the band."""
    columns = (*_HUB_COLUMNS, *_PREPARED_COLUMNS, *(("generated_tests",) if generated else ()))
    selection = RowSelection(columns, band=("cf_rating", low, high))
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


def _read_problem(
    row: Row, index: int, where: str, band: tuple[int, int], generated: bool, dropped: _DropLog
) -> _ContestProblem | None:
    """Read a row of either format; None, and counted in `dropped`, if it is unusable."""
    if "reward_model" in row:
        row = _to_hub_format(row, index, where)
    for column in ("name", "description", "private_tests"):
        if column not in row:
            raise missing_column_error(where, column, row, "docs/tasks.md describes both formats.", row=index)
    problem = _problem_id(str(row["name"]))
    rating = row.get("cf_rating") or 0
    if not band[0] <= rating <= band[1]:
        dropped.drop("rating", problem)
        return None
    try:
        if not isinstance(row["description"], str) or not row["description"].strip():
            raise io_tests.InvalidTests("no statement")
        public = io_tests.pair_tests(row.get("public_tests"))
        private = io_tests.pair_tests(row["private_tests"])
        private += io_tests.pair_tests(row.get("generated_tests")) if generated else []
    except io_tests.InvalidTests:
        dropped.drop("broken", problem)
        return None
    rules = problem_text.parse_statement(row["description"]).output_rules
    public, without_output = io_tests.split_unanswered(public, rules)
    unanswered = [f"{problem} public test {number}" for number in without_output]
    private, without_output = io_tests.split_unanswered(private, rules)
    unanswered += [f"{problem} private test {number}" for number in without_output]
    time_s, memory_mb = _seconds(row.get("time_limit")), (row.get("memory_limit_bytes") or 0) / 1e6
    if not 0 < time_s <= _LONGEST_S or not _LEAST_MB <= memory_mb <= _MOST_MB:
        dropped.drop("limits", problem)
        return None
    files = f"{row.get('input_file') or ''} {row.get('output_file') or ''}".strip()
    question = row["description"].strip()
    return _ContestProblem(problem, int(rating), question, public, private, time_s, memory_mb, files, unanswered)


def _to_hub_format(row: Row, index: int, where: str) -> Row:
    """Convert a row of the prepared format; its prompt contains the statement."""
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        prompt = "\n".join(str(message.get("content", "")) for message in prompt if message.get("role") == "user")
    truth = (row["reward_model"] or {}).get("ground_truth")
    if not isinstance(prompt, str) or not isinstance(truth, dict):
        raise InputError(
            f"{where}: it has the column reward_model, but neither the prompt nor the reward_model.ground_truth of the "
            "prepared format, which docs/tasks.md describes.",
            kind="invalid-row",
            key="reward_model",
            row=index,
        )
    return {**truth, "description": problem_text.strip_prompt(prompt)}


def _problem_id(name: str) -> str:
    """Return 177_A2 for "177_A2. Good Matrix Elements"; names of other sites stay as they are."""
    match = re.match(r"(\d+_[A-Z]+\d*)\. ", name)
    return match[1] if match else name.strip()


def _seconds(limit: Any) -> float:
    if not isinstance(limit, dict):
        return 0.0
    return float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9


# ----------------------------------------------------------------------------------------------------------------------
# Filters


def _select_tests(
    problem: _ContestProblem, source: str, min_tests: int, keep: set[str], dropped: _DropLog
) -> list[io_tests.Test] | None:
    """Return the tests that score a program; None, and counted in `dropped`, if they cannot score it fairly."""
    chosen = {"private": problem.private, "public": problem.public, "all": [*problem.public, *problem.private]}[source]
    whole = io_tests.drop_truncated(chosen)
    once = io_tests.drop_shown(whole)
    unseen = io_tests.drop_shown(once, problem.public) if source == "private" else once
    statement = problem_text.parse_statement(problem.question)
    all_tests = [*problem.public, *problem.private]
    for reason, applies in (
        ("no_tests", len(unseen) < min_tests),
        ("image", problem_text.depends_on_image(statement)),
        ("interactive", problem_text.is_interactive(statement)),
        ("files", bool(problem.files or problem_text.named_files(statement))),
        ("several_answers", _has_several_answers(problem, statement, all_tests)),
    ):
        if applies and reason not in keep:
            dropped.drop(reason, problem.id)
            return None
    dropped.unanswered += problem.unanswered
    dropped.tests["that are truncated"] += len(chosen) - len(whole)
    dropped.tests["that occur twice"] += len(whole) - len(once)
    dropped.tests["that the statement shows"] += len(once) - len(unseen)
    return unseen


def _has_several_answers(
    problem: _ContestProblem, statement: problem_text.ProblemStatement, tests: Iterable[io_tests.Test]
) -> bool:
    tests = io_tests.drop_truncated(list(tests))
    return (
        problem.id in problem_text.KNOWN_SEVERAL_ANSWERS
        or problem_text.find_several_answers(statement, (test["output"] for test in tests)) is not None
        or (problem_text.find_tolerance(statement) is None and io_tests.has_contradictions(tests))
    )


def _row(
    problem: _ContestProblem,
    tests: list[io_tests.Test],
    task_instruction: str,
    role: str,
    language: str,
    time_factor: float,
) -> Row:
    statement = problem_text.parse_statement(problem.question)
    outputs = [test["output"] for test in (*problem.public, *tests)]
    comparison, tolerance = problem_text.choose_comparison(statement, outputs)
    public = problem.public
    if comparison == "float":
        tests, public = (
            [{**test, "output": problem_text.add_decimal_points(test["output"])} for test in some]
            for some in (tests, public)
        )
    time_s, memory_mb = round(problem.time_s * time_factor, 3), round(problem.memory_mb)
    limits = f"Time limit: {time_s:g} s. Memory limit: {memory_mb} MB."
    return {
        "prompt": build_messages(task_instruction, f"{problem.question}\n\n{limits}", role),
        "question": problem.question,
        "tests": tests,
        "public_tests": public,
        "time_s": time_s,
        "memory_mb": memory_mb,
        "comparison": comparison,
        "tolerance": tolerance,
        "language": language,
        "difficulty": str(problem.rating),
        "source": "code_contests",
        "id": problem.id,
    }
