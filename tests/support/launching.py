"""Start a launch through tests/support/prefork.py, and read its results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PREFORK_CLIENT = Path(__file__).with_name("prefork_client.py")
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
LAUNCH_S = 600.0  # of a machine that is busy otherwise

# Four prompts a step, four completions each, over all ranks; the demonstration's own recipe otherwise. The reward is a
# number that the text alone decides, and at this temperature texts differ: every step has a gradient. Few rows, since
# every rank makes and checks all of them.
SHORT = (
    *("--config", str(DEMO), "--num_generations", "4", "--max_completion_length", "8", "--temperature", "2.0"),
    *("--task.train_rows", "64", "--task.test_rows", "8"),
    *("--mask_truncated_completions", "false", "--evaluation", "null", "--report_to", "none"),
    *("--learning_rate", "1e-2", "--lr_scheduler_type", "constant", "--warmup_steps", "0"),
)
LORA = ("--load_in_4bit", "false", "--use_bnb_nested_quant", "false")
REWARD = """
import json, os, pathlib, zlib

def seen(prompts, completions, trainer_state, *, folder="", **kwargs):
    if trainer_state.global_step < 0:
        return [0.0] * len(completions)  # tried before training
    texts = [completion[-1]["content"] for completion in completions]
    questions = [prompt[-1]["content"] for prompt in prompts]
    with (pathlib.Path(folder) / f"seen.{os.environ.get('RANK', '0')}.jsonl").open("a") as file:
        file.write(json.dumps({"prompts": questions, "completions": texts}) + "\\n")
    return [zlib.crc32(text.encode()) % 100 / 100 for text in texts]
"""


@dataclass
class Launch:
    """A started launch.

    Attributes:
        process: the launcher, or the training process itself if there is no launcher.
        notes: the folder of its output, exit codes and process ids.
        run: the run directory.
    """

    process: subprocess.Popen[bytes]
    notes: Path
    run: Path

    def wait(self, seconds: float = LAUNCH_S) -> Launch:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"not ended after {seconds:.0f} s:\n{self.output()[-3000:]}") from None
        return self

    def kill(self) -> None:
        """Send SIGKILL to all processes, the ranks first, as when a machine is taken away."""
        for path in sorted(self.notes.glob("*.pid")):
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals, rank: int) -> None:
        os.kill(int((self.notes / f"{rank}.pid").read_text()), number)

    def wait_for_lines(self, lines: int) -> None:
        """Wait until the metrics file has `lines` lines."""
        path = self.run / "metrics.jsonl"
        self.wait_until(lambda: path.is_file() and path.read_text().count("\n") >= lines, f"{lines} steps")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LAUNCH_S
        while not condition():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.output()[-3000:]}"
            assert time.monotonic() < deadline, f"no {what} in {LAUNCH_S:.0f} s:\n{self.output()[-3000:]}"
            time.sleep(0.01)

    def codes(self) -> list[int]:
        """The ranks' exit codes, by rank."""
        return [int(path.read_text()) for path in sorted(self.notes.glob("[0-9]*.code"))]

    def sharded(self) -> list[list[str]]:
        """The classes of the modules that FSDP sharded, by rank."""
        return [path.read_text().splitlines() for path in sorted(self.notes.glob("*.sharded"))]

    def output(self) -> str:
        return (self.notes / "output.txt").read_text(errors="replace")


Start = Callable[..., Launch]


def start(prefork: Path, words: Sequence[str | Path], run: Path, **environment: str) -> Launch:
    """Start a launch.

    Args:
        prefork: the socket of the prefork server.
        words: as `accelerated` makes them, or `run_grpo` and its words; --output_dir is added.
        run: the run directory.
    """
    number = len(list(run.parent.glob(f"{run.name}.launch*"))) + 1
    notes = run.parent / f"{run.name}.launch{number}"
    notes.mkdir(parents=True)
    places = {"PREFORK_SOCKET": str(prefork), "LAUNCH_NOTES": str(notes)}
    with (notes / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", str(PREFORK_CLIENT), *map(str, words), "--output_dir", str(run)],
            cwd=REPOSITORY,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **places, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Launch(process, notes, run)


def prefork_command(prefork: Path, *words: str | Path) -> list[str]:
    """The command that does what `python words…` would with a script, forked by the prefork server.

    Its process can be sent signals, killed and waited for like the script's own.
    """
    command = [sys.executable, "-S", PREFORK_CLIENT, *words]
    return ["env", f"PREFORK_SOCKET={prefork}", *map(str, command)]


def accelerated(
    config: str | Path, *words: str | Path, flags: Sequence[str] = (), script: str | Path = "run_grpo"
) -> list[str | Path]:
    """A user's command: `accelerate launch` with a shipped configuration (by name) or another file; two processes."""
    file = REPOSITORY / "accelerate_configs" / f"{config}.yaml" if isinstance(config, str) else config
    flags = flags or ("--num_processes", "2", "--main_process_port", "0")
    return ["accelerate", "launch", "--config_file", file, *flags, PREFORK_CLIENT, script, *words]


def reward_words(folder: Path) -> list[str]:
    """The words that make REWARD the only reward, in the training process, where it knows its rank."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seen.py").write_text(REWARD)
    spec = {"name": f"{folder}/seen.py", "where": "trainer", "options": {"folder": str(folder)}}
    return ["--rewards", json.dumps([spec])]


def seen(folder: Path) -> list[list[dict[str, list[str]]]]:
    """The prompts and completions of each rank's reward, call by call."""
    return [
        [json.loads(line) for line in file.read_text().splitlines()] for file in sorted(folder.glob("seen.*.jsonl"))
    ]


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def adapter(run: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(run / "adapter" / "adapter_model.safetensors")
