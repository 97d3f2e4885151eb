"""The worker pool: timeouts, crashes, isolation, and no process is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.workers.pool import WorkerError, WorkerPool
from tests.support.processes import runs, wait_until

PROJECT = Path(__file__).resolve().parents[3]
# A module that the workers import; the item says what its function does.
PROGRAM = """
import gc, os, signal, time
import unittest.mock  # imports many modules

def act(item):
    what, *rest = item
    if what == "echo":
        return rest[0]
    if what == "sleep":
        time.sleep(rest[0])
        return "slept"
    if what == "spin":
        while True:
            pass
    if what == "die":
        os._exit(3)
    if what == "die_once":
        if not os.path.exists(rest[0]):
            open(rest[0], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"
    if what == "eat":
        return len(bytearray(1 << 40))
    if what == "raise":
        raise ValueError("no good")
    if what == "pid":
        return os.getpid()
    if what == "tracked":
        return len(gc.get_objects()), gc.isenabled()
    if what == "environment":
        return dict(os.environ)
    if what == "noise":
        print("noise")
        os.write(1, b"noise")
        return "quiet"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program_for_workers.py").write_text(PROGRAM)
    sys.path.insert(0, str(folder))
    yield "program_for_workers:act"
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def pool(program: str) -> Iterator[WorkerPool]:
    pool = WorkerPool(program, processes=2)
    yield pool
    pool.close()


def statuses(pool: WorkerPool, items: list[Any], timeout_s: float = 5.0, **options: Any) -> list[str]:
    return [outcome.status for outcome in pool.map(items, timeout_s=timeout_s, **options)]


def test_results_come_in_the_order_of_the_items(pool: WorkerPool) -> None:
    items = [["sleep", 0.2], *(["echo", number] for number in range(50))]
    assert [outcome.value for outcome in pool.map(items, timeout_s=5.0)] == ["slept", *range(50)]
    assert pool.map([], timeout_s=1.0) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item", "status", "why"),
    [
        (["spin"], "timeout", "an endless computation"),
        (["sleep", 60], "timeout", "an endless wait"),
        (["die"], "crashed", "two workers die on it"),
        (["eat"], "crashed", "it allocates a tebibyte"),
        (["raise"], "raised", "an exception"),
        (["noise"], "done", "output does not mix with messages"),
    ],
)
def test_a_failing_item_affects_no_other_item(pool: WorkerPool, item: list[Any], status: str, why: str) -> None:
    assert statuses(pool, [["echo", 1], item, ["echo", 2], ["echo", 3]], 2.0) == ["done", status, "done", "done"], why


def test_an_item_is_retried_when_its_worker_is_killed(pool: WorkerPool, tmp_path: Path) -> None:
    outcomes = pool.map([["die_once", str(tmp_path / "mark")], ["echo", 1]], timeout_s=5.0)
    assert [outcome.value for outcome in outcomes] == ["alive", 1]


def test_items_beyond_the_batch_timeout_are_unavailable(pool: WorkerPool) -> None:
    results = statuses(pool, [["spin"]] * 4 + [["echo", 1]] * 3, 0.4, batch_timeout_s=0.6)
    assert results[0] == results[1] == "timeout"
    assert results[-1] == "unavailable"
    assert statuses(pool, [["echo", 1]]) == ["done"]


def test_a_fork_server_that_is_killed_is_replaced(pool: WorkerPool) -> None:
    pool.start()
    assert pool._fork_server is not None
    os.kill(pool._fork_server.process.pid, signal.SIGKILL)
    pool._fork_server.process.wait()
    assert statuses(pool, [["echo", 1]] * 4) == ["done"] * 4


def test_a_failed_import_makes_items_unavailable_with_its_cause(program: str) -> None:
    broken = WorkerPool("no_such_module_anywhere:act")
    (outcome,) = broken.map([["echo", 1]], timeout_s=1.0)
    assert outcome.status == "unavailable"
    assert "no_such_module_anywhere" in outcome.why


def test_threads_share_the_workers(pool: WorkerPool) -> None:
    results: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        outcomes = pool.map([["echo", [number, item]] for item in range(20)], timeout_s=20.0)
        results[number] = [outcome.value for outcome in outcomes]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [[number, item] for item in range(20)] for number in range(8)}


def test_a_timed_out_request_takes_no_worker(program: str) -> None:
    pool = WorkerPool(program, processes=1)
    (first,) = pool._acquire(1)
    outcomes = pool.map([["echo", 1]], timeout_s=5.0, batch_timeout_s=0.05, count_waiting=True)
    assert [outcome.status for outcome in outcomes] == ["unavailable"]
    assert pool.load() == (1, 0)
    pool._release([first])
    assert statuses(pool, [["echo", 1]]) == ["done"]
    pool.close()


def test_single_calls_reuse_the_same_worker(pool: WorkerPool) -> None:
    pool.map([["echo", 1]] * 4, timeout_s=5.0)
    (first,) = pool.map([["pid"]], timeout_s=5.0)
    found = [outcome.value for outcome in pool.map([["pid"]] * 6, timeout_s=5.0, max_workers=1)]
    assert found == [first.value] * 6


