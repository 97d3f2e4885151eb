"""Rewards and tasks are loaded by name, and their options validated."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.errors import InputError
from rlvr.scoring.registry import load_reward, load_rewards, load_task, worker_group
from rlvr.scoring.reward import MODULE_FIX
from tests.support.input_errors import input_error


def reward_file(folder: Path, text: str, name: str = "length_reward.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


LENGTH = """
    def length_reward(prompts, completions, *, final_answer, limit: int = 10, scale: float = 1.0, **kwargs):
        return [scale * float(len(completion) <= limit) for completion in completions]

    def other(completions, **kwargs):
        return [0.5 for _ in completions]
"""


def test_a_file_by_path_is_loaded_and_its_options_bound(tmp_path: Path) -> None:
    path = reward_file(tmp_path, LENGTH)
    reward = load_reward(RewardSpec(str(path), options={"limit": 3, "scale": 2}))
    assert reward(["p", "p"], ["abc", "abcd"], final_answer=["1", "2"], limit=[9, 9]) == [2.0, 0.0]
    assert load_reward(RewardSpec(str(path)))(["p"], ["abc"], final_answer=["1"], limit=[1], scale=[0]) == [1.0]
    assert reward.columns == ("final_answer",)
    assert reward.__name__ == "length_reward"


def test_another_function_of_a_file_is_named_after_a_colon(tmp_path: Path) -> None:
    reward = load_reward(RewardSpec(f"{reward_file(tmp_path, LENGTH)}:other"))
    assert reward(["p"], ["c"]) == [0.5] and reward.label == "other"


def test_a_name_is_looked_for_in_the_working_directory_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rewards").mkdir()
    reward_file(tmp_path / "rewards", LENGTH)
    monkeypatch.chdir(tmp_path)
    file = reward_file(tmp_path, LENGTH).name
    assert [load_reward(RewardSpec(name)).label for name in ("length_reward", file)] == ["length_reward"] * 2


def test_a_dotted_path_takes_a_reward_of_trl() -> None:
    reward = load_reward(RewardSpec("trl.rewards.think_format_reward"))
    chat = [[{"role": "assistant", "content": "<think>\nx\n</think>\ny"}], [{"role": "assistant", "content": "y"}]]
    assert reward([[], []], chat) == [1.0, 0.0]


def test_a_factory_is_called_with_the_options() -> None:
    spec = RewardSpec(
        "trl.rewards.get_soft_overlong_punishment", options={"max_completion_len": 4, "soft_punish_cache": 2}
    )
    assert load_reward(spec)(["p", "p"], ["c", "c"], completion_ids=[[1], [1] * 9]) == [0.0, -1.0]


@pytest.mark.parametrize(
    ("spec", "kind", "fix", "why"),
    [
        (RewardSpec("no_such_reward"), "reward-not-found", "rewards/no_such_reward.py", "a file that isn't there"),
        (RewardSpec("nowhere/at_all.py"), "reward-not-found", "nowhere/at_all.py", "a path that isn't there"),
        (RewardSpec("nowhere/at_all"), "reward-not-found", "path/to/file.py", "a path without its ending"),
        (RewardSpec("no_such_package.reward"), "reward-not-found", "no_such_package", "a package not installed"),
        (RewardSpec("trl.rewards.acuracy_reward"), "reward-not-found", "accuracy_reward", "a function misspelt"),
        (RewardSpec("FILE", options={"limt": 3}), "unknown-option", "limit", "an option misspelt"),
        (RewardSpec("FILE", options={"zzz": 3}), "unknown-option", "limit, scale", "an option that there never was"),
        (RewardSpec("FILE", options={"limit": "3"}), "invalid-option", "limit", "an option of the wrong type"),
        (RewardSpec("FILE:lenght"), "reward-not-found", "lenght", "a function that isn't in the file"),
        (RewardSpec("FILE", options={"final_answer": 3}), "unknown-option", "final_answer", "a column is no option"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_refused(
    tmp_path: Path, spec: RewardSpec, kind: str, fix: str, why: str
) -> None:
    name = spec.name.replace("FILE", str(reward_file(tmp_path, LENGTH)))
    with input_error(kind, match=re.escape(fix), why=why):
        load_reward(RewardSpec(name, options=spec.options))


@pytest.mark.parametrize(
    ("text", "said", "why"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'", "an import that fails"),
        ("import no_such_module\n", MODULE_FIX, "its fix"),
        ("def f(:\n", "SyntaxError", "a file that is no Python"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", "a file that would end the run without a word"),
        ("def g():\n    return 1 / 0\ng()\n", "ZeroDivisionError", "code that fails when it is run"),
    ],
)
def test_a_file_that_fails_to_import_shows_its_own_traceback(tmp_path: Path, text: str, said: str, why: str) -> None:
    path = reward_file(tmp_path, text, "broken.py")
    with pytest.raises(InputError) as caught:
        load_reward(RewardSpec(str(path)))
    message = str(caught.value)
    assert caught.value.kind == "import-failed" and said in message and str(path.name) in message, why
    assert "registry.py" not in message and "importlib" not in message, "our own frames say nothing to its author"


def test_a_file_beside_a_reward_is_imported_after_its_folder_is_put_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "my_neighbour.py").write_text("def value():\n    return 0.5\n")
    lines = MODULE_FIX.split("`")[1]
    text = f"""
