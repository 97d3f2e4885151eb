"""A recipe is read strictly: every problem is reported with its kind, its key and its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.config import schema
from rlvr.config.foreign_keys import usual_names
from rlvr.config.overrides import parse_overrides
from rlvr.config.recipe import SECTIONS, RecipeError, load_recipe
from rlvr.config.recipe_writer import write_recipe
from rlvr.config.yaml_reader import read_yaml
from rlvr.errors import InputError
from tests.support.input_errors import input_error

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

ROOT = Path(__file__).resolve().parents[3]
MIXED = """\
model_name_or_path: some/model
tasks:
  - {name: gsm8k, weight: 3, shots: 8}
  - {name: jsonl, label: own, weight: 1, path: x.jsonl}
rewards:
  - name: math_correctness
    applies_to: [gsm8k]
  - name: code_execution
    applies_to: [own]
  - {name: answer_format, gate: math_correctness, applies_to: [gsm8k]}
evaluation: {rows: 10, metric: {own: code_execution}}
"""
HEAD = "model_name_or_path: some/model\ntask: {name: gsm8k}\n"
FORMAT = "rewards.answer_format"

Write = Callable[..., Path]


def test_a_tilde_is_the_home_folder_in_every_path(write_yaml: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    text = GOOD.replace("some/model", "~/model").replace("name: gsm8k, shots: 8", "name: gsm8k, path: ~/data")
    text += "sagemaker: {environment: {HF_HOME: ~/cache}}\n"
    recipe = load_recipe(write_yaml(text), ["--output_dir", "~/runs/x", "--rewards.math_correctness.options.a", "~x"])
    assert recipe.output_dir == Path("/home/me/runs/x")
    assert recipe.settings["model_name_or_path"] == "/home/me/model"
    assert recipe.tasks[0].options == {"path": "/home/me/data"}
    assert recipe.rewards[0].options == {"a": "~x"}, "no path"
    assert recipe.sagemaker is not None and recipe.sagemaker.environment == {"HF_HOME": "~/cache"}


def test_a_good_recipe_is_read_as_written(write_yaml: Write) -> None:
    recipe = load_recipe(write_yaml(GOOD))
    assert recipe.task_name == "gsm8k" and recipe.tasks[0].options == {"shots": 8}
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


def multiplied(form: str) -> str:
    """Eight lines of aliases, which stand for 100 million values."""
    ten = [form.format(", ".join([f"*n{n}"] * 10)) for n in range(8)]
    return "n0: &n0 [x]\n" + "".join(f"n{n}: &n{n} {text}\n" for n, text in enumerate(ten, 1))


def test_an_alias_is_the_value_that_it_names(write_yaml: Write) -> None:
    path = write_yaml("a: &a [1, x]\nb: {c: *a, 2026-01-02: 3}\n")
    assert read_yaml(path)[0] == {"a": [1, "x"], "b": {"c": [1, "x"], "2026-01-02": 3}}


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", None, "an empty file"),
        ("# only a comment\n", None, "nothing but a comment"),
        ("- a\n- b\n", None, "a list"),
        ("just words\n", None, "a scalar"),
        ("a:\n\tb: 1\n", 2, "a tab"),
        ("a: 1\nb: [1, 2\nc: 3\n", 2, "a bracket left open"),
        ("a: {b: 1\nc: 2\n", 1, "a brace left open"),
        ('a: 1\nb: "no\nc: 2\n', 2, "a quotation mark left open"),
        ('a: "\\d+"\n', 1, "a regular expression in double quotes"),
        ("a: 1\nb 2\nc: 3\n", 2, "a colon left out"),
        ("a: 1\nb:2\nc: 3\n", 2, "a space left out"),
        ("a: b: c\n", 1, "a text with a colon"),
        ("a: 1\n b: 2\n", 2, "a key that is indented by accident"),
        ("a:\n  - b: 1\n   c: 2\n", 3, "a key that fits no level"),
        ("a: *b\n", 1, "an accidental alias"),
        ("seed: 1\x00\n", None, "a NUL byte"),
        ("[" * 500, None, "a bomb"),
        (multiplied("[{}]"), None, "aliases in lists that multiply"),
        (multiplied("{{a: [{}]}}"), None, "aliases in mappings that multiply"),
        ("a: 1\n? [b, c]\n: 3\n", 2, "a list as a key"),
        ("a: &a [*a]\n", None, "a value inside itself"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n", 3, "a merged mapping"),
        ("a: 1\nb: !own [1, 2]\n", 2, "a tag of a list"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", 2, "a tag that would run code"),
        ("a: 2026-13-45\n", None, "no date"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(write_yaml: Write, text: str, line: int | None, why: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(text))
    [problem] = caught.value.problems
    assert (problem.kind, problem.line) == ("invalid-yaml", line), why


@pytest.mark.parametrize(
    ("text", "kind", "key", "why"),
    [
        ("seed: 1\nseed: 2\n", "duplicate-key", "seed", "a doubled key"),
        ("task: {name: x, name: y}\n", "duplicate-key", "name", "a doubled key inside a section"),
        ("\ufeff" + GOOD + "x: 1\n", "unknown-key", "x", "a byte order mark is no problem"),
        (GOOD + "task.shots: 4\n", "unknown-key", "task.shots", "dotted keys are for the command line"),
        (GOOD + "torch_dtype: bfloat16\n", "removed-key", "torch_dtype", "renamed by transformers"),
        (GOOD + "gradient_checkpointing: true\n", "removed-key", "gradient_checkpointing", "deprecated"),
        (GOOD + "reward_weights: [1, 2]\n", "removed-key", "reward_weights", "each reward has a weight of its own"),
        (GOOD + "use_liger_loss: true\n", "removed-key", "use_liger_loss", "removed by TRL"),
        (GOOD + "loss_type: bogus\n", "unknown-choice", "loss_type", "out of an enumeration"),
        ("rewards: answer_format\n" + HEAD, "wrong-type", "rewards", "a reward without its list"),
        ("rewards: [{path: mine.py, function: f}]\n" + HEAD, "wrong-type", "rewards.1", "a reward without a name"),
        (HEAD, "missing-key", "rewards", "no rewards"),
        (GOOD.replace("weight: 0.5", "wieght: 0.5"), "unknown-key", f"{FORMAT}.wieght", "a typo inside a reward"),
        (GOOD.replace("weight: 0.5", "pattern: x"), "unknown-key", f"{FORMAT}.pattern", "an option misplaced"),
        (GOOD.replace("weight: 0.5", "weight: .nan"), "out-of-range", f"{FORMAT}.weight", "every reward would be nan"),
        (GOOD.replace("weight: 0.5", "where: moon"), "unknown-choice", f"{FORMAT}.where", "no place"),
        (GOOD.replace("weight: 0.5", "where: 'http://'"), "invalid-address", f"{FORMAT}.where", "no host"),
        (GOOD.replace("gate: math_correctness", "gate: math"), "unknown-reward", f"{FORMAT}.gate", "a gate misspelt"),
        (GOOD.replace("gate: math_correctness", f"gate: {FORMAT[8:]}"), "unknown-reward", f"{FORMAT}.gate", "itself"),
        (GOOD.replace("name: answer_format", "name: math_correctness"), "duplicate-reward", "rewards", "one name"),
        (GOOD.replace("split: test", "split: train"), "unknown-choice", "evaluation.split", "not held out"),
        (GOOD.replace("rows: 10", "rows: 0"), "out-of-range", "evaluation.rows", "no rows"),
        (GOOD.replace("model_name_or_path: some/model\n", ""), "missing-key", "model_name_or_path", "no model"),
        (GOOD.replace("weight: 0.5", "applies_to: [gsm8k]"), "conflicting-keys", f"{FORMAT}.applies_to", "one task"),
        (
            GOOD.replace("rows: 10", "metric: {gsm8k: answer_format}"),
            "unknown-task",
            "evaluation.metric.gsm8k",
            "a metric by task, for one task",
        ),
        (MIXED + "task: {name: gsm8k}\n", "conflicting-keys", "tasks", "both"),
        (MIXED.replace("weight: 3, ", ""), "missing-key", "tasks", "a weight for one of two"),
        (MIXED.replace("weight: 3", "weight: 0"), "out-of-range", "tasks.gsm8k.weight", "a task that is never drawn"),
        (MIXED.replace("label: own", "label: gsm8k"), "duplicate-task", "tasks", "one label for two"),
        (MIXED.replace("label: own", "label: a/b"), "wrong-type", "tasks.jsonl.label", "no part of a metric's name"),
        (MIXED.replace("name: jsonl, ", ""), "wrong-type", "tasks.2", "an entry without a name"),
        (
            MIXED.replace("rewards:", "rewards:\n  - {name: x, applies_to: [gsmk8]}"),
            "unknown-task",
            "rewards.x.applies_to",
            "a typo",
        ),
        (MIXED.replace("[own]", "own"), "wrong-type", "rewards.code_execution.applies_to", "a word for a list"),
        (
            MIXED.replace("    applies_to: [own]", "    applies_to: [own]\n    weight: 0"),
            "task-without-reward",
            "rewards",
            "nothing to learn",
        ),
        (
            MIXED.replace("gate: math_correctness, ", "gate: code_execution, "),
            "conflicting-keys",
            f"{FORMAT}.gate",
            "a gate that is never there",
        ),
        (
            MIXED.replace("own: code", "own: math").replace("math_execution", "math_correctness"),
            "conflicting-keys",
            "evaluation.metric.own",
            "a metric that does not apply",
        ),
        (
            MIXED.replace("rows: 10", "reference: {score: 0.5, source: x}"),
            "conflicting-keys",
            "evaluation.reference",
            "the score of one task",
        ),
    ],
)
def test_a_faulty_recipe_is_refused_with_the_key(write_yaml: Write, text: str, kind: str, key: str, why: str) -> None:
    with input_error(kind, key, why=why):
        load_recipe(write_yaml(text))


def test_further_checks_of_one_task_see_all_its_rewards(write_yaml: Write) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write_yaml(GOOD.replace("weight: 0.5", "applies_to: [x]")))
    assert caught.value.rest is not None and all(one.applies("") for one in caught.value.rest.rewards)


def test_an_unknown_key_comes_with_its_line_and_the_nearest_known_key(write_yaml: Write) -> None:
    path = write_yaml(GOOD + "learnig_rate: 1\n")
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    [problem] = caught.value.problems
    assert problem.as_dict() == {
        "message": f"{path}, line 13: learnig_rate is not a recipe key. Did you mean learning_rate?",
        "kind": "unknown-key",
        "key": "learnig_rate",
        "path": str(path),
        "line": 13,
        "level": "error",
        "suggestion": "learning_rate",
    }


def test_a_usual_name_of_another_program_comes_with_ours(write_yaml: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(GOOD + "".join(f"{name}: 1\n" for name in usual_names())))
    suggested = {problem.key: problem.suggestion for problem in caught.value.problems}
    assert suggested == usual_names()
    assert set(suggested.values()) <= {*schema.fields(), *SECTIONS} and not set(suggested) & set(schema.fields())


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_that_is_no_utf_8_is_refused_with_the_line(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "r.yaml").write_bytes("seed: 1  # größer\n".encode(encoding))
    with pytest.raises(InputError) as caught:
        load_recipe(tmp_path / "r.yaml")
    [problem] = caught.value.problems
    assert (problem.kind, problem.line) == ("invalid-yaml", 1) and "UTF-8" in problem.message


def test_lines_that_end_as_on_windows_are_lines(write_yaml: Write) -> None:
    path = write_yaml(GOOD)
    expected = load_recipe(path)
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert load_recipe(path) == expected


def test_one_pass_finds_all_problems(write_yaml: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(GOOD + "learnig_rate: 1\nmax_steps: many\ntorch_dtype: x\n"))
    assert [problem.key for problem in caught.value.problems] == ["learnig_rate", "max_steps", "torch_dtype"]
    assert len(str(caught.value).splitlines()) == 3


def test_a_recipe_of_the_project_is_suggested_by_its_bare_name() -> None:
    with input_error("recipe-not-found", match="demo-programs.yaml"):
        load_recipe("demo-programs")


@pytest.mark.parametrize("name", ["gsm8k-qlra.yaml", "."], ids=["a typo", "a folder"])
def test_a_missing_recipe_names_its_neighbours(write_yaml: Write, tmp_path: Path, name: str) -> None:
    write_yaml(GOOD, "gsm8k-qlora.yaml")
    with input_error("recipe-not-found", match="gsm8k-qlora.yaml"):
        load_recipe(tmp_path / name)


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
        (["--run_name", "-----BEGIN KEY-----"], [("run_name", "-----BEGIN KEY-----")]),
    ],
)
def test_overrides_are_read_as_yaml(words: list[str], found: list[tuple[str, object]]) -> None:
    assert parse_overrides(words, []) == found


@given(st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_survives_the_command_line(value: object) -> None:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    assert parse_overrides([f"--key={text}"], []) == [("key", value)]


def test_overrides_reach_sections_and_rewards_by_name(write_yaml: Write) -> None:
    words = ["--task.shots", "2", "--rewards.answer_format.weight", "0.1", "--evaluation.rows", "5", "--seed", "7"]
    recipe = load_recipe(write_yaml(GOOD), [*words, "--rewards.answer_format.options.pattern", "y"])
    assert recipe.tasks[0].options["shots"] == 2
    assert recipe.rewards[1].weight == 0.1 and recipe.rewards[1].options == {"pattern": "y"}
    assert recipe.evaluation is not None and recipe.evaluation.rows == 5
    assert recipe.settings["seed"] == 7


@pytest.mark.parametrize(
    ("words", "kind", "key"),
    [
        (["--sead", "1"], "unknown-key", "sead"),
        (["--seed", "x"], "wrong-type", "seed"),
        (["--rewards.nothing.weight", "1"], "invalid-override", "rewards.nothing.weight"),
        (["--rewards.weight", "1"], "invalid-override", "rewards.weight"),
        (["--seed.x", "1"], "invalid-override", "seed.x"),
        (["stray"], "invalid-override", None),
        (["--seed", "[1"], "invalid-override", "seed"),
        (["--seed", "&a [*a]"], "invalid-override", "seed"),
    ],
)
def test_faulty_overrides_are_refused(write_yaml: Write, words: list[str], kind: str, key: str | None) -> None:
    with input_error(kind, key):
        load_recipe(write_yaml(GOOD), words)


def test_a_name_of_two_tasks_is_no_key_of_an_override(write_yaml: Write) -> None:
    text = MIXED.replace("name: gsm8k, weight", "name: jsonl, label: gsm8k, path: y.jsonl, weight")
    with input_error("invalid-override", "tasks.jsonl.weight"):
        load_recipe(write_yaml(text), ["--tasks.jsonl.weight", "2"])


def test_a_stray_word_hides_no_other_error_of_the_command_line(write_yaml: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(GOOD), ["stray", "--sead", "1", "--beta", "[1", "--max_steps", "five", "--optim"])
    assert {problem.key for problem in caught.value.problems} == {None, "sead", "beta", "max_steps", "optim"}


def test_a_reward_in_a_short_list_has_its_line(write_yaml: Write) -> None:
    recipe = load_recipe(write_yaml(HEAD + "rewards:\n  - math_correctness\n  - answer_format\n"))
    first, second = (recipe.lines[f"rewards.{one.name}"] for one in recipe.rewards)
    assert first and second and second.number == first.number + 1


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ([], "recipe"),
        (["--seed", "42"], "recipe"),
        (["--seed", "7"], "recipe-seed7"),
        (["--beta", "1"], "recipe"),
        (["--output_dir", ""], "recipe"),
    ],
)
def test_runs_with_other_seeds_have_folders_of_their_own(write_yaml: Write, words: list[str], folder: str) -> None:
    """A sweep over seeds may run at the same time."""
    assert load_recipe(write_yaml(GOOD), words).output_dir == Path("runs") / folder


@pytest.mark.parametrize(
    ("name", "file", "why"),
    [
        ("x.py", "recipes/x.py", "beside the recipe"),
        ("rewards/x.py", "recipes/rewards/x.py", "in a folder beside the recipe"),
        ("rewards/x.py:other", "rewards/x.py", "beside the folder of recipes; another function"),
        ("x", "rewards/x.py", "a bare name"),
        ("rewards/math_correctness.py", str(ROOT / "rewards/math_correctness.py"), "in the project"),
    ],
)
def test_a_reward_file_is_found_with_the_recipe_from_any_directory(
    write_yaml: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str, why: str
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    reward = f"rewards: [{{name: {name}}}, {{name: answer_format, gate: {name}}}]\nevaluation: {{metric: {name}}}\n"
    recipe = load_recipe(write_yaml(HEAD + reward, "recipes/r.yaml"))
    located = f"{tmp_path / file}{name[name.find(':') :] if ':' in name else ''}"
    assert recipe.rewards[0].name == recipe.rewards[1].gate == located, why
    assert recipe.lines[f"rewards.{located}.name"] == recipe.lines["rewards"], "messages name the line"
    assert recipe.evaluation is not None and recipe.evaluation.metric == located and recipe.task_name == "gsm8k"

    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards").mkdir(exist_ok=True)
    (tmp_path / "rewards/x.py").touch()
    (tmp_path / "x.py").touch()
    if name.startswith(("x", "rewards/x")):
        assert load_recipe(tmp_path / "recipes/r.yaml").rewards[0].name == name, "the working directory comes first"


@pytest.mark.parametrize(
    ("lines", "words", "engine", "why"),
    [
        ("", [], ("transformers", None), "as before"),
        ("rollouts: auto", [], ("auto", None), "the run decides"),
        ("rollouts: vllm", [], ("vllm", True), "TRL reads use_vllm"),
        ("use_vllm: true", [], ("vllm", True), "TRL's key alone"),
        ("rollouts: auto\nuse_vllm: false", [], ("transformers", False), "use_vllm wins over auto"),
        ("rollouts: vllm", ["--use_vllm", "false"], ("transformers", False), "the command line wins"),
        ("use_vllm: true", ["--rollouts", "auto"], ("auto", None), "either way"),
        ("rollouts: vllm\nuse_vllm: false", [], None, "contradiction"),
        ("", ["--rollouts", "transformers", "--use_vllm", "true"], None, "contradiction on the command line"),
    ],
)
def test_rollouts_and_use_vllm_say_the_same(
    write_yaml: Write, lines: str, words: list[str], engine: tuple[str, bool | None] | None, why: str
) -> None:
    path = write_yaml(f"{GOOD}{lines}\n")
    if engine is None:
        with input_error("conflicting-keys", "use_vllm", why=why):
            load_recipe(path, words)
    else:
        settings = load_recipe(path, words).settings
        assert (settings["rollouts"], settings.get("use_vllm")) == engine, why


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD, ["--seed", "7", "--task.shots", "3", "--evaluation.reference", "{score: 0.25, source: 'us, 2026'}"]),
        (MIXED, ["--tasks.gsm8k.shots", "3", "--tasks.own.weight", "2"]),
    ],
)
def test_a_written_recipe_loads_as_itself(write_yaml: Write, tmp_path: Path, text: str, words: list[str]) -> None:
    recipe = load_recipe(write_yaml(text), words)
    assert recipe.tasks[0].options["shots"] == 3 and [task.weight for task in recipe.tasks] in ([None], [3.0, 2.0])
    write_recipe(recipe, tmp_path / "resolved.yaml")
    again = load_recipe(tmp_path / "resolved.yaml")
    assert again.as_dict() == recipe.as_dict() and again.evaluation == recipe.evaluation


def test_a_gate_by_the_name_of_a_file_is_told_its_path(write_yaml: Write) -> None:
    text = GOOD.replace("name: math_correctness", "name: own/part.py").replace("gate: math_correctness", "gate: part")
    with pytest.raises(InputError) as caught:
        load_recipe(write_yaml(text))
    assert [(one.kind, one.suggestion) for one in caught.value.problems] == [("unknown-reward", "own/part.py")]
