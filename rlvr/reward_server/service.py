"""What the paths do: score completions, judge programs. Usable from any thread."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from threading import Event
from typing import Any

from rlvr.config.specs import RewardSpec
from rlvr.reward_server.judge_service import JudgeService
from rlvr.reward_server.request_limits import RequestError, ServerLimits
from rlvr.reward_server.schemas import JudgeRequest, ScoreRequest
from rlvr.reward_server.served_rewards import ServedRewards
from rlvr.reward_server.server_metrics import Metrics
from rlvr.scoring.call_result import CallResult
from rlvr.scoring.registry import environment_info
from rlvr.verifiers.code import detect_capabilities
from rlvr.workers.pool import WorkerPool


class RewardService:
    """The operations behind the server's paths, on the workers of the rewards and of the judge.

    Args:
        workers: processes for each group of rewards; None: the default.

    Raises:
        InputError: a setting is wrong.
    """

    def __init__(
        self,
        rewards: Sequence[RewardSpec],
        limits: ServerLimits,
        workers: int | None = None,
    ) -> None:
        self.limits = limits
        self.metrics = metrics = Metrics()
        self.rewards = ServedRewards(rewards, limits, workers)
        self.programs = JudgeService(limits, metrics, self.rewards.workers)
        self.ready = False  # whether the workers have started
        self.environment_info: dict[str, str] = {}
        self.instance = uuid.uuid4().hex  # another one for each start of a server
        metrics.set_gauge("grpo_ready", lambda: float(self.ready))
        metrics.set_gauge("grpo_workers", lambda: self.rewards.workers)
        metrics.set_gauge("grpo_workers_busy", lambda: sum(pool.load()[0] for pool in self.pools))
        metrics.set_gauge("grpo_calls_waiting", lambda: sum(pool.load()[1] for pool in self.pools))

    @property
    def pools(self) -> list[WorkerPool]:
        return [*self.rewards.pools.values(), self.programs.pool]

    def start(self) -> None:
        """Start all workers, and wait until they have made their imports.

        Raises:
            WorkerError: they do not start.
        """
        for pool in self.pools:
            pool.launch()
        self.environment_info = environment_info(self.rewards.rewards)
        for pool in self.pools:
            pool.start()

    def close(self) -> None:
        """End all workers: calls in progress and later ones fail with 503."""
        for pool in self.pools:
            pool.close()

    def describe(self) -> dict[str, Any]:
        """The rewards, limits and environment, so that a client can compare them with its own."""
        return {
            "rewards": self.rewards.describe(),
            "limits": {"rows": self.limits.max_rows, "body_bytes": self.limits.body_bytes},
            "instance": self.instance,
            "workers": self.rewards.workers,
            "conditions": self.environment_info,
            "sandbox": detect_capabilities().describe(),
        }

    def score(self, request: ScoreRequest, cancelled: Event) -> dict[str, Any]:
        started = time.perf_counter()
        count = len(request.completions)
        self.limits.check_rows(count)
        numbers = list(range(count)) if request.rows is None else request.rows
        for name, values in (("prompts", request.prompts), *request.columns.items(), ("rows", numbers)):
            if len(values) != count:
                message = f"{count} completions, but {len(values)} entries in {name}. Give one each."
                raise RequestError(422, message, kind="length-mismatch")
        self.rewards.check(request.rewards, request.columns)
        state = {"global_step": 0, "max_steps": 1, "epoch": 0.0, **request.trainer_state}
        content = []
        scored = self.rewards.score(request, numbers, state, cancelled)
        for reward, results in zip(request.rewards, scored, strict=True):
            values = _values(results, count)
            self._count(reward.name, results, values)
            outcomes = [vars(result) for result in results]  # asdict would copy every value
            content.append({"reward": reward.name, "values": values, "outcomes": outcomes})
        return {"results": content, "seconds": time.perf_counter() - started, "instance": self.instance}

    def _count(self, name: str, results: Sequence[CallResult], values: Sequence[float | None]) -> None:
        add = self.metrics.add
        add("grpo_rows_total", name, by=len(values))
        add("grpo_rows_unscored_total", name, by=sum(value is None for value in values))
        add("grpo_reward_sum_total", name, by=sum(value for value in values if value is not None and value > 0))
        rows_per_call = len(values) / len(results)
        for result in results:
            add("grpo_calls_total", name, result.status)
            for note, figure, value in result.notes:
                if note == "metric" and isinstance(value, int | float) and math.isfinite(value) and value >= 0:
                    add("grpo_figure_sum_total", figure, by=value * rows_per_call)
                    add("grpo_figure_rows_total", figure, by=rows_per_call)

    def judge(self, request: JudgeRequest, cancelled: Event) -> dict[str, Any]:
        self.limits.check_rows(len(request.submissions))
        return {"judgements": self.programs.judge(request, cancelled)}


def _values(results: Sequence[CallResult], rows: int) -> list[float | None]:
    """The values of all rows; None for a row without one."""
    rows_per_call = rows // len(results)
    return [
        None if isinstance(value, str) else value
        for result in results
        for value in (result.values if result.status == "done" else [None] * rows_per_call)
    ]
