"""CodeContests: 13,610 problems of programming contests with tests, of which those of a band of difficulty are taken.

Two forms are read: that of the hub (deepmind/code_contests), and the prepared one of the CodeFu experiment, whose
prompts have a ChatML turn and one of 60 lead-ins baked in. Of the latter only the problem itself is kept; the prompt
is ours, a chat message that the model's own template renders.

A program is scored by its private tests. Problems that can't be scored justly are dropped, and counted by reason:
docs/tasks.md says how often these rules err.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rlvr.data.code import io_tests as code_tests
from rlvr.data.code import problem_text as code_statements
from rlvr.data.code.loading import Found, Wanted, download_split, only_file, read_file, read_split
from rlvr.data.code.prompts import ANSWER_FORMATS, LANGUAGES, STDIN, as_messages, instruction
from rlvr.data.io import (
    Row,
    as_datasets,
    check_choice,
    check_fraction,
    check_whole,
    hold_out,
    limited,
    missing_column,
    question_key,
)
from rlvr.data.task import Task
from rlvr.errors import InputError

HUB_DATASET = "deepmind/code_contests"
TIERS = {"easy": (800, 1000), "hard": (1100, 2200), "expert": (2300, 3500)}
_HUB_COLUMNS = (
    *("name", "description", "public_tests", "private_tests", "time_limit", "memory_limit_bytes", "cf_rating"),
    *("input_file", "output_file"),
)
_PREPARED_COLUMNS = ("prompt", "reward_model")
# Of each problem; a limit outside can't be meant.
_LONGEST_S, _LEAST_MB, _MOST_MB = 60.0, 4, 4096

# Why a problem is dropped. Those in KEEPABLE can be kept by the option `keep`.
REASONS = {
    "rating": "with a rating outside the band, or none",
    "broken": "with a statement or tests that can't be read, or unequal numbers of inputs and outputs",
    "limits": "without a time and a memory limit that can be meant",
    "no_tests": "without tests enough to be scored by",
    "image": "whose statement depends on an image",
    "interactive": "that are interactive",
    "files": "that read or write files in place of standard input and output",
    "several_answers": "with several right answers, for which a checker would be needed",
    "doubled": "that are there already, under another name",
}
KEEPABLE = ("image", "interactive", "files", "several_answers")


@dataclass(frozen=True)
class _Problem:
    id: str
    rating: int
    question: str
    public: list[code_tests.Test]
    private: list[code_tests.Test]
    time_s: float
    memory_mb: float
    files: str  # those of the data set's columns, "" for standard input and output


@dataclass
class _Dropped:
    """The ids of problems that were left out, by reason, and numbers of tests that were."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    unread: int = 0  # rows outside the band, of which nothing but the rating was read
    tests: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: str, problem: str) -> None:
        self.problems.setdefault(reason, []).append(problem)

    def notes(self, name_all: bool) -> list[str]:
        notes = []
        for reason, words in REASONS.items():
            ids = self.problems.get(reason, [])
            count = len(ids) + (self.unread if reason == "rating" else 0)
            if count:
                shown = ids if name_all else ids[:5]
                named = f" ({', '.join(shown)}{', …' if len(shown) < count else ''})" if shown else ""
                notes.append(f"Dropped {count:,} problems {words}{named}.")
        notes += [f"Left out {count:,} tests {words}." for words, count in self.tests.items() if count]
        return notes


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
    """Problems of CodeContests from the hub, or from files, in a band of difficulty.

    Args:
        path: a parquet, JSONL or JSON file, or a folder with one or more files for each split (train*, valid*, test*).
            Either form is recognised by its columns. None downloads the dataset (several GB), or takes the cached copy.
        test_path: a file with the held-out rows, where `path` has none.
        language: what programs are asked for; "cpp" is C++17.
        tier: "easy" is a rating of 800 to 1000, "hard" 1100 to 2200, "expert" 2300 to 3500.
        rating: [lowest, highest], in place of a tier.
        tests: which tests a program is scored by. "private" are those that the statement doesn't show.
        generated: adds the data set's generated tests to the private ones; only the hub's form has them.
        min_tests: problems with fewer tests to be scored by are dropped.
        max_tests: at most so many tests a problem, drawn at random.
        time_factor: what time limits are multiplied by. They were set with C++ in mind.
        answer_format: "fence" asks for a code block, "tags" for <think>…</think> and <code>…</code>.
        instruction_role: who asks for it. Models for reasoning want everything in the user's turn.
        keep: kinds of problems that are not to be dropped: image, interactive, files, several_answers.
        name_dropped: names all dropped problems in the notes, in place of five of each kind.
        validation_fraction, test_fraction: the share of the training problems that is held out, where the data comes
            without such a split.
        limit_train, limit_validation, limit_test: at most so many problems of a split, drawn at random.
        seed: of everything that is drawn here.

    Rows have `prompt`, `question` (the statement), `tests` and `public_tests` (lists of {"input", "output"}; `tests` is
    what is scored), `time_s`, `memory_mb`, `comparison` and `tolerance` (as the judge takes them), `language`,
    `difficulty` (the rating, as text), `source` ("code_contests") and `id` ("177_A2").
    """
    name = "code_contests"
    check_choice(name, "language", language, LANGUAGES)
    check_choice(name, "tests", tests, ("private", "public", "all"))
    check_choice(name, "answer_format", answer_format, ANSWER_FORMATS)
    check_choice(name, "instruction_role", instruction_role, ("system", "user"))
    check_fraction(name, "validation_fraction", validation_fraction)
    check_fraction(name, "test_fraction", test_fraction)
    check_whole(name, "seed", seed, 0)
    check_whole(name, "min_tests", min_tests, 1)
    limits = {"train": limit_train, "validation": limit_validation, "test": limit_test}
    for option, limit in (("max_tests", max_tests), *((f"limit_{split}", limit) for split, limit in limits.items())):
        if limit is not None:
            check_whole(name, option, limit, 1)
    if isinstance(time_factor, bool) or not isinstance(time_factor, int | float) or not 0.1 <= time_factor <= 100:
        raise InputError(f"Task {name}, option time_factor: {time_factor!r} is not a number from 0.1 to 100.")
    for kind in keep or []:
        check_choice(name, "keep", kind, KEEPABLE)
    low, high = _band(tier, rating)

    dropped = _Dropped()
    raw = _read(path, test_path, low, high, generated)
    asked = instruction(STDIN, language, answer_format)
    seen: set[str] = set()
    splits: dict[str, list[Row]] = {}
    # Held-out problems first: what the splits have in common is then missing from the training rows.
    for split in ("test", "validation", "train"):
        dropped.unread += raw[split].skipped
        splits[split] = []
        for number, row in enumerate(raw[split].rows):
            problem = _problem(row, f"{path or HUB_DATASET}, {split} row {number}", (low, high), generated, dropped)
            if problem is None:
                continue
            scored = _scored(problem, tests, min_tests, set(keep or ()), dropped)
            if scored is None:
                continue
            key = question_key(problem.question)
            if key in seen:
                dropped.drop("doubled", problem.id)
                continue
            seen.add(key)
            drawn = code_tests.sampled(scored, max_tests, f"{seed}/tests/{problem.id}")
            dropped.tests["at random, since they were more than max_tests"] += len(scored) - len(drawn)
            splits[split].append(_row(problem, drawn, asked, instruction_role, language, time_factor))

    read = sum(len(found.rows) + found.skipped for found in raw.values())
    left = sum(len(rows) for rows in splits.values())
    notes = [
        f"Read {read:,} problems from {path or HUB_DATASET}{f' and {test_path}' if test_path else ''}, and kept "
        f"{left:,} with a rating from {low} to {high}.",
        *dropped.notes(name_dropped),
    ]
    if not splits["train"]:
        raise InputError(
            f"Task {name}: of {read:,} problems of {path or HUB_DATASET} none is left to train on. "
            f"{' '.join(notes[1:])} Choose another tier or rating, or keep some kinds of problems."
        )
    for split, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        if not splits[split] and fraction > 0:
            splits["train"], splits[split] = hold_out(
                splits["train"], fraction, f"{seed}/{split}", lambda row: question_key(row["question"])
            )
            notes.append(
                f"Cut {len(splits[split]):,} problems off the training rows as the {split} split, with seed {seed}."
            )
    for split, limit in limits.items():
        before = len(splits[split])
        splits[split] = limited(splits[split], limit, f"{seed}/limit")
        if len(splits[split]) < before:
            notes.append(f"Kept {len(splits[split]):,} of {before:,} {split} rows, as limit_{split} asks.")
    if max_tests is not None:
        notes.append(f"Drew at most {max_tests} tests a problem with seed {seed}.")
    compared = Counter(row["comparison"] for rows in splits.values() for row in rows)
    notes.append(f"Outputs are compared by {', '.join(f'{how} ({count:,})' for how, count in compared.most_common())}.")
    return Task(
        **as_datasets(**{split: splits[split] for split in ("train", "validation", "test")}), notes=tuple(notes)
    )


