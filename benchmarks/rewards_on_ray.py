"""Measure what rewards on Ray cost compared with workers beside the trainer, and what more nodes gain.

    python -m benchmarks.reward_backends             # calls this as well
    python -m benchmarks.rewards_on_ray [--quick]

1. Programs are judged beside the trainer and on a one-node cluster of this machine, in turns; the median counts. Ray's
   own processes share the processors.
2. Clusters of one, two, four and eight nodes (Ray processes on this machine, with one processor each) judge programs
   that sleep. This measures how evenly tasks reach the nodes, not the machine.
3. Tasks a second of one training process, with a reward that costs almost nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from unittest import mock

from benchmarks.reward_backends import TESTS, programs
from rlvr import console
from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from tests.support.ray_clusters import RayCluster

NODES = (1, 2, 4, 8)
GROUP = 8


def sleepers(number: int, generation: int, seconds: float) -> list[str]:
    return [
        f"```python\n# {generation}, {row}\nimport time\ntime.sleep({seconds})\nprint(1)\n```" for row in range(number)
    ]


def scoring(where: str | None) -> Scorer:
    return Scorer(load_rewards([RewardSpec("code_execution", where=where)]), timeout_s=600)


def score(scorer: Scorer, completions: Sequence[str], tests: list[dict[str, str]]) -> float:
    """Score a batch in groups of eight; return the seconds."""
    rows = len(completions)
    prompts = [f"p{row // GROUP}" for row in range(rows)]
    begun = time.perf_counter()
    scored = scorer.score(prompts, list(completions), {"tests": [tests] * rows})
    seconds = time.perf_counter() - begun
    assert not scored.failures and all(row[0] is not None for row in scored.values), scored.failures
    return seconds


def one_node(number: int, repeats: int) -> dict[str, list[float]]:
    """Measure programs beside the trainer and on a one-node cluster of this machine: seconds of each round."""
    seconds: dict[str, list[float]] = {"beside the trainer": [], "Ray, this machine": []}
    with scoring(None) as here, scoring("ray") as there:
        ways: dict[str, Callable[[list[str]], float]] = {
            name: lambda completions, scorer=scorer: score(scorer, completions, TESTS)  # type: ignore[misc]
            for name, scorer in zip(seconds, (here, there), strict=True)
        }
        for generation in range(repeats + 1):
            turns = list(enumerate(ways.items()))
            for place, (name, way) in turns if generation % 2 else reversed(turns):
                took = way(programs(number, 2 * generation + place))
                if generation:  # the first time starts processes
                    seconds[name].append(took)
    return seconds


def many_nodes(number: int, sleep_s: float, counts: Sequence[int] = NODES) -> dict[int, float]:
    """Measure sleeping programs: seconds by the number of nodes."""
    seconds: dict[int, float] = {}
    tests = [{"input": "", "output": "1"}]
    for count in counts:
        cluster = RayCluster(count)
        try:
            with mock.patch.dict(os.environ, cluster.env), scoring("ray") as there:
                score(there, sleepers(2 * GROUP * count, 0, 0.0), tests)  # starts processes
                seconds[count] = score(there, sleepers(number, 1, sleep_s), tests)
        finally:
            cluster.close()
    return seconds


def many_tasks(rows: int) -> float:
    """Measure tasks a second of one training process, each of one group and a reward that costs almost nothing."""
    prompts = [f"p{row // GROUP}" for row in range(rows)]
    completions = [f"Completion {row} says little." for row in range(rows)]
    with Scorer(load_rewards([RewardSpec("repetition", where="ray")]), timeout_s=600) as there:
        there.score(prompts, completions, {})  # starts processes
        begun = time.perf_counter()
        scored = there.score(prompts, completions, {})
        seconds = time.perf_counter() - begun
    assert not scored.failures, scored.failures
    return rows / GROUP / seconds


def measure(*, quick: bool) -> None:
    """Measure and print everything."""
    number, repeats = (48, 1) if quick else (500, 6)
    seconds = one_node(number, repeats)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    base = medians["beside the trainer"]
    rows = [
        [
            name,
            f"{median:.2f}",
            f"{min(seconds[name]):.2f} - {max(seconds[name]):.2f}",
            f"{number / median:.0f}",
            f"{median / base:.2f}",
        ]
        for name, median in medians.items()
    ]
    console.info(
        console.table([f"{number} programs, 4 tests each", "s", "from - to", "programs/s", "times local"], rows)
    )
    sleeping, sleep_s, counts = (32, 0.2, NODES[:2]) if quick else (128, 0.25, NODES)
    by_nodes = many_nodes(sleeping, sleep_s, counts)
    alone = by_nodes[counts[0]]
    rows = [
        [f"{count} node{'s' if count > 1 else ''}", f"{took:.2f}", f"{alone / took:.2f}", f"{alone / took / count:.0%}"]
        for count, took in by_nodes.items()
    ]
    console.info("")
    console.info(console.table([f"{sleeping} programs that sleep {sleep_s:g} s", "s", "times one", "of linear"], rows))
    console.info(f"\n{many_tasks(400 if quick else 8000):.0f} tasks a second of one training process, eight rows each")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    options = parser.parse_args()
    console.info(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    measure(quick=options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
