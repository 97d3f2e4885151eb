"""Run a Python program once, confined, and return its output: for tools that show a model what its program prints."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlvr.sandbox.languages import find_language
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.zygote_client import ZygoteError, without_host_paths
from rlvr.verifiers.code import verdict
from rlvr.verifiers.code.executor import Executor, Program
from rlvr.verifiers.code.judge import check_confinement, read_submissions
from rlvr.verifiers.code.scheduler import JudgeJob, executor_count, get_scheduler
from rlvr.verifiers.code.types import AC, CE, MAX_SOURCE_BYTES, RE, SE, Submission


@dataclass(frozen=True)
class ProgramRun:
    """What a program did.

    Attributes:
        verdict: AC (the program ended with status 0), TLE, MLE, OLE, RE, CE, or SE if the sandbox failed.
        stdout: Standard output.
        stderr: The end of standard error.
        reason: Why the verdict is not AC.
    """

    verdict: str
    stdout: str = ""
    stderr: str = ""
    reason: str = ""


def run_program(
    program: str, *, stdin: str = "", limits: Limits | None = None, allow_weak_sandbox: bool = False
) -> ProgramRun:
    """Run a Python program with an input, for a model: its output names no path of this machine.

    Raises:
        InputError: an argument is wrong.
        SandboxUnavailable: programs can't be confined on this machine.
    """
    run = run_program_on(program, [stdin], limits=limits, allow_weak_sandbox=allow_weak_sandbox)[0]
    return replace(run, stdout=without_host_paths(run.stdout.encode()).decode())


def run_program_on(
    program: str, inputs: Sequence[str], *, limits: Limits | None = None, allow_weak_sandbox: bool = False
) -> list[ProgramRun]:
    """Run a Python program once with each input, several at a time. Arguments and errors are those of `run_program`."""
    limits = limits or Limits()
    checked = read_submissions([Submission(program, "python", (), limits, allow_weak_sandbox=allow_weak_sandbox)])
    check_confinement(checked)
    work = Program(checked[0], find_language("python"))
    if len(work.source) > MAX_SOURCE_BYTES:
        return [ProgramRun(CE, reason=f"the program is larger than {MAX_SOURCE_BYTES >> 20} MB")] * len(inputs)
    runs: dict[int, ProgramRun] = {}

    def task(number: int, executor: Executor, job: JudgeJob) -> None:
        try:
            result = executor.run(work, inputs[number].encode("utf-8", "surrogatepass"))
        except ZygoteError as error:
            ended = error.kind == "zygote-ended"
            runs[number] = ProgramRun(RE if ended else SE, reason=str(error))
            return
        failed = verdict.failure(result, limits)
        runs[number] = ProgramRun(
            failed.verdict if failed else AC,
            result.output.decode(errors="replace"),
            result.stderr.decode(errors="replace"),
            failed.reason if failed else "",
        )

    tasks = [functools.partial(task, number) for number in range(len(inputs))]
    get_scheduler().run(tasks, min(len(tasks), executor_count()))
    return [runs[number] for number in range(len(inputs))]
