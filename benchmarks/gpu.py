"""Compare the estimates of memory and time (rlvr/estimates) with runs on a GPU: a table of docs/benchmarks.md.

    python -m benchmarks.gpu FOLDER     # all cases, or --only "0.5B QLoRA"; models and results go to FOLDER

Each case is a run of run_grpo.py with a model of a real shape and random weights: memory and time do not depend on
their values. Such a model hardly ever ends a completion, so all have the maximum length, as the estimate assumes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.model_families import SHAPES

PROJECT = Path(__file__).resolve().parents[1]
TIME_S = 400
PROMPT = 300  # tokens of each prompt

COMMON: dict[str, Any] = {
    "dtype": "bfloat16",
    "bf16": True,
    "num_generations": 8,
    "gradient_accumulation_steps": 1,
    "beta": 0.0,
    "learning_rate": 1e-5,
    "report_to": "none",
    "save_strategy": "no",
    "activation_checkpointing": True,
    "seed": 0,
    "num_completions_to_print": 0,
}
LORA = {"use_peft": True, "lora_r": 16, "lora_alpha": 32, "lora_target_modules": "all-linear"}
QLORA = {**LORA, "load_in_4bit": True, "use_bnb_nested_quant": True, "bnb_4bit_quant_storage": "bfloat16"}
VLLM = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.35, "vllm_max_model_length": 1024}


@dataclass(frozen=True)
class Case:
    name: str
    shape: str
    settings: dict[str, Any]
    rows: int
    completion: int
    launcher: str = "python"
    steps: int = 2

    @property
    def place(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-")

    @property
    def recipe(self) -> dict[str, Any]:
        sizes = {"per_device_train_batch_size": self.rows, "max_completion_length": self.completion}
        return {**COMMON, **self.settings, **sizes, "max_steps": self.steps}


CASES = (
    Case("0.5B QLoRA", "0.5B", QLORA, 16, 256),
    Case("0.5B LoRA", "0.5B", LORA, 16, 256),
    Case("0.5B full", "0.5B", {}, 16, 256),
    Case("1.5B QLoRA", "1.5B", QLORA, 16, 256),
    Case("7B QLoRA", "7B", QLORA, 8, 256),
    Case("0.5B full, zero3", "0.5B", {}, 16, 128, "zero3"),
    Case("0.5B LoRA, fsdp2", "0.5B", LORA, 16, 128, "fsdp2"),
    Case("0.5B QLoRA, vLLM", "0.5B", {**QLORA, **VLLM}, 16, 256, steps=3),
)


def even_sum(completions: list[Any], completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """A reward that random weights earn in half of the cases, so that there is something to learn."""
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """Call in a process of its own, so that this one takes no memory of the GPU while a case runs."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def make_model(shape: str, folder: Path) -> Path:
    """Write a model with random weights, and the tokenizer of a bundled model."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    target = folder / shape
    if (target / "config.json").is_file():
        return target
    tiny = PROJECT / "models" / "tiny-arithmetic"
    ends = json.loads((tiny / "generation_config.json").read_text(encoding="utf-8"))
    config = Qwen2Config(
        **SHAPES[f"Qwen/Qwen2.5-{shape}-Instruct"][1],
        **{key: ends[key] for key in ("eos_token_id", "pad_token_id", "bos_token_id") if key in ends},
    )
    config.dtype = torch.bfloat16
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(target)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(tiny / name, target / name)
    return target


def write_rows(folder: Path) -> None:
    """Write prompts of exactly `PROMPT` tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(PROJECT / "models" / "tiny-arithmetic")
    text = " ".join(str(number % 10) for number in range(PROMPT))
    ids = tokenizer(text).input_ids[:PROMPT]
    prompt = tokenizer.decode(ids)
    assert len(tokenizer(prompt).input_ids) == PROMPT
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"problem": prompt, "solution": "1", "number": number}) for number in range(64))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_case(case: Case, folder: Path) -> dict[str, Any]:
    """Train the case in a process of its own; return what benchmarks/gpu_run.py measured."""
    place = folder / "runs" / case.place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    content = {
        **case.recipe,
        "model_name_or_path": str(apart(make_model, case.shape, folder)),
        "output_dir": str(place / "run"),
        "task": {
            "name": "jsonl",
            "path": str(folder / "rows"),
            "style": "text",
            "prompt_template": "{problem}",
            "test_fraction": 0.0,
        },
        "rewards": [{"name": "benchmarks.gpu.even_sum"}],
    }
    recipe = place / "recipe.yaml"
    recipe.write_text(json.dumps(content, indent=1), encoding="utf-8")  # which is YAML, too
    start = [sys.executable]
    if case.launcher != "python":
        start += ["-m", "accelerate.commands.launch", "--num_processes", "1"]
        start += ["--config_file", f"accelerate_configs/{case.launcher}.yaml"]
    command = [*start, "-m", "benchmarks.gpu_run", str(place / "measured.json"), "--config", str(recipe)]
    with (place / "printed.txt").open("w") as output:
        code = subprocess.run(command, cwd=PROJECT, stdout=output, stderr=subprocess.STDOUT, timeout=TIME_S).returncode
    if code != 0 or not (place / "measured.json").is_file():
        raise RuntimeError(f"exit code {code}: " + (place / "printed.txt").read_text(encoding="utf-8")[-1500:])
    measured: dict[str, Any] = json.loads((place / "measured.json").read_text(encoding="utf-8"))
    return measured


