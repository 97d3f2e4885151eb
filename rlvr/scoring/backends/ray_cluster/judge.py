"""Programs judged on a Ray cluster: `rlvr.verifiers.code.judge_many` with more processors.

from rlvr.scoring.backends.ray_cluster.judge import judge_many
judgements = judge_many(submissions)                     # on the cluster of $RAY_ADDRESS, else one of this machine
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.config.reward_location import RAY
from rlvr.errors import InputError
from rlvr.scoring.backends.ray_cluster.driver_client import open_line, require_ray
from rlvr.verifiers.code.cases import digest
from rlvr.verifiers.code.judge import read_submissions
from rlvr.verifiers.code.types import SE, Judgement, Submission
from rlvr.workers.pool import OUT_OF_TIME

BUDGET_S = 3600.0
PROGRAMS = 4  # a task: so few that the slow ones find many processors, so many that a task is worth its sending


def judge_many(
    submissions: Sequence[Submission | Mapping[str, Any]], *, where: str = RAY, budget_s: float = BUDGET_S
) -> list[Judgement]:
    """Judges a batch on a cluster; the arguments of `rlvr.verifiers.code.judge` in each, the judgements in the same
    order.

    The same program with the same tests is judged once. What was lost with a node is judged on another one. A program
    that came to no judgement because of the cluster or of the time has the verdict SE for each of its tests.

    Args:
        where: as in a recipe: "ray", or "ray://head:10001".
        budget_s: seconds for all of them.

    Raises:
        InputError: an argument is wrong, with the submission's number; or Ray is not installed.
        rlvr.workers.pool.WorkerError: no cluster answers.
    """
    require_ray("Programs", where)
    asked = read_submissions(submissions, judged_here=False)
    first: dict[Any, int] = {}  # by what makes a program another one: the submission to be judged
    keys = []
    for number, submission in enumerate(asked):
        key = (submission.program, repr(replace(submission, program="", tests=[])), digest(submission.tests))
        keys.append(key)
        first.setdefault(key, number)
    if not asked:
        return []
    numbers = list(first.values())
    tasks = [numbers[start : start + PROGRAMS] for start in range(0, len(numbers), PROGRAMS)]
    line = open_line(where)
    try:
        message = {"what": "judge", "tasks": [[vars(asked[number]) for number in task] for task in tasks]}
        found = line.ask(message, time.monotonic() + budget_s)["found"]
    finally:
        line.close()
    judged: dict[int, Judgement] = {}
    for task, one in zip(tasks, found, strict=True):
        said = one.get("done")
        if isinstance(said, str):
            raise InputError(_numbered(said, task, len(asked)))
        for place, number in enumerate(task):
            judged[number] = Judgement(**said[place]) if said is not None else _failed(asked[number], one["lost"])
    return [judged[first[key]] for key in keys]


def _failed(submission: Submission, why: str) -> Judgement:
    count = len(submission.tests)
    return Judgement([SE] * count, [why or OUT_OF_TIME] * count, [0.0] * count, [0.0] * count, [""] * count)


def _numbered(said: str, task: Sequence[int], of: int) -> str:
    """What is wrong with a submission of a task, under the number that it has in the whole batch."""
    found = re.match(r"Submission (\d+) of \d+|The submission", said)
    if found is None or of == 1:
        return said
    number = task[int(found.group(1)) - 1 if found.group(1) else 0]
    return f"Submission {number + 1} of {of}{said[found.end() :]}"
