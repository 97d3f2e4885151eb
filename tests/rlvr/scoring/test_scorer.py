"""Rewards in workers: every failure is named and stays with its row, and no process is left behind."""

from __future__ import annotations

import datetime
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.data.task import OPENED
from rlvr.reward_audit.reward_call import reward_arguments
from rlvr.scoring.call_result import RewardFailure
from rlvr.scoring.failures import ALL_ROWS_FIX, CHAT_FIX, FIXES, TEXT_FIX, report
from rlvr.scoring.registry import load_reward, load_rewards
from rlvr.scoring.reward import MODULE_FIX, Reward
from rlvr.scoring.scorer import Scorer
from tests.support.processes import children, command_line, descendants, runs, wait_until
from tests.support.scripted_rewards import SCRIPTED_REWARDS

PROJECT = Path(__file__).resolve().parents[3]
# Rewards that do as completions, options and columns tell them, in a file of their own that workers can load.
REWARDS = (
    SCRIPTED_REWARDS
    + '''
def only_batches(completions, **kwargs):
    if len(completions) < 2:
        raise RuntimeError("one is none")
    raise RuntimeError("none at all")

def a_number(completions, **kwargs):
    return 1.0

def process(completions, **kwargs):
    """The number of its process, and of its fork server; with a path, its first call creates the file and hangs."""
    for word in completions:
        if os.path.isabs(word) and not os.path.exists(word):
            open(word, "w").close()
            time.sleep(1000)
    return [float(os.getppid() if word == "parent" else os.getpid()) for word in completions]

def meet(completions, others):
    """Wait for the other functions: returns only if all run at the same time."""
    for word in completions:
        if word:
            open(os.path.join(word, str(os.getpid())), "w").close()
            while len(os.listdir(word)) < others:
                time.sleep(0.01)

def meets(completions, **kwargs):
    meet(completions, 3)
    return [1.0] * len(completions)

def meets_too(completions, **kwargs):
    meet(completions, 3)
    return [2.0] * len(completions)

def meets_as_well(completions, **kwargs):
    meet(completions, 3)
    return [3.0] * len(completions)

def waits(completions, **kwargs):
    while not os.path.exists(completions[0]):
        time.sleep(0.01)
    return [1.0] * len(completions)

def order_of_a_set(completions, **kwargs):
    return [float(sum(place * ord(word[0]) for place, word in enumerate(set("the order of these words".split()))))]

def logs(completions, *, question, log_extra, log_metric, **kwargs):
    if "raise" in completions:
        raise ValueError("no good")
    for word in completions:
        log_extra("seen", [word.upper()])
    log_extra("question", ["never"] * len(completions))
    log_metric("logs/length", sum(map(len, completions)) / len(completions))
    return [0.0 if word != "bad" else "no" for word in completions]

def logs_too(completions, *, question, source, log_extra, log_metric, **kwargs):
    log_extra("seen", ["never"] * len(completions))
    log_extra("wrong", ["one"])
    log_metric("logs_too/count", len(completions))
    return [0.0] * len(completions)

def prints(completions, **kwargs):
    print("said by the function" + "." * 10**6 * ("much" in completions))
    return [1.0] * len(completions)

def columns_as_sent(completions, *, day, raw, number, completion_ids, **kwargs):
    assert day == [datetime.date(2026, 1, 2)] and raw == [b"\\xff"] and math.isnan(number[0]), (day, raw, number)
    assert completion_ids == [[1, 2]] and kwargs["trainer_state"].global_step == 7 and kwargs["other"] == [None]
    assert kwargs["trainer_state"].max_steps == 9
    return [1.0]

def surroundings(completions, *, folder: str = "", **kwargs):
    assert os.environ["A_SECRET"] == "of the trainer" and os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["OMP_NUM_THREADS"] == "1" and os.getcwd() == folder and sys.stdin.read() == ""
    return [1.0] * len(completions)

async def later(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [1.0] * len(completions)

def starts_processes(completions, **kwargs):
    with multiprocessing.get_context("fork").Pool(2) as pool:  # ended by SIGTERM
        found = pool.map(float, [len(word) for word in completions])
    child = subprocess.Popen(["sleep", "1000"])
    child.terminate()
    assert child.wait(timeout=60) != 0
    thread = threading.Thread(target=found.append, args=(0.0,))
    thread.start()
    thread.join()
    return found[:-1]

def child_returns(completions, **kwargs):
    os.fork()
    return [float(len(word)) for word in completions]

def closes_output(completions, **kwargs):
    sys.stdout.close()
    return [1.0] * len(completions)

def leaves_processes(completions, **kwargs):
    child = subprocess.Popen(["sleep", "1000"])
    return [float(child.pid), float(os.getpid()), float(os.getppid())]
'''
)


