"""The path of a reward call is short: the head of rlvr/scoring/scorer.py names each frame of it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr.config.project import PACKAGE
from rlvr.config.specs import RewardSpec
from rlvr.scoring import scorer as scorer_module
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer, trl_reward_functions

REWARD = """
import traceback

def frames(completions, *, log_extra, **kwargs):
    stack = traceback.extract_stack()[:-1]
    log_extra("frames", ["\\n".join(f"{frame.filename} {frame.name}" for frame in stack)] * len(completions))
    return [1.0] * len(completions)
"""


def own_frames(stack: list[str]) -> list[tuple[str, str]]:
    """File and function of the frames that are the project's, the outermost first."""
    frames = [line.rpartition(" ") for line in stack]
    return [(Path(file).name, function) for file, _, function in frames if Path(file).is_relative_to(PACKAGE)]


def test_eight_frames_in_four_files_lead_from_trl_to_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frames.py").write_text(REWARD)
    sent, logged, send = [], {}, socket.socket.sendall

    def record(channel: socket.socket, data: bytes) -> None:
        if b"completions" in data:
            sent.append([f"{frame.filename} {frame.name}" for frame in traceback.extract_stack()])
        send(channel, data)

    monkeypatch.setattr(socket.socket, "sendall", record)
    with Scorer(load_rewards([RewardSpec(f"{tmp_path}/frames.py")])) as scorer:
        (column,) = trl_reward_functions(scorer.rewards, scorer, lambda scored, arguments: None)
        of_trl: dict[str, Any] = {"completion_ids": [[1]], "log_extra": logged.__setitem__, "log_metric": print}
        state = SimpleNamespace(global_step=1, max_steps=2, epoch=0.5)
        assert column(prompts=["p"], completions=["c"], trainer_state=state, **of_trl) == [1.0]
    trainer, worker = own_frames(sent[-1]), own_frames(logged["frames"][0].split("\n"))
    assert len(trainer) + len(worker) <= 8
    assert {file for file, _ in trainer + worker} == {"scorer.py", "local.py", "pool.py", "fork_server_main.py"}
    described = re.findall(r"(\w+\.py) +(?:\w+\.)?(\w+)", str(scorer_module.__doc__).partition("eight frames")[2])
    assert sorted(described) == sorted(trainer + worker)


def test_a_metric_that_is_no_reward_of_the_recipe_is_none_of_trls() -> None:
    rewards = load_rewards([RewardSpec("answer_format"), RewardSpec("math_correctness")])
    functions = trl_reward_functions(rewards[:1], Scorer(rewards), lambda scored, arguments: None)
    assert [function.__name__ for function in functions] == ["answer_format"]


def test_the_side_of_the_workers_loads_no_heavy_library() -> None:
    modules = "rlvr.scoring.backends.local, rlvr.workers.fork_server_main, rlvr.verifiers.math, rlvr.verifiers.code"
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "rlvr.scoring.backends.local" in loaded
    assert not {"torch", "transformers", "trl", "datasets", "numpy", "sympy"} & set(loaded)
