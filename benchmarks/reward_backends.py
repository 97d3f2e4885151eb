"""Measure what rewards on a reward server, or on Ray, cost compared with workers beside the trainer.

    python -m benchmarks.reward_backends             # about eight minutes on two cores, with the extra `ray`
    python -m benchmarks.reward_backends --quick     # a tenth of the work, to see that it runs

Throughput: the same programs are judged by a scorer's own workers, by a server with one client, by a server with 64
clients at once, and on a Ray cluster of one node, in turns. All share this machine. A shared machine is slow for
seconds or minutes, so a result is the median over the rounds of its time relative to the local time of the same round.

Latency: requests for a score that costs nothing arrive at random times, at half of the server's maximal rate; the
median of the rounds counts.

Ray: clusters of one to eight nodes (Ray processes on this machine, with one processor each) judge programs that sleep.
This measures how evenly tasks reach the nodes, not the machine. Tasks: those of one training process per second.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from rlvr import console
from rlvr.config.specs import RewardSpec
from rlvr.scoring.backends.http_connection import ServerConnection, Unavailable
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from tests.support.ray_clusters import RayCluster

PROJECT = Path(__file__).resolve().parents[1]
CLIENTS = 64
GROUP = 8
LOCAL = "beside the trainer"
TESTS = [{"input": f"{number} {number + 1}\n", "output": f"{2 * number + 1}\n"} for number in range(4)]


def programs(number: int, generation: int) -> list[str]:
    """Different programs, so that none comes from the judge's cache; half of them are right."""
    return [
        f"```python\n# {generation}, {row}\na, b = map(int, input().split())\nfor i in range(20000): pass\n"
        f"print(a + b + {row % 2} * (a > 1))\n```"
        for row in range(number)
    ]


def ask(address: str, content: dict[str, Any]) -> Any:
    return ServerConnection(address, None).ask("/score", json.dumps(content).encode(), end=time.monotonic() + 600)


@contextmanager
def server(reward: str) -> Iterator[str]:
    """A server with the reward; yields its address."""
    process = subprocess.Popen(
        [sys.executable, "scripts/serve_rewards.py", "--no_key", "--port", "0", "--rewards", reward],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith("Serving on ")).split()[-1]
        threading.Thread(target=process.stdout.read, daemon=True).start()
        while True:
            try:
                ServerConnection(address, None).ask("/readyz", end=time.monotonic() + 5)
                break
            except Unavailable:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def scorer(reward: str, where: str | None) -> Scorer:
    return Scorer(load_rewards([RewardSpec(reward, where=where)]), timeout_s=600)


def score(scoring: Scorer, completions: list[str], tests: list[dict[str, str]]) -> float:
    """Score a batch in groups of eight; return the seconds."""
    prompts = [f"p{row // GROUP}" for row in range(len(completions))]
    begun = time.perf_counter()
    scored = scoring.score(prompts, completions, {"tests": [tests] * len(completions)})
    seconds = time.perf_counter() - begun
    assert not scored.failures and all(row[0] is not None for row in scored.values), scored.failures
    return seconds


def score_by_many(address: str, completions: list[str]) -> float:
    """Send the batch by 64 clients at once; return the seconds."""
    parts = [completions[client::CLIENTS] for client in range(min(CLIENTS, len(completions)))]
    contents = [
        {
            "rewards": ["code_execution"],
            "prompts": ["p"] * len(part),
            "completions": part,
            "columns": {"tests": [TESTS] * len(part)},
        }
        for part in parts
    ]
    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        replies = list(threads.map(partial(ask, address), contents))
    seconds = time.perf_counter() - begun
    assert sum(len(reply["results"][0]["values"]) for reply in replies) == len(completions)
    return seconds


@contextmanager
def ray_cluster(nodes: int) -> Iterator[None]:
    """A Ray cluster on this machine, which this process uses."""
    cluster = RayCluster(nodes)
    try:
        with mock.patch.dict(os.environ, cluster.env):
            yield
    finally:
        cluster.close()


