"""Data in the form of the hub's."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.data_files import write_rows


def write_questions_on_tables(folder: Path) -> Path:
    """A folder in the form of synthetic_text_to_sql."""
    for split, numbers in (("train", range(2, 34)), ("test", range(50, 58))):
        rows = [
            {
                "id": number,
                "sql_prompt": f"How many jars of more than {number} grams are there?",
                "sql_context": f"CREATE TABLE jars (grams INT); INSERT INTO jars VALUES ({number}), ({number + 1});",
                "sql": f"SELECT count(*) FROM jars WHERE grams > {number};",
            }
            for number in numbers
        ]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder


def write_questions_on_articles(folder: Path) -> Path:
    """A folder in the form of SQuAD."""
    for split, numbers in (("train", range(2, 34)), ("validation", range(50, 58))):
        rows = [
            {
                "id": f"{split}{number}",
                "title": f"Lighthouse_{number % 4}",
                "context": f"The lighthouse of Varn {number} is {1000 + number} feet tall.",
                "question": f"How tall is the lighthouse of Varn {number} in feet?",
                "answers": {"text": [f"1,{number:03}"], "answer_start": [32]},
            }
            for number in numbers
        ]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder


def write_competition_problems(folder: Path) -> Path:
    """A folder in the form of MATH."""
    for split, numbers in (("train", range(2, 42)), ("test", range(50, 58))):
        rows = [
            {
                "problem": f"What is one seventh of ${number}^2$? Give an exact value.",
                "level": f"Level {number % 5 + 1}",
                "type": ("Algebra", "Geometry")[number % 2],
                "solution": f"Not \\boxed{{0}}, but $\\boxed{{\\frac{{{number**2}}}{{7}}}}$.",
            }
            for number in numbers
        ]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder


def write_instructions(folder: Path) -> Path:
    """A folder in the forms of RLVR-IFeval (train) and IFEval (test)."""
    prompt = "Describe shelf {} of the shop. Use no commas."
    given = json.dumps({"func_name": "validate_no_commas", "N": None})
    train = [{"messages": [{"role": "user", "content": prompt.format(n)}], "ground_truth": given} for n in range(2, 34)]
    ids = ["punctuation:no_comma", "length_constraints:number_words"]
    test = [
        {
            "key": number,
            "prompt": f"{prompt.format(number)} Write less than 30 words.",
            "instruction_id_list": ids,
            "kwargs": [{"num_words": None}, {"relation": "less than", "num_words": 30}],
        }
        for number in range(50, 58)
    ]
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "test.jsonl", test)
    return folder


def write_choices(folder: Path) -> Path:
    """A folder in the forms of ARC (train) and MMLU (test)."""
    train, test = [], []
    for number in (*range(2, 34), *range(50, 58)):
        question = f"Which number of jars does the keeper of lighthouse {number} count on shelf {number}?"
        texts, right = [str(number), str(number + 1), f"{number} dozen", "none of the above"], number % 4
        if number < 50:
            choices = {"text": texts, "label": list("1234" if number % 2 else "ABCD")}
            train.append(
                {"id": f"Q{number}", "question": question, "choices": choices, "answerKey": choices["label"][right]}
            )
        else:
            test.append({"question": question, "subject": "jars", "choices": texts, "answer": right})
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "test.jsonl", test)
    return folder


def write_extractions(folder: Path) -> Path:
    """A folder in the form of paraloq/json_data_extraction, with one file: eight schemas, five texts each."""
    rows = []
    for number in range(40):
        key = f"grams_{number % 8}"
        schema = {
            "type": "object",
            "properties": {"shelf": {"type": "string"}, key: {"type": "number"}},
            "required": [key],
        }
        item = {"shelf": f"No. {number}", key: number + 0.5}
        text = (
            f"Shelf No. {number} of the shop at the old harbour holds one jar of {number + 0.5} grams, filled in May."
        )
        rows.append({"title": "Jars", "schema": json.dumps(schema), "item": json.dumps(item), "text": text})
    write_rows(folder / "data.jsonl", rows)
    return folder


def write_calls(folder: Path) -> Path:
    """A folder in the form of xlam-function-calling-60k."""
    weighing = {
        "shelf": {"description": "Its number", "type": "int"},
        "unit": {"type": "str, optional", "default": "g"},
    }
    tools = [
        {"name": "weigh", "description": "Weigh a shelf.", "parameters": weighing},
        {"name": "close", "description": "Close the shop.", "parameters": {}},
    ]
    for split, numbers in (("train", range(2, 34)), ("test", range(50, 58))):
        rows = [
            {
                "id": number,
                "query": f"Please weigh all the jars on shelf {number} of the shop at harbour {number} for me.",
                "tools": json.dumps(tools),
                "answers": json.dumps(
                    [{"name": "weigh", "arguments": {"shelf": number}}, {"name": "close", "arguments": {}}]
                ),
            }
            for number in numbers
        ]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder
