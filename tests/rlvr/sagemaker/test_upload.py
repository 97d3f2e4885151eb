"""The uploaded files: the training program, its recipe and its data, and nothing else and nothing secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.sagemaker.secret_scan import find_secrets
from rlvr.sagemaker.upload import INPUT, PROJECT, JobFiles, UploadFile, collect_files

DEMO = PROJECT / "recipes" / "demo-arithmetic.yaml"
JSONL = ["--task", "{name: jsonl, path: rows.jsonl}"]
REWARD = "def mine(prompts, completions, **kwargs):\n    return [0.0] * len(completions)\n"
# Built here, so that a scanner of this repository finds nothing.
TOKEN = "hf_" + "aB3" * 12


def packed(folder: Path, words: Sequence[str] = (), environment: dict[str, str] | None = None) -> JobFiles:
    return collect_files(load_recipe(DEMO, words), environment or {}, folder)


def in_channel(files: JobFiles, channel: str) -> list[UploadFile]:
    return [file for file in files.files if file.channel == channel]


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder outside the project, with data in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text('{"question": "1+1?", "final_answer": "2"}\n', encoding="utf-8")
    return folder


def test_only_the_training_program_is_uploaded_of_the_project(tmp_path: Path) -> None:
    files = packed(tmp_path)
    tops = {file.name.split("/")[0] for file in files.files}
    assert tops == {
        "run_grpo.py",
        "rlvr",
        "rewards",
        "tasks",
        "environments",
        "accelerate_configs",
        "scripts",
        "models",
        "recipe.yaml",
        "requirements.txt",
        "job-constraints.txt",
        "vllm-constraints.txt",
        "job.env",
    }
    assert not files.problems, "the project itself has no secret"
    assert {file.name for file in files.files if file.name.startswith("models/")} >= {
        "models/tiny-arithmetic/config.json",
        "models/tiny-arithmetic/model.safetensors",
    }
    assert not [file.name for file in files.files if "__pycache__" in file.name or file.name.endswith(".pyc")]
    assert sum(file.size for file in files.files) < 10 * 2**20


@pytest.mark.parametrize(
    ("rollouts", "is_installed", "note"),
    [("transformers", False, ""), ("auto", False, ""), ("vllm", True, "about 1 GB")],
)
def test_a_job_installs_vllm_if_its_recipe_says_so(
    tmp_path: Path, rollouts: str, is_installed: bool, note: str
) -> None:
    files = packed(tmp_path, ["--rollouts", rollouts])
    assert ("vllm-requirements.txt" in {file.name for file in files.files}) == is_installed
    assert any(note in each for each in files.notes)
    assert files.recipe.settings["rollouts"] == rollouts, "the job decides what auto means"


def test_the_containers_first_programs_are_uploaded_unchanged(tmp_path: Path) -> None:
    sources = {file.name: file.source for file in packed(tmp_path).files}
    for name in ("run_grpo.py", "scripts/run_finetuning.sh", "rlvr/sagemaker/container/pid1.py"):
        assert sources[name].read_bytes() == (PROJECT / name).read_bytes()


def test_the_uploaded_recipe_is_the_resolved_one(tmp_path: Path) -> None:
    files = packed(tmp_path, ["--learning_rate", "5e-4", "--sagemaker.instance_type", "ml.m5.large"])
    uploaded = load_recipe(files.code / "recipe.yaml")
    assert uploaded.settings["learning_rate"] == 5e-4
    assert uploaded.sagemaker is None
    assert uploaded.as_dict() == {**files.recipe.as_dict(), "output_dir": files.recipe.settings["output_dir"]}


def test_a_data_file_gets_a_channel_and_the_recipe_names_its_path_there(tmp_path: Path, working_folder: Path) -> None:
    files = packed(tmp_path, JSONL)
    (file,) = in_channel(files, "data")
    assert file.source.read_bytes() == (working_folder / "rows.jsonl").read_bytes()
    assert files.recipe.tasks[0].options["path"] == f"{INPUT}/data/{file.name}"


def test_a_data_folder_is_uploaded_without_caches_and_version_control(tmp_path: Path, working_folder: Path) -> None:
    for name in ("data/train.jsonl", "data/sub/test.jsonl", "data/.git/x", "data/.env", "data/__pycache__/x.pyc"):
        (working_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (working_folder / name).write_text("{}\n", encoding="utf-8")
    files = packed(tmp_path, ["--task", "{name: gsm8k, path: data}"])
    root = files.recipe.tasks[0].options["path"].removeprefix(f"{INPUT}/data/")
    assert [file.name.removeprefix(f"{root}/") for file in in_channel(files, "data")] == [
        "train.jsonl",
        "sub/test.jsonl",
    ]


def test_channels_of_the_section_replace_the_tasks_data(tmp_path: Path, working_folder: Path) -> None:
    words = ["--task", "{name: jsonl, path: elsewhere, seed: 3}", "--sagemaker.channels", "{train: s3://b/train}"]
    files = packed(tmp_path, words)
    assert not files.problems and not in_channel(files, "data"), "the data need not be on this machine"
    assert files.recipe.tasks[0].options == {"path": INPUT, "seed": 3}


def test_two_files_of_one_name_get_different_paths(tmp_path: Path, working_folder: Path) -> None:
    (working_folder / "held").mkdir()
    (working_folder / "held" / "rows.jsonl").write_text('{"other": 1}\n', encoding="utf-8")
    files = packed(tmp_path, ["--task", "{name: jsonl, path: rows.jsonl, pass_rates: held/rows.jsonl}"])
    names = [file.name for file in in_channel(files, "data")]
    assert len(set(names)) == len(names) == 2
    assert {files.recipe.tasks[0].options[key] for key in ("path", "pass_rates")} == {
        f"{INPUT}/data/{name}" for name in names
    }


def test_the_data_of_each_task_of_a_mixture_is_uploaded(tmp_path: Path, working_folder: Path) -> None:
    tasks = "[{name: jsonl, label: one, path: rows.jsonl}, {name: jsonl, label: other, path: rows.jsonl}]"
    files = packed(tmp_path, ["--task", "null", "--tasks", tasks])
    names = [file.name for file in in_channel(files, "data")]
    assert len(set(names)) == 2 and not files.problems
    job = load_recipe(files.code / "recipe.yaml")
    assert [part.options["path"] for part in job.tasks] == [f"{INPUT}/data/{name}" for name in names]
    assert [part.label for part in job.tasks] == ["one", "other"]


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["openai/gsm8k", "AI-MO/NuminaMath-1.5", "someone/rows-v0.2-clean"])
def test_a_dataset_of_the_hub_is_not_uploaded(tmp_path: Path, dataset: str) -> None:
    files = packed(tmp_path, ["--task", f"{{name: jsonl, path: {dataset}}}"])
    assert files.recipe.tasks[0].options["path"] == dataset and not files.problems


@pytest.mark.slow
def test_missing_data_is_a_problem(tmp_path: Path, working_folder: Path) -> None:
    (problem,) = packed(tmp_path, ["--task", "{name: jsonl, path: row.jsonl}"]).problems
    assert (problem.kind, problem.key, problem.path) == ("file-not-found", "task.path", "row.jsonl")


@pytest.mark.slow
def test_a_reward_file_is_uploaded_and_renamed_in_the_recipe(tmp_path: Path, working_folder: Path) -> None:
    (working_folder / "mine.py").write_text(REWARD, encoding="utf-8")
    rewards = "[{name: mine.py, weight: 1}, {name: math_correctness, gate: mine.py}]"
    files = packed(tmp_path, ["--rewards", rewards, "--evaluation.metric", "mine.py"])
    first, second = files.recipe.rewards
    assert (first.name, second.gate) == ("plugins/mine.py", "plugins/mine.py")
    assert files.recipe.evaluation is not None and files.recipe.evaluation.metric == "plugins/mine.py"
    assert (files.code / "plugins" / "mine.py").read_text() == REWARD
    assert not files.problems


@pytest.mark.slow
def test_a_reward_in_the_working_folder_takes_precedence_over_the_projects(
    tmp_path: Path, working_folder: Path
) -> None:
    (working_folder / "rewards").mkdir()
    (working_folder / "rewards" / "answer_format.py").write_text(REWARD, encoding="utf-8")
    assert (packed(tmp_path).code / "rewards" / "answer_format.py").read_text() == REWARD


def test_a_local_model_gets_a_channel(tmp_path: Path, working_folder: Path) -> None:
    (working_folder / "my-model").mkdir()
    (working_folder / "my-model" / "config.json").write_text("{}", encoding="utf-8")
    files = packed(tmp_path, ["--model_name_or_path", "my-model"])
    assert [file.name for file in in_channel(files, "model")] == ["config.json"]
    assert files.recipe.settings["model_name_or_path"] == f"{INPUT}/model"


def test_a_secret_in_a_models_folder_is_found(tmp_path: Path, working_folder: Path) -> None:
    (working_folder / "my-model").mkdir()
    for name, text in (("config.json", "{}"), ("train.sh", f"HF_TOKEN={TOKEN}\n"), ("model.safetensors", TOKEN)):
        (working_folder / "my-model" / name).write_text(text, encoding="utf-8")
    problems = packed(tmp_path, ["--model_name_or_path", "my-model"]).problems
    assert [(problem.kind, problem.line) for problem in problems] == [("secret-in-upload", 1)], "no weights are scanned"


def test_a_model_of_the_hub_is_not_uploaded(tmp_path: Path) -> None:
    files = packed(tmp_path, ["--model_name_or_path", "Qwen/Qwen2.5-0.5B"])
    assert files.recipe.settings["model_name_or_path"] == "Qwen/Qwen2.5-0.5B"
    assert not [file.name for file in files.files if file.name.startswith("models/")]


@pytest.mark.slow
def test_mlflow_is_used_only_with_a_server(tmp_path: Path) -> None:
    alone = packed(tmp_path / "a")
    assert alone.recipe.settings["report_to"] == "none"
    assert any("MLflow" in note for note in alone.notes)
    served = packed(tmp_path / "b", environment={"MLFLOW_TRACKING_URI": "arn:aws:sagemaker:x"})
    assert served.recipe.settings["report_to"] == "mlflow"


def test_a_secret_in_a_reward_or_the_recipe_is_found_and_not_repeated(tmp_path: Path, working_folder: Path) -> None:
    (working_folder / "mine.py").write_text(f"{REWARD}\nTOKEN = '{TOKEN}'\n", encoding="utf-8")
    files = packed(tmp_path, ["--rewards", "[{name: mine.py}]", "--run_name", TOKEN])
    assert [(problem.kind, problem.path, problem.line) for problem in files.problems] == [
        ("secret-in-upload", "code/recipe.yaml", line_of(files.code / "recipe.yaml", TOKEN)),
        ("secret-in-upload", "code/plugins/mine.py", 4),
    ]
    assert TOKEN not in "".join(map(str, files.problems))


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), start=1) if text in line)


@pytest.mark.parametrize(
    ("line", "is_secret", "why"),
    [
        (f"HF_TOKEN={TOKEN}", True, "a token of the hub"),
        ("aws_access_key_id = " + "AKIA" + "IOSFODNN7EXAMPLE", True, "a key of AWS"),
        ("x = '" + "ghp_" + "a1B2" * 10 + "'", True, "a token of GitHub"),
        ("-----BEGIN RSA " + "PRIVATE KEY-----", True, "a private key"),
        ("password: 'q7X!r2Lp9Zv4Kt8W'", True, "a random password"),
        ('"api_key": "9f8e7d6c5b4a39281706f5e4d3c2b1a0"', True, "a key in JSON"),
        ("uri: https://me:hunter22@mlflow.example.com", True, "a password in a URL"),
        ("http://{user}:{password}@host:8000 and s3://a:b", False, "a template, and a colon"),
        ("eos_token: <|endoftext|>", False, "a token of a tokenizer"),
        ("pad_token_id: 151643", False, "a number"),
        ("hf_token_secret_arn: arn:aws:secretsmanager", False, "where a secret is kept"),
        ("token_count = sum(lengths_of_completions)", False, "a name in a program"),
        ("secret = read_secret_from_environment()", False, "a call in a program"),
        ("password = os.environ['DATABASE_PASSWORD']", False, "a variable's name"),
    ],
)
def test_secrets_are_distinguished_from_similar_text(tmp_path: Path, line: str, is_secret: bool, why: str) -> None:
    path = tmp_path / "file.txt"
    path.write_text(f"first\n{line}\n", encoding="utf-8")
    problems = [*find_secrets(path, "file.txt")]
    assert bool(problems) == is_secret, why
    assert all((problem.path, problem.line) == ("file.txt", 2) for problem in problems)
