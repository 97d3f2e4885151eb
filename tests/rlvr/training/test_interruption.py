"""A signal ends a run at a moment at which nothing is lost, and a limit of time is kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import Accelerator
from transformers import TrainerControl, TrainerState, TrainingArguments

from rlvr.training import interruption
from rlvr.training.interruption import LIMIT_VARIABLE, Interrupted, StopRequest, SyncedStopCallback, time_limit
from tests.support.input_errors import input_error


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    stop = StopRequest()
    stop.install_handlers()
    yield stop
    stop.restore_handlers()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_outside_of_training_a_signal_ends_the_run_at_once(stop: StopRequest, number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match="SIGTERM|Ctrl-C"):
        os.kill(os.getpid(), number)


def test_while_training_a_signal_waits_until_somebody_asks(stop: StopRequest) -> None:
    with stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"
    with pytest.raises(Interrupted):
        stop.raise_if_requested()


def test_a_run_that_ends_is_not_interrupted_again(stop: StopRequest) -> None:
    """A launcher sends SIGTERM to the other processes as soon as one has ended, while they say goodbye to MLflow."""
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def test_nor_is_one_that_leaves_its_training(stop: StopRequest) -> None:
    with pytest.raises(Interrupted, match="by another"), stop:
        raise Interrupted("Stopped by another process.")
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_second_ctrl_c_does_not_wait(stop: StopRequest) -> None:
    with stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_two_sigterms_are_one(stop: StopRequest) -> None:
    """A launcher that is told to stop passes it on to processes that were told already."""
    with stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.reason == "SIGTERM"


def test_a_library_that_catches_exceptions_does_not_catch_this_one() -> None:
    assert not issubclass(Interrupted, Exception)


def test_the_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = StopRequest()
    stop.install_handlers()
    assert signal.getsignal(signal.SIGTERM) != before
    stop.restore_handlers()
    assert signal.getsignal(signal.SIGTERM) == before


def test_time_runs_out_when_what_is_needed_does_not_fit() -> None:
    stop = StopRequest(max_runtime_s=100, started=time.monotonic() - 90)
    assert not stop.exceeds_limit(5) and stop.exceeds_limit(15)
    assert not StopRequest().exceeds_limit(1e9)


@pytest.mark.parametrize(
    ("limit_s", "save_s", "ends_after", "why"),
    [
        (590.0, 1.0, 48, "12 generations take 552 s; 1.5 x 40 s and two saves must fit for another"),
        (590.0, 100.0, 32, "a save is expected to take long"),
        (105.0, 1.0, 4, "the second generation does not fit, and the short steps before it do"),
        (100.0, 1.0, 1, "no short step was made yet: the next one may take as long as the first"),
    ],
)
def test_the_next_step_is_judged_by_the_steps_of_its_kind(
    limit_s: float, save_s: float, ends_after: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fourth step generates, for 40 s. The others take 2 s."""
    now = 0.0
    monkeypatch.setattr(interruption, "time", SimpleNamespace(monotonic=lambda: now))
    control, arguments = TrainerControl(), TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    trainer: Any = SimpleNamespace(
        outage_s=0.0, accelerator=Accelerator(cpu=True), checkpoints=SimpleNamespace(expected_save_s=save_s)
    )
    callback = SyncedStopCallback(StopRequest(limit_s, started=0.0), trainer)
    step = 0
    while not control.should_training_stop:
        trainer.next_step_generates = step % 4 == 0
        callback.on_step_begin()
        now += 40 if step % 4 == 0 else 2
        step += 1
        trainer.next_step_generates = step % 4 == 0
        callback.on_step_end(arguments, TrainerState(global_step=step, max_steps=999), control)
    assert step == ends_after, why
    assert now + 2 * save_s <= limit_s


@pytest.mark.parametrize(
    ("recipe", "environment", "limit"),
    [(None, "", None), (60.0, "", 60.0), (None, "30", 30.0), (60.0, "30", 30.0), (20.0, "30", 20.0)],
)
def test_the_smaller_limit_counts(
    recipe: float | None, environment: str, limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, environment)
    assert time_limit(recipe) == limit


@pytest.mark.parametrize("text", ["soon", "0", "-5", "nan"])
def test_a_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    with input_error("invalid-value", LIMIT_VARIABLE):
        time_limit(None)
