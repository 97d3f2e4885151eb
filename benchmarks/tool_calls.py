"""Measure environments: a batch of tool calls, and a batch without calls.

    python -m benchmarks.tool_calls            # both
    python -m benchmarks.tool_calls calls      # 500 calls of 20 ms in one batch
    python -m benchmarks.tool_calls overhead   # what environments add to a step without calls

`calls` compares with 500 x 20 ms / processors, for calls that wait and for calls that compute. The second figure needs
a machine without other load.

`overhead` compares the CPU time of what this project does around a batch (resets, metrics, table, rewards) with that of
a step of plain TRL with the same environment and a tiny model, in which it weighs most.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rlvr import console

CALLS, CALL_S, STEPS, ROLLOUTS, REPEATS = 500, 0.02, 2, 16, 20
ROOT = Path(__file__).resolve().parents[1]


class Work:
    """An environment whose tools take a known time."""

    def reset(self, **row: Any) -> None:
        """Begin a rollout."""

    def wait(self, seconds: float) -> str:
        """
        Wait.

        Args:
            seconds: how long.
        """
        time.sleep(seconds)
        return "done"

    def compute(self, seconds: float) -> str:
        """
        Use a processor.

        Args:
            seconds: of CPU time.
        """
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return "done"

    def get_reward(self) -> float:
        """Return the same for all."""
        return 0.0


def measure_calls() -> None:
    from rlvr.config.specs import EnvironmentSpec
    from rlvr.environments.rollouts import EnvironmentWorkers

    cores = len(os.sched_getaffinity(0))
    ideal = CALLS * CALL_S / cores
    spec = EnvironmentSpec("benchmarks.tool_calls.Work")
    with EnvironmentWorkers([spec], timeout_s=30, budget_s=60, max_output=1000) as workers:
        rollouts = [workers.begin(0, {}, (0, 0, number)) for number in range(CALLS)]
        for rollout in rollouts:
            rollout.observation()
        for tool in ("wait", "compute"):
            started, cpu = time.perf_counter(), time.process_time()
            for result in [rollout.call(tool, {"seconds": CALL_S}) for rollout in rollouts]:
                assert result.text() == "done"
            seconds, own_ms = time.perf_counter() - started, (time.process_time() - cpu) / CALLS * 1000
            console.info(
                f"{tool:<8} {CALLS} calls of {CALL_S * 1000:g} ms: {seconds:.2f} s, {seconds / ideal:.2f} x "
                f"({CALLS} x {CALL_S * 1000:g} ms / {cores} processors), {own_ms:.2f} ms of CPU time a call in this "
                f"process; load {os.getloadavg()[0]:.1f}"
            )


def measure_overhead() -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from rlvr.config import schema
    from rlvr.config.recipe import Recipe
    from rlvr.config.specs import EnvironmentSpec, RewardSpec, TaskSpec
    from rlvr.environments.loading import load_environments
    from rlvr.environments.messages import as_table
    from rlvr.environments.proxies import Environments
    from rlvr.modeling.loading import load_tokenizer
    from rlvr.scoring.environment_reward import environment_reward
    from rlvr.training.tool_turns import ToolTurns
    from tests.support.tool_model import write_tool_model

    folder = Path(tempfile.mkdtemp(prefix="tool-calls-"))
    settings: dict[str, Any] = {
        "model_name_or_path": str(write_tool_model(folder / "model")),
        "output_dir": str(folder / "run"),
        "use_cpu": True,
        "bf16": False,
        "per_device_train_batch_size": ROLLOUTS,
        "num_generations": 8,
        "max_steps": STEPS,
        "max_completion_length": 64,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "activation_checkpointing": False,
        "disable_tqdm": True,
    }
    own = {key: default for key, (_, default) in schema.OWN.items()}
    specs = (RewardSpec("environment"),)
    work = (EnvironmentSpec("benchmarks.tool_calls.Work"),)
    recipe = Recipe(
        Path("r.yaml"), TaskSpec("t"), specs, None, {**own, "dtype": "float32", **settings}, environments=work
    )
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": f"Go {row}."}] for row in range(64)]})
    tokenizer = load_tokenizer(recipe, chat=True)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

    arguments = {key: value for key, value in settings.items() if key != "model_name_or_path"}
    trainer = GRPOTrainer(
        settings["model_name_or_path"],
        reward_funcs=[],
        args=GRPOConfig(**arguments),
        train_dataset=data,
        processing_class=tokenizer,
        environment_factory=Work,
    )
    cpu = time.process_time()
    trainer.train()
    step = (time.process_time() - cpu) / STEPS
    rows = list(data.select(range(ROLLOUTS)))
    completions = [[{"role": "assistant", "content": "An answer. " * 20}]] * ROLLOUTS
    ids, added = [[5] * 64] * ROLLOUTS, []
    environments = Environments(recipe, load_environments(recipe.environments), by_column=False)
    with environments.workers:
        for number in range(REPEATS):
            cpu = time.process_time()
            proxies = environments.reset(rows, number)
            turns = ToolTurns(completions, ids, [True] * ROLLOUTS, 4)
            turns.sums(), turns.own_tokens(ids), turns.columns(), environments.seconds(), as_table(completions)
            environment_reward(completions, proxies)
            environments.failures()
            added.append(time.process_time() - cpu)
    console.info(
        f"without calls, {ROLLOUTS} rollouts: {median(added) * 1000:.1f} ms of CPU time in this process (median of "
        f"{REPEATS}), {median(added) / step:.2%} of TRL's step ({step:.2f} s of CPU time, a tiny model)"
    )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    chosen = sys.argv[1:] or ["calls", "overhead"]
    for name, measure in (("calls", measure_calls), ("overhead", measure_overhead)):
        if name in chosen:
            measure()