def _band(tier: str, rating: Any) -> tuple[int, int]:
    if rating is None:
        check_choice("code_contests", "tier", tier, tuple(TIERS))
        return TIERS[tier]
    whole = isinstance(rating, list | tuple) and len(rating) == 2 and all(type(limit) is int for limit in rating)
    if not whole or rating[0] > rating[1]:
        raise InputError(
            f"Task code_contests, option rating: {rating!r} is no pair of a lowest and a highest rating. Write one "
            "like [1200, 1600]."
        )
    return rating[0], rating[1]


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def _read(path: str | None, test_path: str | None, low: int, high: int, generated: bool) -> dict[str, Found]:
    """The rows of the three splits, of both forms, without those whose rating is known to be outside the band."""
    columns = (*_HUB_COLUMNS, *_PREPARED_COLUMNS, *(("generated_tests",) if generated else ()))
    wanted = Wanted(columns, band=("cf_rating", low, high))
    names = {"train": "train", "validation": "valid", "test": "test"}
    if path is None:
        how_else = (
            "Without the network: put parquet or JSONL files (train*, valid*, test*) into a folder and set path: FOLDER"
            " under task. With it: see that HF_HUB_OFFLINE is unset."
        )
        loaded = download_split(HUB_DATASET, tuple(names.values()), wanted, how_else)
        found = {split: loaded[theirs] for split, theirs in names.items()}
    elif Path(path).is_dir():
        found = {split: read_split(Path(path), theirs, wanted) for split, theirs in names.items()}
        if not found["train"].rows and not found["train"].skipped:
            single = only_file(Path(path))
            if single is None:
                raise InputError(
                    f"Task code_contests, option path: {path} has no file for the train split, such as train.parquet "
                    "or train.jsonl. Rename a file, or write its path."
                )
            found = {"train": read_file(single, wanted), "validation": Found([]), "test": Found([])}
    else:
        found = {"train": read_file(Path(path), wanted), "validation": Found([]), "test": Found([])}
    if test_path is not None:
        found["test"] = read_file(Path(test_path), wanted)
    return found


