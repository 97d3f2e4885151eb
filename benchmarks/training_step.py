"""Time a training step and the start of a run: run_grpo.py against TRL's own `trl grpo`.

    python -m benchmarks.training_step            # about 25 minutes on two shared cores
    python -m benchmarks.training_step --quick    # a tenth of the work: shows that it runs, not how fast
    python -m benchmarks.training_step --only start

Both are the real commands, with the tiny model (LoRA, float32), the same rows, reward functions, seed and settings,
trackers and checkpoints off. They take turns, a step each in a random order every round, so that other load on the
machine affects both alike. Both make the same completions (checked), so step 7 of one is compared with step 7 of the
other, and the figure is the median of such ratios. Two processes of one command still differ by some percent
for as long as they run. Therefore each command runs twice, several times over: the figure is the median over all pairs
of processes, and the ratios of equal commands show the noise.

"CPU, all" is user and system time of a command and all its child processes, workers included.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.training_step_runs import COMMANDS, OURS, SECONDS, TRL, BenchmarkRun, cpu_below, prepare

WARM_UP = 5
COPIES = 2  # of each command at a time
TOKENS = 10**6

CHEAP = ("ends_in_number", "equals_gold")
SLOW = ("slow_one", "slow_two", "slow_three")


# ----------------------------------------------------------------------------------------------------------------------
# Measuring


def steps_of(folder: Path, rewards: Sequence[str], steps: int) -> list[BenchmarkRun]:
    """Runs of both commands, with what was measured of their steps after those to warm up."""
    runs = []
    for name in (OURS, TRL) * COPIES:
        run = BenchmarkRun(name, folder, rewards, WARM_UP + steps + 1)
        run.wait_until_paused()
        run.run_steps(WARM_UP)
        run.cpu = 0.0
        runs.append(run)
    order = random.Random(0)
    for step in range(WARM_UP + 1, WARM_UP + steps + 1):
        for run in order.sample(runs, len(runs)):
            run.run_steps(step)
    for run in runs:
        run.resume(10**9)
        run.wait_until_paused()  # at the end of the last step
        run.end()
        run.steps = run.steps[WARM_UP : WARM_UP + steps]
    return runs


def ratios(groups: Sequence[Sequence[BenchmarkRun]], one: str, other: str, key: str = "wall") -> list[float]:
    """How many times as long the steps of a command take as another's: for each two processes of a group."""
    found = []
    for runs in groups:
        for first, second in itertools.permutations(runs, 2):
            if (first.name, second.name) == (one, other):
                pairs = zip(first.steps, second.steps, strict=True)
                found.append(median(mine[key] / theirs[key] for mine, theirs in pairs))
    return sorted(found)


def same_work(runs: Sequence[BenchmarkRun]) -> int:
    """The number of steps in which all have logged the same reward and length."""
    logged = [[(step["reward"], step["completions/mean_length"]) for step in run.steps] for run in runs]
    return sum(len(set(step)) == 1 for step in zip(*logged, strict=True))


def start_of(name: str, folder: Path) -> tuple[float, float]:
    """Seconds from a command's start to the end of its first step, by the clock and of CPU time."""
    run = BenchmarkRun(name, folder, CHEAP, 1)
    run.wait_until_paused()
    run.resume(10**9)
    run.wait_until_paused()
    found = time.monotonic() - run.started, cpu_below(run.process.pid)
    run.end()
    return found


