"""A recipe is read strictly: what is in it is what runs, and what is wrong in it is said with its line and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.config.overrides import parse_overrides
from rlvr.config.recipe import load_recipe, write_recipe
from rlvr.errors import InputError

GOOD = """\
model_name_or_path: some/model
learning_rate: 1e-4
use_peft: true
save_strategy: no
task: {name: gsm8k, shots: 8}
rewards:
  - name: math_correctness
  - name: answer_format
    weight: 0.5
    options: {pattern: "x"}
    gate: math_correctness
evaluation: {split: test, rows: 10}
"""

Write = Callable[..., Path]


def test_a_good_recipe_is_read_as_written(write_yaml: Write) -> None:
    recipe = load_recipe(write_yaml(GOOD))
    assert recipe.task.name == "gsm8k" and recipe.task.options == {"shots": 8}
    assert [(spec.name, spec.weight, spec.gate) for spec in recipe.rewards] == [
        ("math_correctness", 1.0, None),
        ("answer_format", 0.5, "math_correctness"),
    ]
    assert recipe.rewards[1].options == {"pattern": "x"}
    assert recipe.settings["learning_rate"] == 1e-4, "1e-4 is a number, though PyYAML reads a string"
    assert recipe.settings["save_strategy"] == "no", "no is a word, though YAML 1.1 reads false"
    assert recipe.evaluation is not None and recipe.evaluation.metric == "math_correctness"


def test_defaults_of_ours_give_way_to_the_recipe(write_yaml: Write) -> None:
    recipe = load_recipe(write_yaml(GOOD + "report_to: none\nlora_dropout: 0.1\n"))
    assert recipe.settings["report_to"] == "none" and recipe.settings["lora_dropout"] == 0.1
    assert recipe.settings["dtype"] == "bfloat16", "an adapter over float32 weights would compute 4 bits in float32"
    assert recipe.output_dir == Path("runs/recipe")


def test_a_whole_number_for_a_float_is_one_but_steps_stay_steps(write_yaml: Write) -> None:
    """transformers refuses a temperature of 3, and would take 0.5 of warmup_steps for half of the run."""
    recipe = load_recipe(write_yaml(GOOD + "temperature: 3\nwarmup_steps: 4\n"))
    assert repr(recipe.settings["temperature"]) == "3.0" and repr(recipe.settings["warmup_steps"]) == "4"


def test_full_fine_tuning_keeps_the_dtype_of_trl(write_yaml: Write) -> None:
    recipe = load_recipe(write_yaml(GOOD.replace("use_peft: true\n", "")))
    assert "dtype" not in recipe.settings


@pytest.mark.parametrize(
    ("text", "said", "why"),
    [
        ("", "is empty", "an empty file"),
        ("# only a comment\n", "is empty", "nothing but a comment"),
        ("- a\n- b\n", "not a mapping", "a list"),
        ("just words\n", "not a mapping", "a scalar"),
        ("a:\n\tb: 1\n", "line 2: a tab", "a tab"),
        ("seed: 1\nseed: 2\n", "line 2: seed is given twice", "a doubled key"),
        ("task: {name: x, name: y}\n", "given twice", "a doubled key inside a section"),
        ("a: 1\nb: [1, 2\nc: 3\n", "line 2: the [ that opens here is never closed", "a bracket left open"),
        ("a: {b: 1\nc: 2\n", "line 1: the { that opens here is never closed", "a brace left open"),
        ('a: 1\nb: "no\nc: 2\n', "line 2: the quotation mark that opens here", "a quotation mark left open"),
        ('a: "\\d+"\n', "line 1: a backslash in double quotes", "a regular expression in double quotes"),
        ("a: 1\nb 2\nc: 3\n", "line 2: this is no `key: value`", "a colon left out"),
        ("a: 1\nb:2\nc: 3\n", "line 2: this is no `key: value`", "a space left out"),
        ("a: b: c\n", "line 1: a second colon", "a text with a colon"),
        ("a: 1\n b: 2\n", "line 2: ", "a key that is indented by accident"),
        ("a:\n  - b: 1\n   c: 2\n", "line 3: it is indented otherwise", "a key that fits no level"),
        ("a: *b\n", "line 1: a value that begins with * stands in quotes", "an alias that nobody meant"),
        ("rewards: answer_format\n", "like - name: answer_format.", "a reward without its list"),
        (
            GOOD + "learnig_rate: 1\n",
            "line 13: learnig_rate is not a recipe key; did you mean learning_rate?",
            "a typo",
        ),
        (GOOD + "torch_dtype: bfloat16\n", "not a recipe key. Use dtype", "renamed by transformers"),
        (GOOD + "max_prompt_length: 9\n", "prompts are never truncated", "dropped by TRL"),
        (GOOD + "gradient_checkpointing: true\n", "Use activation_checkpointing", "deprecated"),
        (GOOD + "reward_weights: [1, 2]\n", "a weight", "ours"),
        (GOOD + "max_steps: many\n", "max_steps is text ('many'), but should be a whole number", "a wrong type"),
        (GOOD + "loss_type: bogus\n", "none of its choices", "out of an enumeration"),
        (GOOD.replace("weight: 0.5", "wieght: 0.5"), "did you mean weight?", "a typo inside a reward"),
        (GOOD.replace("weight: 0.5", "pattern: x"), "options of the function go under options", "an option misplaced"),
        (GOOD.replace("weight: 0.5", "weight: much"), "weight is 'much'", "a weight that is no number"),
        (GOOD.replace("gate: math_correctness", "gate: math"), "no other reward of this recipe", "a gate misspelt"),
        (GOOD.replace("gate: math_correctness", "gate: answer_format"), "no other reward", "a gate on itself"),
        (GOOD.replace("name: answer_format", "name: math_correctness"), "listed twice", "TRL merges their figures"),
        (GOOD.replace("task: {name: gsm8k, shots: 8}", "task: gsm8k"), "like task: {name: gsm8k}", "a task as a word"),
        (GOOD.replace("split: test", "split: train"), "rows that training saw", "not held out"),
        (GOOD.replace("rows: 10", "rows: 0"), "at least 1", "no rows"),
        (GOOD.replace("rows: 10", "row: 10"), "did you mean rows?", "a typo inside evaluation"),
        (GOOD.replace("model_name_or_path: some/model\n", ""), "model_name_or_path is missing", "no model"),
        ("seed: 1\nmodel_name_or_path: x\ntask: {name: x}\n", "recipe.yaml: rewards must be a list", "no rewards"),
        ("seed: 1\x00\n", "no text that YAML can read", "a NUL byte"),
        ("[" * 500, "nested too deeply", "a bomb"),
        ("\ufeff" + GOOD.replace("seed", "sead") + "x: 1\n", "x is not a recipe key", "a byte order mark is no fault"),
        (GOOD + "task.shots: 4\n", "task.shots is not a recipe key", "dotted keys are for the command line"),
    ],
)
def test_a_faulty_recipe_is_refused_in_words(write_yaml: Write, text: str, said: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(text))
    assert said in str(caught.value), why


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_that_is_no_utf_8_is_refused_with_the_line(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "r.yaml").write_bytes("seed: 1  # größer\n".encode(encoding))
    with pytest.raises(InputError, match=r"r.yaml, line 1: this is no UTF-8 text; save the file as UTF-8"):
        load_recipe(tmp_path / "r.yaml")


def test_lines_that_end_as_on_windows_are_lines(write_yaml: Write) -> None:
    path = write_yaml(GOOD)
    expected = load_recipe(path)
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert load_recipe(path) == expected


def test_a_folder_in_the_place_of_a_recipe_names_the_recipes_in_it(write_yaml: Write, tmp_path: Path) -> None:
    write_yaml(GOOD, "gsm8k-qlora.yaml")
    with pytest.raises(InputError, match=r"is a folder: name a recipe, a YAML file. In .* there is: gsm8k-qlora.yaml"):
        load_recipe(tmp_path)


def test_all_faults_are_found_in_one_pass(write_yaml: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(GOOD + "learnig_rate: 1\nmax_steps: many\ntorch_dtype: x\n"))
    assert len(str(caught.value).splitlines()) == 3


def test_a_missing_recipe_names_its_neighbours(write_yaml: Write, tmp_path: Path) -> None:
    write_yaml(GOOD, "gsm8k-qlora.yaml")
    with pytest.raises(InputError, match="gsm8k-qlora.yaml"):
        load_recipe(tmp_path / "gsm8k-qlra.yaml")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--seed", "3"], [("seed", 3)]),
        (["--learning_rate=1e-5"], [("learning_rate", 1e-5)]),
        (["--use_vllm", "--seed", "3"], [("use_vllm", True), ("seed", 3)]),
        (["--beta", "-0.5"], [("beta", -0.5)]),
        (["--save_strategy", "no"], [("save_strategy", "no")]),
        (["--report_to", "[mlflow, tensorboard]"], [("report_to", ["mlflow", "tensorboard"])]),
        (["--task.shots", "4"], [("task.shots", 4)]),
    ],
)
def test_overrides_are_read_as_yaml(words: list[str], found: list[tuple[str, object]]) -> None:
    assert parse_overrides(words) == found


@given(st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_survives_the_command_line(value: object) -> None:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    assert parse_overrides([f"--key={text}"]) == [("key", value)]


def test_overrides_reach_sections_and_rewards_by_name(write_yaml: Write) -> None:
    words = ["--task.shots", "2", "--rewards.answer_format.weight", "0.1", "--evaluation.rows", "5", "--seed", "7"]
    recipe = load_recipe(write_yaml(GOOD), [*words, "--rewards.answer_format.options.pattern", "y"])
    assert recipe.task.options["shots"] == 2
    assert recipe.rewards[1].weight == 0.1 and recipe.rewards[1].options == {"pattern": "y"}
    assert recipe.evaluation is not None and recipe.evaluation.rows == 5
    assert recipe.settings["seed"] == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sead", "1"], "--sead is not a recipe key; did you mean seed?"),
        (["--seed", "x"], "--seed is text"),
        (["--rewards.nothing.weight", "1"], "no reward 'nothing'; it has math_correctness, answer_format"),
        (["--seed.x", "1"], "only task, rewards, evaluation, sagemaker have keys of their own"),
        (["stray"], "belongs to no key"),
        (["--seed", "[1"], "can't be read as a YAML value"),
    ],
)
def test_faulty_overrides_are_refused_in_words(write_yaml: Write, words: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(GOOD), words)
    assert said in str(caught.value)


def test_a_written_recipe_loads_as_itself(write_yaml: Write, tmp_path: Path) -> None:
    recipe = load_recipe(write_yaml(GOOD), ["--seed", "7", "--task.shots", "3"])
    write_recipe(recipe, tmp_path / "resolved.yaml")
    again = load_recipe(tmp_path / "resolved.yaml")
    assert again.as_dict() == recipe.as_dict()
