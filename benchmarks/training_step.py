"""Time a training step and the start of a run: run_grpo.py against TRL's own `trl grpo`.

    python -m benchmarks.training_step            # about 25 minutes on two shared cores
    python -m benchmarks.training_step --quick    # a tenth of the work: shows that it runs, not how fast
    python -m benchmarks.training_step --update   # updates with real lengths; --layers 6 is quicker

Both are the real commands, with the tiny model (LoRA, float32), the same rows, reward functions, seed and settings,
trackers and checkpoints off. They take turns, a step each in a random order every round, so that other load on the
machine affects both alike. Both make the same completions (checked), so step 7 of one is compared with step 7 of the
other, and the figure is the median of such ratios. Two processes of one command still differ by some percent
for as long as they run. Therefore each command runs twice, several times over: the figure is the median over all pairs
of processes, and the ratios of equal commands show the noise.

`--update` compares the old log-probabilities and the updates of a whole generation, at two threads: a model of
SmolLM2-135M's shape, and completions whose lengths are those of real answers (benchmarks/real_lengths.py). No model
generates: both commands get the same random tokens.

Both commands import this file for its rewards, so it imports nothing heavy at the top.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import real_lengths

PROJECT = Path(__file__).resolve().parents[1]
START_S = 1800.0  # that a command may take to its first step, and a step
ROWS = 1500
SECONDS = 0.2  # of a slow reward
WARM_UP = 5  # steps
COPIES = 2  # of each command at a time

COMMANDS: Mapping[str, Sequence[str]] = {
    "run_grpo.py": (sys.executable, str(PROJECT / "run_grpo.py")),
    "trl grpo": (str(Path(sys.executable).with_name("trl")), "grpo"),
}
OURS, TRL = COMMANDS
CHEAP = ("ends_in_number", "equals_gold")
UPDATE_REWARDS = ("ends_in_number", "longer_than_half")
SLOW = ("slow_one", "slow_two", "slow_three")

# What --update changes: a generation of 128 completions is used for four updates of 32.
UPDATES = 4
UPDATE_SETTINGS: dict[str, Any] = {
    "max_completion_length": 400,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 16,
    "learning_rate": 1e-5,
}

# The keys of recipes/demo-arithmetic.yaml without the 4-bit base. TRL trains its adapter in another type.
SETTINGS: dict[str, Any] = {
    "model_name_or_path": str(PROJECT / "models" / "tiny-arithmetic"),
    "dtype": "float32",
    "use_peft": True,
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "lora_target_modules": "all-linear",
    "num_generations": 8,
    "max_completion_length": 40,
    "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1.5e-3,
    "beta": 0.0,
    "bf16": False,
    "use_cpu": True,
    "seed": 0,
    "logging_steps": 1,
    "log_completions": True,
    "num_completions_to_print": 0,
    "report_to": "none",
    "save_strategy": "no",
}


# ----------------------------------------------------------------------------------------------------------------------
# Rewards


def _text(completion: Any) -> str:
    return str(completion[-1]["content"])


def ends_in_number(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(bool(re.search(r"The final answer is \d+$", _text(one)))) for one in completions]


def equals_gold(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(_text(one).rpartition(" ")[2] == gold) for one, gold in zip(completions, final_answer, strict=True)]


def longer_than_half(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(len(_text(one)) > 400) for one in completions]


def slow_one(completions: list[Any], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return ends_in_number(completions)


def slow_two(completions: list[Any], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return [float(len(_text(one)) < 100) for one in completions]


def slow_three(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return equals_gold(completions, final_answer)


# ----------------------------------------------------------------------------------------------------------------------
# The commands


@dataclass
class BenchmarkRun:
    """A command that waits at the beginning of its steps; see benchmarks/training_step_clock.py."""

    name: str
    folder: Path
    rewards: Sequence[str]
    max_steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)  # beside SETTINGS
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_folder = self.folder / f"{self.name.replace(' ', '-')}-{time.monotonic_ns()}"
        self.run_folder.mkdir()
        address = str(self.run_folder / "clock")
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen()
        self.output = (self.run_folder / "printed.txt").open("w+")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*COMMANDS[self.name], "--config", str(self._config())],
            cwd=PROJECT,
            env={**_environment(self.folder), **self.environment, "STEP_CLOCK": address},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        with server:
            self.connection = self._accept(server)
        self.replies = self.connection.makefile("r")

    def _config(self) -> Path:
        names = [f"benchmarks.training_step.{name}" for name in self.rewards]
        settings = {
            **SETTINGS,
            **self.settings,
            "max_steps": self.max_steps,
            "output_dir": str(self.run_folder / "run"),
        }
        data = str(self.folder / "rows")
        if self.name == OURS:
            settings |= {
                "task": {"name": "jsonl", "path": data, "test_fraction": 0.0},
                "rewards": [{"name": name} for name in names],
                "activation_checkpointing": False,
                "rollout_weights": "adapter",  # as TRL; benchmarks/merged_rollouts.py measures the other way
            }
        else:
            settings |= {"dataset_name": data, "reward_funcs": names, "gradient_checkpointing": False}
        file = self.run_folder / "config.yaml"
        file.write_text(json.dumps(settings, indent=1), encoding="utf-8")  # which is YAML, too
        return file

    def _accept(self, server: socket.socket) -> socket.socket:
        server.settimeout(0.2)
        while self.process.poll() is None and time.monotonic() < self.started + START_S:
            try:
                connection = server.accept()[0]
            except TimeoutError:
                continue
            connection.settimeout(START_S)
            return connection
        raise SystemExit(self._failure())

    def _failure(self) -> str:
        self.process.kill()
        self.output.seek(0)
        return f"{self.name} did not come to its steps:\n{self.output.read()[-3000:]}"

    def wait_until_paused(self) -> None:
        """Wait for the command to stop at a step's begin, and read the steps that it has measured."""
        message = self.replies.readline()
        if not message:
            raise SystemExit(self._failure())
        self.steps += json.loads(message)

    def resume(self, until: int) -> None:
        """Let the command run until it has made `until` steps."""
        self.connection.sendall(f"{until}\n".encode())

    def run_steps(self, until: int) -> None:
        self.resume(until)
        self.wait_until_paused()

    def peak_memory(self) -> float:
        """GiB of the training process that were resident at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 2**20

    def end(self) -> None:
        self.resume(10**9)
        if self.process.wait(START_S) != 0:
            raise SystemExit(self._failure())
        self.connection.close()
        self.output.close()


def _environment(folder: Path) -> dict[str, str]:
    paths = [str(folder / "site"), str(PROJECT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "OMP_NUM_THREADS": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def prepare(folder: Path) -> None:
    """Write the rows, and the sitecustomize.py that times every Python process started with `_environment`."""
    from tasks.arithmetic import arithmetic

    (folder / "site").mkdir()
    shutil.copy(PROJECT / "benchmarks" / "training_step_clock.py", folder / "site" / "sitecustomize.py")
    (folder / "rows").mkdir()
    rows = arithmetic(train_rows=ROWS, test_rows=1).train
    (folder / "rows" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


# ----------------------------------------------------------------------------------------------------------------------
# Measuring


def steps_of(folder: Path, rewards: Sequence[str], steps: int) -> list[BenchmarkRun]:
    """Runs of both commands, with what was measured of their steps after those to warm up."""
    runs = []
    for name in (OURS, TRL) * COPIES:
        run = BenchmarkRun(name, folder, rewards, WARM_UP + steps + 1)
        run.wait_until_paused()
        run.run_steps(WARM_UP)
        runs.append(run)
    order = random.Random(0)
    for step in range(WARM_UP + 1, WARM_UP + steps + 1):
        for run in order.sample(runs, len(runs)):
            run.run_steps(step)
    for run in runs:
        run.run_steps(10**9)  # to the end of the last step
        run.end()
        run.steps = run.steps[WARM_UP : WARM_UP + steps]
    return runs


def ratios(groups: Sequence[Sequence[BenchmarkRun]], one: str, other: str) -> list[float]:
    """How many times as long the steps of a command take as another's: for each two processes of a group."""
    found = []
    for runs in groups:
        for first, second in itertools.permutations(runs, 2):
            if (first.name, second.name) == (one, other):
                pairs = zip(first.steps, second.steps, strict=True)
                found.append(median(mine["seconds"] / theirs["seconds"] for mine, theirs in pairs))
    return sorted(found)


