"""The two commands that benchmarks/training_step.py times, with the rewards that they train on.

Both commands import this file for its rewards, so it imports nothing heavy at the top.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
START_S = 300.0  # that a command may take to its first step
ROWS = 1500
SECONDS = 0.2  # of a slow reward

COMMANDS: Mapping[str, Sequence[str]] = {
    "run_grpo.py": (sys.executable, str(PROJECT / "run_grpo.py")),
    "trl grpo": (str(Path(sys.executable).with_name("trl")), "grpo"),
    "trl grpo without accelerate launch": (sys.executable, "-m", "trl.scripts.grpo"),
}
OURS, TRL, ITS_SCRIPT = COMMANDS

# Those of recipes/demo-arithmetic.yaml, without the 4-bit base: TRL would train its adapter in another type than we do.
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


def slow_one(completions: list[Any], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return ends_in_number(completions)


def slow_two(completions: list[Any], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return [float(len(_text(one)) < 100) for one in completions]


def slow_three(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    time.sleep(SECONDS)
    return equals_gold(completions, final_answer)


def reads_nothing(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def reads_ids(completions: list[Any], completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


# ----------------------------------------------------------------------------------------------------------------------
# The commands


@dataclass
class BenchmarkRun:
    """A command that waits at the beginning of its steps; see benchmarks/training_step_clock.py."""

    name: str
    folder: Path
    rewards: Sequence[str]
    max_steps: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    cpu: float = 0.0  # seconds of CPU time of its turns

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
            env={**_environment(self.folder), "STEP_CLOCK": address},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        with server:
            self.connection = self._accept(server)
        self.replies = self.connection.makefile("r")

    def _config(self) -> Path:
        names = [f"benchmarks.training_step_runs.{name}" for name in self.rewards]
        settings = {**SETTINGS, "max_steps": self.max_steps, "output_dir": str(self.run_folder / "run")}
        data = str(self.folder / "rows")
        if self.name == OURS:
            settings |= {
                "task": {"name": "jsonl", "path": data, "test_fraction": 0.0},
                "rewards": [{"name": name} for name in names],
                "activation_checkpointing": False,
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
        self.steps += json.loads(message)["steps"]

    def resume(self, until: int) -> None:
        """Let the command run until it has made `until` steps."""
        self.connection.sendall(f"{until}\n".encode())

    def run_steps(self, until: int) -> None:
        before = cpu_below(self.process.pid)
        self.resume(until)
        self.wait_until_paused()
        self.cpu += cpu_below(self.process.pid) - before

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


def cpu_below(process: int) -> float:
    """Seconds of CPU time of a process, of those below it, and of those below that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:  # it has ended meanwhile
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_below, children))
