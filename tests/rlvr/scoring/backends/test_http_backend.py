"""Rewards on a server have the values, failures and messages of local rewards."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlvr.artifacts.identity import Identity
from rlvr.config.recipe import load_recipe
from rlvr.config.recipe_writer import write_recipe
from rlvr.config.reward_location import InvalidAddress, read_where
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.scoring.batch import Batch, EncodingError
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from tests.conftest import Command
from tests.support.reward_servers import REPOSITORY, RewardServer, recipe_of
from tests.support.scripted_rewards import REMOTE_BATCHES, SCRIPTED_REWARDS, both_sides, outcome

REWARDS = (
    SCRIPTED_REWARDS
    + """
def logs(completions, *, question, log_extra, log_metric, **kwargs):
    if "raise" in completions:
        raise ValueError("no good")
    for word in completions:
        log_extra("seen", [word.upper()])
    log_metric("logs/length", sum(map(len, completions)) / len(completions))
    return [0.0 if word != "bad" else "no" for word in completions]

def as_sent(completions, *, number, table, times: float = 1.0, **kwargs):
    assert kwargs["trainer_state"].global_step == 7 and kwargs["other"] == [None] and kwargs["completion_ids"] == [[1]]
    assert math.isnan(number[0]) and table == [{"a": [1, 2.5, "\\ud800", True]}], (number, table)
    return [times]
