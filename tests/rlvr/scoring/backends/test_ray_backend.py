"""Rewards on a Ray cluster equal local ones, whatever happens to nodes and processes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scored, Scorer
from tests.support.processes import free_port
from tests.support.ray_clusters import RayCluster
from tests.support.scripted_rewards import REMOTE_BATCHES, SCRIPTED_REWARDS, both_sides, outcome

pytestmark = pytest.mark.slow  # the cluster takes half a minute to start

REWARDS = (
    SCRIPTED_REWARDS
    + '''
from rlvr.verifiers.code import completion_judge
from rlvr.verifiers.code.options import JudgeOptions

WORKER_GROUP = "judgements"

def logs(completions, *, question, log_extra, log_metric, **kwargs):
    log_extra("seen", [word.upper() for word in completions])
    log_metric("logs/length", sum(map(len, completions)) / len(completions))
    return [0.0 if word != "bad" else "no" for word in completions]

def as_sent(completions, *, table, **kwargs):
    return [float(kwargs["trainer_state"].global_step) if table == [{1: (2, b"x")}] else 0.0]

def slow(prompts, completions, *, number, notebook: str = "", **kwargs):
    """Notes where it runs, and takes its time."""
    with open(notebook, "a") as file:
        parent = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
        told = {"rows": number, "worker": os.getpid(), "task": parent, "raylet": int(os.environ["RAY_RAYLET_PID"])}
        file.write(json.dumps(told) + "\\n")
    time.sleep(0.03 * len(completions))
    return [random.random() + one for one in number]

def counts(prompts, completions, *, tests, notebook: str = "", **kwargs):
    """Notes how many programs are judged."""
    judge_many = completion_judge.judge_many
    def counting(submissions):
        with open(notebook, "a") as file:
            file.write("x" * len({submission.program for submission in submissions}))  # equal ones are judged once
        return judge_many(submissions)
    completion_judge.judge_many = counting
    try:
        rows = completion_judge.judge_completions("counts", prompts, completions, JudgeOptions(tests=tests))
    finally:
        completion_judge.judge_many = judge_many
    return [row.judgement.score for row in rows]

def counts_too(prompts, completions, *, tests, notebook: str = "", **kwargs):
    return counts(prompts, completions, tests=tests, notebook=notebook)
'''
)
NAMES = ("puppet", "only_rows", "draws", "logs", "group_sizes")
GROUP = 4
TESTS = [{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "6\n"}]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    started = RayCluster(3, client_port=free_port() if importlib.util.find_spec("grpc") else 0)
    before = {name: os.environ.get(name) for name in started.env}
    os.environ.update(started.env)
    yield started
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    started.close()


def scorer(puppets: Path, name: str, where: str | None, options: dict[str, Any] | None = None, **more: Any) -> Scorer:
    return Scorer(load_rewards([RewardSpec(f"{puppets}:{name}", options=options or {}, where=where)]), **more)


@pytest.fixture(scope="module")
def sides(puppets: Path, cluster: RayCluster) -> Iterator[tuple[Scorer, Scorer]]:
    there, here = both_sides(puppets, "ray", NAMES)
    with there, here:
        yield there, here


@pytest.mark.parametrize(("completions", "why"), [*REMOTE_BATCHES, (["one", "two", "bad"], "its logs")])
def test_a_remote_batch_has_the_values_failures_and_logs_of_a_local_one(
    sides: tuple[Scorer, Scorer], completions: list[str], why: str
) -> None:
    assert outcome(sides[0], completions) == outcome(sides[1], completions), why


def test_a_remote_call_that_waits_for_ever_is_given_up_as_a_local_one_is(puppets: Path, cluster: RayCluster) -> None:
    there, here = both_sides(puppets, "ray", ["puppet"], timeout_s=1.5)
    with there, here:
        assert outcome(there, ["hang", "fine"]) == outcome(here, ["hang", "fine"])


def test_columns_arrive_as_they_are(puppets: Path, cluster: RayCluster) -> None:
    with scorer(puppets, "as_sent", "ray") as scoring:
        assert scoring.score(["p"], ["c"], {"table": [{1: (2, b"x")}]}, step=7).values == [[7.0]]
        (fault,) = scoring.score(["p"], ["c"], {"table": [threading.Lock()]}, step=7).failures
    assert fault.status == "unavailable" and "table can't be sent" in fault.message


def test_groups_stay_together_and_values_are_in_the_order_of_the_rows(sides: tuple[Scorer, Scorer]) -> None:
    prompts = [prompt for _ in range(2) for prompt in "abcdefg" for _ in range(3)]
    words = [f"w{row}" for row in range(42)]
    logged: list[Any] = []
    scored = sides[0].score(prompts, words, {"question": prompts}, log_extra=lambda *extra: logged.append(extra))
    assert [row[NAMES.index("group_sizes")] for row in scored.values] == [6.0] * 42
    assert logged == [("question", prompts), ("seen", [word.upper() for word in words])]


def test_a_program_is_judged_once_in_a_task_whoever_asks(puppets: Path, cluster: RayCluster, tmp_path: Path) -> None:
    notebook = tmp_path / "counted"
    programs = [f"```python\nprint(int(input()) + {number})\n```" for number in (1, 2, 3, 1)]
    completions = programs * 6  # of six groups of four rows, with three programs each; a task has two groups
    prompts = [f"p{group}" for group in range(6) for _ in range(4)]
    specs = [
        RewardSpec(f"{puppets}:{name}", options={"notebook": str(notebook)}, where="ray")
        for name in ("counts", "counts_too")
    ]
    with Scorer(load_rewards(specs)) as scoring:
        scored = scoring.score(prompts, completions, {"tests": [[dict(test) for test in TESTS] for _ in completions]})
    assert not scored.failures, scored.failures[0].message
    assert scored.values == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]] * 6
    assert 3 <= len(notebook.read_text()) <= 3 * 3, "a process keeps what it has judged for its next task"


def test_the_sandbox_of_the_nodes_is_known_after_the_start(cluster: RayCluster) -> None:
    with Scorer(load_rewards([RewardSpec("code_execution", where="ray")])) as scoring:
        assert not scoring.connect() and list(scoring.environment_info()) == ["sandbox of the Ray nodes"]


@pytest.mark.slow
def test_what_takes_longer_than_a_batch_may_is_given_up_and_the_cluster_free_again(
    puppets: Path, sides: tuple[Scorer, Scorer]
) -> None:
    begun = time.monotonic()
    with scorer(puppets, "puppet", "ray", timeout_s=500, batch_timeout_s=2) as scoring:
        scored = scoring.score(["p", "q"] * 8, ["hang", "fine"] * 8, {})
        assert time.monotonic() - begun < 60 and {fault.status for fault in scored.failures} <= {
            "timeout",
            "unavailable",
        }
        assert {value for row in scored.values[::2] for value in row} == {None}
    assert sides[0].score(["p"], ["fine"], {"question": ["q"]}).values[0][0] == 1.0


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("grpc"), reason="a client of Ray needs grpcio")
def test_a_machine_that_is_no_part_of_the_cluster_asks_its_head(puppets: Path, cluster: RayCluster) -> None:
    said = []
    for where in (None, f"ray://127.0.0.1:{cluster.client_port}"):
        with scorer(puppets, "draws", where) as scoring:
            scored = scoring.score(["p"] * 3, ["a", "b", "c"], {})
            said.append((scored.values, scored.failures))
    assert said[0] == said[1]


@pytest.mark.slow
def test_a_wrong_token_is_named_at_once(puppets: Path, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    with scorer(puppets, "puppet", "ray") as scoring:
        (fault,) = scoring.score(["p"], ["fine"], {}).failures
    assert "set RAY_AUTH_TOKEN" in fault.message and "f" * 64 not in fault.message


@pytest.mark.parametrize(
    "versions",
    [{"ray_version": "2.9.0"}, {"python_version": "3.9.1"}],
)
def test_other_versions_are_refused_before_training_and_named(cluster: RayCluster, versions: dict[str, str]) -> None:
    own = {"ray_version": importlib.metadata.version("ray"), "python_version": platform.python_version()}
    (reward,) = load_rewards([RewardSpec("code_execution", where="ray")])
    cluster.says(**versions)
    try:
        with Scorer([reward]) as scoring:
            [(_, refused)] = scoring.connect()
            scored = scoring.score(["p"], ["c"], {"tests": [TESTS]})
    finally:
        cluster.says(**own)
    assert refused.kind == "cluster-refused" and scored.failures[0].status == "unavailable"
    for message in (str(refused), scored.failures[0].message):
        assert all(part in message for part in (*own.values(), *versions.values())), message
    assert scored.outage_s == 0, "it has answered, and no wait would mend it"


# ----------------------------------------------------------------------------------------------------------------------
# What can go wrong with processes and nodes


def slowly(puppets: Path, notebook: Path, when_begun: Callable[[list[dict[str, Any]]], bool] | None = None) -> Scored:
    """A batch of 24 groups; what is to be done when the tasks have begun is told what they have noted until it is."""
    rows = 24 * GROUP
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            noted = notebook.read_text().splitlines() if notebook.exists() else []
            if when_begun is not None and when_begun([json.loads(entry) for entry in noted]):
                done.set()

    with scorer(puppets, "slow", "ray", {"notebook": str(notebook)}, timeout_s=100) as scoring:
        watching = threading.Thread(target=watch)
        watching.start()
        prompts = [f"p{row // GROUP}" for row in range(rows)]
        scored = scoring.score(prompts, ["c"] * rows, {"number": list(range(rows))}, step=4)
        told = done.is_set()
        done.set()
        watching.join()
    assert when_begun is None or told, "nothing went wrong in time"
    return scored


@pytest.fixture(scope="module")
def quiet(puppets: Path, cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    notebook = tmp_path_factory.mktemp("quiet") / "notes"
    scored = slowly(puppets, notebook)
    noted = [json.loads(entry) for entry in notebook.read_text().splitlines()]
    assert not scored.failures and len({entry["raylet"] for entry in noted}) > 1, "several nodes work"
    assert sorted(row for entry in noted for row in entry["rows"]) == list(range(24 * GROUP))
    return scored


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["worker", "task"])
def test_a_process_that_the_kernel_kills_costs_nothing_but_time(
    puppets: Path, cluster: RayCluster, quiet: Scored, tmp_path: Path, whose: str
) -> None:
    def kill(noted: list[dict[str, Any]]) -> bool:
        if noted:
            os.kill(noted[-1][whose], signal.SIGKILL)
        return bool(noted)

    scored = slowly(puppets, tmp_path / "notes", kill)
    assert (scored.values, scored.failures) == (quiet.values, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node", "number", "why"),
    [
        ("1", signal.SIGKILL, "Ray has ended there, which the kernel tells"),
        ("2", signal.SIGSTOP, "a machine that has lost its power: nobody says anything any more"),
    ],
)
def test_a_node_that_disappears_in_mid_batch_costs_nothing_but_time(
    puppets: Path,
    cluster: RayCluster,
    quiet: Scored,
    tmp_path: Path,
    node: str,
    number: int,
    why: str,
) -> None:
    def kill(noted: list[dict[str, Any]]) -> bool:
        there = any(entry["raylet"] in cluster.pids[node] for entry in noted)
        if there:
            cluster.kill(node, number)
        return there

    scored = slowly(puppets, tmp_path / "notes", kill)
    assert (scored.values, scored.failures) == (quiet.values, []), why
    noted = [json.loads(entry) for entry in (tmp_path / "notes").read_text().splitlines()]
    assert len(noted) > 12, "what the node had begun has been begun again"


@pytest.mark.slow
def test_rows_are_masked_while_the_cluster_is_gone_and_scored_by_the_next_at_its_address(
    puppets: Path, cluster: RayCluster, quiet: Scored, tmp_path: Path
) -> None:
    with scorer(puppets, "puppet", "ray", batch_timeout_s=12) as scoring:
        assert scoring.score(["p"], ["fine"], {}).outage_s == 0
        cluster.kill("head")
        cluster.kill("0")
        scored = scoring.score(["p", "q"], ["fine", "fine"], {})
        (fault,) = scored.failures
        assert scored.values == [[None], [None]] and fault.status == "unavailable" and scored.outage_s > 0
        assert scored.outage_of == "Ray cluster"
        # As after `ray stop` and `ray start` in the midst of a batch: nobody says that it is another cluster.
        port, token = int(cluster.env["RAY_ADDRESS"].rpartition(":")[2]), cluster.env["RAY_AUTH_TOKEN"]
        started: list[RayCluster] = []
        starting = threading.Thread(target=lambda: started.append(RayCluster(1, port=port, token=token)))
        starting.start()
        try:
            with scorer(puppets, "draws", "ray", seed=5) as other, scorer(puppets, "draws", None, seed=5) as here:
                there = other.score(["p"] * 3, ["a", "b", "c"], {})
                assert (there.values, there.failures) == (here.score(["p"] * 3, ["a", "b", "c"], {}).values, [])
            # Its process may take longer to join on a busy machine than one batch may.
            scored = next(one for _ in range(9) if not (one := scoring.score(["p"], ["fine"], {})).outage_s)
            assert scored.values == [[1.0]] and not scored.failures
        finally:
            starting.join()
            started[0].close()
