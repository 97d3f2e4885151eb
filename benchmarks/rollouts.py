"""Measure the engines of rollouts: tokens a second, what a synchronisation sends, seconds of a step (docs/vllm.md).

    python -m benchmarks.rollouts FOLDER                          # all cases; models and runs go to FOLDER
    python -m benchmarks.rollouts FOLDER --only "tiny, vLLM, adapter"

Each case is a LoRA run of run_grpo.py. The tiny model is the bundled one; the others have real shapes and random
weights, since throughput does not depend on their values. The shapes above 0.5B need a GPU. On a CPU, vLLM is the build
of the tests (`make test-vllm`), and two steps of 0.5B take some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.gpu import LORA, PROJECT, make_model
from rlvr import console
from rlvr.artifacts.metrics import read_metrics
from tests.support.vllm_on_cpu import ENVIRONMENT, write_plugin

ENGINES: dict[str, dict[str, Any]] = {
    "transformers": {"rollouts": "transformers"},
    "vLLM, adapter": {"rollouts": "vllm"},
    "vLLM, merged": {"rollouts": "vllm", "vllm_weight_sync": "merged"},
}
# Completions in a step, tokens of each, steps: on a CPU, and on a GPU. The first step warms up.
SIZES = {"tiny": ((64, 40, 4), (64, 40, 4)), "0.5B": ((2, 8, 2), (16, 256, 4))}
SIZES |= dict.fromkeys(("1.5B", "7B"), ((0, 0, 0), (16, 256, 4)))


def token_sum(completions: list[Any], completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """A reward that differs between completions of random weights, so that there is something to learn."""
    return [sum(ids) % 97 / 97 for ids in completion_ids]


def run_case(shape: str, engine: str, folder: Path, gpu: bool) -> list[str]:
    """Train in a process of its own; return the row of the table."""
    place = folder / f"{shape}-{engine}".replace(", ", "-")
    rows, length, steps = SIZES[shape][gpu]
    content: dict[str, Any] = {
        **LORA,
        **ENGINES[engine],
        "dtype": "bfloat16" if gpu else "float32",
        "bf16": gpu,
        "use_cpu": not gpu,
        "model_name_or_path": str(_model(shape, folder)),
        "output_dir": str(place / "run"),
        "resume_from_checkpoint": "never",
        "per_device_train_batch_size": rows,
        "num_generations": 2,
        "max_completion_length": length,
        "max_steps": steps,
        "vllm_max_model_length": 512,
        "report_to": "none",
        "save_strategy": "no",
        "num_completions_to_print": 0,
        "task": {"name": "arithmetic"},
        "rewards": [{"name": "benchmarks.rollouts.token_sum"}],
    }
    place.mkdir(parents=True, exist_ok=True)
    (place / "recipe.yaml").write_text(json.dumps(content, indent=1), encoding="utf-8")  # which is YAML, too
    environment = dict(os.environ)
    if not gpu:
        environment["TORCHDYNAMO_DISABLE"] = "1"  # vLLM's compiled model fails on a CPU without an adapter
        environment |= {**ENVIRONMENT, "PYTHONPATH": f"{PROJECT}{os.pathsep}{write_plugin(folder / 'plugin')}"}
    words = [sys.executable, "-m", "benchmarks.rollouts", str(place), "--measure"]
    with (place / "printed.txt").open("w") as output:
        code = subprocess.run(words, cwd=PROJECT, env=environment, stdout=output, stderr=subprocess.STDOUT).returncode
    if code:
        raise RuntimeError(f"exit code {code}: " + (place / "printed.txt").read_text(encoding="utf-8")[-1500:])
    sent = json.loads((place / "sent.json").read_text(encoding="utf-8"))
    later = read_metrics(place / "run" / "metrics.jsonl")[1:]
    seconds = {key: median(line[key] for line in later) for key in ("time/generation", "step_time")}
    sending = median(sent["seconds"][1:]) if sent["seconds"] else 0.0
    tokens = rows * fmean(line["completions/mean_length"] for line in later)
    return [
        shape,
        engine,
        f"{tokens / (seconds['time/generation'] - sending):,.1f}",
        f"{sent['bytes'] / 1e6:.1f}" if sent["seconds"] else "",
        f"{sending:.2f}" if sent["seconds"] else "",
        f"{seconds['time/generation']:.2f}",
        f"{seconds['step_time']:.2f}",
    ]


def _model(shape: str, folder: Path) -> Path:
    return PROJECT / "models" / "tiny-arithmetic" if shape == "tiny" else make_model(shape, folder)


def measure(place: Path) -> int:
    """Run the recipe of a folder, and write what was sent to vLLM, and how long that took."""
    import run_grpo
    from rlvr.training import train
    from rlvr.training.grpo_trainer import RecipeTrainer

    sent: dict[str, Any] = {"bytes": 0, "seconds": []}

    class MeasuredTrainer(RecipeTrainer):
        def generate_with(self, rollouts: Any) -> None:
            send = rollouts.sync_weights
            whole = sum(weight.nbytes for name, weight in self.model.named_parameters() if "lora_" not in name)

            def timed() -> None:
                started = time.perf_counter()
                send()
                sent["seconds"].append(time.perf_counter() - started)
                sent["bytes"] = rollouts.sent_bytes or whole

            rollouts.sync_weights = timed
            super().generate_with(rollouts)

    train.RecipeTrainer = MeasuredTrainer  # type: ignore[misc]
    code = run_grpo.main(["--config", str(place / "recipe.yaml")])
    (place / "sent.json").write_text(json.dumps(sent), encoding="utf-8")
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="CASE", help="the name of a case to run")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.measure:
        return measure(folder)
    import torch

    gpu = torch.cuda.is_available()
    table = []
    for shape, sizes in SIZES.items():
        for engine in ENGINES:
            case = f"{shape}, {engine}"
            if not sizes[gpu][0] or options.only and case not in options.only:
                continue
            try:
                table.append(run_case(shape, engine, folder, gpu))
            except RuntimeError as error:
                print(f"{case}: FAILED: {error}", flush=True)
                continue
            print(" | ".join(table[-1]), flush=True)
    head = ["model", "engine", "tokens/s", "MB sent", "seconds sending", "generating", "a step"]
    print(console.table(head, table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