"""
)
NAMES = ("puppet", "only_rows", "draws", "logs", "as_sent", "group_sizes")


@pytest.fixture(scope="module")
def server(puppets: Path) -> Iterator[RewardServer]:
    rewards = [f"{puppets}:{name}" for name in NAMES] + ["code_execution", "code_tiered", "math_correctness"]
    with RewardServer("--config", recipe_of(puppets.with_name("recipe.yaml"), rewards)) as started:
        yield started


def scorer(puppets: Path, name: str, where: str | None, options: dict[str, Any] | None = None, **more: Any) -> Scorer:
    name = name if "_" in name and name not in NAMES else f"{puppets}:{name}"
    return Scorer(load_rewards([RewardSpec(name, options=options or {}, where=where)]), **more)


@pytest.fixture(scope="module")
def sides(puppets: Path, server: RewardServer) -> Iterator[tuple[Scorer, Scorer]]:
    there, here = both_sides(puppets, server.url, ("puppet", "only_rows", "draws", "logs"))
    with there, here:
        yield there, here


@pytest.mark.parametrize(("completions", "why"), [*REMOTE_BATCHES, (["one", "two"], "what it logs")])
def test_a_remote_batch_has_the_values_failures_and_logs_of_a_local_one(
    sides: tuple[Scorer, Scorer], completions: list[str], why: str
) -> None:
    assert outcome(sides[0], completions) == outcome(sides[1], completions), why


@pytest.mark.slow
def test_a_remote_call_that_waits_for_ever_is_given_up_as_a_local_one_is(puppets: Path, server: RewardServer) -> None:
    there, here = both_sides(puppets, server.url, ["puppet"], timeout_s=1.5)
    with there, here:
        assert outcome(there, ["hang", "fine"]) == outcome(here, ["hang", "fine"])


@pytest.mark.slow
def test_columns_arrive_as_they_are_and_options_are_the_clients(puppets: Path, server: RewardServer) -> None:
    columns = {"number": [float("nan")], "table": [{"a": [1, 2.5, "\ud800", True]}], "other": [None]}
    with scorer(puppets, "as_sent", server.url, {"times": 2.5}) as scoring:
        scored = scoring.score(["p"], ["c"], columns, completion_ids=[[1]], step=7)
    assert scored.values == [[2.5]] and not scored.failures


@pytest.mark.parametrize(
    ("value", "told", "why"),
    [
        (datetime.date(2026, 1, 2), "type date", "nothing of JSON is a date"),
        ((1, 2), "(1, 2), which would arrive as [1, 2]", "a verifier may tell them apart"),
        ({"a": [{1: 2}]}, "[{1: 2}]}, which would arrive as {'a': [{'1': 2}]}", "it would arrive as the text 1"),
        (b"x", "type bytes", "bytes are no text"),
    ],
)
def test_a_value_that_json_cannot_represent_is_named_with_its_column_and_row(
    puppets: Path, server: RewardServer, value: Any, told: str, why: str
) -> None:
    columns = {"number": [1.0, 2.0], "table": [None, value], "other": [None] * 2}
    with scorer(puppets, "as_sent", server.url) as scoring:
        scored = scoring.score(["p"] * 2, ["c"] * 2, columns)
    (fault,) = scored.failures
    assert fault.status == "unavailable" and scored.values == [[None]] * 2
    for part in ("the column table", "row 1", told, "`where: local`"):
        assert part in fault.message, why


def test_a_column_is_encoded_once_and_may_hold_nan() -> None:
    tests = [{"input": "1", "output": float("nan")}]
    batch = Batch({"prompts": ["a", "a", "b"], "tests": [tests, tests, None]}, 3)
    batch.encode(["prompts", "tests"], "json")
    assert batch.json_column("tests", [1, 2]) == '[[{"input": "1", "output": NaN}],null]'
    assert batch.same_prompt(0, 1) and not batch.same_prompt(1, 2)
    with pytest.raises(EncodingError, match="prompts"):
        Batch({"prompts": ["a"]}, 3).encode(["prompts"], "json")


@pytest.mark.slow
def test_a_program_runs_once_for_all_rewards_of_a_server(server: RewardServer) -> None:
    program = "```python\nimport time\ntime.sleep(1)\nprint(int(input()) + 1)\n```"
    metrics: dict[str, float] = {}
    rewards = load_rewards([RewardSpec(name, where=server.url) for name in ("code_execution", "code_tiered")])
    with Scorer(rewards) as scoring:
        tests = {"tests": [[{"input": "1\n", "output": "2\n"}]]}
        scored = scoring.score(["p"], [program], tests, log_metric=metrics.__setitem__)
    assert scored.values[0][0] == 1.0 and metrics["code_tiered/judge_s"] < 1.0 < metrics["code_execution/judge_s"]


def test_groups_stay_together_however_many_servers_share_a_batch(puppets: Path, server: RewardServer) -> None:
    prompts = [prompt for prompt in "abcdefg" for _ in range(3)]
    both = f"{server.url},http://localhost:{server.port}"
    before = server.figure('grpo_requests_total{path="/score",status="200"}')
    with scorer(puppets, "group_sizes", both) as scoring:
        scored = scoring.score(prompts, ["x"] * 21, {})
    assert scored.values == [[3.0]] * 21 and not scored.failures
    assert server.figure('grpo_requests_total{path="/score",status="200"}') - before == 4


def test_the_sandbox_of_the_servers_is_known_after_the_start(server: RewardServer) -> None:
    with Scorer(load_rewards([RewardSpec("code_execution", where=server.url)])) as scoring:
        assert not scoring.connect() and list(scoring.environment_info()) == ["sandbox of the reward servers"]


@pytest.mark.parametrize(
    ("where", "read", "fault"),
    [
        ("http://judge:8000", "http://judge:8000", None),
        ("http://judge/", "http://judge:80", None),
        ("https://judge/rewards/", "https://judge:443/rewards", None),
        ("http://a:1, http://b:2", "http://a:1,http://b:2", None),
        (["http://a:1", "http://[::1]:2"], "http://a:1,http://[::1]:2", None),
        ("ray", "ray", None),
        ("ray://head", "ray://head:10001", None),
        ("ray://[::1]:5/", "ray://[::1]:5", None),
        ("ray:head:6379", None, "ray://head:10001"),
        ("ray://a,ray://b", None, "ray://head:10001"),
        ("ray://me:secret@a:1", None, "a recipe must hold no secret"),
        ("local", None, None),
        ("ftp://a", None, "write http://host:port"),
        ("http://a:x", None, "write http://host:port"),
        ("http://", None, "write http://host:port"),
        ("http://a?x=1", None, "nothing behind it"),
        ("http://me:secret@a:1", None, "a recipe must hold no secret"),
        ("http://a:1,http://a:1/", None, "twice"),
        (["http://a:1", 3], None, "write http://host:port"),
    ],
)
def test_a_recipe_names_servers_in_one_spelling(where: Any, read: str | None, fault: str | None) -> None:
    if fault is None:
        assert read_where(where) == read
    else:
        with pytest.raises(InvalidAddress, match=re.escape(fault)):
            read_where(where)


def test_where_is_a_key_of_the_recipe_and_of_the_command_line(tmp_path: Path) -> None:
    rewards = [{"name": "a", "where": ["http://x:1", "http://y"]}, {"name": "b", "where": "local"}, {"name": "c"}]
    file = recipe_of(tmp_path / "recipe.yaml", rewards)
    recipe = load_recipe(file, ["--rewards.c.where", "https://z"])
    assert [spec.where for spec in recipe.rewards] == ["http://x:1,http://y:80", "local", "https://z:443"]
    write_recipe(recipe, tmp_path / "resolved.yaml")
    assert load_recipe(tmp_path / "resolved.yaml").rewards == recipe.rewards
    with pytest.raises(InputError) as error:
        load_recipe(
            recipe_of(tmp_path / "bad.yaml", [{"name": "a", "where": "http://u:p@x"}, {"name": "b", "where": 3}])
        )
    told = str(error.value)
    assert "entry 1 (a): where holds a user or a password" in told and "entry 2 (b): where is 3, but should be" in told
    assert "u:p" not in told, "a secret is not repeated"


def test_a_run_may_be_continued_with_its_reward_backends() -> None:
    def identity(**reward: Any) -> Identity:
        return Identity({"rewards": [{"name": "a", "weight": 1.0, **reward}]}, 1, "plain", "rows")

    assert not identity(where="http://x:1").differences(identity())
    assert not identity().differences(identity(where="http://x:1"))
    assert identity(gate="b", where="http://x:1").differences(identity()) == ["rewards.a.gate was not given, now b"]


@pytest.mark.slow
def test_two_steps_of_training_are_the_same_with_rewards_here_and_on_a_server(
    server: RewardServer, command: Command, tmp_path: Path
) -> None:
    program = tmp_path / "both.py"
    program.write_text(
        "import os, sys\nsys.path.insert(0, os.getcwd())\nimport run_grpo\n"
        "for folder, where in (('here', 'local'), ('there', sys.argv[2])):\n"
        "    words = ['--config', 'recipes/demo-arithmetic.yaml', '--evaluation', 'null', '--max_steps', '2',\n"
        "             '--per_device_train_batch_size', '16', '--report_to', 'none',\n"
        "             '--output_dir', sys.argv[1] + '/' + folder, '--rewards.math_correctness.where', where]\n"
        "    assert run_grpo.main(words) == 0\n"
    )
    before = server.figure('grpo_rows_total{reward="math_correctness"}')
    words = command(program, tmp_path, server.url)
    environment = {**os.environ, "WITHOUT_REPORT": "1"}
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.figure('grpo_rows_total{reward="math_correctness"}') - before >= 32
    runs = []
    for folder in ("here", "there"):
        completions = [pq.read_table(file).to_pylist() for file in sorted((tmp_path / folder).glob("completions/*"))]
        lines = [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        rewards = [
            {name: value for name, value in line.items() if "reward" in name and "time" not in name} for line in lines
        ]
        runs.append((completions, rewards))
    assert len(runs[0][0]) == 2 and runs[0] == runs[1]
