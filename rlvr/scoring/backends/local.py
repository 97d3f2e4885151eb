"""Call rewards on this machine: in worker processes (`where: local`, the default), or in the trainer itself."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Sequence
from types import SimpleNamespace

from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call import call_reward
from rlvr.scoring.results import CallResult
from rlvr.scoring.reward import Reward
from rlvr.scoring.reward_worker import item
from rlvr.workers.pool import OUT_OF_TIME, StartError, WorkerError, WorkerPool

MAX_WORKERS = 4  # for calls with one row


class LocalBackend(RewardBackend):
    """Worker processes that can be killed: a call that hangs or crashes does not reach the trainer.

    A batch goes to one worker, always the same while it lives, so that functions keep what they have in memory.
    """

    encoding: Encoding = "pickle"
    per_worker_group = True

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        cores = len(os.sched_getaffinity(0)) // max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), 1)
        self._pool = WorkerPool(
            "rlvr.scoring.reward_worker:prepare",
            processes=max(2, min(MAX_WORKERS, cores)),
            init_payload=pickle.dumps([reward.spec for reward in rewards]),
            inherit_env=True,
            start_s=start_timeout_s,
        )

    def launch(self) -> None:
        self._pool.launch()

    def start(self) -> None:
        try:
            self._pool.start(1)
        except StartError as error:  # the imports fail, and would fail again
            if error.kind != "start-timeout":
                raise
            raise StartError(
                f"its file is not imported after {self.start_timeout_s:g} s. Do slow work (downloads, models) in the "
                "function, at its first call.",
                error.kind,
            ) from error
        except WorkerError:
            self._pool.start(1)  # the fork server was killed

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        whole_batch = all(call.row is None for call in calls)
        results = self._pool.map(
            [_item(call) for call in calls],
            timeout_s=timeout_s,
            batch_timeout_s=max(end - time.monotonic(), 0.0),
            max_workers=1 if whole_batch else None,
        )
        return [CallResult.from_task(result) for result in results]

    def close(self) -> None:
        self._pool.close()


class TrainerBackend(RewardBackend):
    """Calls in the training process (`where: trainer`), which nothing can stop.

    For rewards that need the trainer's GPU or memory, and for functions that no other process can import.
    """

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
            # A reward that edits messages must change neither what others score nor what the run keeps.
            copies = {name: copy.deepcopy(arguments[name]) for name in ("prompts", "completions")}
            state = SimpleNamespace(**call.batch.state)
            results.append(call_reward(self.rewards[call.reward], {**arguments, **copies}, state))
        return results


def _item(call: RewardCall) -> bytes:
    batch, rows, seed = call.batch, None, call.seed
    if call.row is not None:
        rows, seed = [call.row], (*call.seed, call.row)
    columns = {name: batch.pickled(name, rows) for name in call.names}
    return item("call", reward=call.reward, columns=columns, state=batch.state, seed=seed)
