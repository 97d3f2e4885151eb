"""Environments in workers: what a tool may do to its own rollout, and that it does nothing to the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlvr.config.specs import EnvironmentSpec
from rlvr.environments.rollouts import EnvironmentWorkers, Rollout

COUNTER = EnvironmentSpec("tests/support/counting.py", {})
TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def workers() -> Iterator[EnvironmentWorkers]:
    """One process, so that all rollouts share it."""
    with EnvironmentWorkers([COUNTER], timeout_s=TIMEOUT_S, budget_s=60, max_output=100, processes=1) as workers:
        yield workers


def begin(workers: EnvironmentWorkers, target: int = 3, number: int = 0) -> Rollout:
    return workers.begin(0, {"target": target}, seed=(42, 0, number))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said", "effect", "why"),
    [
        ("raise", "{'error': 'the tool raises'}", 100, "an exception is a result; what was done stays done"),
        ("exit", "{'error': 'the tool calls exit'}", 100, "so is SystemExit"),
        ("hang", "not done after 3 s", 0, "a call that is killed is undone"),
        ("die", "ended its process (exit status 3)", 0, "so is one that ends its process"),
        ("flood", "xxx\n[4,999,900 more characters]", 100, "long output is cut"),
        ("surrogate", "?", 100, "no tokenizer takes a lone surrogate"),
    ],
)
def test_a_tool_that_misbehaves_harms_its_own_call_alone(
    workers: EnvironmentWorkers, how: str, said: str, effect: int, why: str
) -> None:
    neighbour, rollout = begin(workers, 5), begin(workers, 3)
    neighbour.call("add", {"number": 2})
    neighbour.call("add", {"number": 3})
    rollout.call("add", {"number": 3})
    result = rollout.call("misbehave", {"how": how}).text()
    assert said in result and len(result) < 200, why
    assert rollout.attribute("count") == 3 + effect
    assert (rollout.failures, rollout.failed) == (how not in ("flood", "surrogate"), "")
    assert (neighbour.reward(TIMEOUT_S).result(), neighbour.failures) == (1.0, 0)
    rollout.end()


def test_a_rollout_begins_as_its_group_does_and_draws_its_own_numbers(workers: EnvironmentWorkers) -> None:
    def draws(numbers: list[int]) -> list[tuple[Any, str]]:
        rollouts = [begin(workers, number=number) for number in numbers]
        return [(each.attribute("drawn"), each.call("misbehave", {"how": "random"}).text()) for each in rollouts]

    first, second, third = draws([0, 1, 2])
    assert first[0] == second[0] == third[0]
    assert len({first[1], second[1], third[1]}) == 3
    assert draws([2, 0]) == [third, first], "the same whatever else runs in the process"


@pytest.mark.parametrize(
    ("row", "said"),
    [({"target": -1}, "reset: ValueError: no such target"), ({"target": "x"}, "reset: TypeError")],
)
def test_an_environment_that_fails_by_itself_has_no_reward(
    workers: EnvironmentWorkers, row: dict[str, Any], said: str
) -> None:
    rollout = workers.begin(0, row, seed=(42, 0, 0))
    assert rollout.observation() is None
    assert "the environment has failed" in rollout.call("add", {"number": 1}).text()
    assert rollout.reward(TIMEOUT_S).result() is None
    assert rollout.failed.startswith(said)


@pytest.mark.slow
def test_calls_beyond_the_budget_are_refused_and_the_reward_is_still_given() -> None:
    with EnvironmentWorkers([COUNTER], timeout_s=60, budget_s=3.0, max_output=100) as workers:
        rollout = begin(workers, 1)
        calls = [("add", {"number": 1}), ("misbehave", {"how": "hang"}), ("add", {"number": 1})]
        texts = [rollout.call(*call).text() for call in calls]
        assert texts[0] == "The count is 1." and "not done" in texts[1] and "tool_budget_s" in texts[2]
        assert rollout.reward(TIMEOUT_S).result() == 1.0


def test_rollouts_outlive_their_worker_processes(workers: EnvironmentWorkers) -> None:
    rollout = begin(workers, 2)
    rollout.call("add", {"number": 2}).text()
    workers.server().process.kill()
    assert rollout.call("add", {"number": 0}).text() == "The count is 2."
    assert rollout.reward(TIMEOUT_S).result() == 1.0


def test_the_reference_solution_is_played_by_the_function_of_the_file(workers: EnvironmentWorkers) -> None:
    rollout = begin(workers, 7)
    assert rollout.play_reference({"target": 7}).result() is True
    assert rollout.reward(TIMEOUT_S).result() == 1.0


def test_an_attribute_that_json_cannot_hold_is_named(workers: EnvironmentWorkers) -> None:
    with pytest.raises(AttributeError, match="add"):
        begin(workers).attribute("add")
