"""What a server is slow with is asked of another one too, where the recipe wants that: the first answer counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.config.recipe import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scored, Scorer
from tests.support.reward_servers import RewardServer, recipe_of

REWARD = '''
import os, time

def patient(completions, **kwargs):
    """As many seconds as the server that it is started by has been told, and a value by which one sees where it was."""
    with open(os.path.join(os.environ["A_FOLDER"], os.environ["A_NAME"]), "a") as file:
        file.write("".join(completion + "\\n" for completion in completions))
    time.sleep(float(os.environ["A_PAUSE"]) if "pause" in completions else 0.0)
    return [float(os.environ["A_NAME"] == "slow")] * len(completions)
'''
ROWS = ["pause"] * 8
SLOW_S = 3.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hedging")
    (made / "patiently.py").write_text(REWARD, encoding="utf-8")
    recipe_of(made / "recipe.yaml", [f"{made}/patiently.py:patient"])
    return made


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[list[RewardServer]]:
    """One that takes its time over a batch, and one that does not."""
    said = {"A_FOLDER": str(folder)}
    with (
        RewardServer("--config", folder / "recipe.yaml", env={**said, "A_NAME": "slow", "A_PAUSE": str(SLOW_S)}) as one,
        RewardServer("--config", folder / "recipe.yaml", env={**said, "A_NAME": "fast", "A_PAUSE": "0.1"}) as other,
    ):
        yield [one, other]


@pytest.fixture(autouse=True)
def nothing_was_called(folder: Path) -> None:
    for name in ("slow", "fast"):
        (folder / name).unlink(missing_ok=True)


def scorer(folder: Path, servers: list[RewardServer], hedge_s: float | None) -> Scorer:
    spec = RewardSpec(f"{folder}/patiently.py:patient", where=",".join(server.url for server in servers))
    return Scorer(load_rewards([spec]), hedge_s=hedge_s)


def score(scoring: Scorer, rows: list[str]) -> Scored:
    return scoring.score([f"p{row}" for row in range(len(rows))], rows, {})


def rows_called(folder: Path) -> int:
    return sum(len((folder / name).read_text().split()) for name in ("slow", "fast") if (folder / name).exists())


def test_a_server_that_is_slow_is_overtaken(folder: Path, servers: list[RewardServer]) -> None:
    with scorer(folder, servers, 0.3) as scoring:
        score(scoring, ["now"] * 4)
        start = time.monotonic()
        scored = score(scoring, ROWS)
        took_s = time.monotonic() - start
        values = [list(row) for row in scored.values]
        assert values == [[0.0]] * 8 and not scored.faults and took_s < SLOW_S, "the fast one's values alone"
        assert score(scoring, ["now"] * 4).values, "and the next batch does not wait for what is left of this one"
        time.sleep(max(start + SLOW_S + 0.5 - time.monotonic(), 0.0))
        assert scored.values == values, "what the slow one says later changes nothing"


@pytest.mark.parametrize(
    ("hedge_s", "rows", "why"),
    [
        (None, ROWS, "unless the recipe asks for it, however slow a server is"),
        (60.0, ["now"] * 8, "while all servers answer in time"),
    ],
)
def test_no_row_is_called_twice(
    folder: Path, servers: list[RewardServer], hedge_s: float | None, rows: list[str], why: str
) -> None:
    with scorer(folder, servers, hedge_s) as scoring:
        scored = score(scoring, rows)
    assert not scored.faults and rows_called(folder) == 8, why
    assert {value for row in scored.values for value in row} == {0.0, 1.0}, "both servers had their part"


def test_a_part_whose_second_server_fails_is_still_waited_for(folder: Path, servers: list[RewardServer]) -> None:
    slow, fast = servers
    with scorer(folder, servers, 1.0) as scoring:
        score(scoring, ["now"] * 4)
        fast.kill()
        scored = score(scoring, ROWS)
        fast.start()
    assert scored.values == [[1.0]] * 8 and not scored.faults
    assert slow.process.poll() is None