def scorer(puppets: Path, *names: str, options: dict[str, Any] | None = None, **settings: Any) -> Scorer:
    specs = [RewardSpec(f"{puppets}:{name}", options=options or {}) for name in names]
    return Scorer(load_rewards(specs), **settings)


def said(scoring: Scorer, completions: list[Any], columns: dict[str, list[Any]] | None = None, **more: Any) -> Any:
    return scoring.score(["p"] * len(completions), completions, columns or {}, **more)


@pytest.fixture(scope="module")
def strict(puppets: Path) -> Iterator[Scorer]:
    """One for all that is about a row at fault."""
    with scorer(puppets, "puppet", rank=3) as scoring:
        yield scoring


@pytest.mark.parametrize(
    ("word", "kind", "told", "why"),
    [
        ("raise", "raised", "raised ValueError: no good", "an exception"),
        ("exit", "raised", "raised SystemExit: 3", "one that would end the process without a word"),
        ("die", "crashed", "SIGABRT", "a fault of native code"),
        ("short", "wrong length", "returned 0 values for 1 completions", "a row that is left out"),
        ("text", "no number", "returned '0.5'", "a number in quotes"),
        ("nan", "no number", "returned nan", "None says that a row can't be scored; NaN is a bug"),
        ("inf", "no number", "returned inf", "an infinite reward gives infinite advantages"),
        ("list", "no number", "returned [1]", "a list in a list"),
    ],
)
def test_a_failure_is_named_and_stays_with_its_row(strict: Scorer, word: str, kind: str, told: str, why: str) -> None:
    scored = said(strict, ["fine", "fine", word, "none", "fine"])
    assert scored.values == [[1.0], [1.0], [None], [None], [1.0]], why
    (fault,) = scored.failures
    assert (fault.reward, fault.row, fault.status) == ("puppet", 2, kind)
    for part in (told, "puppet", "row 2", "rank 3", f"'{word}'"):
        assert part in fault.message, why
    assert said(strict, ["fine"]).values == [[1.0]], "and the next batch has a worker"


def test_a_reward_sees_only_rows_of_its_tasks(puppets: Path) -> None:
    """Its rows of the batch keep their numbers, in values, failures and what it logs."""
    spec = RewardSpec(f"{puppets}:logs", applies_to=("a", "b"))
    logged: dict[str, list[Any]] = {}
    columns: dict[str, list[Any]] = {"task": ["c", "a", "c", "b"], "question": [None, "x", None, "y"]}
    with Scorer(load_rewards([spec, RewardSpec(f"{puppets}:group_sizes")])) as scoring:
        scored = said(scoring, ["raise", "one", "raise", "bad"], columns, log_extra=logged.__setitem__)
        other = said(scoring, ["raise"], {"task": ["c"], "question": [None]})
    assert scored.values == [[None, 4.0], [0.0, 4.0], [None, 4.0], [None, 4.0]]
    assert [(failure.row, failure.status) for failure in scored.failures] == [(3, "no number")]
    assert logged["seen"] == [None, "ONE", None, "BAD"]
    assert other.values == [[None, 1.0]] and not other.failures


def test_the_traceback_begins_in_the_users_file(strict: Scorer, puppets: Path) -> None:
    (fault,) = said(strict, ["raise"]).failures
    assert fault.row == 0 and f'File "{puppets}"' in fault.message and "ValueError: no good" in fault.message
    assert "backends/local.py" not in fault.message and "scoring/reward.py" not in fault.message