def _problem(row: Row, where: str, band: tuple[int, int], generated: bool, dropped: _Dropped) -> _Problem | None:
    """A row of either form as a problem; None, and counted, if it can't be one."""
    if "reward_model" in row:
        row = _as_hub(row, where)
    for column in ("name", "description", "private_tests"):
        if column not in row:
            raise missing_column(where, column, row, "Both forms that are read are described in docs/tasks.md.")
    problem = _short(str(row["name"]))
    rating = row.get("cf_rating") or 0
    if not band[0] <= rating <= band[1]:
        dropped.drop("rating", problem)
        return None
    try:
        if not isinstance(row["description"], str) or not row["description"].strip():
            raise code_tests.BadTests("no statement")
        public = code_tests.paired(row.get("public_tests"))
        private = code_tests.paired(row["private_tests"])
        private += code_tests.paired(row.get("generated_tests")) if generated else []
    except code_tests.BadTests:
        dropped.drop("broken", problem)
        return None
    time_s, memory_mb = _seconds(row.get("time_limit")), (row.get("memory_limit_bytes") or 0) / 1e6
    if not 0 < time_s <= _LONGEST_S or not _LEAST_MB <= memory_mb <= _MOST_MB:
        dropped.drop("limits", problem)
        return None
    files = f"{row.get('input_file') or ''} {row.get('output_file') or ''}".strip()
    question = row["description"].strip()
    return _Problem(problem, int(rating), question, public, private, time_s, memory_mb, files)