def same_work(runs: Sequence[BenchmarkRun]) -> int:
    """The number of steps in which all have logged the same reward and length."""
    logged = [[(step["reward"], step["completions/mean_length"]) for step in run.steps] for run in runs]
    return sum(len(set(step)) == 1 for step in zip(*logged, strict=True))


def start_of(name: str, folder: Path) -> float:
    """Seconds from a command's start to the end of its first step."""
    run = BenchmarkRun(name, folder, CHEAP, 1)
    run.wait_until_paused()
    run.run_steps(10**9)
    seconds = time.monotonic() - run.started
    run.end()
    return seconds


def report_steps(folder: Path, title: str, rewards: Sequence[str], steps: int, times: int) -> dict[str, float]:
    """Print a table, and return the seconds of a step of each command."""
    groups = [steps_of(folder, rewards, steps) for _ in range(times)]
    seconds = {
        name: median(step["seconds"] for runs in groups for run in runs if run.name == name for step in run.steps)
        for name in COMMANDS
    }
    print(
        f"\n{title}: {times} x {COPIES} processes of each, {steps} steps after {WARM_UP} to warm up; the same rewards"
    )
    print(f"and lengths in {sum(map(same_work, groups))} of {times * steps}")
    for name in COMMANDS:
        print(f"  a step of {name:<12}  {1000 * seconds[name]:,.0f} ms (median)")
    for one, other in itertools.product(COMMANDS, COMMANDS):
        found = ratios(groups, one, other)
        # Equal commands stand there both ways round, so that their median says nothing.
        middle = "" if one == other else f"{median(found):.3f}, "
        print(f"  {one} / {other}: {middle}pairs {found[0]:.2f} to {found[-1]:.2f}", flush=True)
    return seconds


