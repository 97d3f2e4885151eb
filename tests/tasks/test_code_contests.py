"""CodeContests: both forms, what is dropped and why, which tests are scored, and the real 808 easy problems."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.data.code.loading import RowSelection, download_split, read_file, read_files
from rlvr.data.task import Task
from rlvr.scoring.registry import load_task
from rlvr.verifiers.code.compare_output import output_fault
from tasks.code_contests import code_contests
from tests.support.cases import cases
from tests.support.data_files import write_rows
from tests.support.input_errors import input_error

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "code_contests_easy_train.parquet"
LEAD_IN = "Solve this task in C++. Document your thoughts in <think> tags and code in <code> tags."
STATEMENT = """\
{story} Number {number}.

Input

One integer n.

Output

{output}

Examples

Input

3


Output

4
"""


def columns(*pairs: tuple[str, str]) -> dict[str, list[str]]:
    return {"input": [given for given, _ in pairs], "output": [wanted for _, wanted in pairs]}


def hub_row(number: int, **fields: Any) -> dict[str, Any]:
    """A row in the hub's form; `story` and `output` are put into its statement."""
    story, output = fields.pop("story", "Add one."), fields.pop("output", "Print n + 1.")
    return {
        "name": f"{number}_A. Add One",
        "description": STATEMENT.format(story=story, number=number, output=output),
        "public_tests": columns(("3\n", "4\n")),
        "private_tests": columns(("5\n", "6\n"), ("7\n", "8\n")),
        "source": 2,
        "difficulty": 7,
        "solutions": {"language": [3], "solution": ["SECRET"]},
        "cf_rating": 800,
        "cf_tags": ["math"],
        "time_limit": {"seconds": 1, "nanos": 500_000_000},
        "memory_limit_bytes": 256_000_000,
        "input_file": "",
        "output_file": "",
        "is_description_translated": False,
        **fields,
    }


def prepared_row(number: int, **fields: Any) -> dict[str, Any]:
    """The same in the prepared form."""
    row = hub_row(number, **fields)
    truth = ("name", "cf_rating", "memory_limit_bytes", "time_limit", "public_tests", "private_tests")
    content = f"<|im_start|>user\n{LEAD_IN}\n\nProblem:\n{row['description']}<|im_start|>assistant\n"
    return {
        "data_source": "code_contests",
        "prompt": [{"role": "user", "content": content}],
        "ability": "coding-cp",
        "reward_model": {"style": "rule", "ground_truth": {name: row[name] for name in truth}},
    }


def load(folder: Path, rows: list[dict[str, Any]], **options: Any) -> Task:
    return code_contests(path=write_rows(folder / "rows.jsonl", rows), **{"test_fraction": 0, **options})


# ----------------------------------------------------------------------------------------------------------------------
# Forms


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_both_forms_give_the_same_rows(tmp_path: Path, suffix: str) -> None:
    hub, prepared = (
        code_contests(path=write_rows(tmp_path / f"{form.__name__}.{suffix}", [form(n) for n in range(20)]))
        for form in (hub_row, prepared_row)
    )
    assert list(hub.train) == list(prepared.train)
    assert list(hub.test) == list(prepared.test)
    assert (len(hub.train), len(hub.test)) == (18, 2)


def test_a_row_has_the_columns_that_code_rewards_read(tmp_path: Path) -> None:
    row = load(tmp_path, [hub_row(4)]).train[0]
    question = hub_row(4)["description"].strip()
    assert row.pop("prompt")[0]["content"].endswith(f"{question}\n\nTime limit: 1.5 s. Memory limit: 256 MB.")
    assert row == {
        "question": question,
        "tests": [{"input": "5\n", "output": "6\n"}, {"input": "7\n", "output": "8\n"}],
        "public_tests": [{"input": "3\n", "output": "4\n"}],
        "time_s": 1.5,
        "memory_mb": 256,
        "comparison": "lines",
        "tolerance": 1e-6,
        "language": "cpp",
        "difficulty": "800",
        "source": "code_contests",
        "id": "4_A",
    }


