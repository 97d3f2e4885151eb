"""scripts/red_team.py: exit codes and the JSON. The attacks: tests/rlvr/reward_audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.red_team import main
from tests.conftest import REPOSITORY
from tests.support.report_runs import write_run

DEMO = str(REPOSITORY / "recipes" / "demo-arithmetic.yaml")
FEW_ROWS = ("--task.train_rows", "96", "--task.test_rows", "1")
BROKEN = """
def part(completions, *, final_answer, **kwargs):
    texts = [completion[-1]["content"] for completion in completions]
    return [float(gold in text) for text, gold in zip(texts, final_answer)]
"""


@pytest.mark.slow
def test_a_broken_reward_is_exit_code_1_and_in_the_folder_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(BROKEN)
    run = write_run(tmp_path / "run", base=[False] * 4, trained=[True] * 4)
    rewards = f"[{{name: {tmp_path / 'part.py'}}}]"
    words = ("--config", DEMO, *FEW_ROWS, "--rewards", rewards, "--run_dir", str(run))
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == json.loads((run / "red_team.json").read_text())
    assert found["verdict"] == "broken" and found["found"][0]["paid"]["part"] > 0.5


@pytest.mark.slow
def test_rewards_that_hold_on_each_of_mixed_tasks_are_exit_code_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(
        "model_name_or_path: m\n"
        "tasks: [{name: arithmetic, train_rows: 96, weight: 1}, {name: countdown, train_rows: 96, weight: 1}]\n"
        "rewards: [{name: math_correctness, applies_to: [arithmetic]}, {name: countdown, applies_to: [countdown]}]\n"
    )
    assert main(["--config", str(recipe), "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["verdicts"] == {"arithmetic": "holds", "countdown": "holds"}
    assert capsys.readouterr().out.count("Verdict: holds") == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--config", "no-such.yaml"), "no recipe"),
        (("--config", DEMO, "--run_dir", "no-such-run"), "no run"),
        (("--config", DEMO, "--rewards", "[no_such_reward]"), "no reward"),
        (
            (
                "--config",
                str(REPOSITORY / "recipes" / "mbpp-repair-qwen3-1.7b-qlora.yaml"),
                "--task.name",
                "arithmetic",
                "--rewards",
                "[environment]",
            ),
            "nothing but an environment's reward",
        ),
    ],
)
def test_bad_input_is_exit_code_2(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2, why
    assert capsys.readouterr().err.strip(), why
