"""A run that is stopped or killed while it evaluates goes on where it was, and asks nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from tests.conftest import REPOSITORY, Command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_report")]

ROWS = 24
WORDS = (
    *("--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"), "--load_in_4bit", "false"),
    *("--use_bnb_nested_quant", "false", "--max_steps", "1", "--warmup_steps", "0"),
    *("--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "1", "--report_to", "none"),
    *("--evaluation.rows", str(ROWS), "--evaluation.batch_size", "2"),
)


def keys(run: Path, name: str) -> list[str]:
    lines: list[str] = []
    for path in (run / "answers").glob(f"{name}-[0-9a-f]*.jsonl"):  # without the sampled answers
        lines += path.read_bytes().rpartition(b"\n")[0].decode().splitlines()[1:]
    return [json.loads(line)["key"] for line in lines]


def start_and_send(command: Sequence[str], run: Path, name: str, number: signal.Signals) -> tuple[int, str]:
    """Runs until some answers of a model are there, then sends a signal; returns the exit code and the output."""
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        deadline = time.monotonic() + 300
        while len(keys(run, name)) < 4 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        output = process.communicate(timeout=300)[0]
    return process.returncode, output


def test_an_evaluation_before_and_after_training_survives_interruption(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*WORDS, "--output_dir", str(run)]
    program = command(REPOSITORY / "run_grpo.py", *words)

    code, output = start_and_send(program, run, "base", signal.SIGTERM)
    before = keys(run, "base")
    assert code == 75 and "the same command continues with the evaluation before it" in output, output
    assert 4 <= len(before) < ROWS, "it was stopped in the middle"

    code, output = start_and_send(program, run, "trained", signal.SIGKILL)
    assert code == -signal.SIGKILL and keys(run, "base")[: len(before)] == before, output
    after = keys(run, "trained")
    assert 4 <= len(after) < ROWS, "it was killed in the middle"

    assert run_grpo.main(words) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "a run that was stopped at once leaves nothing behind"
    assert "only the evaluation is left" in capsys.readouterr().out
    assert keys(run, "trained")[: len(after)] == after
    for name in ("base", "trained"):
        answered = keys(run, name)
        assert len(answered) == ROWS and set(Counter(answered).values()) == {1}, "every row was asked once"
    content: dict[str, Any] = json.loads((run / "evaluation.json").read_text())
    assert content["base"]["rows"] == content["trained"]["rows"] == ROWS