def throughput(number: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each round, for each way of judging."""
    with ExitStack() as stack:
        address = stack.enter_context(server("code_execution"))
        stack.enter_context(ray_cluster(1))
        places = {LOCAL: None, "server, 1 client": address, "Ray, one node": "ray"}
        ways: dict[str, Callable[[list[str]], float]] = {
            name: partial(score, stack.enter_context(scorer("code_execution", where)), tests=TESTS)
            for name, where in places.items()
        }
        ways[f"server, {CLIENTS} clients"] = partial(score_by_many, address)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        names = list(ways)
        for generation in range(repeats + 1):
            first = generation % len(names)
            for name in names[first:] + names[:first]:
                took = ways[name](programs(number, len(names) * generation + names.index(name)))
                if generation:  # the first round starts processes
                    seconds[name].append(took)
    return seconds


def latency(seconds: float, rounds: int = 9) -> list[tuple[float, list[float]]]:
    """Measure each round: maximal requests per second, and the latencies at half of them."""
    content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["#### The final answer is 3"]}
    measured = []
    with server("answer_format") as address, ThreadPoolExecutor(32) as threads:

        def timed(_: Any = None) -> float:
            start = time.perf_counter()
            ask(address, content)
            return time.perf_counter() - start

        list(threads.map(timed, range(200)))  # warm
        gc.freeze()  # garbage collection of this process's modules would add to the latency
        chance = random.Random(0)
        for _ in range(rounds):
            start = time.perf_counter()
            count = 0
            while time.perf_counter() - start < seconds / 2:
                list(threads.map(timed, range(64)))
                count += 64
            most = count / (time.perf_counter() - start)
            waiting = []
            start = due = time.perf_counter()
            while due < start + seconds:
                due += chance.expovariate(most / 2)
                time.sleep(max(0.0, due - time.perf_counter()))
                waiting.append(threads.submit(timed))
            measured.append((most, [one.result() for one in waiting]))
    return measured


def many_nodes(number: int, sleep_s: float, counts: Sequence[int]) -> dict[int, float]:
    """Measure sleeping programs: seconds by the number of nodes."""

    def sleepers(rows: int, seconds: float) -> list[str]:
        return [f"```python\n# {row}\nimport time\ntime.sleep({seconds})\nprint(1)\n```" for row in range(rows)]

    measured: dict[int, float] = {}
    tests = [{"input": "", "output": "1"}]
    for count in counts:
        with ray_cluster(count), scorer("code_execution", "ray") as there:
            score(there, sleepers(2 * GROUP * count, 0.0), tests)  # starts processes
            measured[count] = score(there, sleepers(number, sleep_s), tests)
    return measured


def many_tasks(rows: int) -> float:
    """Measure tasks a second of one training process, each of one group and a reward that costs almost nothing."""
    completions = [f"Completion {row} says little." for row in range(rows)]
    with ray_cluster(1), scorer("repetition", "ray") as there:
        score(there, completions, [])  # starts processes
        return rows / GROUP / score(there, completions, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    quick = parser.parse_args().quick
    number, repeats, span = (50, 3, 0.5) if quick else (500, 20, 3.0)
    console.info(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    ways = throughput(number, repeats)
    rows = [
        [
            name,
            f"{statistics.median(seconds):.2f}",
            f"{statistics.median(a / b for a, b in zip(ways[LOCAL], seconds, strict=True)):.1%}",
        ]
        for name, seconds in ways.items()
    ]
    console.info(console.table([f"{number} programs, 4 tests each", "s", "of local"], rows))
    rounds = [(statistics.quantiles(seconds, n=100), most) for most, seconds in latency(span)]
    rounds.sort(key=lambda one: one[0][98])
    percentiles, most = rounds[len(rounds) // 2]
    console.info(
        f"\n  a score that costs nothing: {most:.0f} requests/s at most; at half of them the median is "
        f"{1000 * percentiles[49]:.1f} ms, the 99th percentile {1000 * percentiles[98]:.1f} ms"
    )
    sleeping, sleep_s, counts = (32, 0.2, (1, 2)) if quick else (128, 0.25, (1, 2, 4, 8))
    rows = [[f"{count}", f"{took:.2f}"] for count, took in many_nodes(sleeping, sleep_s, counts).items()]
    console.info("\n" + console.table(["Ray nodes", f"s, {sleeping} programs that sleep {sleep_s:g} s"], rows))
    console.info(f"\n{many_tasks(400 if quick else 8000):.0f} tasks a second of one training process, eight rows each")


if __name__ == "__main__":
    main()