@pytest.mark.slow
def test_a_row_that_hangs_costs_the_others_nothing(puppets: Path) -> None:
    with scorer(puppets, "puppet", timeout_s=2.0, batch_timeout_s=12.0) as scoring:
        scored = said(scoring, ["fine", "hang", "fine"])
    assert scored.values == [[1.0], [None], [1.0]] and scored.seconds["puppet"] > 2.0
    (fault,) = scored.failures
    assert (fault.row, fault.status) == (1, "timeout") and "reward_timeout_s" in fault.message


@pytest.mark.parametrize(
    ("name", "kind", "told", "why"),
    [
        ("only_batches", "raised", "every single row", "no row is better than the batch: said once"),
        ("only_rows", "raised", "does not fail", "rows alone are no batch: what they earn alone isn't trusted"),
        ("a_number", "wrong length", "returned float", "one number for all is no list"),
    ],
)
def test_a_failure_of_the_whole_batch_is_reported_once(
    puppets: Path, name: str, kind: str, told: str, why: str
) -> None:
    with scorer(puppets, name) as scoring:
        scored = said(scoring, ["a", "b", "c"])
    assert scored.values == [[None]] * 3
    (fault,) = scored.failures
    assert (fault.row, fault.status) == (None, kind) and told in fault.message, why


@pytest.mark.slow
def test_a_batch_ends_within_its_timeout_and_rows_that_were_not_reached_are_unavailable(puppets: Path) -> None:
    with scorer(puppets, "puppet", timeout_s=0.5, batch_timeout_s=1.5) as scoring:
        said(scoring, ["fine"])
        start = time.monotonic()
        scored = said(scoring, ["hang"] * 400)
        assert time.monotonic() - start < 30, "and not 50 s or more, one after the other"
    assert scored.values == [[None]] * 400
    # On a very busy machine no row is reached, and one failure speaks for all.
    others = [fault.message for fault in scored.failures if fault.status == "unavailable" or fault.row is None]
    assert others and all("reward_batch_timeout_s" in message for message in others)


def test_an_empty_batch_calls_no_function(puppets: Path) -> None:
    scored = said(scorer(puppets, "puppet"), [])
    assert (scored.values, scored.failures, scored.seconds) == ([], [], {"puppet": 0.0})


def test_rewards_work_at_the_same_time_and_keep_their_order(puppets: Path, tmp_path: Path) -> None:
    with scorer(puppets, "meets", "meets_too", "meets_as_well") as scoring:
        scored = said(scoring, [str(tmp_path), ""])
    assert scored.values == [[1.0, 2.0, 3.0]] * 2, report(scored.failures)
    assert list(scored.seconds) == ["meets", "meets_too", "meets_as_well"] and min(scored.seconds.values()) > 0