def report_updates(folder: Path, layers: int) -> None:
    """Print how long the old log-probabilities and updates of a generation take."""
    (folder / "model").mkdir()
    real_lengths.write_model(folder / "model", Path(SETTINGS["model_name_or_path"]), layers)
    real_lengths.write_rows(folder / "rows" / "train.jsonl", 16)
    settings = {**UPDATE_SETTINGS, "model_name_or_path": str(folder / "model")}
    environment = {"OMP_NUM_THREADS": "2", "COMPLETION_LENGTHS": json.dumps(real_lengths.COMPLETIONS)}
    runs = []
    for name in COMMANDS:
        runs.append(BenchmarkRun(name, folder, UPDATE_REWARDS, UPDATES + 1, settings, environment))
        runs[-1].wait_until_paused()
    print(f"\n{layers} layers of SmolLM2-135M's shape, {UPDATES} updates with a generation of 128 completions")
    for step in range(1, UPDATES + 1):
        for run in runs if step % 2 else reversed(runs):
            run.run_steps(step)
        ours, theirs = (run.steps[-1]["seconds"] for run in runs)
        print(f"  update {step}: {ours:.1f} s / {theirs:.1f} s = {ours / theirs:.3f}", flush=True)
    ours, theirs = (sum(step["seconds"] for step in run.steps) for run in runs)
    print(f"  all: {OURS} {ours:.1f} s, {TRL} {theirs:.1f} s, ratio {ours / theirs:.3f}")
    for run in runs:
        print(f"  {run.name}: peak memory {run.peak_memory():.2f} GiB")
        run.process.kill()
        run.process.wait()
    print(f"  the same rewards and lengths in {same_work(runs)} of {UPDATES} updates")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--update", action="store_true", help="updates with real lengths instead")
    parser.add_argument("--layers", type=int, default=30, help="of the model of --update")
    arguments = parser.parse_args()
    quick = arguments.quick
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="training-step-") as name:
        folder = Path(name)
        prepare(folder)
        if arguments.update:
            report_updates(folder, arguments.layers)
            return
        cheap = report_steps(folder, "Two cheap rewards", CHEAP, *((5, 1) if quick else (20, 3)))
        slow = report_steps(folder, "Three rewards of 200 ms", SLOW, *((5, 1) if quick else (10, 1)))
        print("\nThree rewards of 200 ms, over the cheap step; from the command to the end of its first step")
        for command in COMMANDS:
            start_of(command, folder)  # fills the caches of the disk and of datasets
        tries = [{command: start_of(command, folder) for command in COMMANDS} for _ in range(1 if quick else 3)]
        for command in COMMANDS:
            start = median(one[command] for one in tries)
            print(f"  {command:<12}  {slow[command] - cheap[command]:.2f} s  {start:.1f} s")


if __name__ == "__main__":
    main()
