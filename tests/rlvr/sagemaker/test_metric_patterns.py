"""Metrics that CloudWatch reads from the lines of a run."""

from __future__ import annotations

import re

import pytest

from rlvr.sagemaker.request import METRIC_PATTERNS


def read(line: str) -> dict[str, float]:
    """What CloudWatch would take from a line: the first group of each definition that matches."""
    matches = {name: re.search(pattern, line) for name, pattern in METRIC_PATTERNS.items()}
    return {name: float(match[1]) for name, match in matches.items() if match}


def test_the_measurement_before_training_is_read() -> None:
    assert read("  before training: 30.0 % right (95 % interval 14.5 … 51.9)") == {"accuracy_percent": 30.0}


def test_other_lines_have_no_metrics() -> None:
    for line in ("  32 prompts x 8 completions, 60 updates", "reward 0.359 → 0.688 in 3 steps", "loss is great", ""):
        assert read(line) == {}


def test_the_definitions_are_within_the_services_limits() -> None:
    assert len(METRIC_PATTERNS) <= 40
    for pattern in METRIC_PATTERNS.values():
        assert len(pattern) <= 500
        assert re.compile(pattern).groups == 1


def test_the_line_that_the_progress_callback_prints_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The callback itself prints it, so the line and its pattern can't diverge."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from rlvr.training.callbacks import Progress

    arguments = TrainingArguments(output_dir="unused", use_cpu=True)
    state, control = TrainerState(max_steps=120, global_step=0), TrainerControl()
    progress = Progress()
    progress.on_train_begin(arguments, state, control)
    for step, reward in ((1, -0.25), (2, 1.0)):
        state.global_step = step
        logs = {"reward": reward, "completions/mean_length": 123.4, "completions/clipped_ratio": 0.5, "loss": 0.1}
        progress.on_log(arguments, state, control, logs)
    lines = capsys.readouterr().out.splitlines()
    assert [read(line) for line in lines] == [
        {"reward": reward, "completion_length": 123.4, "clipped_percent": 50.0} for reward in (-0.25, 1.0)
    ]
