"""The comparison of runs: paired difference, differing recipe keys, and runs that can't be compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlvr.artifacts.directory import write_status
from rlvr.report.comparison import write_comparison
from tests.support.input_errors import input_error
from tests.support.report_runs import HOSTILE, read, write_run


def pair(tmp_path: Path, one: list[bool | None], two: list[bool | None], text: str = "") -> list[Path]:
    return [
        write_run(tmp_path / name, base=[False] * len(rights), trained=rights, text=text)
        for name, rights in (("one", one), ("two", two))
    ]


def text_of(path: Path) -> str:
    return re.sub(r"\s+", " ", read(path).text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two", "label", "words", "why"),
    [
        ([False] * 30 + [True] * 10, [True] * 40, "two is better", "25.0 % (+75.0 points", "a gain beyond chance"),
        ([True] * 40, [False] * 30 + [True] * 10, "two is worse", "100.0 % (−75.0 points", "a loss beyond chance"),
        ([True] * 39 + [False], [True] * 40, "No clear difference", "may be chance", "one problem"),
        ([True] * 40, [True] * 40, "No clear difference", "may be chance", "the same"),
        ([True, None] * 20, [None, True] * 20, "Not comparable", "on different problems", "none that both judged"),
    ],
)
def test_a_difference_between_runs_is_claimed_only_beyond_chance(
    tmp_path: Path, one: list[bool | None], two: list[bool | None], label: str, words: str, why: str
) -> None:
    path = write_comparison(pair(tmp_path, one, two))
    assert path == tmp_path / "two" / "comparison.html"
    text = text_of(path)
    assert label in text and words in text, why


def test_only_differing_recipe_keys_are_listed(tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    recipe = runs[1] / "recipe.yaml"
    changed = recipe.read_text(encoding="utf-8").replace("0.001", "0.002").replace("weight: 0.2", "weight: 0.5")
    recipe.write_text(changed.replace("hf_verysecret", "hf_other") + "output_dir: elsewhere\n", encoding="utf-8")
    text = text_of(write_comparison(runs))
    assert "learning_rate 0.001 0.002" in text
    assert "rewards.answer_format.weight 0.2 0.5" in text
    for unsaid in ("lora_r 16", "hf_verysecret", "hf_other", "elsewhere", "rewards.math_correctness.weight"):
        assert unsaid not in text


def test_what_ran_is_listed_also_where_the_runs_are_alike(tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    write_status(runs[1], "done", machine={"cpu": "other CPU, 8 cores"}, identity={"processes": 1, "launcher": "plain"})
    text = text_of(write_comparison(runs))
    for words in (
        "Trained a LoRA adapter of rank 16, on q_proj, v_proj, over the frozen 4-bit base a LoRA adapter of rank 16",
        "Sampling groups of 8 completions, temperature 0.9, at most 44 tokens groups of 8",
        "Processes 2 1",
        "Launcher zero3 python",
        "CPU a CPU, 2 cores other CPU, 8 cores",
        "GPU 2 x a GPU –",
    ):
        assert words in text


def test_derived_values_are_listed_unless_they_repeat_a_key(tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    for run, rank, threads in ((runs[0], 8, 1), (runs[1], 32, 4)):
        text = (run / "recipe.yaml").read_text(encoding="utf-8").partition("resolved:")[0]
        text = text.replace("lora_r: 16", f"lora_r: {rank}")
        text += f"resolved: {{lora: {{r: {rank}, bias: none}}, training: {{optim: adamw, threads: {threads}}}}}\n"
        (run / "recipe.yaml").write_text(text, encoding="utf-8")
    text = text_of(write_comparison(runs))
    assert "lora_r 8 32 resolved.training.threads 1 4 Versions" in text


VERIFIER = {"right": {"options": {}, "digest": "ab"}}


@pytest.mark.parametrize(
    ("change", "phrase", "why"),
    [
        ({"split": "validation"}, "differ in split (test and validation)", "other rows"),
        ({"settings": {"max_new_tokens": 20}}, "differ in max_new_tokens (40 and 20)", "answers are cut off earlier"),
        ({"verifier": {"right": {"options": {"tolerance": 0.2}, "digest": "ab"}}}, "the options of", "more is right"),
        ({"verifier": {"right": {"options": {}, "digest": "cd"}}}, "the file of the metric", "another verifier"),
        ({"rows_digest": "456"}, "the content of their held-out rows differs", "golds or tests were corrected"),
    ],
)
def test_different_evaluations_are_not_compared(change: dict[str, Any], phrase: str, why: str, tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    same = {"settings": {"max_new_tokens": 40}, "verifier": VERIFIER, "rows_digest": "123"}
    for run, more in zip(runs, (same, {**same, **change}), strict=True):
        path = run / "evaluation.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}), encoding="utf-8")
    assert phrase in text_of(write_comparison(runs)), why


@pytest.mark.slow
def test_an_incomplete_run_is_compared_by_its_remaining_parts(tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    for name in ("evaluation.json", "metrics.jsonl", "run.json"):
        (runs[1] / name).unlink()
    text = text_of(write_comparison(runs))
    assert "Not comparable" in text and "No training step has been logged." in text
    assert "one: 0.1 → 0.4; two: –" in text


@pytest.mark.slow
def test_runs_of_the_same_name_are_shown_with_their_paths(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name / "run", base=[False], trained=[True]) for name in ("a", "b")]
    assert "a/run and b/run" in text_of(write_comparison(runs, tmp_path / "page.html"))
    assert (tmp_path / "page.html").is_file()


def test_names_and_settings_never_become_markup(tmp_path: Path) -> None:
    runs = pair(tmp_path, [True] * 5, [True] * 5)
    (runs[1] / "recipe.yaml").write_text(f"run: {json.dumps(HOSTILE)}\nrewards: [{{name: 'a.b'}}]\n", encoding="utf-8")
    page = read(write_comparison(runs))
    assert HOSTILE in page.text
    assert "img" not in page.tags and len(page.scripts) == 1


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["one"], "number-of-runs"),
        (["one", "absent"], "not-a-run"),
        (["one"] * 7, "number-of-runs"),
    ],
)
def test_runs_that_cannot_be_compared_are_an_input_error(tmp_path: Path, names: list[str], kind: str) -> None:
    write_run(tmp_path / "one", base=[False], trained=[True])
    with input_error(kind):
        write_comparison([tmp_path / name for name in names])
