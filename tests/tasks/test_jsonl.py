"""Your own data: prompts from templates or as they are, splits, and what is said of data that won't do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from tasks.jsonl import jsonl
from tests.support.cases import cases
from tests.support.data_files import write_rows
from tests.support.input_errors import input_error

ROWS = [{"problem": f"What is {n} + 1?", "solution_value": n + 1, "level": "easy"} for n in range(40)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_rows(tmp_path / "sums.jsonl", ROWS)


def test_a_template_and_a_mapping_make_prompts_and_columns(file: str) -> None:
    task = jsonl(
        path=file,
        columns={"question": "problem", "final_answer": "solution_value"},
        prompt_template="Q: {question} ({level}) \\boxed{{}}\nA:",
        stop_strings=["\nQ:"],
    )
    assert task.train.column_names == ["prompt", "question", "final_answer", "source", "id"]
    row = task.train[0]
    assert row["prompt"] == f"Q: {row['question']} (easy) \\boxed{{}}\nA:"
    assert row["final_answer"] == str(int(row["question"].split()[2]) + 1)
    assert row["source"] == "sums"
    assert task.stop_strings == ("\nQ:",)
    assert (len(task.train), len(task.validation), len(task.test)) == (36, 0, 4)


def test_without_a_mapping_all_columns_are_kept(file: str) -> None:
    task = jsonl(path=file, prompt_template="{problem}")
    assert {"problem", "solution_value", "level"} <= set(task.train.column_names)


def test_chat_prompts_have_the_system_message_in_front(file: str) -> None:
    task = jsonl(path=file, prompt_template="{problem}", style="chat", system="Be brief.")
    row = task.train[0]
    assert row["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": row["problem"]}]


@pytest.mark.parametrize(
    "prompt", ["Say: 1 {not a field}", [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]]
)
def test_a_prompt_column_is_used_as_it_is(tmp_path: Path, prompt: object) -> None:
    rows = [{"prompt": prompt, "final_answer": str(n)} for n in range(3)]
    task = jsonl(path=write_rows(tmp_path / "a.jsonl", rows), test_fraction=0)
    assert [row["prompt"] for row in task.train] == [prompt] * 3
    assert any("no test split" in note for note in task.notes)


def test_answers_become_text_as_they_are_written(tmp_path: Path) -> None:
    answers = [7, 7.5, "7.50", "2024-01-01", -3, 10**20, [1, 2], ["Zürich", "It's"], {"a": None}, True]
    rows = [{"prompt": str(index), "final_answer": answer} for index, answer in enumerate(answers)]
    task = jsonl(path=write_rows(tmp_path / "a.jsonl", rows), test_fraction=0)
    texts = [
        "7",
        "7.5",
        "7.50",
        "2024-01-01",
        "-3",
        str(10**20),
        "[1, 2]",
        '["Zürich", "It\'s"]',
        '{"a": null}',
        "True",
    ]
    assert list(task.train["final_answer"]) == texts


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path: Path) -> None:
    for split, rows in (("train", ROWS[:20]), ("validation", ROWS[20:25]), ("test", ROWS[25:])):
        write_rows(tmp_path / f"{split}.jsonl", rows)
    task = jsonl(path=str(tmp_path), prompt_template="{problem}", test_fraction=0.5)
    assert (len(task.train), len(task.validation), len(task.test)) == (20, 5, 15)


def test_a_file_of_test_rows_can_be_named(tmp_path: Path, file: str) -> None:
    task = jsonl(path=file, test_path=write_rows(tmp_path / "held.jsonl", ROWS[:10]), prompt_template="{problem}")
    assert len(task.test) == 10
    assert len(task.train) == 30
    assert any("Dropped 10 training rows" in note for note in task.notes)
    assert (set(task.train["source"]), set(task.test["source"])) == ({"sums"}, {"held"})
    assert task.test["id"][0] == "held-test-0"


def test_splits_share_no_question_and_depend_on_the_seed_alone(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", ROWS + ROWS)
    options = {"path": file, "prompt_template": "{problem}", "test_fraction": 0.2}
    task, again, other = (jsonl(**options, seed=seed) for seed in (1, 1, 2))  # type: ignore[arg-type]
    questions = [set(task.split(split)["problem"]) for split in ("train", "test")]
    assert sum(map(len, questions)) == len(set.union(*questions)) == 40
    assert list(task.test) == list(again.test) != list(other.test)


def test_parquet_and_json_are_read_too(tmp_path: Path) -> None:
    from datasets import Dataset

    Dataset.from_list(ROWS).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    first, second = (
        jsonl(path=str(tmp_path / f"a.{kind}"), prompt_template="{problem}") for kind in ("parquet", "json")
    )
    assert list(first.train["prompt"]) == list(second.train["prompt"])


@pytest.mark.parametrize(
    ("columns", "expected", "why"),
    [
        ({"final_answer": "reward_model.ground_truth", "level": "extra.info.level"}, ["7", 3], "values inside objects"),
        ({"final_answer": "a.b", "level": "extra.odd.name"}, ["8", 4], "names with dots win over objects"),
        ({"final_answer": "reward_model.truth"}, "reward_model.truth", "no such value"),
        ({"final_answer": "data_source.x"}, "data_source.x", "a value inside a text"),
        ({"final_answer": "none.x"}, "none.x", "a value inside null"),
        ({"final_answer": "reward_model."}, "reward_model.", "no name"),
    ],
)
def test_a_dotted_path_in_columns_reads_a_nested_value(
    tmp_path: Path, columns: dict[str, str], expected: object, why: str
) -> None:
    row = {"data_source": "x", "reward_model": {"style": "rule", "ground_truth": 7}, "a": {"b": 9}, "a.b": 8, "c": 1}
    row |= {"extra": {"info": {"level": 3}, "odd": {"name": 5}, "odd.name": 4}, "none": None}
    path = write_rows(tmp_path / "a.jsonl", [{"prompt": [{"role": "user", "content": "q"}], **row}])
    if isinstance(expected, str):
        with input_error("missing-column", expected, 0, why=why):
            jsonl(path=path, columns=columns, test_fraction=0)
    else:
        task = jsonl(path=path, columns=columns, test_fraction=0)
        assert [task.train[0]["final_answer"], task.train[0]["level"]] == expected, why
        left_out = [name for name in ("a", "a.b", "c", "extra", "reward_model") if f" {name}," in str(task.notes)]
        assert left_out == (["a", "a.b", "c"] if expected[0] == "7" else ["a", "c"]), why


def test_columns_that_trl_takes_for_its_own_are_left_out_with_a_note(tmp_path: Path) -> None:
    rows = [
        {"prompt": str(n), "completion": "the solution", "images": images, "image": None}
        for n, images in enumerate([[], None, [None, None], "", [{"bytes": None, "path": None}]])
    ]
    task = jsonl(path=write_rows(tmp_path / "a.jsonl", rows), test_fraction=0)
    assert task.train.column_names == ["prompt", "source", "id"]
    assert any("completion, image, images" in note for note in task.notes)


@pytest.mark.parametrize(("options", "kind", "key", "hint", "why"), cases(__file__, "options"))
def test_invalid_options_are_refused(file: str, options: dict, kind: str, key: str | None, hint: str, why: str) -> None:
    with input_error(kind, key, why=why) as error:
        load_task(TaskSpec("jsonl", {"path": file, "prompt_template": "{problem}", **options}))
    assert hint in str(error.value), why


@pytest.mark.parametrize(("rows", "kind", "key", "row", "why"), cases(__file__, "rows"))
def test_invalid_rows_are_named(
    tmp_path: Path, rows: list[dict], kind: str, key: str | None, row: int | None, why: str
) -> None:
    with input_error(kind, key, row, why=why):
        template = "Q: {problem}" if rows and "problem" in rows[0] else None
        jsonl(path=write_rows(tmp_path / "a.jsonl", rows), prompt_template=template)


def test_test_rows_that_are_the_training_rows_leave_nothing_to_train_on(tmp_path: Path, file: str) -> None:
    for test_path in (file, write_rows(tmp_path / "copy.jsonl", ROWS)):
        with input_error("empty-data", "path"):
            jsonl(path=file, test_path=test_path, prompt_template="{problem}")


# ----------------------------------------------------------------------------------------------------------------------
# APPS and TACO


def apps_row(tests: object, **fields: object) -> dict:
    text = tests if isinstance(tests, str) else json.dumps(tests)
    return {"question": "Add two numbers.", "input_output": text, "solutions": '["SECRET"]', "problem_id": 7, **fields}


ADDER = "def add(a, b):\n    return a + b\n"
METHOD = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "


def test_rows_of_apps_get_the_columns_that_code_rewards_read(tmp_path: Path) -> None:
    rows = [
        apps_row({"inputs": ["1 2\n", ["3 4", "5"]], "outputs": ["3\n", ["7", "5"]]}, difficulty="interview"),
        apps_row({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, starter_code=ADDER.split("\n")[0]),
        apps_row({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, starter_code=METHOD, problem_id=9),
    ]
    task = jsonl(path=write_rows(tmp_path / "apps.jsonl", rows), test_fraction=0, style="chat")
    stdin, function, method = task.train
    assert json.loads(stdin["tests"]) == [{"input": "1 2\n", "output": "3\n"}, {"input": "3 4\n5", "output": "7\n5"}]
    assert json.loads(function["tests"]) == json.loads(method["tests"]) == [{"call": [1, 2], "expected": 3}]
    assert [row["entry_point"] for row in task.train] == [None, "add", "call_add"]
    assert [row["prefix"] is None for row in task.train] == [True, True, False]
    assert (stdin["language"], stdin["id"], method["id"], stdin["difficulty"]) == ("python", "7", "9", "interview")
    assert not {"input_output", "solutions", "problem_id"} & set(task.train.column_names)
    assert "standard input" in stdin["prompt"][0]["content"]
    assert "def add(a, b):" in function["prompt"][0]["content"]
    assert "class Solution" in method["prompt"][0]["content"]


def test_the_prefix_calls_the_method_of_a_program_of_leetcodes_kind(tmp_path: Path) -> None:
    row = apps_row({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, starter_code=METHOD)
    row = jsonl(path=write_rows(tmp_path / "apps.jsonl", [row]), test_fraction=0).train[0]
    names: dict = {}
    exec(f"{row['prefix']}{METHOD}return a + b\n\nitems: List[int] = []", names)
    (test,) = json.loads(row["tests"])
    assert names[row["entry_point"]](*test["call"]) == test["expected"]


def test_arguments_of_all_types_stay_as_they_are(tmp_path: Path) -> None:
    arguments = [[1, 2.5, "x", None, True, 10**30, {"a": [1, "b"]}, [], "\u2028"]]
    rows = [
        apps_row({"fn_name": "f", "inputs": arguments, "outputs": [[0]]}),
        apps_row({"fn_name": "f", "inputs": [[1.5]], "outputs": ["text"]}, question="Another one."),
    ]
    task = jsonl(path=write_rows(tmp_path / "apps.jsonl", rows), test_fraction=0)
    assert json.loads(task.train[0]["tests"]) == [{"call": arguments[0], "expected": 0}]
    assert json.loads(task.train[1]["tests"]) == [{"call": [1.5], "expected": "text"}]


@pytest.mark.parametrize(("outputs", "starter_code", "expected", "why"), cases(__file__, "outputs of functions are"))
def test_outputs_of_functions_are_taken_out_of_lists_around_them(
    tmp_path: Path, outputs: list, starter_code: str, expected: list, why: str
) -> None:
    row = apps_row({"fn_name": "f", "inputs": [[1], [2]], "outputs": outputs}, starter_code=starter_code)
    row = jsonl(path=write_rows(tmp_path / "apps.jsonl", [row]), test_fraction=0).train[0]
    assert [test["expected"] for test in json.loads(row["tests"])] == expected, why


def test_rows_of_apps_without_usable_tests_are_dropped_and_counted(tmp_path: Path) -> None:
    cut = {"inputs": ["1"], "outputs": [f"{'9 ' * 150}..."]}
    bad = ["", "{", "[]", {"inputs": ["1"], "outputs": []}, {"fn_name": "f", "inputs": ["1"], "outputs": [1]}, cut]
    bad += [{"fn_name": "a b", "inputs": [[1]], "outputs": [1]}, {"inputs": ["1", "2"], "outputs": ["", "\n"]}]
    rows = [apps_row({"inputs": ["1"], "outputs": ["1"]}), *map(apps_row, bad)]
    task = jsonl(path=write_rows(tmp_path / "apps.jsonl", rows), test_fraction=0)
    assert len(task.train) == 1
    counts = {note.split(": ")[1].split(" (")[0]: note.split()[1] for note in task.notes if "Dropped" in note}
    assert counts == {
        "no tests": "2",
        "tests that are not valid JSON": "2",
        "unequal numbers of inputs and outputs": "1",
        "arguments that are no list": "1",
        "a function whose name is none": "1",
        "no expected output": "1",
    }


@pytest.mark.parametrize("as_text", [True, False])
def test_tests_without_an_expected_output_are_named_and_left_out(tmp_path: Path, as_text: bool) -> None:
    tests = [{"input": "1", "output": "2"}, {"input": "2", "output": " \n"}]
    column: object = json.dumps(tests) if as_text else tests
    rows = [
        {"question": "Print n + 1.", "prompt": "1?", "tests": column},
        {"question": "Print n + 1, or nothing.", "prompt": "2?", "tests": column},
        {"question": "Print n + 1.", "prompt": "3?", "tests": column, "checker": "def check(*texts): return True"},
    ]
    task = jsonl(path=write_rows(tmp_path / "own.jsonl", rows), test_fraction=0)
    kept = [json.loads(row["tests"]) if as_text else row["tests"] for row in task.train]
    assert kept == [tests[:1], tests, tests]
    assert any("Left out 1 tests without" in note and "(train row 0 test 2)" in note for note in task.notes)


def test_the_comparison_of_apps_follows_from_the_statement(tmp_path: Path) -> None:
    question = "Halve it.\n\n-----Input-----\nn\n\n-----Output-----\nThe absolute error must be at most 1e-4.\n"
    row = apps_row({"inputs": ["1", "2"], "outputs": ["0.5", "1"]}, question=question)
    row = jsonl(path=write_rows(tmp_path / "apps.jsonl", [row]), test_fraction=0).train[0]
    assert (row["comparison"], row["tolerance"]) == ("float", 1e-4)
    assert [test["output"] for test in json.loads(row["tests"])] == ["0.5", "1.0"]


def test_limits_of_taco_become_numbers(tmp_path: Path) -> None:
    tests = {"inputs": ["1"], "outputs": ["1"]}
    rows = [apps_row(tests, time_limit="2.0 seconds", memory_limit="256.0 megabytes")]
    rows.append(apps_row(tests, question="Another one.", time_limit=None, memory_limit=None))
    task = jsonl(path=write_rows(tmp_path / "taco.jsonl", rows), test_fraction=0)
    assert list(task.train["time_s"]) == [2.0, None]
    assert list(task.train["memory_mb"]) == [256.0, None]


def test_a_template_makes_the_prompts_of_apps_rows_too(tmp_path: Path) -> None:
    row = apps_row({"inputs": ["1"], "outputs": ["1"]}, starter_code="x = 1")
    template = "{question}\n\n{starter_code}"
    task = jsonl(path=write_rows(tmp_path / "apps.jsonl", [row]), test_fraction=0, prompt_template=template)
    assert task.train[0]["prompt"] == "Add two numbers.\n\nx = 1"


def test_the_raw_column_stays_where_it_is_asked_for(tmp_path: Path) -> None:
    row = apps_row({"inputs": ["1"], "outputs": ["1"]}, prompt="?")
    path = write_rows(tmp_path / "apps.jsonl", [row])
    task = jsonl(path=path, test_fraction=0, columns={"tests": "input_output"})
    assert task.train[0]["tests"] == row["input_output"]


def test_columns_that_are_not_named_are_left_out_and_listed(tmp_path: Path) -> None:
    """Without `language`, C++ rows would be judged as Python."""
    rows = [{"prompt": f"p{index}", "checks": "[]", "language": "cpp"} for index in range(3)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    notes = jsonl(path=path, test_fraction=0, columns={"tests": "checks"}).notes
    assert any("Left out the columns language" in note for note in notes)
    kept = jsonl(path=path, test_fraction=0, columns={"tests": "checks", "language": "language"})
    assert kept.train["language"] == ["cpp"] * 3 and not any("Left out" in note for note in kept.notes)


@pytest.mark.parametrize(("row", "gold"), cases(__file__, "a reference program is"))
def test_a_reference_program_is_the_gold_of_a_row_with_tests(row: dict, gold: str | None, tmp_path: Path) -> None:
    task = jsonl(path=write_rows(tmp_path / "a.jsonl", [{"prompt": "Print 3.", **row}]), test_fraction=0)
    assert task.gold is not None and task.gold(task.train[0]) == gold


def test_other_rows_have_no_gold(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", [{"prompt": "1 + 2?", "solution": "3"}])
    assert jsonl(path=file, test_fraction=0).gold is None