@pytest.mark.parametrize(("options", "roles", "words"), cases(__file__, "the prompt is ours"))
def test_the_prompt_is_ours_and_asks_for_one_format(tmp_path: Path, options: dict, roles: list, words: list) -> None:
    prompt = load(tmp_path, [prepared_row(1)], **options).train[0]["prompt"]
    assert [message["role"] for message in prompt] == roles
    assert all(word in prompt[0]["content"] for word in words)
    text = "".join(message["content"] for message in prompt)
    assert ("```" in text) != ("<code>" in text)
    assert "<|im_start|>" not in text and "Problem:" not in text and "Document your thoughts" not in text


def test_a_folder_gives_its_splits_and_no_problem_is_in_two(tmp_path: Path) -> None:
    for name, numbers in (("train-00000-of-00002", (1, 2, 3)), ("train-00001-of-00002", (4, 5)), ("test", (5, 6))):
        write_rows(tmp_path / f"{name}.parquet", [hub_row(number) for number in numbers])
    write_rows(tmp_path / "valid.parquet", [hub_row(7), {**hub_row(2), "name": "12_A. Add One"}])
    task = code_contests(path=str(tmp_path))
    ids = [list(task.split(split)["id"]) for split in ("train", "validation", "test")]
    assert ids == [["1_A", "3_A", "4_A"], ["7_A", "12_A"], ["5_A", "6_A"]]
    assert any("Dropped 2 problems: the statement of another problem" in note for note in task.notes)


def test_columns_that_are_not_needed_and_rows_outside_the_band_are_never_read(tmp_path: Path) -> None:
    rows = [hub_row(number, cf_rating=rating) for number, rating in enumerate((0, 700, 800, 900, 2400))]
    for suffix in ("parquet", "jsonl"):
        file = Path(write_rows(tmp_path / f"rows.{suffix}", rows))
        found = read_file(file, RowSelection(("name", "no_such_column"), band=("cf_rating", 800, 1000)))
        assert found.rows == [{"name": "2_A. Add One"}, {"name": "3_A. Add One"}]
        assert found.skipped == 3


def test_a_downloaded_dataset_is_read_like_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for split, numbers in (("train", range(300)), ("test", range(300, 303))):
        rows = [hub_row(number, cf_rating=700 + number) for number in numbers]
        write_rows(tmp_path / f"{split}.parquet", rows)
    wanted = RowSelection(("name", "time_limit"), band=("cf_rating", 800, 1000))
    # `datasets` takes a folder of parquet files for a data set of its own; what the hub's client adds is the network.
    loaded = download_split(str(tmp_path), ("train", "valid", "test"), wanted, "")
    assert loaded == {split: read_files(tmp_path.glob(f"{split}*"), wanted) for split in ("train", "valid", "test")}
    assert (len(loaded["train"].rows), loaded["train"].skipped) == (200, 100)
    assert (len(loaded["valid"].rows), loaded["test"].skipped) == (0, 2)


@pytest.mark.parametrize(("tier", "least", "most"), [("easy", 800, 1000), ("hard", 1100, 2200), ("expert", 2300, 3500)])
@pytest.mark.parametrize("form", [hub_row, prepared_row])
def test_a_band_of_ratings_includes_its_ends(tmp_path: Path, tier: str, least: int, most: int, form: Any) -> None:
    every = (0, 799, 800, 1000, 1100, 2200, 2300, 3500, 3501)
    rows = [form(number, cf_rating=rating) for number, rating in enumerate(every)]
    task = load(tmp_path, rows, tier=tier)
    assert set(task.train["difficulty"]) == {str(least), str(most)}
    assert any(f"Dropped {len(every) - 2} problems with a rating outside" in note for note in task.notes)


# ----------------------------------------------------------------------------------------------------------------------
# What is dropped


