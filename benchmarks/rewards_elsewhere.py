#!/usr/bin/env python
"""What it costs to have rewards on a reward server instead of beside the trainer.

    python benchmarks/rewards_elsewhere.py             # about three minutes on two cores
    python benchmarks/rewards_elsewhere.py --quick     # a tenth of the work: whether it runs, not how fast

Server, clients and judge share this machine, so the server's own work is taken from the programs'. Three ways to judge
the same programs take turns, and of each the best time counts: a scorer's own workers, a server with one client, and a
server with 64 clients at once. Then the latency of a score that costs nothing: requests arrive at random times, at half
the rate that the server can take at most. Of five rounds the best counts, since other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
if str(PROJECT) not in sys.path:
    sys.path.insert(0, str(PROJECT))

from rlvr import console  # noqa: E402
from rlvr.elsewhere.server import Server, Unavailable  # noqa: E402
from rlvr.plugins import load_rewards  # noqa: E402
from rlvr.recipe import RewardSpec  # noqa: E402
from rlvr.scorer import Scorer  # noqa: E402

CLIENTS = 64
TESTS = [{"input": f"{number} {number + 1}\n", "output": f"{2 * number + 1}\n"} for number in range(4)]


def programs(number: int, generation: int) -> list[str]:
    """Programs that are all different, so that none is judged by remembering another; half of them are right."""
    return [
        f"```python\n# {generation}, {row}\na, b = map(int, input().split())\nfor i in range(20000): pass\n"
        f"print(a + b + {row % 2} * (a > 1))\n```"
        for row in range(number)
    ]


@contextmanager
def server(*words: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "scripts/serve_rewards.py", "--port", "0", *words],
        cwd=PROJECT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith("Serving on ")).split()[-1]
        threading.Thread(target=process.stdout.read, daemon=True).start()
        while True:
            try:
                Server(address, None).ask("/readyz", end=time.monotonic() + 5)
                break
            except Unavailable:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def score_request(completions: list[str]) -> bytes:
    content = {
        "rewards": ["code_execution"],
        "prompts": ["p"] * len(completions),
        "completions": completions,
        "columns": {"tests": [TESTS] * len(completions)},
    }
    return json.dumps(content).encode()


def throughput(number: int, repeats: int) -> dict[str, list[float]]:
    """Seconds for so many programs, by the way in which they were judged."""
    seconds: dict[str, list[float]] = {
        "beside the trainer": [],
        "server, 1 client": [],
        f"server, {CLIENTS} clients": [],
    }
    columns = {"tests": [TESTS] * number}
    with server("--rewards", "code_execution") as address:
        line = Server(address, None)
        here = Scorer(load_rewards([RewardSpec("code_execution")]))
        there = Scorer(load_rewards([RewardSpec("code_execution", where=address)]))
        generation = iter(range(1000))

        def by(scoring: Scorer) -> None:
            completions = programs(number, next(generation))
            scored = scoring.score(["p"] * number, completions, columns)
            assert not scored.faults and sum(row[0] or 0 for row in scored.values) > number / 2

        def by_many() -> None:
            completions = programs(number, next(generation))
            parts = [
                score_request(completions[client::CLIENTS]) for client in range(CLIENTS) if completions[client::CLIENTS]
            ]
            with ThreadPoolExecutor(CLIENTS) as threads:
                said = list(threads.map(lambda body: line.ask("/score", body, end=time.monotonic() + 600), parts))
            assert sum(len(one["results"][0]["values"]) for one in said) == number

        with here, there:
            ways: list[Callable[[], None]] = [lambda: by(here), lambda: by(there), by_many]
            for repeat in range(repeats + 1):
                for name, way in zip(seconds, ways, strict=True):
                    begun = time.perf_counter()
                    way()
                    if repeat:  # the first time starts processes
                        seconds[name].append(time.perf_counter() - begun)
    return seconds


def latency(seconds: float, rounds: int = 5) -> list[tuple[float, float, list[float]]]:
    """Of each round: the most requests a second, those that were sent, and each one's latency."""
    content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["#### The final answer is 3"]}
    body = json.dumps(content).encode()
    measured = []
    with server("--rewards", "answer_format") as address, ThreadPoolExecutor(32) as threads:
        line = Server(address, None)

        def ask(_: Any = None) -> float:
            begun = time.perf_counter()
            line.ask("/score", body, end=time.monotonic() + 60)
            return time.perf_counter() - begun

        list(threads.map(ask, range(200)))  # warm
        chance = random.Random(0)
        for _ in range(rounds):
            begun = time.perf_counter()
            count = 0
            while time.perf_counter() - begun < seconds / 2:
                list(threads.map(ask, range(64)))
                count += 64
            most = count / (time.perf_counter() - begun)
            waiting = []
            begun = due = time.perf_counter()
            while due < begun + seconds:
                due += chance.expovariate(most / 2)
                time.sleep(max(0.0, due - time.perf_counter()))
                waiting.append(threads.submit(ask))
            measured.append((most, len(waiting) / seconds, [one.result() for one in waiting]))
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    options = parser.parse_args()
    number, repeats, span = (50, 1, 0.5) if options.quick else (500, 3, 3.0)
    busy = os.getloadavg()[0]
    console.say(f"{len(os.sched_getaffinity(0))} cores, load {busy:.1f} at the start\n")
    seconds = throughput(number, repeats)
    base = min(seconds["beside the trainer"])
    rows = [
        [name, f"{min(found):.2f}", f"{number / min(found):.0f}", f"{base / min(found):.0%}", f"{max(found):.2f}"]
        for name, found in seconds.items()
    ]
    console.say(console.table([f"{number} programs, 4 tests each", "s", "programs/s", "of local", "slowest s"], rows))
    rounds = [(statistics.quantiles(found, n=100), most, sent) for most, sent, found in latency(span)]
    percentiles, most, sent = min(rounds, key=lambda one: one[0][98])
    others = ", ".join(f"{1000 * one[0][98]:.0f}" for one in rounds)
    console.say(
        f"\n  a score that costs nothing: {most:.0f} requests/s at most; at {sent:.0f}/s half of them take "
        f"{1000 * percentiles[49]:.1f} ms, 99 % at most {1000 * percentiles[98]:.1f} ms (rounds: {others} ms)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
