"""Where there is no cluster, or no Ray: what is waited for, what is said, and how a run ends that has waited long."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from accelerate import Accelerator
from transformers import TrainerControl, TrainerState, TrainingArguments

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from rlvr.training.interruption import StopRequest, SyncedStopCallback


def test_a_cluster_that_is_not_there_is_waited_for_and_then_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with Scorer(load_rewards([RewardSpec("answer_format", where="ray")]), start_timeout_s=1) as scoring:
        scored = scoring.score(["p"], ["fine"], {})
    (fault,) = scored.failures
    assert scored.values == [[None]] and fault.status == "unavailable"
    assert scored.outage_s > 0 and scored.outage_of == "Ray cluster"
    assert "127.0.0.1:9" in fault.message


@pytest.mark.parametrize(
    ("where", "missing"), [("ray", "ray"), ("ray://head:10001", "grpc")], ids=["cluster", "client"]
)
def test_a_ray_that_is_not_installed_is_named(where: str, missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from rlvr.scoring.registry import load_rewards\n"
        "from rlvr.config.specs import RewardSpec\n"
        "from rlvr.scoring.scorer import Scorer\n"
        f"Scorer(load_rewards([RewardSpec('answer_format', where='{where}')]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert all(part in done.stderr for part in ("InputError", "answer_format", where, missing, ".[ray]"))


@pytest.mark.parametrize("silent", ["Ray cluster", "reward server"])
def test_what_has_not_answered_is_named_when_it_ends_the_run(
    silent: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    trainer = SimpleNamespace(
        outage_s=90.0,
        outage_of=silent,
        accelerator=Accelerator(cpu=True),
        checkpoints=SimpleNamespace(expected_save_s=1.0),
        next_step_generates=True,
    )
    callback = SyncedStopCallback(StopRequest(), cast(Any, trainer), outage_s=60.0)
    control = TrainerControl()
    callback.on_step_end(arguments, TrainerState(global_step=1, max_steps=9), control)
    assert control.should_save and control.should_training_stop
    assert f"Stopped by an outage: no {silent} has answered for 2 min" in capsys.readouterr().out
