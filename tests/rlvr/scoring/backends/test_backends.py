"""Another backend is one class and one entry in `BACKENDS`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlvr.config.reward_location import BACKENDS, read_where
from rlvr.config.specs import RewardSpec
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call_result import CallResult
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward, apply_gates_and_mask
from rlvr.scoring.scorer import Scorer
from rlvr.workers.pool import OUT_OF_TIME
from tests.support.scripted_rewards import SCRIPTED_REWARDS

PROGRAM = """
import json, sys
from rlvr.config.specs import RewardSpec
from rlvr.scoring.backends.local import call_reward
from rlvr.scoring.registry import load_reward
name, columns = json.load(sys.stdin)
print(json.dumps(vars(call_reward(load_reward(RewardSpec(name)), columns, {}))))
"""


class SubprocessBackend(RewardBackend):
    """Runs each call in a new Python process."""

    encoding: Encoding = "json"

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        self.rewards = list(rewards)

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        return [self._call(call, timeout_s, end) for call in calls]

    def _call(self, call: RewardCall, timeout_s: float, end: float) -> CallResult:
        left_s = end - time.monotonic()
        if left_s <= 0:
            return CallResult(status="unavailable", why=OUT_OF_TIME)
        columns = call.batch.columns if call.row is None else call.batch.row(call.row)
        item = json.dumps([self.rewards[call.reward].name, {name: columns[name] for name in call.names}])
        command = [sys.executable, "-c", PROGRAM]
        try:
            done = subprocess.run(command, input=item, capture_output=True, text=True, timeout=min(timeout_s, left_s))
        except subprocess.TimeoutExpired:
            return CallResult(status="timeout", why=f"not done after {timeout_s:g} s")
        if done.returncode:
            return CallResult(status="crashed", why=f"exit status {done.returncode}")
        return CallResult(**json.loads(done.stdout))


@pytest.mark.slow
def test_a_new_backend_scores_a_batch_with_the_failures_and_masks_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "subprocess", f"{__name__}:SubprocessBackend")
    assert read_where("subprocess") == "subprocess", "a recipe can name it"
    file = tmp_path / "puppets.py"
    file.write_text(SCRIPTED_REWARDS, encoding="utf-8")
    completions = ["fine", "raise", "die", "none", "text"]
    outcomes = []
    for where in ("local", "subprocess"):
        rewards = load_rewards([RewardSpec(f"{file}:{name}", where=where) for name in ("puppet", "group_sizes")])
        with Scorer(rewards, rank=2) as scorer:
            scored = scorer.score(["p"] * 5, completions, {})
        failures = [(failure.reward, failure.row, failure.status) for failure in scored.failures]
        outcomes.append((scored.values, failures, apply_gates_and_mask(scored.values, rewards)))
    assert outcomes[0] == outcomes[1]
    values, failures, masked = outcomes[1]
    assert values == [[1.0, 5.0], [None, 5.0], [None, 5.0], [None, 5.0], [None, 5.0]]
    assert failures == [("puppet", 1, "raised"), ("puppet", 2, "crashed"), ("puppet", 4, "no number")]
    assert masked == [[1.0, 5.0]] + [[None, None]] * 4
