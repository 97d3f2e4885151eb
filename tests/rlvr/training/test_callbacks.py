"""What a person sees of a run while it trains: where it is, how long it takes, and what is amiss."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlvr import console
from rlvr.training import callbacks
from rlvr.training.callbacks import Progress


def state(step: int, of: int = 40) -> Any:
    return SimpleNamespace(is_world_process_zero=True, global_step=step, max_steps=of)


def tell(progress: Progress, lines: list[dict[str, Any]], of: int = 40) -> None:
    """A training of which each step logs one line."""
    arguments: Any = None
    progress.on_train_begin(arguments, state(0, of), arguments)
    for step, line in enumerate(lines, start=1):
        progress.on_step_end(arguments, state(step, of), arguments)
        progress.on_log(arguments, state(step, of), arguments, logs=dict(line))
    progress.on_train_end(arguments, state(len(lines), of), arguments)


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still: looking costs nothing, so every line is looked at."""
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_without_a_terminal_every_log_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"reward": 0.25, "completions/mean_length": 30.4, "completions/clipped_ratio": 0.125}
    tell(Progress(), [line, {"loss": 0.1}, line], of=3)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("  step 1/3   reward  0.250   length   30.4   cut off  12 %   ") and "left" in said[0]
    assert said[1].startswith("  step 3/3 ") and said[2] == "  reward 0.25 → 0.25 in 3 steps"
    assert len(said) == 4, "a line without a reward says nothing, and the summary has its two"


def test_on_a_terminal_there_is_one_bar_with_the_reward(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    tell(Progress(), [{"reward": 0.5}] * 4, of=8)
    captured = capsys.readouterr()
    assert "training  50%" in captured.err and "4/8" in captured.err and "reward 0.500" in captured.err
    assert captured.out == "", "a run that is cut short has no summary"


def test_what_is_amiss_is_said_when_it_begins_and_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pauses(monkeypatch)
    well = {"reward": 0.5, "completions/clipped_ratio": 0.0}
    cut = {"reward": 0.5, "completions/clipped_ratio": 1.0}
    tell(Progress(), [well] * 10 + [cut] * 30)
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    warnings = [line for line in said if line.startswith(("warning: ", "alarm: "))]
    assert len(warnings) == 2, "once when it is a warning and once when it is an alarm"
    assert "80 % of the completions are cut off" in warnings[-1] and "no longer ends its answers" in warnings[-1]
    assert said[-1].startswith("alarm since step ")


@pytest.mark.parametrize(
    ("share", "warnings"), [(0.09, 0), (0.6, 1)], ids=["it is over", "it lasts: told once more, by new steps"]
)
def test_a_run_that_continues_is_judged_by_its_steps_since_then(
    share: float, warnings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pauses(monkeypatch)
    told: list[tuple[int, Any]] = []
    progress = Progress(alert=lambda finding: told.append((len(progress.lines), finding)))
    progress.path = tmp_path / "metrics.jsonl"
    earlier = [{"step": step, "reward": 0.5, "completions/clipped_ratio": 0.6} for step in range(1, 11)]
    progress.path.write_text("".join(json.dumps(line) + "\n" for line in earlier))
    progress.on_train_begin(cast(Any, None), state(10), cast(Any, None))
    for step in range(11, 21):
        logs = {"reward": 0.5, "completions/clipped_ratio": share}
        progress.on_log(cast(Any, None), state(step), cast(Any, None), logs=logs)
    assert [finding.kind for _, finding in told] == ["cut-off"] * warnings
    assert all(lines == 15 for lines, _ in told), "five steps are needed for a warning"


def test_looking_after_the_health_takes_a_hundredth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, looked=0)

    def look(lines: Any, settings: Any, started_at: int) -> list[Any]:
        clock.looked += 1
        clock.now += 0.02
        return []

    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(callbacks, "findings", look)
    progress = Progress()
    for step in range(1, 101):
        clock.now += 0.1  # a step
        progress.on_log(None, state(step, 100), None, logs={"reward": 0.5})  # type: ignore[arg-type]
    assert clock.looked == 5, "in ten seconds, one tenth of a second"