def test_rewards_that_a_step_waits_for_are_named(
    puppets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("rlvr.scoring.scorer.SLOW_BATCH_S", 0.1)
    lines: list[str] = []
    with scorer(puppets, "waits", "puppet") as scoring:
        thread = threading.Thread(target=said, args=(scoring, [str(tmp_path / "end")]), kwargs={"step": 7})
        thread.start()

        def names_it_alone() -> bool:
            lines.extend(capsys.readouterr().err.splitlines())
            return bool(lines) and ":puppet" not in lines[-1]

        wait_until(names_it_alone)
        (tmp_path / "end").touch()
        thread.join()
    assert all("step 7" in line and ":waits" in line for line in lines), lines
    assert all("reward_batch_timeout_s: 600" in line for line in lines), "the limit of the wait"


def test_starting_does_not_wait_for_imports(tmp_path: Path) -> None:
    path = tmp_path / "slow_start.py"
    path.write_text(
        "import os, time\n"
        "while os.environ.get('CUDA_VISIBLE_DEVICES') == '' and not os.path.exists(__file__ + '.end'):\n"
        "    time.sleep(0.01)\n"
        "def slow_start(completions, **kwargs):\n    return [1.0] * len(completions)\n"
    )
    end = tmp_path / "slow_start.py.end"
    at_last = threading.Timer(30, end.touch)
    at_last.start()
    with Scorer([load_reward(RewardSpec(str(path)))]):
        assert not end.exists(), "it has started, and the import has not ended"
        at_last.cancel()
        end.touch()


# ----------------------------------------------------------------------------------------------------------------------
# Who runs where


def test_functions_of_this_process_and_those_that_the_recipe_names_run_in_the_trainer(puppets: Path) -> None:
    def here(completions: list[str], **kwargs: Any) -> list[float]:
        return [float(os.getpid()) for _ in completions]

    rewards = [
        load_reward(RewardSpec(f"{puppets}:process")),
        Reward("here", here),
        load_reward(RewardSpec(f"{puppets}:process", where="trainer")),
    ]
    with Scorer(rewards) as scoring:
        ((first, *others),) = said(scoring, ["a"]).values
    assert others == [float(os.getpid())] * 2 and first != os.getpid()


def test_a_reward_in_the_trainer_that_edits_messages_changes_them_for_itself_alone() -> None:
    def empties(completions: list[Any], **kwargs: Any) -> list[float]:
        for messages in completions:
            messages[-1]["content"] = ""
        return [0.0] * len(completions)

    def length(completions: list[Any], **kwargs: Any) -> list[float]:
        return [float(len(messages[-1]["content"])) for messages in completions]

    completions = [[{"role": "assistant", "content": "12"}]]
    with Scorer([Reward("empties", empties), Reward("length", length)]) as scoring:
        assert said(scoring, completions).values == [[0.0, 2.0]]
    assert completions[0][0]["content"] == "12"


def test_failures_in_the_trainer_are_reported_as_those_of_workers(puppets: Path) -> None:
    def fussy(completions: list[str], **kwargs: Any) -> list[Any]:
        return [{"text": "0.5", "none": None}.get(word, 1 / len(word)) for word in completions]

    scored = said(Scorer([Reward("fussy", fussy)], rank=1), ["a", "", "none", "text"])
    assert [row for (row,) in scored.values] == [1.0, None, None, None]
    assert [(fault.row, fault.status) for fault in scored.failures] == [(1, "raised"), (3, "no number")]
    assert "ZeroDivisionError" in scored.failures[0].message and "in fussy" in scored.failures[0].message
    assert "row 1 of the batch on rank 1" in scored.failures[0].message


def test_a_worker_has_the_trainers_surroundings_but_not_its_gpus(
    puppets: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "of the trainer")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.chdir(tmp_path)
    with scorer(puppets, "surroundings", options={"folder": str(tmp_path)}) as scoring:
        scored = said(scoring, ["a"])
    assert scored.values == [[1.0]], report(scored.failures)


def test_columns_arrive_as_they_are(puppets: Path) -> None:
    columns = {"day": [datetime.date(2026, 1, 2)], "raw": [b"\xff"], "number": [float("nan")], "other": [None]}
    state = {"max_steps": 9}
    with scorer(puppets, "columns_as_sent") as scoring:
        scored = said(scoring, ["a"], columns, completion_ids=[[1, 2]], trainer_state=state, step=7)
    assert scored.values == [[1.0]], report(scored.failures)


def test_a_column_that_cannot_travel_is_named_unless_it_is_not_asked_for(puppets: Path) -> None:
    with scorer(puppets, "prints", "columns_as_sent") as scoring:
        scored = said(scoring, ["a"], {"other": [lambda: 1]})
    assert scored.values == [[1.0, None]]
    (fault,) = scored.failures
    assert (
        fault.status == "unavailable" and "other can't be sent" in fault.message and "where: trainer" in fault.message
    )


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("later", [1.0, 1.0], "a coroutine"),
        ("starts_processes", [1.0, 3.0], "processes, ended by SIGTERM; threads"),
        ("closes_output", [1.0, 1.0], "the streams of the worker"),
    ],
)
def test_functions_may_be_what_they_like(puppets: Path, name: str, values: list[float], why: str) -> None:
    with scorer(puppets, name) as scoring:
        scored = said(scoring, ["a", "bcd"])
    assert [row for (row,) in scored.values] == values, report(scored.failures)


