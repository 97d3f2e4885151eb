"""Programs to be judged: what /judge takes and answers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlvr.errors import InputError
from rlvr.reward_server.limits import Refused, ServerLimits
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.stored_tests import References
from rlvr.scoring.call import gathered
from rlvr.verifiers.code import Limits, detect_capabilities
from rlvr.workers.pool import OUT_OF_TIME, WorkerPool

MOST_OUTPUT_KB, MOST_PROCESSES = 64 << 10, 256  # of a test: outputs are held in memory
START_S = 300.0  # for a worker's imports, on a busy file system
# What a row of the server's file may say of its problem, beside the tests.
_OF_THE_PROBLEM = ("language", "entry_point", "signature", "checker", "comparison", "tolerance")


class LimitsAsked(BaseModel):
    """Of a test, and of the compiler; see `rlvr.verifiers.code.Limits`."""

    model_config = ConfigDict(extra="forbid")
    time_s: float | None = Field(default=None, description="CPU seconds of a test; 2 where nothing says it.")
    wall_s: float | None = Field(
        default=None, description="Seconds of a test in which it neither computes nor waits for a processor."
    )
    memory_mb: float | None = Field(default=None, description="Resident memory of a test.")
    output_kb: int | None = Field(default=None, description="Of a test's output, and of its errors.")
    processes: int | None = Field(default=None, description="Threads and processes of a test.")
    compile_time_s: float | None = Field(default=None, description="CPU seconds of the compiler.")


class Submitted(BaseModel):
    """One program. The fields are the arguments of `rlvr.verifiers.code.judge`."""

    model_config = ConfigDict(extra="forbid")
    program: str = Field(description="Its source.")
    language: str | None = Field(default=None, description="python (which null means), cpp, …")
    tests: list[dict[str, Any]] | None = Field(
        default=None,
        fail_fast=True,
        description="Each is {input, output}: texts; {call: [arguments], expected: value}: of `entry_point`; or "
        "{assert: Python}. Each may have a comparison and a tolerance of its own.",
    )
    id: str | int | None = Field(default=None, description="Instead of tests: of a row of the server's file.")
    limits: LimitsAsked = Field(default_factory=LimitsAsked)
    entry_point: str | None = Field(default=None, description="The function that tests call; also Class.method.")
    signature: str | None = Field(default=None, description="Of that function in C++: int add(int, int).")
    checker: str | None = Field(
        default=None, description="Python source of check(input, output, expected), used instead of a comparison."
    )
    comparison: str | None = Field(
        default=None, description="lines (which null means), tokens, exact, float, unordered or yes_no."
    )
    tolerance: float | None = Field(default=None, description="Of float, absolute or relative; null: 1e-6.")
    stop_early: bool = Field(default=False, description="Whether tests after the first failure are left out.")
    sample: int | None = Field(default=None, ge=1, description="Run only so many of the tests, drawn with `seed`.")
    seed: int = Field(default=0, description="Of the sample.")


class Programs:
    """Judges programs in workers, each on all processors; usable from any thread."""

    def __init__(self, allowance: ServerLimits, metrics: Metrics, workers: int) -> None:
        self.allowance = allowance
        self.metrics = metrics
        self.pool = WorkerPool(
            "rlvr.reward_server.judge_worker:judge_request",
            processes=workers,
            memory_mb=None,  # compilers and programs run below a worker
            inherit_env=True,
            folder=os.getcwd(),
            start_s=START_S,
        )

    def sandbox(self) -> str:
        return detect_capabilities().describe()

    def judge(
        self, submitted: Sequence[Submitted], references: References, *, reasons: bool, deadline_s: float
    ) -> list[dict[str, Any]]:
        """What became of each program.

        Raises:
            Refused: a submission is wrong, or asks for more than is allowed; programs can't be confined here; or they
                take longer than they may.
        """
        known: dict[str, Mapping[str, Any]] = {}
        submissions = [self._submission(one, number, references, known) for number, one in enumerate(submitted)]
        tests = gathered([submission.pop("tests") for submission in submissions])
        items = [{"submissions": submissions, "tests": tests, "reasons": reasons}]
        end = time.monotonic() + deadline_s
        for _ in range(2):  # somebody may have killed the fork server
            left_s = max(end - time.monotonic(), 0.0)
            (outcome,) = self.pool.map(items, timeout_s=left_s, batch_timeout_s=left_s, count_waiting=True)
            if outcome.status != "unavailable" or outcome.why == OUT_OF_TIME:
                break
        late = outcome.status == "timeout" or (outcome.status == "unavailable" and outcome.why == OUT_OF_TIME)
        if late and deadline_s < self.allowance.deadline_s:
            raise Refused(
                422, f"The programs were not judged within {deadline_s:g} s. Send fewer, or give them longer."
            )
        if outcome.status == "timeout":
            raise Refused(
                422, f"The programs were not judged within the {deadline_s:g} s that this server works on a request "
                "at most (--most-deadline-s). Send fewer, or with smaller limits."
            )  # fmt: skip
        if outcome.status != "done":
            raise Refused(503, f"The programs could not be judged: {outcome.why}.", 1.0)
        if "error" in outcome.value:
            raise Refused(outcome.value["status"], outcome.value["error"])
        judgements: list[dict[str, Any]] = outcome.value["judgements"]
        for submission, judgement in zip(submissions, judgements, strict=True):
            self.metrics.add("grpo_programs_total", submission["language"])
            for verdict, count in Counter(judgement["verdicts"]).items():
                self.metrics.add("grpo_verdicts_total", verdict, by=count)
            self.metrics.add("grpo_program_cpu_seconds_total", by=sum(judgement["cpu_s"]))
        return judgements

    def _submission(
        self, submitted: Submitted, number: int, references: References, known: dict[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The arguments of `rlvr.verifiers.code.judge`, as JSON carries them.

        Args:
            known: rows that this request has referred to before; they are added to.

        Raises:
            Refused: as `judge`.
        """
        where = f"Submission {number + 1}"
        if (submitted.tests is None) == (submitted.id is None):
            raise Refused(422, f"{where}: give either tests, or the id of tests that the server holds.")
        row: Mapping[str, Any] = {}
        if submitted.id is not None:
            name = str(submitted.id)
            if name not in known:
                known[name] = references.row(name)
            row = known[name]
            if not isinstance(row.get("tests"), list):
                raise Refused(404, f"{where}: the row {submitted.id!r} has no tests.")
        given = submitted.model_dump(exclude={"id", "limits", "tests"})
        for name in _OF_THE_PROBLEM:
            if given[name] is None:
                given[name] = row.get(name)
        asked = {name: value for name, value in submitted.limits.model_dump().items() if value is not None}
        asked = {**{name: row[name] for name in ("time_s", "memory_mb") if row.get(name) is not None}, **asked}
        # Compiling and waiting are time on this machine, too.
        for name in ("time_s", "wall_s", "compile_time_s"):
            if name in asked:
                self.allowance.refuse_options(where, {"time_s": asked[name]})
        self.allowance.refuse_options(where, {"memory_mb": asked.get("memory_mb")})
        for name, most in (("output_kb", MOST_OUTPUT_KB), ("processes", MOST_PROCESSES)):
            if asked.get(name, 0) > most:
                raise Refused(
                    422, f"{where}: {name} is {asked[name]:,}, but this server allows a test {most:,} at most."
                )
        try:
            Limits(**asked)
        except InputError as error:
            raise Refused(422, f"{where}: {error}") from error
        return {
            **given,
            "tests": row["tests"] if submitted.tests is None else submitted.tests,
            "language": given["language"] or "python",
            "limits": asked,
            "allow_weak_sandbox": self.allowance.weak_sandbox,
        }
