"""Workers share the processors for judging: the shares, and programs at the same time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.workers.cpu_share import CpuShare, judge_cpu_share
from rlvr.workers.pool import WorkerPool

SLOTS = 4


def shares(demands: list[int], total: int) -> list[int]:
    """The share of each worker, by their demands."""
    cpu_share = CpuShare()
    for worker, number in enumerate(demands):
        cpu_share.join(worker)
        cpu_share.set_demand(number)
    result = []
    for worker in range(len(demands)):
        cpu_share.join(worker)
        result.append(cpu_share.share_of(total))
    return result


@pytest.mark.parametrize(
    ("demands", "total", "expected"),
    [
        ([500], 4, [4]),
        ([500, 500], 4, [2, 2]),
        ([500, 0, 500], 4, [2, 2, 2]),  # no demand, no share
        ([500, 1], 4, [3, 3]),
        ([500, 1, 1, 1], 64, [61, 61, 61, 61]),
        ([500, 500, 500], 4, [2, 2, 2]),
        ([500] * 8, 4, [1] * 8),
        ([2, 1], 4, [4, 4]),
    ],
)
def test_small_demands_leave_the_rest_to_others(demands: list[int], total: int, expected: list[int]) -> None:
    assert shares(demands, total) == expected


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=40), st.integers(1, 500))
def test_no_processor_is_idle_and_few_are_shared(wanted: list[int], of: int) -> None:
    used = [min(want, share) for want, share in zip(wanted, shares(wanted, of), strict=True)]
    assert sum(used) >= min(of, sum(wanted))
    assert sum(used) < of + len(wanted)
    assert all(use == want or use == max(used) for use, want in zip(used, wanted, strict=True)), "max-min fairness"


def test_without_an_entry_a_process_gets_all_processors() -> None:
    cpu_share = CpuShare()
    cpu_share.set_demand(500)
    assert cpu_share.share_of(4) == 4
    cpu_share.join(100_000)
    cpu_share.set_demand(500)
    cpu_share.clear(100_000)
    assert cpu_share.share_of(4) == 4


def test_a_forked_child_of_a_worker_has_no_share() -> None:
    judge_cpu_share.join(0)
    judge_cpu_share.set_demand(500)
    try:
        child = os.fork()
        if child == 0:
            judge_cpu_share.set_demand(1)
            os._exit(judge_cpu_share.share_of(4) != 4)
        assert os.waitpid(child, 0)[1] == 0
        judge_cpu_share.join(1)
        judge_cpu_share.set_demand(500)
        assert judge_cpu_share.share_of(4) == 2, "the demand of the first one is unchanged"
    finally:
        for worker in (0, 1):
            judge_cpu_share.clear(worker)
        judge_cpu_share.detach()


# ----------------------------------------------------------------------------------------------------------------------
# Judging in workers

JUDGES = f"""
import time
from rlvr.verifiers.code import Submission, judge_many, scheduler

def judged(item):
    '''Judge sleeping programs; return when each ran.'''
    scheduler._scheduler = scheduler._scheduler or scheduler.JudgeScheduler({SLOTS}, shared=True)
    name, number, seconds = item
    program = "import sys, time; a = time.monotonic(); time.sleep(%g); print(a, time.monotonic(), file=sys.stderr)"
    judgements = judge_many(
        [Submission(program % seconds + f" # {{name}} {{row}}", "python", [{{"input": "", "output": ""}}])
         for row in range(number)]
    )
    assert all(one.verdicts == ["AC"] for one in judgements), judgements
    return [list(map(float, one.stderr[0].split())) for one in judgements]
"""


@pytest.fixture
def judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    (tmp_path / "judges.py").write_text(JUDGES)
    monkeypatch.syspath_prepend(tmp_path)
    pool = WorkerPool("judges:judged", processes=2, memory_mb=None)
    yield pool
    pool.close()


def most_at_once(spans: list[list[float]]) -> int:
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    at_once = [0]
    for _, change in changes:
        at_once.append(at_once[-1] + change)
    return max(at_once)


@pytest.mark.slow
def test_one_worker_uses_all_slots_and_two_share_them(judges: WorkerPool) -> None:
    (alone,) = judges.map([["alone", 8, 1.0]], timeout_s=300)
    assert most_at_once(alone.value) == SLOTS
    judges.map([["warm", 4, 0.1], ["up", 4, 0.1]], timeout_s=300)  # start the processes
    long, short = (one.value for one in judges.map([["long", 20, 1.0], ["short", 8, 1.0]], timeout_s=300))
    end = max(span[1] for span in short)
    # The first worker started before it could see the demand of the other.
    begin = max(min(span[0] for span in spans) for spans in (long, short)) + 0.7
    both = [span for span in long + short if begin < span[0] and span[1] < end]
    assert len(both) > 4 and most_at_once(both) <= SLOTS, "not more programs than slots"
    after = [span for span in long if span[0] > end]
    assert most_at_once(after) == SLOTS, "the slots of the finished worker are used"


@pytest.mark.slow
def test_a_killed_worker_frees_its_share(judges: WorkerPool) -> None:
    judges.map([["warm", 4, 0.1], ["up", 4, 0.1]], timeout_s=300)
    fork_server = judges._fork_server
    assert fork_server is not None
    killed = 0

    def kill() -> None:
        nonlocal killed
        time.sleep(0.5)
        children = Path(f"/proc/{fork_server.process.pid}/task/{fork_server.process.pid}/children").read_text().split()
        for child in children:
            killed += 1
            os.kill(int(child), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    outcomes = judges.map([["one", 8, 0.5], ["two", 8, 0.5]], timeout_s=300)
    thread.join()
    assert killed == 2
    assert [one.status for one in outcomes] == ["done", "done"], "both were retried"
    (alone,) = judges.map([["alone", 8, 1.0]], timeout_s=300)
    assert most_at_once(alone.value) == SLOTS
