"""What travels to a job: the training program, its recipe and its data, and never anything else or anything secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.sagemaker.secret_scan import secrets_in
from rlvr.sagemaker.upload import INPUT, PROJECT, Parcel, pack

DEMO = PROJECT / "recipes" / "demo-arithmetic.yaml"
JSONL = ["--task", "{name: jsonl, path: rows.jsonl}"]
REWARD = "def mine(prompts, completions, **kwargs):\n    return [0.0] * len(completions)\n"
# Built here, so that a scanner of this repository finds nothing.
TOKEN = "hf_" + "aB3" * 12


def packed(folder: Path, words: Sequence[str] = (), environment: dict[str, str] | None = None) -> Parcel:
    return pack(load_recipe(DEMO, words), environment or {}, folder)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that one works in, outside the project, with data in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text('{"question": "1+1?", "final_answer": "2"}\n', encoding="utf-8")
    return folder


def test_the_training_program_travels_and_nothing_else_of_the_project(tmp_path: Path) -> None:
    parcel = packed(tmp_path)
    tops = {file.name.split("/")[0] for file in parcel.files}
    assert tops == {
        "run_grpo.py", "rlvr", "rewards", "tasks", "accelerate_configs", "scripts", "models", "recipe.yaml",
        "requirements.txt", "job-constraints.txt", "job.env",
    }  # fmt: skip
    assert not parcel.faults
    assert {file.name for file in parcel.files if file.name.startswith("models/")} >= {
        "models/tiny-arithmetic/config.json", "models/tiny-arithmetic/model.safetensors",
    }  # fmt: skip
    assert not [file.name for file in parcel.files if "__pycache__" in file.name or file.name.endswith(".pyc")]
    assert sum(file.size for file in parcel.files) < 10 * 2**20


def test_the_files_that_the_container_starts_with_are_there_byte_by_byte(tmp_path: Path) -> None:
    sources = {file.name: file.source for file in packed(tmp_path).files}
    for name in ("run_grpo.py", "scripts/run_finetuning.sh", "rlvr/sagemaker/container/pid1.py"):
        assert sources[name].read_bytes() == (PROJECT / name).read_bytes()


def test_the_recipe_that_travels_is_the_resolved_one(tmp_path: Path) -> None:
    parcel = packed(tmp_path, ["--learning_rate", "5e-4", "--sagemaker.instance_type", "ml.m5.large"])
    there = load_recipe(parcel.code / "recipe.yaml")
    assert there.settings["learning_rate"] == 5e-4
    assert there.sagemaker is None
    assert there.as_dict() == {**parcel.recipe.as_dict(), "output_dir": parcel.recipe.settings["output_dir"]}


def test_a_file_of_data_travels_in_a_channel_and_the_recipe_points_to_it(tmp_path: Path, elsewhere: Path) -> None:
    parcel = packed(tmp_path, JSONL)
    (file,) = parcel.of("data")
    assert file.source.read_bytes() == (elsewhere / "rows.jsonl").read_bytes()
    assert parcel.recipe.task.options["path"] == f"{INPUT}/data/{file.name}"


def test_a_folder_of_data_travels_whole_but_for_what_is_nobodys_data(tmp_path: Path, elsewhere: Path) -> None:
    for name in ("data/train.jsonl", "data/sub/test.jsonl", "data/.git/x", "data/.env", "data/__pycache__/x.pyc"):
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text("{}\n", encoding="utf-8")
    parcel = packed(tmp_path, ["--task", "{name: gsm8k, path: data}"])
    root = parcel.recipe.task.options["path"].removeprefix(f"{INPUT}/data/")
    assert [file.name.removeprefix(f"{root}/") for file in parcel.of("data")] == ["train.jsonl", "sub/test.jsonl"]


def test_two_files_of_one_name_do_not_meet(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "held").mkdir()
    (elsewhere / "held" / "rows.jsonl").write_text('{"other": 1}\n', encoding="utf-8")
    parcel = packed(tmp_path, ["--task", "{name: jsonl, path: rows.jsonl, test_path: held/rows.jsonl}"])
    names = [file.name for file in parcel.of("data")]
    assert len(set(names)) == len(names) == 2
    assert {parcel.recipe.task.options[key] for key in ("path", "test_path")} == {
        f"{INPUT}/data/{name}" for name in names
    }


def test_a_dataset_of_the_hub_stays_one(tmp_path: Path) -> None:
    parcel = packed(tmp_path, ["--task", "{name: jsonl, path: openai/gsm8k}"])
    assert parcel.recipe.task.options["path"] == "openai/gsm8k" and not parcel.faults


def test_data_that_is_not_there_is_said(tmp_path: Path, elsewhere: Path) -> None:
    (fault,) = packed(tmp_path, ["--task", "{name: jsonl, path: row.jsonl}"]).faults
    assert fault.startswith("task: path: there is no file or folder row.jsonl")


def test_a_reward_of_ones_own_travels_and_the_recipe_names_it_there(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "mine.py").write_text(REWARD, encoding="utf-8")
    rewards = "[{name: mine.py, weight: 1}, {name: math_correctness, gate: mine.py}]"
    parcel = packed(tmp_path, ["--rewards", rewards, "--evaluation.metric", "mine.py"])
    first, second = parcel.recipe.rewards
    assert (first.name, second.gate) == ("plugins/mine.py", "plugins/mine.py")
    assert parcel.recipe.evaluation is not None and parcel.recipe.evaluation.metric == "plugins/mine.py"
    assert (parcel.code / "plugins" / "mine.py").read_text() == REWARD
    assert not parcel.faults


def test_a_reward_in_the_folder_that_one_works_in_wins_over_the_projects(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "rewards").mkdir()
    (elsewhere / "rewards" / "answer_format.py").write_text(REWARD, encoding="utf-8")
    assert (packed(tmp_path).code / "rewards" / "answer_format.py").read_text() == REWARD


def test_a_reward_that_would_be_missing_in_the_job_is_said(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "homemade").mkdir()
    (elsewhere / "homemade" / "__init__.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.syspath_prepend(str(elsewhere))
    (fault,) = packed(tmp_path, ["--rewards", "[{name: homemade.mine}]"]).faults
    assert "homemade" in fault and "does not travel" in fault


def test_a_model_from_elsewhere_travels_in_a_channel_of_its_own(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "my-model").mkdir()
    (elsewhere / "my-model" / "config.json").write_text("{}", encoding="utf-8")
    parcel = packed(tmp_path, ["--model_name_or_path", "my-model"])
    assert [file.name for file in parcel.of("model")] == ["config.json"]
    assert parcel.recipe.settings["model_name_or_path"] == f"{INPUT}/model"


def test_a_model_of_the_hub_stays_one(tmp_path: Path) -> None:
    parcel = packed(tmp_path, ["--model_name_or_path", "Qwen/Qwen2.5-0.5B"])
    assert parcel.recipe.settings["model_name_or_path"] == "Qwen/Qwen2.5-0.5B"
    assert not [file.name for file in parcel.files if file.name.startswith("models/")]


def test_mlflow_is_reported_to_only_where_it_has_a_server(tmp_path: Path) -> None:
    alone = packed(tmp_path / "a")
    assert alone.recipe.settings["report_to"] == "none"
    assert any("MLflow" in note for note in alone.notes)
    served = packed(tmp_path / "b", environment={"MLFLOW_TRACKING_URI": "arn:aws:sagemaker:x"})
    assert served.recipe.settings["report_to"] == "mlflow"


def test_the_project_itself_holds_no_secret(tmp_path: Path) -> None:
    assert not [fault for fault in packed(tmp_path).faults if "line" in fault]


def test_a_secret_in_a_reward_or_in_the_recipe_is_found_and_not_repeated(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "mine.py").write_text(f"{REWARD}\nTOKEN = '{TOKEN}'\n", encoding="utf-8")
    parcel = packed(tmp_path, ["--rewards", "[{name: mine.py}]", "--run_name", TOKEN])
    assert [fault.split(":")[0] for fault in parcel.faults] == [
        f"code/recipe.yaml, line {line_of(parcel.code / 'recipe.yaml', TOKEN)}",
        "code/plugins/mine.py, line 4",
    ]
    assert TOKEN not in "".join(parcel.faults)


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
        ("eos_token: <|endoftext|>", False, "a token of a tokenizer"),
        ("pad_token_id: 151643", False, "a number"),
        ("hf_token_secret_arn: arn:aws:secretsmanager", False, "where a secret is kept"),
        ("token_count = sum(lengths_of_completions)", False, "a name in a program"),
        ("secret = read_secret_from_environment()", False, "a call in a program"),
        ("password = os.environ['DATABASE_PASSWORD']", False, "a variable's name"),
    ],
)
def test_secrets_are_told_from_words_that_look_like_some(tmp_path: Path, line: str, is_secret: bool, why: str) -> None:
    path = tmp_path / "file.txt"
    path.write_text(f"first\n{line}\n", encoding="utf-8")
    found = secrets_in(path, "file.txt")
    assert bool(found) == is_secret, why
    assert all(sentence.startswith("file.txt, line 2: ") for sentence in found)


def test_a_binary_file_is_not_read_for_secrets(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"\0" + TOKEN.encode())
    assert secrets_in(path, "weights") == []