@pytest.mark.parametrize(
    ("fields", "reason", "why"),
    [
        ({"private_tests": columns()}, "too few tests", "no private tests"),
        ({"private_tests": None}, "too few tests", "null in place of tests"),
        ({"private_tests": columns(("3\n", "4\n"))}, "too few tests", "none but the one that the statement shows"),
        ({"private_tests": columns(("1\n", f"{'9 ' * 150}..."))}, "too few tests", "the only one breaks off"),
        ({"private_tests": {"input": ["1"], "output": []}}, "unequal numbers", "an input without an output"),
        ({"description": " "}, "no statement", "a blank one"),
        ({"time_limit": None}, "no plausible", "no time limit"),
        ({"time_limit": {"seconds": 0, "nanos": 0}}, "no plausible", "no time at all"),
        ({"time_limit": {"seconds": 3600, "nanos": 0}}, "no plausible", "an hour"),
        ({"memory_limit_bytes": 0}, "no plausible", "no memory"),
        ({"story": "Add <image>."}, "a statement that", "a formula that is a picture"),
        ({"story": "This is an interactive problem."}, "a dialogue", "another program answers"),
        ({"input_file": "in.txt"}, "files", "a file, by the data's column"),
        ({"output": "Write it to output.txt."}, "files", "a file, by the statement"),
        ({"output": "Print any number above n."}, "several right answers", "by the statement"),
        ({"private_tests": columns(("5\n", "6\n"), ("5 \n", "7\n"))}, "several right answers", "two outputs"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_cannot_be_scored_justly_is_dropped_and_counted(
    tmp_path: Path, fields: dict, reason: str, why: str, suffix: str
) -> None:
    file = write_rows(tmp_path / f"rows.{suffix}", [hub_row(1), hub_row(2, **fields)])
    task = code_contests(path=file, test_fraction=0)
    assert list(task.train["id"]) == ["1_A"], why
    [note] = [note for note in task.notes if note.startswith("Dropped 1 problem")]
    assert note.startswith(f"Dropped 1 problem: {reason}") and note.endswith(" (2_A)."), why


# ----------------------------------------------------------------------------------------------------------------------
# Tests


@pytest.mark.parametrize(("options", "inputs"), cases(__file__, "which tests are scored"))
def test_which_tests_are_scored_is_an_option(tmp_path: Path, options: dict, inputs: list[str]) -> None:
    row = load(tmp_path, [hub_row(1)], **options).train[0]
    assert [test["input"] for test in row["tests"]] == inputs
    assert [test["input"] for test in row["public_tests"]] == ["3\n"]


def test_shown_doubled_and_cut_tests_are_left_out_and_counted(tmp_path: Path) -> None:
    cut = ("8\n", f"{'9 ' * 150}...")
    grid = ("8\n", "..#\n" * 60 + "...")  # dots, but nothing is missing
    row = hub_row(1, private_tests=columns(("5\n", "6\n"), ("5\n", "6"), ("3 \n", "4"), cut, grid))
    task = load(tmp_path, [row])
    assert [test["output"] for test in task.train[0]["tests"]] == ["6\n", grid[1]]
    for words in ("1 tests that are truncated", "1 tests that occur twice", "1 tests that the statement shows"):
        assert any(f"Left out {words}" in note for note in task.notes), words


def test_tests_without_an_expected_output_are_named_and_left_out(tmp_path: Path) -> None:
    faulty = {"public_tests": columns(("3\n", "")), "private_tests": columns(("5\n", "6\n"), ("7\n", "\n"))}
    only = {"private_tests": columns(("5\n", ""))}
    task = load(
        tmp_path, [hub_row(1, **faulty), hub_row(2, **only), hub_row(3, **faulty, output="Print n or nothing.")]
    )
    assert [(row["id"], len(row["tests"]), len(row["public_tests"])) for row in task.train] == [
        ("1_A", 1, 0),
        ("3_A", 2, 1),
    ]
    assert any(
        "Left out 2 tests without" in note and "(1_A public test 1, 1_A private test 2)" in note for note in task.notes
    )
    many = hub_row(4, private_tests=columns(("5\n", "6\n"), *((f"{number}\n", "") for number in range(6))))
    assert any("private test 6, …)" in note for note in load(tmp_path, [many]).notes)


def test_a_sample_of_the_tests_depends_on_the_seed_alone_and_grows(tmp_path: Path) -> None:
    rows = [hub_row(n, private_tests=columns(*((f"{i}\n", f"{i + 1}\n") for i in range(10, 60)))) for n in range(3)]

    def drawn(**options: Any) -> list[list[str]]:
        return [[test["input"] for test in row["tests"]] for row in load(tmp_path, rows, **options).train]

    five, again, ten, other = drawn(max_tests=5), drawn(max_tests=5), drawn(max_tests=10), drawn(max_tests=5, seed=1)
    assert five == again != other
    assert all(len(few) == 5 and set(few) < set(more) for few, more in zip(five, ten, strict=True))
    assert five[0] != five[1]  # each problem has a draw of its own
    assert any("at most 5 tests a problem with seed 42" in note for note in load(tmp_path, rows, max_tests=5).notes)


def test_real_numbers_are_compared_with_the_statements_tolerance(tmp_path: Path) -> None:
    error = "Print the time. The absolute or relative error should not exceed 10 - 4."
    row = load(tmp_path, [hub_row(1, output=error, private_tests=columns(("1\n", "5\n"), ("2\n", "0.25\n")))]).train[0]
    assert (row["comparison"], row["tolerance"]) == ("float", 1e-4)
    for test, printed in zip(row["tests"], (b"5.00004\n", b"0.2500\n"), strict=True):
        assert output_fault(test["output"], printed, row["comparison"], row["tolerance"]) is None
    assert row["public_tests"] == [{"input": "3\n", "output": "4.0\n"}]


def test_time_limits_can_be_stretched_for_a_slower_language(tmp_path: Path) -> None:
    row = load(tmp_path, [hub_row(1)], language="python", time_factor=4).train[0]
    assert row["time_s"] == 6.0
    assert "Time limit: 6 s." in row["prompt"][0]["content"]


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(("options", "kind", "key", "why"), cases(__file__, "invalid options are refused"))
def test_invalid_options_are_refused(tmp_path: Path, options: dict, kind: str, key: str | None, why: str) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [hub_row(1)])
    with input_error(kind, key, why=why):
        load_task(TaskSpec("code_contests", {"path": file, **options}))


@pytest.mark.parametrize(
    ("row", "kind", "column", "why"),
    [
        ({"problem": "?"}, "missing-column", "name", "another data set"),
        ({"prompt": "?", "reward_model": {}}, "invalid-row", "reward_model", "a prepared form without its truth"),
    ],
)
def test_rows_of_another_format_are_refused(tmp_path: Path, row: dict, kind: str, column: str, why: str) -> None:
    with input_error(kind, column, 0, why=why):
        load(tmp_path, [row])


def test_a_folder_without_training_rows_says_what_is_missing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_rows(tmp_path / f"{name}.jsonl", [hub_row(1)])
    with input_error("missing-split", "path"):
        code_contests(path=str(tmp_path))


# ----------------------------------------------------------------------------------------------------------------------
# The real problems


@pytest.fixture(scope="module")
def real() -> Task:
    if not REAL.is_file():
        pytest.skip("the prepared CodeContests are not on this machine (looked in ../shared/data)")
    return code_contests(path=str(REAL), test_fraction=0)


@pytest.mark.slow
def test_of_the_real_easy_problems_as_many_are_left_as_the_page_says(real: Task) -> None:
    assert len(real.train) == 596
    found = (re.match(r"Dropped ([\d,]+) problems: (.+?)[,(]", note) for note in real.notes)
    counts = {match[2].strip(): int(match[1]) for match in found if match}
    assert counts == {
        "too few tests": 9,
        "a statement that depends on an image": 85,
        "several right answers": 112,
        "the statement of another problem": 6,
    }
    assert "Outputs are compared by lines (535), yes_no (54), float (7)." in real.notes


@pytest.mark.slow
def test_real_rows_keep_their_tests_apart(real: Task) -> None:
    for row in real.train:
        shown = {test["input"].strip() for test in row["public_tests"]}
        assert row["tests"] and shown.isdisjoint(test["input"].strip() for test in row["tests"]), row["id"]
        assert 0.5 <= row["time_s"] <= 4 and 64 <= row["memory_mb"] <= 1024, row["id"]