def compare(case: Case, measured: dict[str, Any], folder: Path) -> list[str]:
    """The case's row of the table: estimates / measured values."""
    from transformers import AutoConfig

    from rlvr.config.recipe import Recipe
    from rlvr.config.specs import RewardSpec, TaskSpec
    from rlvr.estimates import estimate, this_machine
    from rlvr.estimates import parameters as counting
    from rlvr.estimates.memory import GIB
    from rlvr.estimates.run_time import FAST, SLOW, generation_seconds, training_seconds

    config = AutoConfig.from_pretrained(folder / case.shape)
    settings = {"model_name_or_path": "m", **case.recipe}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    machine = this_machine()
    assert machine is not None  # the run needed a GPU
    result = estimate(recipe, config, 1, case.launcher, machine, prompt_tokens=PROMPT, steps=1)
    tensors = sum(
        part.bytes
        for part in result.memory.parts
        if "training" in part.moments and not part.name.startswith(("CUDA", "gaps"))
    )
    allocated, reserved = measured["peaks"]["training"]
    whole = counting.count(config)
    shape = counting.shape(config, whole)
    added = counting.adapter(whole, config, settings) if result.setup.peft else None
    paces = [replace(pace, length=1.0) for pace in (FAST, SLOW)]
    generating = [generation_seconds(whole, added, shape, result.setup, machine.gpu, pace) for pace in paces]
    training = [training_seconds(whole, added, shape, result.setup, machine.gpu, pace) for pace in paces]
    later = measured["steps"][1:]
    seconds = {name: median(step.get(name, 0.0) for step in later) for name in ("generating", "training", "sending")}
    return [
        case.name,
        f"{tensors / GIB:.2f} / {allocated / GIB:.2f}",
        f"{result.memory.at('training') / GIB:.2f} / {reserved / GIB:.2f}",
        f"{result.memory.peak / GIB:.2f} / {measured['used'] / GIB:.2f}",
        f"{generating[0]:.1f} to {generating[1]:.1f} / {seconds['generating']:.1f}",
        f"{training[0]:.2f} to {training[1]:.2f} / {seconds['training']:.2f}",
        f"{case.rows * case.completion / seconds['generating']:,.0f}",
        *_rollouts(case, seconds["sending"], measured["sent"], folder),
    ]


def _rollouts(case: Case, sending_s: float, sent: int, folder: Path) -> list[str]:
    """Seconds and megabytes of sending weights to vLLM, and how far its log probabilities are from the trainer's."""
    if not case.recipe.get("use_vllm"):
        return ["", "", ""]
    metrics = folder / "runs" / case.place / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    name = "sampling/sampling_logp_difference/"
    mean, most = (max(line[name + kind] for line in lines) for kind in ("mean", "max"))
    return [f"{sending_s:.2f}", f"{sent / 1e6:.1f}", f"{mean:.1e}, {most:.1e}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="CASE", help="the name of a case to run")
    options = parser.parse_args()

    from rlvr import console

    folder = options.folder.resolve()
    write_rows(folder / "rows")
    table: list[list[str]] = []
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        try:
            table.append(apart(compare, case, run_case(case, folder), folder))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{case.name}: FAILED: {error}", flush=True)
            continue
        print(" | ".join(table[-1]), flush=True)
    head = [
        "estimated / measured",
        "GiB training",
        "GiB in all / reserved",
        "GiB of the device",
        "s generating",
        "s training",
        "tokens/s",
        "s sending",
        "MB sent",
        "log probabilities differ (mean, max)",
    ]
    print(console.table(head, table))


if __name__ == "__main__":
    main()
