"""Competition problems: golds that the verifier reads, rows that are left out, and nothing of the test split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from tasks.competition_math import competition_math
from tests.support.cases import cases
from tests.support.environment_data import write_competition_problems
from tests.support.input_errors import input_error

NEW = "A new problem about the seventeen lighthouses of Varn, numbered from one: which is the last?"


def add(folder: Path, *rows: dict[str, Any]) -> str:
    with (folder / "train.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"level": "Level 1", "type": "Algebra", **row}) + "\n" for row in rows)
    return str(folder)


def test_the_answer_is_the_last_box_and_in_no_prompt(tmp_path: Path) -> None:
    task = competition_math(path=str(write_competition_problems(tmp_path)))
    assert (len(task.train), len(task.test)) == (40, 8)
    assert task.test[0]["final_answer"] == "\\frac{2500}{7}" and task.test[0]["difficulty"] == "Level 1"
    for rows in (task.train, task.test):
        assert not any(row["final_answer"] in str(row["prompt"]) for row in rows)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"problem": NEW, "solution": "So $\\boxed{17}$."}, ""),
        ({"problem": NEW, "answer": "$\\frac{1}{2}$", "solution": "no box"}, ""),
        ({"problem": NEW, "solution": "not \\boxed{x}, so \\boxed{2\\sqrt{3}}"}, ""),
        ({"problem": NEW, "answer": 17}, ""),
        ({"question": NEW, "answer": "A"}, ""),  # a point of a figure, say
        ({"problem": NEW, "solution": "So it is 17."}, "no answer"),
        ({"problem": NEW, "answer": "notfound", "question_type": "math-word-problem"}, "no answer"),
        ({"problem": NEW, "answer": float("nan")}, "no answer"),
        ({"problem": NEW, "answer": "17", "problem_is_valid": "No"}, "invalid"),
        ({"problem": NEW, "answer": "17", "problem_is_valid": "Yes", "solution_is_valid": "No"}, "invalid"),
        ({"problem": NEW, "answer": "proof"}, "proof"),
        ({"problem": NEW, "answer": "17", "question_type": "proof"}, "proof"),
        ({"problem": f"Prove that 17 is odd. {NEW}", "answer": "17"}, "proof"),
        ({"problem": NEW, "answer": "17", "question_type": "MCQ"}, "multiple choice"),
        ({"problem": f"{NEW} (A) 16 (B) 17 (C) 18", "answer": "\\textbf{(B)}"}, "multiple choice"),
        ({"problem": f"{NEW} $\\textbf{{(A)}}1\\textbf{{(B)}}2\\textbf{{(C)}}3$", "answer": "B"}, "multiple choice"),
        ({"problem": NEW, "answer": "\\frac{1}{"}, "can't read"),
        ({"problem": NEW, "answer": "it depends on the weather, since lamps go out in storms"}, "can't read"),
        ({"problem": NEW, "answer": "\\begin{tikzpicture}\\draw(0,0);\\end{tikzpicture}"}, "can't read"),
        ({"problem": "what is  one seventh of $50^2$? give an exact value.", "answer": "1"}, "in the test split"),
        ({"problem": f"Hint: {NEW}", "answer": "17"}, "in the test split"),
        ({"problem": "What is one seventh of $2^2$? Give an exact value.", "answer": "1"}, "the same question"),
    ],
)
def test_rows_without_a_gold_that_can_be_verified_are_left_out(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    folder = write_competition_problems(tmp_path)
    if reason == "in the test split" and NEW in row["problem"]:
        with (folder / "test.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"problem": NEW, "solution": "\\boxed{3}"}) + "\n")
    task = competition_math(path=add(folder, row))
    assert (len(task.train) == 41) == (reason == "") and len(task.train) >= 40
    assert any(reason in note and "Dropped 1 training row" in note for note in task.notes) == bool(reason)


def test_levels_types_sources_and_limits_choose_training_rows_alone(tmp_path: Path) -> None:
    path = add(write_competition_problems(tmp_path), {"problem": NEW, "answer": "1", "source": "olympiads", "level": 5})
    chosen = competition_math(path=path, levels=[5], types=["algebra"])
    assert set(chosen.train["difficulty"]) == {"Level 5"} and set(chosen.train["type"]) == {"Algebra"}
    assert len(chosen.test) == 8 and len(set(chosen.test["difficulty"])) > 1
    assert competition_math(path=path, sources=["Olympiads"]).train["question"] == [NEW]
    few = competition_math(path=path, limit_train=7, limit_test=3)
    assert (len(few.train), len(few.test)) == (7, 3)
    assert few.train["id"] == competition_math(path=path, limit_train=7, limit_test=3).train["id"]
    assert few.train["id"] != competition_math(path=path, limit_train=7, seed=1).train["id"]
    assert set(few.train["id"]) < set(competition_math(path=path, limit_train=20).train["id"])


def test_other_held_out_rows_replace_the_datas_own(tmp_path: Path) -> None:
    held = tmp_path / "math500.jsonl"  # the form of MATH-500
    row = {
        "problem": NEW,
        "solution": "",
        "answer": "17",
        "subject": "Algebra",
        "level": 2,
        "unique_id": "test/a/1.json",
    }
    held.write_text(json.dumps(row) + "\n")
    task = competition_math(path=str(write_competition_problems(tmp_path)), test_path=str(held))
    assert task.test["id"] == ["test/a/1.json"] and task.test["difficulty"] == ["Level 2"]
    assert task.test["type"] == ["Algebra"] and len(task.train) == 40


@pytest.mark.parametrize(("options", "kind", "key"), cases(__file__, "wrong options are errors"))
def test_wrong_options_are_errors(tmp_path: Path, options: dict[str, Any], kind: str, key: str) -> None:
    with input_error(kind, key):
        load_task(TaskSpec("competition_math", {"path": str(write_competition_problems(tmp_path)), **options}))


@pytest.mark.parametrize(
    ("row", "kind", "key"),
    [
        ({"text": "Which?", "answer": "1"}, "missing-column", "problem"),
        ({"problem": "Which?"}, "missing-column", "answer"),
        ({"problem": " ", "answer": "1"}, "invalid-row", "problem"),
    ],
)
def test_rows_in_another_form_are_errors(tmp_path: Path, row: dict[str, Any], kind: str, key: str) -> None:
    with input_error(kind, key, 40):
        competition_math(path=add(write_competition_problems(tmp_path), row))
