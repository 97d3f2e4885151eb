"""Measure what rewards on a reward server, or on Ray, cost compared with workers beside the trainer.

    python -m benchmarks.reward_backends             # about six minutes on two cores, and two more for Ray
    python -m benchmarks.reward_backends --quick     # a tenth of the work, to see that it runs

Throughput: the same programs are judged by a scorer's own workers, by a server with one client, and by a server with
64 clients at once, in turns. Server, clients and judge share this machine. A shared machine is slow for seconds or
minutes, so a server's result is the median over the rounds of its time relative to the local time of the same round.
The processor time of client and server themselves is given, too: it does not depend on the load.

Latency: requests for a score that costs nothing arrive at random times, at half of the server's maximal rate; the
median of the rounds counts. Cost: processor time of a request by its size, on which docs/scaling.md is based. Ray is
measured by benchmarks/rewards_on_ray.py.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.config.specs import RewardSpec
from rlvr.scoring.backends.http.connection import ServerConnection, Unavailable
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer

PROJECT = Path(__file__).resolve().parents[1]
CLIENTS = 64
TESTS = [{"input": f"{number} {number + 1}\n", "output": f"{2 * number + 1}\n"} for number in range(4)]


def programs(number: int, generation: int) -> list[str]:
    """Different programs, so that none comes from the judge's cache; half of them are right."""
    return [
        f"```python\n# {generation}, {row}\na, b = map(int, input().split())\nfor i in range(20000): pass\n"
        f"print(a + b + {row % 2} * (a > 1))\n```"
        for row in range(number)
    ]


