"""The demonstration: what the README promises of it, and that the gain comes from the verifier."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from rlvr.artifacts.finished_run import open_run
from rlvr.artifacts.result_record import find_faults, read_record
from rlvr.evaluation.dialogue import answer_lines
from scripts import evaluate
from tests.conftest import environment_of_a_user

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"

pytestmark = pytest.mark.slow


def evaluation_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "evaluation.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Demo:
    """One run of the demonstration: its folder, what it printed, and its peak memory in bytes."""

    run: Path
    stdout: str
    stderr: str
    peak_memory: int


def peak_memory(pid: int) -> int:
    """The most memory, in bytes, that a running process has held; 0 once it has ended.

    Not `ru_maxrss`: that one begins with the memory of whoever started the process.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demonstration as `make demo` runs it, but into a folder of the test."""
    runs = tmp_path_factory.mktemp("runs")
    with (runs / "out").open("w") as out, (runs / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "run_grpo.py", "--config", str(DEMO), "--output_dir", str(runs / "demo")],
            cwd=REPOSITORY,
            env=environment_of_a_user(),
            stdout=out,
            stderr=err,
        )
        peak = 0
        while process.poll() is None:
            peak = peak_memory(process.pid) or peak
            time.sleep(0.1)
    demo = Demo(runs / "demo", (runs / "out").read_text(), (runs / "err").read_text(), peak)
    assert process.returncode == 0, demo.stderr
    return demo


@pytest.mark.smoke
def test_accuracy_rises_by_sixty_points_on_problems_never_seen(demo: Demo) -> None:
    evaluation = evaluation_of(demo.run)
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 250
    assert 0.15 <= evaluation["base"]["accuracy"] <= 0.35
    assert evaluation["difference"]["points"] >= 0.60
    assert evaluation["difference"]["interval"]["low"] >= 0.50
    assert evaluation["trained"]["rewards"]["answer_format"] >= 0.90


def test_the_output_is_what_a_newcomer_should_read_and_nothing_else(demo: Demo) -> None:
    assert [line for line in demo.stderr.splitlines() if " …" not in line] == [], "no warning of any library"
    lines = demo.stdout.splitlines()
    assert "models/tiny-arithmetic on arithmetic" in lines[0]
    assert "{" not in demo.stdout, "no dictionaries"
    assert "alarm" not in demo.stdout, "nothing is amiss"
    assert any(line.split()[:1] == ["base"] for line in lines) and any(
        line.split()[:1] == ["trained"] for line in lines
    )
    assert lines[-1].split() == ["report", str(demo.run / "report.html")]


def test_the_run_directory_is_whole(demo: Demo) -> None:
    run = demo.run
    steps = len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    names = {path.name for path in run.iterdir()}
    assert {
        "recipe.yaml",
        "versions.json",
        "run.json",
        "metrics.jsonl",
        "adapter",
        "evaluation.json",
        "result.json",
        "report.html",
    } <= names
    assert find_faults(run, record := read_record(run)) == [] and record.steps == steps
    assert record.tokens["trained"] > record.tokens["generated"] > 20 * 64 * 20
    published = read_record(REPOSITORY / "results" / "demo-arithmetic-seed0.json")
    assert (record.recipe_digest, record.base_digest) == (published.recipe_digest, published.base_digest), (
        "the recipe or its model has changed: measure it again (docs/evaluation.md#records-and-tables-of-runs)"
    )
    completions = {path.name for path in (run / "completions").iterdir()}
    assert {"completions_00001.parquet", f"completions_{steps:05d}.parquet"} <= completions
    assert {"evaluation_base.parquet", "evaluation_trained.parquet"} <= completions


def test_mlflow_has_the_run_in_a_local_store(demo: Demo) -> None:
    import sqlite3

    store = sqlite3.connect(demo.run.parent / "mlflow.db")
    runs = store.execute("select run_uuid, status from runs").fetchall()
    assert [status for _, status in runs] == ["FINISHED"]
    steps = store.execute("select count(*) from metrics where key = 'reward'").fetchone()[0]
    logged = [json.loads(line) for line in (demo.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert steps == sum("reward" in line for line in logged), "asynchronous logging lost nothing"


def test_peak_memory_is_below_two_gigabytes(demo: Demo) -> None:
    assert 100_000_000 < demo.peak_memory < 2_000_000_000


def with_a_carry(run: Path) -> float:
    """Accuracy after training on the problems that need a carry or a borrow, which the base gets all wrong."""
    import pyarrow.parquet as pq

    rows = pq.read_table(run / "completions" / "evaluation_trained.parquet").to_pylist()
    right = [row["correct"] for row in rows if row["difficulty"] == "carry"]
    assert len(right) > 50
    return sum(right) / len(right)


@pytest.mark.usefixtures("without_report")
def test_with_the_format_reward_alone_the_format_is_learnt_and_the_carry_is_not(demo: Demo, tmp_path: Path) -> None:
    """The control: the gain comes from the correctness verifier, not from training as such.

    Only the reward differs. Some accuracy may come with the format, since an answer without its closing line counts as
    wrong.
    """
    words = ["--rewards", "[{name: answer_format}]", "--evaluation.metric", "math_correctness", "--report_to", "none"]
    assert run_grpo.main(["--config", str(DEMO), "--output_dir", str(tmp_path / "run"), *words]) == 0
    evaluation = evaluation_of(tmp_path / "run")
    assert evaluation["trained"]["rewards"]["answer_format"] >= 0.90
    assert evaluation["difference"]["points"] <= 0.25
    assert with_a_carry(tmp_path / "run") <= 0.35 and with_a_carry(demo.run) >= 0.90


def test_the_evaluation_script_finds_what_the_run_found(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One code path: the saved adapter, evaluated by itself, answers every row as it did at the end of the run."""
    words = ["--config", str(DEMO), "--adapter", str(demo.run / "adapter"), "--compare", "base"]
    assert evaluate.main([*words, "--output", str(tmp_path)]) == 0
    found, reported = evaluation_of(tmp_path), evaluation_of(demo.run)
    assert found["base"] == reported["base"] and found["trained"] == reported["trained"]
    assert "trained − base" in capsys.readouterr().out


def test_a_chat_answers_as_the_evaluation_did(demo: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    """One loaded model is both, and verdicts are those of the metric."""
    import pyarrow.parquet as pq

    measured = [
        pq.read_table(demo.run / "completions" / f"evaluation_{side}.parquet").to_pylist()[row]
        for row in (3, 4)
        for side in ("base", "trained")
    ]
    answer_lines(open_run(demo.run), ["/row 3", "/row 999", "/row 4", "What is 41 + 28?"])
    printed = capsys.readouterr()
    rest = printed.out
    for answer in measured:
        _, found, rest = rest.partition(answer["completion"])
        assert found, "in the order of the lines, the base first"
        assert rest.split("\n")[2].strip() == ("right" if answer["correct"] else "wrong")
    _, found, typed = rest.partition("What is 41 + 28?")
    assert found and "right" not in typed and "wrong" not in typed, "no row, no verdict"
    assert len(printed.err.splitlines()) == 1, "a row that there is not"
