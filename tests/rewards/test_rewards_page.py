"""docs/rewards.md is tried as written: its command, its table and its recipe excerpts."""

from __future__ import annotations

import importlib
import inspect
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rewards.keyword_coverage import keyword_coverage
from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_reward, load_rewards
from rlvr.scoring.reward import RewardError

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "rewards.md").read_text(encoding="utf-8")
EXCERPTS = dict(re.findall(r"^## (\w+)\n\n```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
# Name and options of each row.
TABLE = re.findall(r"^\| `([\w.]+)` \|[^|\n]*\|[^|\n]*\|([^|\n]*)\|", PAGE, re.MULTILINE)
# Factories can't be made without these.
NEEDED: dict[str, dict[str, Any]] = {
    "trl.rewards.get_soft_overlong_punishment": {"max_completion_len": 100, "soft_punish_cache": 20}
}


def rewards_of(name: str) -> list[Any]:
    content = YAML(typ="safe").load(EXCERPTS[name])
    return load_rewards([RewardSpec(**entry) for entry in content["rewards"]])


def test_the_table_has_every_reward_of_the_folder() -> None:
    folder = {file.stem for file in (REPOSITORY / "rewards").glob("[!_]*.py")}
    assert {name for name, _ in TABLE if "." not in name} == folder


@pytest.mark.parametrize(("name", "options"), TABLE)
def test_the_table_names_rewards_and_options_that_exist(name: str, options: str) -> None:
    assert load_reward(RewardSpec(name, options=NEEDED.get(name, {}))).name == name
    module, _, function = name.rpartition(".") if "." in name else (f"rewards.{name}", ".", name)
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    assert set(re.findall(r"`(\w+)`", options)) <= set(parameters)


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_excerpts_are_recipes_that_score(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "text-to-sql"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "jars.db")) as connection:
        connection.execute("CREATE TABLE jars (grams INT)")
    monkeypatch.chdir(tmp_path)
    columns = {
        "final_answer": ["42"],
        "choices": [["41", "42"]],
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
    for reward in rewards_of(name):
        (value,) = reward([[{"role": "user", "content": "6 * 7?"}]], [chat], **columns)
        right = ("math_correctness", "tag_format", "exact_match", "multiple_choice", "cosine_length")
        assert value == pytest.approx(float(reward.name in right), abs=1e-3)  # cosine_length: short, but not empty


def test_the_command_prints_the_reasons() -> None:
    (command,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    words = re.fullmatch(r"python -c '(.*)'\n", command)
    assert words is not None
    result = subprocess.run(
        [sys.executable, "-c", words[1]], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert result.stdout == "tag_format/why ['Every tag is in its place.']\n"


def test_the_example_of_the_support_answer_earns_two_of_three() -> None:
    options = rewards_of("keyword_coverage")[0].options
    keywords: list[Any] = [["refund", ["14 days", "two weeks"]]]
    example = re.search(r'"(You get a refund\s.*?)"', PAGE, re.DOTALL)
    assert example is not None
    assert keyword_coverage([""], [example[1]], keywords=keywords, **options) == [pytest.approx(2 / 3)]
    assert keyword_coverage([""], [f"{example[1]} It is guaranteed."], keywords=keywords, **options) == [0.0]


def test_the_penalties_of_trl_need_what_an_evaluation_does_not_have() -> None:
    for name in ("trl.rewards.get_soft_overlong_punishment", "trl.rewards.get_repetition_penalty_reward"):
        reward = load_reward(RewardSpec(name, options=NEEDED.get(name, {})))
        assert reward([""], ["x"], completion_ids=[[1]]) == [0.0]
        with pytest.raises(RewardError, match="completion_ids"):
            reward([""], ["x"])