def test_a_forked_child_that_returns_sends_no_second_reply(puppets: Path) -> None:
    with scorer(puppets, "child_returns") as scoring:
        for words in (["a"], ["bcd", "ef"], ["g"]):
            scored = said(scoring, words)
            assert [row for (row,) in scored.values] == [float(len(word)) for word in words], report(scored.failures)


def test_what_a_function_prints_is_seen(puppets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with scorer(puppets, "prints") as scoring:
        said(scoring, ["a"])
        assert capfd.readouterr().err == "said by the function\n"
        said(scoring, ["much", "a"], step=-1)
        assert len(capfd.readouterr().err) < 1100, "less in the trial before training"
        said(scoring, ["much", "a"])
        err = capfd.readouterr().err
    assert err.startswith("said by the function.....") and len(err) < 2300
    assert "[998,021 more characters of this call are not shown]" in err


def test_a_file_that_fails_to_import_in_a_worker_is_shown_as_it_would_be_here(tmp_path: Path) -> None:
    path = tmp_path / "wants_gpu.py"
    path.write_text(
        "import os\nif os.environ.get('CUDA_VISIBLE_DEVICES') == '':\n    raise RuntimeError('no GPU for me')\n"
        "def wants_gpu(completions, **kwargs):\n    return [1.0] * len(completions)\n"
    )
    with Scorer([load_reward(RewardSpec(str(path))), Reward("fine", lambda completions, **kwargs: [1.0])]) as scoring:
        scored = said(scoring, ["a"])
    assert scored.values == [[None, 1.0]]
    (fault,) = scored.failures
    assert fault.status == "unavailable" and "wants_gpu.py fails to import" in fault.message
    assert "RuntimeError: no GPU for me" in fault.message and "importlib" not in fault.message


# ----------------------------------------------------------------------------------------------------------------------
# What functions log, and draw


def test_what_functions_log_is_logged_once_and_in_the_order_of_the_rewards(puppets: Path) -> None:
    extras: list[Any] = []
    metrics: list[Any] = []
    columns = {"question": ["q", "r"], "source": ["s", "s"], "level": [1, 2]}
    with scorer(puppets, "logs", "logs_too") as scoring:
        said(
            scoring,
            ["a", "bad"],
            columns,
            log_extra=lambda *one: extras.append(one),
            log_metric=lambda *one: metrics.append(one),
        )
    assert extras == [("question", ["q", "r"]), ("seen", ["A", "BAD"]), ("source", ["s", "s"])]
    assert metrics == [("logs/length", 2.0), ("logs_too/count", 2.0)]


@pytest.mark.slow
def test_a_worker_draws_the_same_numbers_for_the_same_step_and_others_for_another(puppets: Path) -> None:
    random.seed(5)
    before = random.getstate()
    found = []
    for seed, rank, steps in [(1, 0, (4, 5)), (1, 0, (5, 4)), (2, 0, (4, 5)), (1, 1, (4, 5))]:
        with scorer(puppets, "draws", seed=seed, rank=rank) as scoring:
            found.append({step: said(scoring, ["a", "b"], step=step).values for step in steps})
    assert found[0] == found[1]
    drawn = [value for one in (found[0], found[2], found[3]) for values in one.values() for (value,) in values]
    assert len(set(drawn)) == 12
    assert random.getstate() == before, "the caller's own are left alone"


def test_the_order_of_a_set_is_the_same_in_every_worker(puppets: Path) -> None:
    found = set()
    for _ in range(2):
        with scorer(puppets, "order_of_a_set") as scoring:
            found.add(said(scoring, ["a"]).values[0][0])
    assert len(found) == 1


# ----------------------------------------------------------------------------------------------------------------------
# Signals, and what is left


@pytest.mark.parametrize("whom", ["worker", "fork server"])
def test_a_process_that_somebody_kills_costs_no_reward(puppets: Path, whom: str, tmp_path: Path) -> None:
    place = ["worker", "fork server"].index(whom)
    begun = tmp_path / "begun"
    with scorer(puppets, "process") as scoring:
        pids = [int(value) for (value,) in said(scoring, ["own", "parent"]).values]
        os.kill(pids[place], signal.SIGKILL)  # between batches
        wait_until(lambda: not runs(pids[0]))  # the kernel ends the fork server's worker a moment after it
        now = said(scoring, ["own", "parent"])
        assert not now.failures and now.values[0][0] != pids[0]

        def kill() -> None:
            wait_until(begun.exists)
            os.kill(int(now.values[place][0]), signal.SIGKILL)

        threading.Thread(target=kill).start()  # and during one
        then = said(scoring, ["own", "parent", str(begun)])
        assert not then.failures and then.values[0][0] not in (pids[0], now.values[0][0])
        assert (then.values[1] == now.values[1]) == (whom == "worker")


def test_nothing_is_left_after_close(puppets: Path) -> None:
    with scorer(puppets, "leaves_processes") as scoring:
        pids = [int(value) for (value,) in said(scoring, ["a", "b", "c"]).values]
        assert all(map(runs, pids))
        scoring.close()
        scoring.close()
    wait_until(lambda: not any(map(runs, pids)))


@pytest.mark.slow
def test_nothing_is_left_when_the_caller_is_killed(puppets: Path) -> None:
    program = f"""
import sys, os, signal, threading
sys.path[:0] = {[str(PROJECT)]!r}
from rlvr.scoring.registry import load_rewards
from rlvr.config.specs import RewardSpec
from rlvr.scoring.scorer import Scorer
rewards = load_rewards([RewardSpec({f"{puppets}:leaves_processes"!r}), RewardSpec({f"{puppets}:puppet"!r})])
scorer = Scorer(rewards)
scorer.start()
print(*(int(row[0]) for row in scorer.score(["p"] * 3, ["a"] * 3, {{}}).values), flush=True)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
scorer.score(["p"] * 3, ["spin"] * 3, {{}})
"""
    # What they print goes to the standard error, which must not be a pipe that is waited for until all have closed it.
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300
    )
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 3 and result.returncode == -signal.SIGKILL
    wait_until(lambda: not any(map(runs, pids)))


