"""scripts/red_team.py: exit codes, the JSON and the run's report. The attacks: tests/rlvr/red_team."""

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
def test_a_broken_reward_is_exit_code_1_and_in_the_report_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(BROKEN)
    run = write_run(tmp_path / "run", base=[False] * 4, trained=[True] * 4)
    rewards = f"[{{name: {tmp_path / 'part.py'}}}]"
    words = ("--config", DEMO, *FEW_ROWS, "--rewards", rewards, "--evaluations", "3000", "--run_dir", str(run))
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == json.loads((run / "red_team.json").read_text())
    assert found["verdict"] == "broken" and found["found"][0]["paid"]["part"] > 0.5
    assert "Red team: broken" in (run / "report.html").read_text()


@pytest.mark.slow
def test_the_rewards_of_a_demo_are_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", DEMO, *FEW_ROWS, "--evaluations", "3000"]) == 0
    assert "Verdict: lenient" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--config", "no-such.yaml"), "no recipe"),
        (("--config", DEMO, "--minutes", "0"), "no time"),
        (("--config", DEMO, "--run_dir", "no-such-run"), "no run"),
        (("--config", DEMO, "--rewards", "[no_such_reward]"), "no reward"),
        (("--config", str(REPOSITORY / "recipes" / "mbpp-repair-qwen3-1.7b-qlora.yaml"),
          "--task.name", "arithmetic", "--rewards", "[environment]"), "nothing but an environment's reward"),
    ],
)  # fmt: skip
def test_bad_input_is_exit_code_2(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2, why
    assert capsys.readouterr().err.strip(), why
