"""The code demonstration: executed programs make the model better (tests/recipes/test_demo.py has the control)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlvr.training.callbacks import read_metrics
from tests.conftest import Command
from tests.recipes.test_demo import evaluation_of

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "recipes" / "demo-programs.yaml"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe as a user would run it, but into a folder of the test."""
    folder = tmp_path_factory.mktemp("programs") / "demo"
    words = ["--config", DEMO, "--output_dir", folder, "--evaluation.rows", "125", "--report_to", "none"]
    result = subprocess.run(
        command("run_grpo", *words),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if " …" not in line] == [], "no warning of any library"
    return folder


def trained_rows(run: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(run / "completions" / "evaluation_trained.parquet").to_pylist())


def test_accuracy_rises_above_ninety_percent_on_problems_never_seen(demo: Path) -> None:
    evaluation = evaluation_of(demo)
    assert evaluation["metric"] == "code_execution"
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 125
    assert 0.15 <= evaluation["base"]["accuracy"] <= 0.35
    assert evaluation["trained"]["accuracy"] >= 0.90
    assert evaluation["difference"]["interval"]["low"] >= 0.50
    assert evaluation["trained"]["rewards"]["code_format"] >= 0.90


def test_both_kinds_of_traps_are_avoided(demo: Path) -> None:
    rows = [row for row in trained_rows(demo) if row["difficulty"] == "trap"]
    for source in ("expression", "sum"):
        right = [row["correct"] for row in rows if row["source"] == source]
        assert len(right) > 25
        assert sum(right) / len(right) >= 0.85, source


def test_the_reward_rises_from_programs_that_were_executed(demo: Path) -> None:
    steps = [line for line in read_metrics(demo / "metrics.jsonl") if "reward" in line]
    first, last = steps[:8], steps[-8:]
    for name in ("rewards/code_execution/mean", "code_execution/verdict_ac"):
        before, after = (sum(line[name] for line in part) / 8 for part in (first, last))
        assert after - before >= 0.1, name
    assert all(line["code_execution/cpu_s"] > 0 for line in steps), "something ran"
    assert not any(line["code_execution/sandbox_errors"] for line in steps)
