"""Judge programs in worker processes (/judge)."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError, ServerLimits, check_limit
from rlvr.reward_server.schemas import JudgeRequest, SubmittedProgram
from rlvr.reward_server.server_metrics import Metrics
from rlvr.reward_server.stored_tests import StoredTests
from rlvr.scoring.reward_worker import served_item
from rlvr.verifiers.code import Limits
from rlvr.workers.pool import OUT_OF_TIME, Caller, WorkerPool

MAX_OUTPUT_KB, MAX_PROCESSES = 64 << 10, 256  # of a test: outputs are held in memory
START_S = 300.0  # timeout of a worker's imports
_PROBLEM_FIELDS = ("language", "entry_point", "signature", "checker", "comparison", "tolerance")  # of a stored row


class JudgeService:
    """Workers that judge programs, each on all processors. Usable from any thread."""

    def __init__(self, limits: ServerLimits, stored_tests: StoredTests, metrics: Metrics, workers: int) -> None:
        self.limits = limits
        self.stored_tests = stored_tests
        self.metrics = metrics
        function = "rlvr.reward_server.judge_worker:judge_request"
        self.pool = WorkerPool(function, processes=workers, inherit_env=True, start_s=START_S)

    def judge(self, request: JudgeRequest, caller: Caller) -> list[dict[str, Any]]:
        """The judgement of each submission."""
        # The rows that this request refers to, each read once.
        stored_row = functools.cache(self.stored_tests.row)
        submissions = [
            self._arguments(submission, f"Submission {number}", stored_row)
            for number, submission in enumerate(request.submissions, start=1)
        ]
        tests = [submission.pop("tests") for submission in submissions]
        item = served_item({"submissions": submissions, "tests": tests}, reasons=request.reasons)
        deadline_s = min(request.deadline_s or self.limits.max_deadline_s, self.limits.max_deadline_s)
        judgements = self._call_worker(item, deadline_s, caller)
        for submission, judgement in zip(submissions, judgements, strict=True):
            self.metrics.add("grpo_programs_total", submission["language"])
            for verdict, count in Counter(judgement["verdicts"]).items():
                self.metrics.add("grpo_verdicts_total", verdict, by=count)
            self.metrics.add("grpo_program_cpu_seconds_total", by=sum(judgement["cpu_s"]))
        return judgements

    def _call_worker(self, item: bytes, deadline_s: float, caller: Caller) -> list[dict[str, Any]]:
        end = time.monotonic() + deadline_s
        for _ in range(2):  # the fork server may have been killed
            left_s = max(end - time.monotonic(), 0.0)
            (result,) = self.pool.map(
                [item], timeout_s=left_s, batch_timeout_s=left_s, count_waiting=True, caller=caller
            )
            if result.status != "unavailable" or result.why == OUT_OF_TIME or caller.cancelled.is_set():
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

    def _arguments(
        self, submission: SubmittedProgram, where: str, stored_row: Callable[[str], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The arguments of `rlvr.verifiers.code.judge`, as JSON values; `where` is for messages."""
        if (submission.tests is None) == (submission.id is None):
            message = f"{where}: give either tests, or the id of tests that the server holds."
            raise RequestError(422, message, kind="invalid-submission")
        row: Mapping[str, Any] = {}
        if submission.id is not None:
            row = stored_row(str(submission.id))
            if not isinstance(row.get("tests"), list):
                raise RequestError(404, f"{where}: the row {submission.id!r} has no tests.", kind="missing-column")
        arguments = submission.model_dump(exclude={"id", "limits", "tests"})
        for name in _PROBLEM_FIELDS:
            if arguments[name] is None:
                arguments[name] = row.get(name)
        row_limits = {name: row[name] for name in ("time_s", "memory_mb") if row.get(name) is not None}
        limits = {**row_limits, **submission.limits.model_dump(exclude_none=True)}
        self._check_limits(where, limits)
        return {
            **arguments,
            "tests": row["tests"] if submission.tests is None else submission.tests,
            "language": arguments["language"] or "python",
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