def _as_hub(row: Row, where: str) -> Row:
    """A row of the prepared form with the hub's names; its statement is taken out of its prompt."""
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        prompt = "\n".join(str(message.get("content", "")) for message in prompt if message.get("role") == "user")
    truth = (row["reward_model"] or {}).get("ground_truth")
    if not isinstance(prompt, str) or not isinstance(truth, dict):
        raise InputError(
            f"{where}: it has the column reward_model, but not the prompt and the reward_model.ground_truth of the "
            "prepared form, which docs/tasks.md describes."
        )
    return {**truth, "description": code_statements.bare_problem(prompt)}


def _short(name: str) -> str:
    """177_A2 for "177_A2. Good Matrix Elements"; names of other sites stay as they are."""
    found = re.match(r"(\d+_[A-Z]+\d*)\. ", name)
    return found[1] if found else name.strip()


def _seconds(limit: Any) -> float:
    if not isinstance(limit, dict):
        return 0.0
    return float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9


# ----------------------------------------------------------------------------------------------------------------------
# Filters


def _scored(
    problem: _Problem, which: str, min_tests: int, keep: set[str], dropped: _Dropped
) -> list[code_tests.Test] | None:
    """The tests that a program is scored by; None, and counted, if the problem can't be scored justly."""
    chosen = {"private": problem.private, "public": problem.public, "all": [*problem.public, *problem.private]}[which]
    whole = code_tests.without_cut(chosen)
    once = code_tests.without_shown(whole)
    unseen = code_tests.without_shown(once, problem.public) if which == "private" else once
    statement = code_statements.read_statement(problem.question)
    everything = [*problem.public, *problem.private]
    for reason, found in (
        ("no_tests", len(unseen) < min_tests),
        ("image", code_statements.depends_on_image(statement)),
        ("interactive", code_statements.is_interactive(statement)),
        ("files", bool(problem.files or code_statements.named_files(statement))),
        ("several_answers", _has_several_answers(problem, statement, everything)),
    ):
        if found and reason not in keep:
            dropped.drop(reason, problem.id)
            return None
    dropped.tests["that were cut off when they were copied"] += len(chosen) - len(whole)
    dropped.tests["that are there twice"] += len(whole) - len(once)
    dropped.tests["that the statement shows"] += len(once) - len(unseen)
    return unseen


def _has_several_answers(
    problem: _Problem, statement: code_statements.Statement, tests: Iterable[code_tests.Test]
) -> bool:
    tests = code_tests.without_cut(list(tests))
    return (
        problem.id in code_statements.SEEN_BY_READING
        or code_statements.several_answers(statement, (test["output"] for test in tests)) is not None
        or (code_statements.tolerance(statement) is None and code_tests.contradicts(tests))
    )


def _row(
    problem: _Problem, tests: list[code_tests.Test], asked: str, role: str, language: str, time_factor: float
) -> Row:
    statement = code_statements.read_statement(problem.question)
    outputs = [test["output"] for test in (*problem.public, *tests)]
    comparison, tolerance = code_statements.comparison(statement, outputs)
    if comparison == "float":
        tests = [{**test, "output": code_statements.with_points(test["output"])} for test in tests]
    time_s, memory_mb = round(problem.time_s * time_factor, 3), round(problem.memory_mb)
    limits = f"Time limit: {time_s:g} s. Memory limit: {memory_mb} MB."
    return {
        "prompt": as_messages(asked, f"{problem.question}\n\n{limits}", role),
        "question": problem.question,
        "tests": tests,
        "public_tests": problem.public,
        "time_s": time_s,
        "memory_mb": memory_mb,
        "comparison": comparison,
        "tolerance": tolerance,
        "language": language,
        "difficulty": str(problem.rating),
        "source": "code_contests",
        "id": problem.id,
    }