# ----------------------------------------------------------------------------------------------------------------------
# Programs


@pytest.mark.slow
def test_programs_are_judged_in_a_worker_as_they_are_here_and_once_for_all_rewards() -> None:
    slow = "import time\ntime.sleep(1)\nprint(int(input()) + 1)"
    completions = [f"```python\n{program}\n```" for program in (slow, "print(2)", "print(", "raise SystemExit(1)")]
    columns = {"tests": [[{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "6\n"}]] * 4}
    rewards = load_rewards([RewardSpec("code_execution"), RewardSpec("code_tiered"), RewardSpec("math_correctness")])
    metrics: dict[str, float] = {}
    with Scorer(rewards[:2]) as scoring:
        scored = said(scoring, completions, columns, log_metric=metrics.__setitem__)
        servers = [pid for pid in children(os.getpid()) if "rlvr.workers.fork_server" in command_line(pid)]
        zygotes = [pid for server in servers for pid in descendants(server) if "zygote" in command_line(pid)]
        assert zygotes
    here = [reward(["p"] * 4, completions, **columns) for reward in rewards[:2]]
    assert not scored.failures and [list(column) for column in zip(*scored.values, strict=True)] == here
    assert scored.values[0] == [1.0, here[1][0]] and scored.values[1][0] == 0.5
    assert metrics["code_execution/judge_s"] > 1.0 > metrics["code_tiered/judge_s"], "it runs once"
    wait_until(lambda: not any(map(runs, zygotes)))


# ----------------------------------------------------------------------------------------------------------------------


