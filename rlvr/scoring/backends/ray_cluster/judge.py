"""Judge programs on a Ray cluster: `rlvr.judge_many` with more processors.

from rlvr.scoring.backends.ray_cluster.judge import judge_many
judgements = judge_many(submissions)            # on the cluster of $RAY_ADDRESS, else on one of this machine
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.config.reward_location import RAY
from rlvr.errors import InputError
from rlvr.scoring.backends.ray_cluster.driver_client import open_driver, require_ray
from rlvr.verifiers.code.cases import digest
from rlvr.verifiers.code.judge import read_submissions
from rlvr.verifiers.code.types import SE, Judgement, Submission
from rlvr.workers.pool import OUT_OF_TIME

TIMEOUT_S = 3600.0
PROGRAMS_PER_TASK = 4  # few, so that slow programs find many processors; enough to be worth a task


def judge_many(
    submissions: Sequence[Submission | Mapping[str, Any]], *, where: str = RAY, budget_s: float = TIMEOUT_S
) -> list[Judgement]:
    """Judge a batch of programs on a cluster.

    Each submission has the arguments of `rlvr.judge`; judgements are in the same order. The same program with the same
    tests is judged once. A program that is lost with its node is judged on another one. If the cluster fails or the
    time is over, a program has the verdict SE for each of its tests.

    Args:
        where: as in a recipe: "ray", or "ray://head:10001".
        budget_s: seconds for all of them.

    Raises:
        InputError: an argument is wrong, with the submission's number; or Ray is not installed.
        rlvr.workers.pool.WorkerError: no cluster answers.
    """
    require_ray("Programs", where)
    programs = read_submissions(submissions, judged_here=False)
    first: dict[Any, int] = {}  # for each distinct program and tests: the submission that is judged
    keys = []
    for number, submission in enumerate(programs):
        key = (submission.program, repr(replace(submission, program="", tests=[])), digest(submission.tests))
        keys.append(key)
        first.setdefault(key, number)
    if not programs:
        return []
    numbers = list(first.values())
    tasks = [numbers[start : start + PROGRAMS_PER_TASK] for start in range(0, len(numbers), PROGRAMS_PER_TASK)]
    driver = open_driver(where)
    try:
        message = {"action": "judge", "tasks": [[vars(programs[number]) for number in task] for task in tasks]}
        outcomes = driver.ask(message, time.monotonic() + budget_s)["outcomes"]
    finally:
        driver.close()
    judgements: dict[int, Judgement] = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        done = outcome.get("done")
        if isinstance(done, str):
            raise InputError(_renumber(done, task, len(programs)), kind="invalid-submission")
        for place, number in enumerate(task):
            if done is not None:
                judgements[number] = Judgement(**done[place])
            else:
                judgements[number] = _not_judged(programs[number], outcome["lost"] or OUT_OF_TIME)
    return [judgements[first[key]] for key in keys]


def _not_judged(submission: Submission, cause: str) -> Judgement:
    count = len(submission.tests)
    return Judgement([SE] * count, [cause] * count, [0.0] * count, [0.0] * count, [""] * count)


def _renumber(message: str, task: Sequence[int], total: int) -> str:
    """Give a submission in a task's message the number that it has in the whole batch."""
    match = re.match(r"Submission (\d+) of \d+|The submission", message)
    if match is None or total == 1:
        return message
    number = task[int(match.group(1)) - 1 if match.group(1) else 0]
    return f"Submission {number + 1} of {total}{message[match.end() :]}"
