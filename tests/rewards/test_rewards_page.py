"""docs/rewards.md is tried as written: its recipe excerpts and its examples."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rewards.keyword_coverage import keyword_coverage
from rewards.multiple_choice import multiple_choice
from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "rewards.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Recipe excerpts\n")[2].partition("\n## ")[0]
EXCERPTS = [
    [RewardSpec(**entry) for entry in YAML(typ="safe").load(block)["rewards"]]
    for block in re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("specs", EXCERPTS, ids=lambda specs: specs[-1].name)
def test_the_excerpts_are_recipes_that_score(
    specs: list[RewardSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "text-to-sql"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "jars.db")) as connection:
        connection.execute("CREATE TABLE jars (grams INT)")
    monkeypatch.chdir(tmp_path)
    columns = {
        "final_answer": ["42"],
        "keywords": [["refund", ["14 days", "two weeks"]]],
        "schema": ["{}"],
        "reference": ["42"],
        "calls": ['{"name": "f"}'],
        "tools": ['{"name": "f"}'],
        "database": ["jars.db"],
        "gold_query": ["SELECT count(*) FROM jars"],
        "instruction_id_list": [["punctuation:no_comma"]],
        "kwargs": [[{}]],
    }
    chat = [{"role": "assistant", "content": "<think>6 * 7 is 42.</think>\n<answer>42</answer>"}]
    for reward in load_rewards(specs):
        (value,) = reward([[{"role": "user", "content": "6 * 7?"}]], [chat], **columns)
        right = ("math_correctness", "tag_format", "exact_match")
        assert value == float(reward.name in right)


def test_the_example_of_the_support_answer_names_two_of_three() -> None:
    (spec,) = next(specs for specs in EXCERPTS if specs[0].name == "keyword_coverage")
    keywords: list[Any] = [["refund", ["14 days", "two weeks"]]]
    example = re.search(r'"(You get a refund\s.*?)"', PAGE, re.DOTALL)
    assert example is not None
    assert keyword_coverage([""], [example[1]], keywords=keywords, **spec.options) == [pytest.approx(2 / 3)]
    assert keyword_coverage([""], [f"{example[1]} It is guaranteed."], keywords=keywords, **spec.options) == [0.0]


def test_the_page_says_which_texts_state_a_choice() -> None:
    ((accepted, rejected),) = re.findall(r"accepts (\".*?)\. The reward\s+rejects\s+(.*?)\.\n", PAGE, re.DOTALL)
    for texts, value in ((accepted, 1.0), (rejected, 0.0)):
        for text in re.findall(r'"(.*?)"', texts):
            choices = [["Rome", "Bern", "Paris"]]
            assert multiple_choice([""], [text], final_answer=["C"], choices=choices) == [value], text