def test_a_report_quotes_the_first_of_each_kind_with_its_fix_and_counts_the_others() -> None:
    failures = [
        RewardFailure("a", 3, "raised", "a raised at 3\nTraceback"),
        RewardFailure("a", 4, "raised", "a raised at 4\nTraceback"),
        RewardFailure("a", 5, "timeout", "a late at 5"),
        RewardFailure("b", None, "crashed", "b crashed"),
    ]
    first, late, crashed, counts = report(failures).split("\n\n")
    assert first.splitlines() == ["a raised at 3", "Traceback", FIXES["raised"]] and late == "a late at 5"
    assert crashed.splitlines() == ["b crashed", FIXES["crashed"]]
    assert all(part in counts for part in ("a: 2 raised", "a: 1 timeout", "b: 1 crashed"))
    assert report([RewardFailure("a", 3, "raised", "an InputError with its own fix")]).endswith("own fix")


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("AttributeError: 'list' object has no attribute 'split'", CHAT_FIX),
        ("TypeError: string indices must be integers, not 'str'", TEXT_FIX),
        ("The reward a raised ModuleNotFoundError: No module named 'neighbour'", MODULE_FIX),
        ("The reward a raised KeyError: 'gold'", ALL_ROWS_FIX),
    ],
)
def test_advice_fits_the_error(error: str, fix: str) -> None:
    assert report([RewardFailure("a", None, "raised", f"{error}\nTraceback")]).endswith(fix)


SCHEMA, CALLS = '{"type": "object"}', '[{"name": "f", "arguments": {}}]'


@pytest.mark.parametrize(
    ("name", "options", "answer"),
    [
        ("math_correctness", {}, "\\boxed{18}"),
        ("exact_match", {"answer_in": "tag"}, "<answer>18</answer>"),
        ("keyword_coverage", {}, "It is 18 and no other number of them."),
        ("json_schema", {"schema": SCHEMA}, '```json\n{"a": 18}\n```'),
        ("function_call", {}, f"<tool_call>{CALLS[1:-1]}</tool_call>"),
        ("code_format", {}, "```python\nprint(18)\n```"),
        ("code_format", {"opened": True}, "```python\nprint(18)\n```"),
        ("tag_format", {}, "18"),
        ("tag_format", {"opened": True, "answer": True}, "<answer>18</answer>"),
        ("trl.rewards.think_format_reward", {}, "18"),
    ],
)
def test_every_reward_knows_that_the_template_opens_the_thoughts(
    name: str, options: dict[str, Any], answer: str
) -> None:
    reward = load_reward(RewardSpec(name, options=options, where="trainer"))
    completions = [f"Let me see.\n</think>\n{answer}", f"Let me see.\n{answer}", f"<think>\nHm.\n</think>\n{answer}"]
    chats = [[{"role": "assistant", "content": text}] for text in completions]
    columns = {"final_answer": ["18"] * 3, "keywords": [["18"]] * 3, "calls": [CALLS] * 3}
    logged: dict[str, Any] = {}
    with Scorer([reward]) as scoring:
        scoring.think_opened = True
        scored = scoring.score([[]] * 3, chats, columns, log_extra=logged.__setitem__)
    repeats = 0.0 if "think" in name or "tag" in name else 1.0  # a format says that the tag is there twice
    assert [value for (value,) in scored.values] == [1.0, 0.0, repeats] and logged[OPENED] == [True] * 3
    for prompt in ([], "Question\n<think>\n") if "trl" not in name else ():  # a file of an evaluation, and one of a run
        rows = [
            {"prompt": prompt, "completion": text, OPENED: True, **{key: value[0] for key, value in columns.items()}}
            for text in completions
        ]
        assert reward(**reward_arguments(rows, reward, [reward])) == [1.0, 0.0, repeats]


@pytest.mark.parametrize("name", ["math_correctness", "tag_format", "code_format"])
def test_a_prompt_may_open_the_thoughts_itself(name: str) -> None:
    reward = load_reward(RewardSpec(name, where="trainer"))
    prompts = ["Q\n<think>\n", [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>"}], "Q"]
    answer = "```python\nprint(7)\n```" if name == "code_format" else "\\boxed{7}"
    for texts, expected in (
        ([f"Hm.\n{answer}"] * 3, [0.0, 0.0, float(name != "tag_format")]),
        ([f"Hm.\n</think>\n{answer}"] * 2 + [f"<think>\nHm.\n</think>\n{answer}"], [1.0] * 3),
    ):
        with Scorer([reward]) as scoring:
            scored = scoring.score(prompts, texts, {"final_answer": ["7"] * 3})
        assert [value for (value,) in scored.values] == expected
        rows = [
            {"prompt": prompt, "completion": text, "final_answer": "7"}
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        assert reward(**reward_arguments(rows, reward, [reward])) == expected
