"""The commands of the README and the quickstart are accepted as written.

The bundled model stands in for models of the hub, `--check` for training on a GPU, and `plan` for AWS. Installation
lines are left out. tests/docs/test_docs.py runs the pages rewards and data, and tests/recipes the demos.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

import run_grpo
from scripts import sagemaker
from tests.docs.test_docs import BLOCK, REPOSITORY

TINY = str(REPOSITORY / "models" / "tiny-arithmetic")
INSTALLATION = ("make", "pip", "uv", "python3", ".", "jupyter")
ON_CPU = ("--model_name_or_path", TINY, "--use_cpu", "true", "--dtype", "float32", "--bf16", "false")


def commands_of(page: str) -> list[list[str]]:
    """The words of each command, with the values of shell variables."""
    commands, variables = [], {"ROLE_ARN": "arn:aws:iam::111122223333:role/job", "BUCKET": "my-bucket"}
    blocks = [block for language, block in BLOCK.findall((REPOSITORY / page).read_text("utf-8")) if language == "bash"]
    for line in "".join(blocks).replace("\\\n", "").splitlines():
        for part in line.split(" && "):
            words = [variables.get(word.removeprefix("$"), word) for word in shlex.split(part, comments=True)]
            if words and words[0].startswith("R="):
                variables["R"] = words[0][2:]
            elif words and words[0] not in INSTALLATION:
                commands.append(words)
    return commands


def accept(words: list[str], data: Path, output: Path) -> None:
    """Check what a command would do, and see that it is accepted."""
    if words[:2] == ["accelerate", "launch"]:
        position = words.index("run_grpo.py")
        launcher = Path(words[words.index("--config_file") + 1])
        processes = yaml.safe_load((REPOSITORY / launcher).read_text("utf-8"))["num_processes"]
        target = ["--world_size", str(processes), "--launcher", launcher.stem]
        words = ["python", *words[position:], *target]
    program, script, *rest = words
    assert program == "python" and (REPOSITORY / script).is_file(), words
    if "gsm8k" in " ".join(rest):
        rest += ["--task.path", str(data), "--task.shot_pool", "0", "--task.validation_fraction", "0"]
    rest = [word for word in rest if word not in ("--check", "--profile")]
    if script == "run_grpo.py":
        assert run_grpo.main([*rest, *ON_CPU, "--output_dir", str(output), "--check"]) == 0, words
    elif script == "scripts/sagemaker.py":
        assert rest[0] == "submit" and sagemaker.main(["plan", *rest[1:], "--model_name_or_path", TINY]) == 0, words
    else:
        assert script in ("scripts/make_own_task.py", "scripts/chat.py"), f"how is it tested? {words}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_commands_of_a_page_are_accepted(
    page: str, word_problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts import make_own_task

    (tmp_path / "recipes").symlink_to(REPOSITORY / "recipes")
    monkeypatch.chdir(tmp_path)
    make_own_task.main([])
    commands = commands_of(page)
    assert len(commands) >= 5
    for words in commands:
        accept(words, word_problems, tmp_path / "run")


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md"])
def test_a_pages_own_recipe_and_reward_are_complete(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall((REPOSITORY / page).read_text("utf-8"))
    recipe = next(block for language, block in blocks if language == "yaml" and "my_reward" in block)
    if page == "README.md":
        reward = next(block for language, block in blocks if language == "python")
    else:  # what an address has and a date has not
        reward = (REPOSITORY / "rewards" / "email_address.py").read_text("utf-8")
        reward = reward.replace(' and answer.count("@") == 1', "").replace("def email_address(", "def my_reward(")
    for folder in ("rewards", "data/my-task"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "rewards" / "my_reward.py").write_text(reward)
    (tmp_path / "recipes").mkdir()
    for file in ("base", "gsm8k-qwen2.5-0.5b-instruct-qlora.yaml", "own-task-smollm2-135m-instruct-lora.yaml"):
        (tmp_path / "recipes" / file).symlink_to(REPOSITORY / "recipes" / file)
    (tmp_path / "recipes" / "my_task.yaml").write_text(recipe)
    for split, year, rows in (("train", "", 64), ("test", " 1999", 100)):
        dates = [f"{row % 28 + 1} {('May', 'June', 'July', 'March')[row // 28]}{year}" for row in range(rows)]
        lines = [json.dumps({"text": f"We meet on {date} at the lake.", "final_answer": date}) for date in dates]
        (tmp_path / "data" / "my-task" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    assert run_grpo.main(["--config", "recipes/my_task.yaml", "--check", *ON_CPU]) == 0
    assert "No problems found." in capsys.readouterr().out
