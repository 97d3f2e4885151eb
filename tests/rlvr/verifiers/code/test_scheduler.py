"""The judge's threads by themselves, with pieces of work that start no process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rlvr.verifiers.code.executor import Executor
from rlvr.verifiers.code.scheduler import JudgeJob, JudgeScheduler
from rlvr.workers.cpu_share import judge_cpu_share


@pytest.fixture
def pool() -> Iterator[JudgeScheduler]:
    made = JudgeScheduler(4, shared=True)
    yield made
    made.close()


@pytest.fixture
def crowded() -> Iterator[None]:
    """Three other workers want all that there is, so that this one has one slot."""
    for worker in (1, 2, 3):
        judge_cpu_share.join(worker)
        judge_cpu_share.set_demand(100)
    judge_cpu_share.join(0)
    yield
    for worker in range(4):
        judge_cpu_share.clear(worker)
    judge_cpu_share.detach()


def ran(pool: JudgeScheduler, pieces: int, seconds: float = 0.0) -> int:
    """How many pieces of a call were done."""
    done = []

    def unit(slot: Executor) -> None:
        time.sleep(seconds)
        done.append(slot)

    pool.run(lambda call: [call.add(unit) for _ in range(pieces)] and None, pieces)
    return len(done)


def test_a_thread_that_cannot_be_started_leaves_its_place_to_the_next(
    pool: JudgeScheduler, crowded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def full(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ran(pool, 8)
    assert time.monotonic() - begun < 5, "nothing had begun that would have to end"
    assert ran(pool, 8) == 8, "its share is the first place, and there is somebody in it"


def test_a_call_that_fails_while_it_is_filled_ends_at_once(pool: JudgeScheduler) -> None:
    ran(pool, 4)

    def fails(call: JudgeJob) -> None:
        call.add(lambda slot: time.sleep(0.2))
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pool.run(fails, 4)
    assert time.monotonic() - begun < 5
    assert ran(pool, 8) == 8


def test_whose_judge_is_closed_by_another_thread_is_told() -> None:
    pool = JudgeScheduler(2)
    told: list[BaseException] = []

    def judges() -> None:
        try:
            ran(pool, 50, 0.2)
        except RuntimeError as error:
            told.append(error)

    thread = threading.Thread(target=judges)
    thread.start()
    time.sleep(0.5)
    pool.close()
    thread.join(10)
    assert not thread.is_alive() and "closed" in str(told[0])


def test_nothing_is_left_behind_of_calls_that_come_and_go(pool: JudgeScheduler, crowded: None) -> None:
    stop = threading.Event()

    def others() -> None:
        """The share goes up and down all the time."""
        while not stop.wait(0.002):
            for worker in (1, 2, 3):
                judge_cpu_share._demand[worker] = 0 if judge_cpu_share._demand[worker] else 100

    flips = threading.Thread(target=others)
    flips.start()
    found: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(ran(pool, pieces, 0.001) == pieces for pieces in (0, 1, 3, 40) * 8)
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "somebody waits for a slot that nobody has woken"
    stop.set()
    flips.join()
    assert all(found) and len(found) == 6 * 32
    assert judge_cpu_share._demand[0] == 0 and not pool.calls