import sys
from pathlib import Path
{lines}
from my_neighbour import value

def neighbourly(completions, **kwargs):
    return [value()] * len(completions)
"""
    reward = load_reward(RewardSpec(str(reward_file(tmp_path, text, "neighbourly.py"))))
    assert reward([""], [""]) == [0.5]


@pytest.mark.parametrize(
    ("parameters", "fix"), [("completions", "**kwargs"), ("prompt, completion, **kwargs", "(completions, **kwargs)")]
)
def test_a_reward_with_other_parameters_is_told_which_to_take(tmp_path: Path, parameters: str, fix: str) -> None:
    path = reward_file(tmp_path, f"def narrow({parameters}):\n    return [0.0]\n", "narrow.py")
    with input_error("not-a-reward", match=re.escape(fix)):
        load_reward(RewardSpec(str(path)))


def test_two_rewards_may_not_go_under_one_name(tmp_path: Path) -> None:
    path = reward_file(tmp_path, LENGTH)
    with input_error("duplicate-reward", match="length_reward"):
        load_rewards([RewardSpec(str(path)), RewardSpec(f"{path}:length_reward")])


def test_a_reward_knows_what_another_process_can_make_it_of(tmp_path: Path) -> None:
    spec = RewardSpec(str(reward_file(tmp_path, LENGTH)), weight=0.5, options={"limit": 3}, where="trainer")
    reward = load_reward(spec)
    assert (reward.spec, reward.where, reward.weight) == (spec, "trainer", 0.5)


@pytest.mark.parametrize(
    ("name", "shared", "why"),
    [
        ("code_execution", "judgements", "it runs programs"),
        ("code_tiered", "judgements", "so does this"),
        ("code_quality", "judgements", "and this"),
        ("code_format", None, "it runs none"),
        ("trl.rewards.think_format_reward", None, "nor do those of others"),
    ],
)
def test_rewards_that_judge_programs_share_what_they_judged(name: str, shared: str | None, why: str) -> None:
    assert worker_group(load_reward(RewardSpec(name)).function) == shared, why


@pytest.mark.parametrize("split", ["None", "[{'prompt': '1 + 1?'}]"])
def test_a_split_that_is_no_dataset_is_refused(split: str, tmp_path: Path) -> None:
    text = (
        f"from rlvr import Task\n\ndef my_task():\n    return Task(train={split}, validation={split}, test={split})\n"
    )
    with input_error("not-a-task", match="split train"):
        load_task(TaskSpec(str(reward_file(tmp_path, text, "my_task.py"))))


def test_a_task_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    path = reward_file(tmp_path, "from rlvr import Task\n\ndef my_task():\n    return Task(train=[])\n", "my_task.py")
    with input_error("task-failed", match=f'{path}", line 4'):
        load_task(TaskSpec(str(path)))


def test_a_task_gets_its_options_and_must_return_a_task(tmp_path: Path) -> None:
    path = reward_file(tmp_path, "def my_task(*, rows: int = 3):\n    return rows\n", "my_task.py")
    with input_error("not-a-task"):
        load_task(TaskSpec(str(path)))
    with input_error("unknown-option", "row", match="rows"):
        load_task(TaskSpec(str(path), {"row": 3}))
