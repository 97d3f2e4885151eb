"""Call rewards in the training process itself (`where: trainer`): nothing can stop a call that hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import RewardCall
from rlvr.scoring.call import call_reward
from rlvr.scoring.results import CallResult
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import OUT_OF_TIME


class TrainerBackend(RewardBackend):
    """For rewards that need the trainer's GPU or memory, and for functions that no other process can import."""

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        self.rewards = list(rewards)

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        results = []
        for call in calls:
            if call.row is not None and time.monotonic() >= end:
                results.append(CallResult(kind="unavailable", message=OUT_OF_TIME))
                continue
            arguments = call.batch.columns if call.row is None else call.batch.row(call.row)
            results.append(call_reward(self.rewards[call.reward], arguments, call.batch.trainer_state))
        return results