def test_the_batch_timeout_kills_busy_workers(pool: WorkerPool) -> None:
    (pid,) = pool.map([["pid"]], timeout_s=5.0)
    assert statuses(pool, [["spin"]], 60.0, batch_timeout_s=0.1) == ["unavailable"]
    wait_until(lambda: not runs(pid.value))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_ignore_sigint_and_sigterm(pool: WorkerPool, number: int) -> None:
    (pid,) = pool.map([["pid"]], timeout_s=5.0)
    assert pool._fork_server is not None
    for process in (pid.value, pool._fork_server.process.pid):
        os.kill(process, number)
    assert [outcome.value for outcome in pool.map([["pid"]], timeout_s=5.0)] == [pid.value]


def test_garbage_collection_skips_imported_modules(pool: WorkerPool) -> None:
    (outcome,) = pool.map([["tracked"]], timeout_s=5)
    tracked, enabled = outcome.value
    assert enabled, "new objects are still collected"
    assert tracked < 1000, "unittest.mock alone imports more than ten thousand"


def test_a_launched_pool_can_be_closed_at_once(program: str) -> None:
    pool = WorkerPool(program)
    pool.launch()
    assert pool._fork_server is not None
    pid = pool._fork_server.process.pid
    pool.close()
    assert not runs(pid)


def test_a_closed_pool_stays_closed(program: str) -> None:
    pool = WorkerPool(program)
    pool.start()
    pool.close()
    assert statuses(pool, [["echo", 1]]) == ["unavailable"] and not pool.started
    with pytest.raises(WorkerError) as error:
        pool.launch()
    assert error.value.kind == "pool-closed"


@pytest.mark.parametrize("waiting", [False, True])
def test_a_cancelled_call_frees_its_worker(pool: WorkerPool, waiting: bool) -> None:
    workers = pool._acquire(2) if waiting else []
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    begun = time.monotonic()
    assert statuses(pool, [["spin"]] * 3, 60.0, cancelled=cancelled) == ["unavailable"] * 3
    assert time.monotonic() - begun < 40
    pool._release(workers)
    assert pool.load() == (0, 0) and statuses(pool, [["echo", 1]] * 2) == ["done"] * 2


def test_closing_ends_calls_of_other_threads(program: str) -> None:
    pool = WorkerPool(program)
    pool.start()
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(statuses(pool, [["spin"]] * 2, 60.0)))
    thread.start()
    time.sleep(0.2)
    pool.close()
    thread.join(timeout=50)
    assert found == ["unavailable"] * 2


def test_bytes_arrive_unchanged_and_the_fork_server_calls_the_function_with_its_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maker_for_workers.py").write_text(
        "def make(word):\n    return lambda item: [len(item), item[:2].hex(), word.decode()]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pool = WorkerPool("maker_for_workers:make", init_payload=b"made", memory_mb=None)
    outcomes = pool.map([b"\x00\xff" * 500_000, b""], timeout_s=20.0)
    pool.close()
    assert [outcome.value for outcome in outcomes] == [[1_000_000, "00ff", "made"], [0, "", "made"]]


def test_workers_may_inherit_environment_folder_and_standard_error(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pool = WorkerPool(program, inherit_env=True, folder=str(tmp_path))
    environment, quiet = pool.map([["environment"], ["noise"]], timeout_s=20.0)
    pool.close()
    assert environment.value["HF_TOKEN"] == "hf_secret" and environment.value["CUDA_VISIBLE_DEVICES"] == ""
    assert quiet.value == "quiet" and "noise" in capfd.readouterr().err


def _in_child(pool: WorkerPool, queue: Any) -> None:
    queue.put([outcome.value for outcome in pool.map([["echo", 1], ["pid"]], timeout_s=20.0)])


def test_a_forked_process_gets_its_own_workers(pool: WorkerPool) -> None:
    (parent,) = pool.map([["pid"]], timeout_s=5.0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(pool, queue), daemon=True)  # daemonic, as in a process pool
    child.start()
    echoed, child_pid = queue.get(timeout=300)
    child.join()
    assert echoed == 1
    assert child_pid != parent.value
    assert statuses(pool, [["echo", 1]]) == ["done"]


def test_no_secret_of_the_environment_reaches_a_worker(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pool = WorkerPool(program)
    (outcome,) = pool.map([["environment"]], timeout_s=5.0)
    pool.close()
    assert "hf_secret" not in str(outcome.value)
    assert "PATH" in outcome.value


@pytest.mark.parametrize("ending", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_all_processes_end_with_the_caller(program: str, tmp_path: Path, ending: str) -> None:
    program = f"""
import os, sys, threading, time
sys.path[:0] = {[str(PROJECT), *sys.path]!r}
from rlvr.workers.pool import WorkerPool
pool = WorkerPool({program!r}, processes=2)
print(pool.map([["pid"]], timeout_s=20.0)[0].value, pool._fork_server.process.pid, flush=True)
threading.Thread(target=pool.map, args=([["spin"], ["spin"]],), kwargs=dict(timeout_s=100.0), daemon=True).start()
time.sleep(0.5)
{ending}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    left = [int(word) for word in result.stdout.split()]
    assert len(left) == 2, result.stderr
    wait_until(lambda: not any(map(runs, left)))
