"""A run on two tasks with different columns and rewards trains, continues as if never stopped, and measures each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from rlvr.config.specs import TaskSpec
from rlvr.reward_audit.completions import read_completions
from rlvr.scoring.registry import load_task
from tests.conftest import REPOSITORY
from tests.support.dynamic_sampling_runs import FinishedRun

pytestmark = pytest.mark.slow

REWARDS = '''
import os, pathlib, signal
from rlvr import check_answer

def difference(completions, *, gold_difference, digits, trainer_state, log_extra, folder="", **kwargs):
    """1 for a right difference; raises for a row of the other task, and ends the run once if a file says so."""
    end = pathlib.Path(folder) / "end"
    if trainer_state.max_steps == 4 and end.is_file():
        end.unlink()
        os.kill(os.getpid(), signal.SIGTERM)
    verdicts = [check_answer(text, gold) for text, gold in zip(completions, gold_difference, strict=True)]
    assert None not in gold_difference and all(len(value) == 2 for value in digits)
    log_extra("seen", [f"{gold} at step {trainer_state.global_step}" for gold in gold_difference])
    return [float(bool(verdict.correct)) for verdict in verdicts]
'''


def run(folder: Path) -> FinishedRun:
    """Train four steps, of which two have rows of one task alone, in this process; measure six rows of each task."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    kinds = [("plus", "addition", "final_answer", 3), ("minus", "subtraction", "gold_difference", "hard")]
    for label, operation, gold, hard in kinds:
        data = load_task(TaskSpec("arithmetic", {"operations": operation, "train_rows": 24, "test_rows": 6}))
        for split in ("train", "test"):
            more = {"difficulty": hard, **({"digits": [1, 2]} if label == "minus" else {})}
            lines = [{"prompt": row["prompt"], gold: row["final_answer"], **more} for row in data.split(split)]
            path = folder / label / f"{split}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        tasks.append({"name": "jsonl", "label": label, "weight": 1 + (label == "plus"), "path": str(folder / label)})
    (folder / "difference.py").write_text(REWARDS)
    here: dict[str, Any] = {"where": "trainer", "options": {"folder": str(folder)}}
    rewards: list[dict[str, Any]] = [
        {"name": "math_correctness", "applies_to": ["plus"]},
        {"name": f"{folder}/difference.py", "applies_to": ["minus"], **here},
        {"name": "answer_format", "weight": 0.2},
    ]
    words = ["--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"), "--output_dir", str(folder / "run")]
    words += ["--task", "null", "--tasks", json.dumps(tasks), "--rewards", json.dumps(rewards)]
    words += ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--report_to", "none", "--max_steps", "4"]
    words += ["--per_device_train_batch_size", "16", "--save_strategy", "steps", "--save_steps", "2"]
    return FinishedRun(folder, code=run_grpo.main(words))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    finished = run(tmp_path_factory.mktemp("mixed"))
    assert finished.code == 0
    return finished


def test_a_stopped_run_continues_as_if_it_had_not_been(whole: FinishedRun, tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    assert run(tmp_path).code == 75 and len(FinishedRun(tmp_path).lines) == 1
    ended = run(tmp_path)
    assert ended.code == 0
    assert ended.without_clock == whole.without_clock
    assert ended.tables() == whole.tables() and ended.adapter() == whole.adapter()


def test_metrics_are_of_the_rows_that_a_reward_applies_to(whole: FinishedRun) -> None:
    labels = {"math_correctness": "plus", "difference": "minus"}
    for line in whole.lines:
        table = whole.folder / "run" / "completions" / f"completions_{line['step']:05d}.parquet"
        rows = read_completions(str(table)).rows
        own = {label: [row for row in rows if row["task"] == label] for label in labels.values()}
        for reward, label in labels.items():
            values = [row[reward] for row in own[label]]
            assert line.get(f"rewards/{reward}/mean") == (pytest.approx(sum(values) / len(values)) if values else None)
            assert line[f"tasks/{label}/share"] == len(values) / len(rows)
            totals = [row[reward] + 0.2 * row["answer_format"] for row in own[label]]
            assert line.get(f"tasks/{label}/reward") == (pytest.approx(sum(totals) / len(totals)) if totals else None)
        assert line["rewards/unscored_fraction"] == 0 and line["reward"] > 0
        seen = {f"{row['gold_difference']} at step {line['step'] - 1}" for row in own["minus"]}
        assert {row.get("seen") for row in rows} - {None} == seen, "and not what an earlier step logged"


def test_each_task_is_measured_on_its_own(whole: FinishedRun) -> None:
    content = json.loads((whole.folder / "run" / "evaluation.json").read_text())
    tasks = content["tasks"]
    assert {label: (part["metric"], part["base"]["rows"]) for label, part in tasks.items()} == {
        "plus": ("math_correctness", 6),
        "minus": ("difference", 6),
    }
    assert set(tasks["minus"]["trained"]["rewards"]) == {"difference", "answer_format"}
    mean = sum(part["trained"]["accuracy"] for part in tasks.values()) / 2
    assert content["average"]["trained"]["accuracy"] == pytest.approx(mean)
    assert content["trained"]["correct"] == sum(part["trained"]["correct"] for part in tasks.values())
    assert all({"points", "interval", "gained", "lost"} <= part["difference"].keys() for part in tasks.values())
    record = json.loads((whole.folder / "run" / "result.json").read_text())
    assert list(record["task"]["tasks"]) == list(record["evaluation"]["tasks"]) == ["plus", "minus"]
    page = (whole.folder / "run" / "report.html").read_text()
    assert "plus + minus" in page and "task minus" in page