@dataclass(frozen=True)
class RunningServer:
    """A server's address and process."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """Processor time of the process itself, without its workers."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Timings:
    """Seconds and processor seconds of each round, for one way of judging."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


@contextmanager
def server(*words: str) -> Iterator[RunningServer]:
    process = subprocess.Popen(
        [sys.executable, "scripts/serve_rewards.py", "--no_key", "--port", "0", *words],
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
        yield RunningServer(address, process.pid)
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


def throughput(number: int, repeats: int) -> dict[str, Timings]:
    """Measure each way of judging."""
    names = ("beside the trainer", "server, 1 client", f"server, {CLIENTS} clients")
    timings = {name: Timings() for name in names}
    columns = {"tests": [TESTS] * number}
    with server("--rewards", "code_execution") as running:
        connection = ServerConnection(running.address, None)
        local = Scorer(load_rewards([RewardSpec("code_execution")]))
        remote = Scorer(load_rewards([RewardSpec("code_execution", where=running.address)]))
        generation = iter(range(1000))

        def by(scoring: Scorer) -> None:
            completions = programs(number, next(generation))
            scored = scoring.score(["p"] * number, completions, columns)
            assert not scored.failures and sum(row[0] or 0 for row in scored.values) > number / 2

        def by_many() -> None:
            completions = programs(number, next(generation))
            parts = [
                score_request(completions[client::CLIENTS]) for client in range(CLIENTS) if completions[client::CLIENTS]
            ]
            with ThreadPoolExecutor(CLIENTS) as threads:
                replies = list(
                    threads.map(lambda body: connection.ask("/score", body, end=time.monotonic() + 600), parts)
                )
            assert sum(len(reply["results"][0]["values"]) for reply in replies) == number

        with local, remote:
            ways: list[Callable[[], None]] = [lambda: by(local), lambda: by(remote), by_many]
            with console.ProgressBar("judging", len(ways) * (repeats + 1) * number) as progress:
                for repeat in range(repeats + 1):
                    for turn in range(len(ways)):
                        place = (repeat + turn) % len(ways)
                        start, cpu_s = time.perf_counter(), running.cpu_s() + time.process_time()
                        ways[place]()
                        if repeat:  # the first round starts processes
                            way = timings[names[place]]
                            way.seconds.append(time.perf_counter() - start)
                            way.cpu_s.append(running.cpu_s() + time.process_time() - cpu_s)
                        progress.update(number)
    return timings


def latency(seconds: float, rounds: int = 9) -> list[tuple[float, float, list[float]]]:
    """Measure each round: maximal requests a second, requests a second sent, and their latencies."""
    content = {"rewards": ["answer_format"], "prompts": ["p"], "completions": ["#### The final answer is 3"]}
    body = json.dumps(content).encode()
    measured = []
    with server("--rewards", "answer_format") as running, ThreadPoolExecutor(32) as threads:
        connection = ServerConnection(running.address, None)

        def ask(_: Any = None) -> float:
            start = time.perf_counter()
            connection.ask("/score", body, end=time.monotonic() + 60)
            return time.perf_counter() - start

        list(threads.map(ask, range(200)))  # warm
        gc.freeze()  # garbage collection of this process's modules would add to the latency
        chance = random.Random(0)
        for _ in range(rounds):
            start = time.perf_counter()
            count = 0
            while time.perf_counter() - start < seconds / 2:
                list(threads.map(ask, range(64)))
                count += 64
            most = count / (time.perf_counter() - start)
            waiting = []
            start = due = time.perf_counter()
            while due < start + seconds:
                due += chance.expovariate(most / 2)
                time.sleep(max(0.0, due - time.perf_counter()))
                waiting.append(threads.submit(ask))
            measured.append((most, len(waiting) / seconds, [one.result() for one in waiting]))
    return measured


def costs(seconds: float) -> list[tuple[int, int, int, float, float]]:
    """Measure a request by the bytes of tests in it: rows, bytes, requests, ms of the server and of the client."""
    measured = []
    with server("--rewards", "answer_format") as running:
        connection = ServerConnection(running.address, None)
        for rows, size in ((1, 0), (64, 0), (64, 10_000), (64, 100_000)):
            # The reward does not read the tests, but the server parses them and sends them to a worker.
            tests = [[{"input": "x" * (size // 2), "output": "y" * (size // 2)}]] * rows
            content: dict[str, Any] = {"rewards": ["answer_format"], "prompts": ["p"] * rows}
            content |= {"completions": ["#### 3"] * rows, "columns": {"tests": tests} if size else {}}
            connection.ask("/score", json.dumps(content).encode(), end=time.monotonic() + 60)
            start, client_s, server_s, count = time.perf_counter(), time.process_time(), running.cpu_s(), 0
            while time.perf_counter() - start < seconds:
                body = json.dumps(content).encode()
                connection.ask("/score", body, end=time.monotonic() + 60)
                count += 1
            client_s, server_s = time.process_time() - client_s, running.cpu_s() - server_s
            measured.append((rows, len(body), count, 1000 * server_s / count, 1000 * client_s / count))
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    options = parser.parse_args()
    number, repeats, span = (50, 3, 0.5) if options.quick else (500, 20, 3.0)
    busy = os.getloadavg()[0]
    console.info(f"{len(os.sched_getaffinity(0))} cores, load {busy:.1f} at the start\n")
    ways = throughput(number, repeats)
    local = ways["beside the trainer"]
    base_cpu_s = statistics.median(local.cpu_s)
    rows = [
        [
            name,
            f"{statistics.median(way.seconds):.2f}",
            f"{min(way.seconds):.2f} - {max(way.seconds):.2f}",
            f"{number / statistics.median(way.seconds):.0f}",
            f"{statistics.median(a / b for a, b in zip(local.seconds, way.seconds, strict=True)):.1%}",
            f"{1000 * (statistics.median(way.cpu_s) - base_cpu_s) / number:+.2f}",
        ]
        for name, way in ways.items()
    ]
    titles = [f"{number} programs, 4 tests each", "s", "from - to", "programs/s", "of local", "CPU ms/program more"]
    console.info(console.table(titles, rows))
    console.info("  goal: at least 95 % of local, with 1 and with 64 clients")
    rounds = [(statistics.quantiles(seconds, n=100), most, sent) for most, sent, seconds in latency(span)]
    rounds.sort(key=lambda one: one[0][98])
    percentiles, most, sent = rounds[len(rounds) // 2]
    all_rounds = ", ".join(f"{1000 * one[0][98]:.0f}" for one in rounds)
    console.info(
        f"\n  a score that costs nothing: {most:.0f} requests/s at most; at {sent:.0f}/s half of them take "
        f"{1000 * percentiles[49]:.1f} ms, 99 % at most {1000 * percentiles[98]:.1f} ms (rounds: {all_rounds} ms)\n"
        "  goal: 99 % within 20 ms\n"
    )
    rows = [
        [f"{rows}", f"{size:,}", f"{count}", f"{server_ms:.2f}", f"{client_ms:.2f}"]
        for rows, size, count, server_ms, client_ms in costs(span)
    ]
    console.info(console.table(["rows of a request", "bytes", "requests", "server CPU ms", "client CPU ms"], rows))
    return _on_ray(options.quick)


def _on_ray(quick: bool) -> int:
    """Run Ray's benchmark in a process of its own."""
    if importlib.util.find_spec("ray") is None:
        console.info("\n  Ray is not installed, so it is not measured: pip install -e '.[ray]' -c constraints.txt")
        return 0
    console.info("")
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.rewards_on_ray", *(["--quick"] if quick else [])]
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
