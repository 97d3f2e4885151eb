"""lm-eval's figures beside ours. lm-eval is an extra: a program with its options and its results file stands in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.errors import InputError
from rlvr.evaluation import benchmarks
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
# As lm-eval 0.4.13 writes them, shortened.
RESULTS = {
    "results": {
        "sums": {"alias": "sums", "exact_match,number": 0.25, "exact_match_stderr,number": 0.05, "sample_len": 8},
        "choice": {"alias": "choice", "acc,none": 0.5, "acc_stderr,none": "N/A"},
    },
    "configs": {
        "sums": {
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 40, "do_sample": False},
            "filter_list": [{"name": "number", "filter": [{"function": "take_first"}]}],
        },
        "choice": {},
    },
    "n-shot": {"sums": 5, "choice": 0},
    "n-samples": {"sums": {"original": 60, "effective": 8}, "choice": {"original": 9, "effective": 9}},
    "lm_eval_version": "0.4.13",
    "config": {"model_args": {"pretrained": "/home/someone/model"}},
}
EVALUATION = {
    "task": {"name": "arithmetic"},
    "split": "test",
    "metric": "math_correctness",
    "decoding": "greedy",
    "settings": {"max_new_tokens": 44},
    "base": {"rows": 250, "accuracy": 0.244},
    "trained": {"rows": 250, "accuracy": 0.996},
}
PROGRAM = f"""
import json, pathlib, sys
words = sys.argv[1:]
if "absent" in words:
    sys.exit(2)
folder = pathlib.Path(words[words.index("--output_path") + 1]) / "a__model"
folder.mkdir(parents=True)
(folder / "results_2026-01-01.json").write_text(json.dumps({{**{RESULTS!r}, "words": words}}))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package lm_eval, found before an installed one."""
    (tmp_path / "lm_eval").mkdir()
    (tmp_path / "lm_eval" / "__init__.py").write_text("")
    (tmp_path / "lm_eval" / "__main__.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        benchmarks.check_lm_eval()
    assert error.value.kind == "package-not-installed"


@pytest.mark.parametrize(
    ("config", "model", "why"),
    [
        (None, {}, "the base"),
        ("adapter_config.json", {"peft": "WEIGHTS"}, "an adapter on its base"),
        (
            "config.json",
            {"pretrained": "WEIGHTS", "tokenizer": "BASE"},
            "a whole model, with the tokenizer of its base",
        ),
    ],
)
def test_lm_eval_gets_the_model_of_the_run(tmp_path: Path, config: str | None, model: dict[str, str], why: str) -> None:
    base = str(REPOSITORY / "models" / "tiny-arithmetic")
    weights = None if config is None else tmp_path
    if config is not None:
        (tmp_path / config).write_text("{}")
    options: dict[str, Any] = {"chat": True, "include": tmp_path, "limit": 8}
    command = benchmarks.lm_eval_command(load_recipe(DEMO), weights, "sums,choice", **options)
    arguments = json.loads(command[command.index("--model_args") + 1])
    expected = {"pretrained": "BASE", "dtype": "float32"} | model
    places = {"BASE": base, "WEIGHTS": str(tmp_path)}
    assert {key: arguments[key] for key in expected} == {
        key: places.get(value, value) for key, value in expected.items()
    }, why
    assert ("peft" in arguments) == ("peft" in model)
    for words in (["--tasks", "sums,choice"], ["--limit", "8"], ["--include_path", str(tmp_path)], ["--device", "cpu"]):
        assert command[command.index(words[0]) + 1] == words[1]
    assert "--apply_chat_template" in command


def test_figures_stand_beside_ours_with_what_differs(program: Path) -> None:
    recipe = load_recipe(DEMO)
    figures = {name: benchmarks.run_lm_eval(recipe, None, "sums", chat=True) for name in ("base", "trained")}
    lines = [line.split() for line in benchmarks.benchmark_table(figures, EVALUATION).splitlines()]
    assert ["lm-eval", "sums:", "exact_match", "(number)", *["0.25", "±", "0.05"] * 2] in lines
    assert ["lm-eval", "choice:", "acc", "0.5", "0.5"] in lines
    assert lines[-1] == ["ours", "arithmetic:", "math_correctness", "0.244", "0.996"]
    why = benchmarks.differences(figures, EVALUATION, quantised=True)
    assert len(why) == 9, "rows, prompt, extraction and decoding of each task, and the weights"
    benchmarks.write_benchmarks(program, figures)
    written = (program / benchmarks.FILE).read_text()
    assert "someone" not in written and json.loads(written)["trained"]["results"] == RESULTS["results"]


def test_a_failure_of_lm_eval_is_an_input_error(program: Path) -> None:
    with pytest.raises(InputError) as error:
        benchmarks.run_lm_eval(load_recipe(DEMO), None, "absent", chat=False)
    assert error.value.kind == "lm-eval-failed"