def scored(repeats: int) -> dict[str, tuple[float, float]]:
    """Milliseconds (median) of scoring 64 completions: as TRL does, by a call, and by workers."""
    from rlvr.config.specs import RewardSpec
    from rlvr.scoring.registry import load_rewards
    from rlvr.scoring.scorer import Scorer

    rows = 64
    completions = [[{"role": "assistant", "content": "#### The final answer is 85"}] for _ in range(rows)]
    prompts = [[{"role": "user", "content": "Mia has 47 apples. She finds 38 more."}] for _ in range(rows)]
    columns = {"final_answer": ["85"] * rows}
    few, many = ([[*range(1000, 1000 + count)] for _ in range(rows)] for count in (36, TOKENS // rows))
    cases = {
        "reads the text": (("ends_in_number",), few),
        "three that read the text": (("ends_in_number", "equals_gold", "reads_nothing"), few),
        f"reads the text, of {TOKENS:,} tokens": (("reads_nothing",), many),
        f"reads {TOKENS:,} tokens": (("reads_ids",), many),
    }
    found = {}
    for label, (names, ids) in cases.items():
        rewards = load_rewards([RewardSpec(f"benchmarks.training_step_runs.{name}") for name in names])
        with Scorer(rewards) as scorer:

            def ours() -> None:
                result = scorer.score(prompts, completions, columns, completion_ids=ids)  # noqa: B023
                assert not result.failures

            def theirs() -> None:
                for reward in rewards:  # noqa: B023
                    reward.function(prompts=prompts, completions=completions, completion_ids=ids, **columns)  # noqa: B023

            found[label] = (milliseconds(ours, repeats), milliseconds(theirs, repeats))
    return found


def step_of(groups: Sequence[Sequence[BenchmarkRun]], name: str) -> float:
    return median(step["wall"] for runs in groups for run in runs if run.name == name for step in run.steps)


def milliseconds(action: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return 1000 * median(times[3:])


# ----------------------------------------------------------------------------------------------------------------------
# The report


def report_steps(folder: Path, title: str, rewards: Sequence[str], steps: int, times: int) -> list[list[BenchmarkRun]]:
    from rlvr import console

    groups = [steps_of(folder, rewards, steps) for _ in range(times)]
    same = sum(map(same_work, groups))
    rows = []
    for name in (OURS, TRL):
        runs = [run for group in groups for run in group if run.name == name]
        walls = [step["wall"] for run in runs for step in run.steps]
        figures = (
            median(walls),
            min(walls),
            median(step["cpu"] for run in runs for step in run.steps),
            sum(run.cpu for run in runs) / len(walls),
        )
        rows.append([name, *(f"{1000 * figure:,.0f} ms" for figure in figures)])
    print(
        f"\n{title}: {times} x {COPIES} processes of each, {steps} steps after {WARM_UP} to warm up; the same rewards"
    )
    print(f"and lengths in {same} of {times * steps}")
    print(console.table(["", "a step (median)", "least", "CPU, trainer", "CPU, all"], rows))
    rows = []
    for label, one, other in (
        ("ours / TRL's", OURS, TRL),
        ("TRL's / its twin", TRL, TRL),
        ("ours / its twin", OURS, OURS),
    ):
        cells = []
        for key in ("wall", "cpu"):
            found = ratios(groups, one, other, key)
            # Twins stand there both ways round, so that their median says nothing.
            cells += ["" if one == other else f"{median(found):.3f}", f"{found[0]:.2f} … {found[-1]:.2f}"]
        rows.append([label, *cells])
    print(console.table(["step by step", "by the clock", "of pairs", "CPU, trainer", "of pairs"], rows), flush=True)
    return groups


def report_start(folder: Path, tries: int) -> float:
    from rlvr import console

    names = list(COMMANDS)
    for name in names:
        start_of(name, folder)  # fills the disk cache, and datasets' own
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(tries):
        for name in names:
            measured[name].append(start_of(name, folder))
    seconds = {name: median(wall for wall, _ in found) for name, found in measured.items()}
    rows = [
        [
            name,
            f"{seconds[name]:.1f} s",
            f"{min(wall for wall, _ in found):.1f} s",
            f"{median(cpu for _, cpu in found):.1f} s",
            f"{seconds[name] / seconds[TRL]:.2f}",
        ]
        for name, found in measured.items()
    ]
    print(f"\nFrom the command to the end of its first step, {tries} tries each; ours without evaluation before it")
    print(console.table(["", "median", "least", "CPU, all", "x trl grpo"], rows), flush=True)
    return seconds[OURS] / seconds[TRL]


def report_scorer(repeats: int) -> None:
    from rlvr import console

    print(f"\nScoring 64 completions (median of {repeats})")
    rows = [[label, f"{ours:.2f} ms", f"{theirs:.2f} ms"] for label, (ours, theirs) in scored(repeats).items()]
    print(console.table(["", "in workers", "a call, as TRL"], rows), flush=True)


def report_health(groups: Sequence[Sequence[BenchmarkRun]], repeats: int) -> None:
    """What looking over the whole run costs at each log step, which steps at the beginning of a run don't show."""
    from rlvr import console
    from rlvr.artifacts.metrics import read_metrics
    from rlvr.health import findings

    run = next(run for run in groups[0] if run.name == OURS)
    logged = read_metrics(run.run_folder / "run" / "metrics.jsonl")
    step = step_of(groups, TRL)
    rows = []
    for count in (20, 100, 600):
        lines = [{**logged[number % len(logged)], "step": number + 1} for number in range(count)]
        cost = milliseconds(lambda: findings(lines), repeats)  # noqa: B023
        rows.append([f"step {count}", f"{cost:.1f} ms", f"{cost / step / 10:.1f} %"])
    print("\nOne look at the run's health; a run looks as often as takes a hundredth of its time")
    print(console.table(["", "median", "of TRL's step"], rows), flush=True)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{len(os.sched_getaffinity(0))} cores of {name}; load {load} before the start; Python {sys.version.split()[0]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", choices=["steps", "slow", "start", "scorer"])
    options = parser.parse_args()

    from rlvr import console

    print(machine(), flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="training-step-") as name:
        folder = Path(name)
        prepare(folder)
        if options.only in (None, "steps", "slow"):
            cheap = report_steps(folder, "Two cheap rewards", CHEAP, *((5, 1) if options.quick else (20, 3)))
            verdicts.append(["a step, cheap rewards", "1.03", f"{median(ratios(cheap, OURS, TRL)):.3f}"])
            report_health(cheap, 5 if options.quick else 25)
        if options.only in (None, "slow"):
            slow = report_steps(folder, "Three rewards of 200 ms", SLOW, *((5, 1) if options.quick else (10, 1)))
            for command, asked in ((OURS, f"{SECONDS:.1f} s"), (TRL, "")):
                over = step_of(slow, command) - step_of(cheap, command)
                verdicts.append([f"three rewards of 200 ms, over the cheap step: {command}", asked, f"{over:.2f} s"])
        if options.only in (None, "start"):
            verdicts.append(["to the first step", "1.20", f"{report_start(folder, 1 if options.quick else 3):.2f}"])
        if options.only in (None, "scorer"):
            report_scorer(5 if options.quick else 50)
    if verdicts:
        print("\nOurs, in times of trl grpo where no unit stands")
        print(console.table(["", "asked, at most", "measured"], verdicts))


if __name__ == "__main__":
    main()
