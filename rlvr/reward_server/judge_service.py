"""Judge programs in worker processes (/judge)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from threading import Event
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError, ServerLimits, check_limit
from rlvr.reward_server.schemas import JudgeRequest, SubmittedProgram
from rlvr.reward_server.server_metrics import Metrics
from rlvr.reward_server.server_worker import served_item
from rlvr.verifiers.code import Limits
from rlvr.workers.pool import OUT_OF_TIME, WorkerPool

MAX_OUTPUT_KB, MAX_PROCESSES = 64 << 10, 256  # of a test: outputs are held in memory
START_S = 300.0  # timeout of a worker's imports


class JudgeService:
    """Workers that judge programs, each on all processors. Usable from any thread."""

    def __init__(self, limits: ServerLimits, metrics: Metrics, workers: int) -> None:
        self.limits = limits
        self.metrics = metrics
        function = "rlvr.reward_server.server_worker:judge_request"
        self.pool = WorkerPool(function, processes=workers, inherit_env=True, start_s=START_S)

    def judge(self, request: JudgeRequest, cancelled: Event) -> list[dict[str, Any]]:
        """The judgement of each submission."""
        submissions = [
            self._arguments(submission, f"Submission {number}")
            for number, submission in enumerate(request.submissions, start=1)
        ]
        tests = [submission.pop("tests") for submission in submissions]
        item = served_item({"submissions": submissions, "tests": tests}, reasons=request.reasons)
        deadline_s = min(request.deadline_s or self.limits.max_deadline_s, self.limits.max_deadline_s)
        judgements = self._call_worker(item, deadline_s, cancelled)
        for submission, judgement in zip(submissions, judgements, strict=True):
            self.metrics.add("grpo_programs_total", submission["language"])
            for verdict, count in Counter(judgement["verdicts"]).items():
                self.metrics.add("grpo_verdicts_total", verdict, by=count)
            self.metrics.add("grpo_program_cpu_seconds_total", by=sum(judgement["cpu_s"]))
        return judgements

    def _call_worker(self, item: bytes, deadline_s: float, cancelled: Event) -> list[dict[str, Any]]:
        end = time.monotonic() + deadline_s
        for _ in range(2):  # the fork server may have been killed
            left_s = max(end - time.monotonic(), 0.0)
            (result,) = self.pool.map(
                [item], timeout_s=left_s, batch_timeout_s=left_s, count_waiting=True, cancelled=cancelled
            )
            if result.status != "unavailable" or result.why == OUT_OF_TIME or cancelled.is_set():
                break
        if result.status == "timeout" or result.why == OUT_OF_TIME:
            message = f"The programs were not judged within {deadline_s:g} s. Send fewer, or set smaller limits."
            raise RequestError(422, message, kind="timeout")
        if result.status != "done":
            raise RequestError(503, f"The programs could not be judged: {result.why}.", kind="workers-unavailable")
        if "error" in result.value:
            raise RequestError(result.value["status"], result.value["error"], kind=result.value["kind"])
        judgements: list[dict[str, Any]] = result.value["judgements"]
        return judgements

    def _arguments(self, submission: SubmittedProgram, where: str) -> dict[str, Any]:
        """The arguments of `rlvr.verifiers.code.judge`, as JSON values; `where` is for messages."""
        limits = submission.limits.model_dump(exclude_none=True)
        self._check_limits(where, limits)
        return {
            **submission.model_dump(exclude={"limits", "tests"}),
            "language": submission.language or "python",
            "tests": submission.tests,
            "limits": limits,
            "allow_weak_sandbox": self.limits.allow_weak_sandbox,
        }

    def _check_limits(self, where: str, limits: Mapping[str, Any]) -> None:
        for name in ("time_s", "wall_s", "compile_time_s"):  # compiling and sleeping occupy the machine, too
            check_limit(where, name, limits.get(name), self.limits.max_test_time_s)
        check_limit(where, "memory_mb", limits.get("memory_mb"), self.limits.max_test_memory_mb)
        check_limit(where, "output_kb", limits.get("output_kb"), MAX_OUTPUT_KB)
        check_limit(where, "processes", limits.get("processes"), MAX_PROCESSES)
        try:
            Limits(**limits)
        except InputError as error:
            raise RequestError(422, f"{where}: {error}", kind=error.kind) from error
