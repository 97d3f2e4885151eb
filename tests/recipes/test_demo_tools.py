"""The demonstration of tools: a model that mostly guesses learns to call the calculator, and to use what it returns."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import run_grpo
from rlvr.training.callbacks import read_metrics
from scripts import chat
from tests.support.launching import Start, accelerated

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "recipes" / "demo-tools.yaml"
REWARD, CALLS = "rewards/math_correctness/mean", "tools/call_frequency"

pytestmark = pytest.mark.slow

# The control: the same tool, and no answer from it.
SILENT = '''
class Silent:
    def reset(self, **row) -> None:
        """Begin a rollout."""

    def calculate(self, expression: str) -> str:
        """
        Compute an arithmetic expression.

        Args:
            expression: The expression.
        """
        return "done"
'''


def train(folder: Path, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Train the recipe; return the metrics of each step."""
    command = ["--config", str(DEMO), "--output_dir", str(folder / "run"), "--report_to", "none", *words]
    assert run_grpo.main(command) == code
    return [line for line in read_metrics(folder / "run" / "metrics.jsonl") if "reward" in line]


def mean(steps: list[dict[str, Any]], name: str) -> float:
    return float(sum(step[name] for step in steps) / len(steps))


def test_the_model_learns_to_call_the_tool_and_answers_rightly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of the recipe's steps brings most of the gain.
    steps = train(tmp_path, "--max_steps", "20", "--evaluation.rows", "64")
    assert 0.15 <= mean(steps[:3], REWARD) <= 0.45 and mean(steps[:3], CALLS) <= 0.4
    assert mean(steps[-3:], REWARD) >= 0.35, "sampled at temperature 1, where digits are sometimes copied wrongly"
    assert mean(steps[-3:], CALLS) >= 0.6
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["base"]["accuracy"] <= 0.02 and evaluation["trained"]["accuracy"] >= 0.75
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("What is 6 x 7?\n/row 0\n"))
    assert chat.main([str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "needs a row" in captured.err, "an environment begins with a row"
    measured = pd.read_parquet(tmp_path / "run" / "completions" / "evaluation_trained.parquet").iloc[0]
    played = captured.out.partition("\ntrained\n")[2]
    assert f"{measured['tokens']} tokens" in played and ("  right" in played) == measured["correct"]


@pytest.mark.usefixtures("without_report")
def test_without_the_tools_answer_nothing_is_learnt(tmp_path: Path) -> None:
    """The gain comes from what the tool returns, not from training as such. The run ends with exit code 1."""
    (tmp_path / "silent.py").write_text(SILENT, encoding="utf-8")
    steps = train(
        tmp_path,
        "--environment.name",
        str(tmp_path / "silent.py:Silent"),
        *("--max_steps", "3", "--evaluation.rows", "20"),
        code=1,
    )
    assert max(step[REWARD] for step in steps) == 0.0


def test_two_processes_play_rollouts_of_their_own(start: Start, tmp_path: Path) -> None:
    words = [
        *("--config", DEMO, "--max_steps", "2", "--warmup_steps", "0", "--evaluation.rows", "9"),
        *("--per_device_train_batch_size", "32", "--report_to", "none"),
    ]
    launch = start(accelerated("cpu", *words), tmp_path / "run", WITHOUT_REPORT="1").wait()
    assert launch.process.returncode == 0, launch.output()
    table = pd.read_parquet(tmp_path / "run" / "completions" / "completions_00001.parquet")
    called = [len(messages) > 1 for messages in table["completion"]]
    assert len(called) == 2 * 32 and any(called[:32]) and any(called[32:])
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 9
