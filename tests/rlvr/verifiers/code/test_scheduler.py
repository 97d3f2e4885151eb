"""The judge's scheduler, with tasks that start no process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rlvr.verifiers.code.executor import Executor
from rlvr.verifiers.code.scheduler import JudgeClosed, JudgeJob, JudgeScheduler


@pytest.fixture
def scheduler() -> Iterator[JudgeScheduler]:
    scheduler = JudgeScheduler(4)
    yield scheduler
    scheduler.close()


def run_tasks(scheduler: JudgeScheduler, tasks: int, seconds: float = 0.0) -> int:
    """Run a job and return how many of its tasks ran."""
    done = []

    def task(executor: Executor, job: JudgeJob) -> None:
        time.sleep(seconds)
        done.append(executor)

    scheduler.run([task] * tasks, tasks)
    return len(done)


def test_a_thread_that_cannot_start_ends_its_job_alone(
    scheduler: JudgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def fail_once(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_tasks(scheduler, 8)
    assert time.monotonic() - started < 30, "no task had started, so there is nothing to wait for"
    assert run_tasks(scheduler, 8) == 8


def test_the_error_of_a_task_ends_its_job(scheduler: JudgeScheduler) -> None:
    added = []

    def fail(executor: Executor, job: JudgeJob) -> None:
        job.add(lambda executor, job: added.append(executor))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheduler.run([fail], 1)
    assert added == []
    assert run_tasks(scheduler, 8) == 8


def test_closing_the_scheduler_raises_in_threads_that_wait_for_a_job() -> None:
    scheduler = JudgeScheduler(2)
    errors: list[BaseException] = []

    def judge() -> None:
        try:
            run_tasks(scheduler, 1000, 0.2)
        except JudgeClosed as error:
            errors.append(error)

    thread = threading.Thread(target=judge)
    thread.start()
    time.sleep(0.5)
    scheduler.close()
    thread.join(60)
    assert not thread.is_alive() and len(errors) == 1


def test_every_task_of_jobs_at_the_same_time_runs(scheduler: JudgeScheduler) -> None:
    complete: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda: complete.extend(run_tasks(scheduler, tasks, 0.001) == tasks for tasks in (0, 1, 3, 40) * 8)
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a job waits for an executor that was not woken"
    assert all(complete) and len(complete) == 6 * 32 and not scheduler.jobs
