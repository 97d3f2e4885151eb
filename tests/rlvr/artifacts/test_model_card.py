"""The model card of trained weights names base model, dataset, reward and result, and nothing of this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import run_grpo
from rlvr.artifacts.model_card import model_card
from rlvr.config.recipe import load_recipe
from tests.conftest import REPOSITORY
from tests.support.report_runs import write_run

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
HUB = REPOSITORY / "recipes" / "gsm8k-qwen2.5-0.5b-full-vllm.yaml"


def test_a_card_names_a_base_of_the_hub_and_the_last_part_of_a_path(tmp_path: Path) -> None:
    words = [
        "--task",
        f"{{name: jsonl, path: {tmp_path}/problems.jsonl, style: null}}",
        "--rewards",
        "[{name: x/y.py}]",
    ]
    recipe = load_recipe(HUB, [*words, "--evaluation", "null", "--output_dir", str(tmp_path / "my-run")])
    text = model_card(recipe)
    card = ModelCard(text)
    assert card.data.base_model == "Qwen/Qwen2.5-0.5B-Instruct" and card.data.library_name == "transformers"
    assert "jsonl (path problems.jsonl)" in text and "1 × y" in text and "# my-run" in text
    assert str(tmp_path) not in text and "None" not in text


def test_the_result_of_a_card_has_its_interval(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", base=[False, True] * 20, trained=[True] * 40)
    evaluation = json.loads((run / "evaluation.json").read_text())
    text = model_card(load_recipe(DEMO, ["--output_dir", str(run)]), evaluation)
    card = ModelCard(text)
    assert card.data.eval_results[0].metric_value == 1.0 and card.data.eval_results[0].dataset_split == "test"
    assert "from 50.0 % to 100.0 % (+50.0 points, 95 % interval" in text
    assert re.search(r"\| 95 % interval \| .* … .* \|", text)


@pytest.mark.slow
def test_the_cards_of_a_run_name_neither_none_nor_a_path_of_this_machine(tmp_path: Path) -> None:
    words = ["--max_steps", "1", "--warmup_steps", "0", "--evaluation.rows", "8", "--report_to", "none"]
    run = tmp_path / "run"
    words += ["--save_strategy", "steps", "--save_steps", "1", "--output_dir", str(run)]
    assert run_grpo.main(["--config", str(DEMO), *words]) == 0
    cards = {str(path.parent.relative_to(tmp_path)): path.read_text() for path in run.rglob("README.md")}
    assert set(cards) == {"run", "run/adapter", "run/checkpoint-1"}
    for card in cards.values():
        assert "None" not in card and "More Information" not in card
        assert str(REPOSITORY) not in card and str(tmp_path) not in card
        assert "| base model | tiny-arithmetic |" in card and "| dataset | arithmetic |" in card
        assert "1 × math_correctness + 0.2 × answer_format" in card
    for folder in ("run", "run/adapter"):
        assert "On 8 held-out problems" in cards[folder] and "95 % interval" in cards[folder]
    assert "no held-out evaluation" in cards["run/checkpoint-1"]
