"""Facts about a run for the report: model, task, rewards, sampling, steps, time, machine and versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rlvr import console
from rlvr.artifacts.result_record import training_seconds
from rlvr.config.recipe import RESOLVED
from rlvr.formatting import is_number, mapping, number
from rlvr.report.run_reader import RunRecord, series_of, steps_of

SAMPLING = {
    "num_generations": "groups of {} completions",
    "temperature": "temperature {}",
    "max_completion_length": "at most {} tokens",
}
YEAR_3000 = 32_503_680_000  # in Unix seconds; a later time is damaged


def facts(run: RunRecord) -> list[tuple[str, list[str]]]:
    """A name and its lines for each fact that the run directory holds."""
    recipe, metrics, environment = run.recipe, run.metrics, run.recipe.get("environment")
    environments = _mappings(environment if isinstance(environment, list) else [environment])
    identity, machine = mapping(run.status.get("identity")), mapping(run.status.get("machine"))
    candidates = {
        "Model": [str(recipe.get("model_name_or_path", ""))],
        "Trained": [_trained_weights(recipe)],
        "Task": [_with_options(task) for task in run.tasks.values()],
        "Environment": [_environment(entry) for entry in environments],
        "Reward": [_reward(entry) for entry in _mappings(recipe.get("rewards"))],
        "Sampling": [", ".join(text.format(recipe[key]) for key, text in SAMPLING.items() if key in recipe)],
        "Learning rate": [_learning_rate(recipe, metrics)],
        "Steps": [_steps(recipe, metrics)],
        "Time": [_time(metrics)],
        "Seed": [str(recipe.get("seed", ""))],
        "Processes": [str(identity.get("processes", ""))],
        "Launcher": [_launcher(identity)],
        "CPU": [str(machine.get("cpu", ""))],
        "GPU": [str(machine.get("gpu", ""))],
        "Versions": [", ".join(f"{name} {version}" for name, version in run.versions.items())],
    }
    known = [(name, [line for line in lines if line]) for name, lines in candidates.items()]
    return [(name, lines) for name, lines in known if lines]


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _trained_weights(recipe: Mapping[str, Any]) -> str:
    if not recipe:
        return ""
    if not recipe.get("use_peft"):
        return "all weights (full fine-tuning)"
    bits = "4-bit " if recipe.get("load_in_4bit") else ""
    modules = mapping(mapping(recipe.get(RESOLVED)).get("lora")).get("target_modules") or recipe.get(
        "lora_target_modules"
    )
    names = ", ".join(map(str, modules)) if isinstance(modules, list) else modules
    rank = f" of rank {recipe['lora_r']}" if "lora_r" in recipe else ""
    alpha = f", alpha {recipe['lora_alpha']}" if "lora_alpha" in recipe else ""
    return f"a LoRA adapter{rank}{alpha}{f', on {names}' if names else ''}, over the frozen {bits}base"


def _with_options(section: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key} {value}" for key, value in section.items() if key != "name")
    return f"{section.get('name', '')}{f' ({options})' if options else ''}"


def _environment(entry: Mapping[str, Any]) -> str:
    return _with_options({"name": entry.get("name", "?"), **mapping(entry.get("options"))})


def _reward(entry: Mapping[str, Any]) -> str:
    text = _environment(entry)
    weight = entry.get("weight", 1.0)
    factor = f"{number(weight)} × " if is_number(weight) else ""
    gate = f", only if {entry['gate']} is positive" if entry.get("gate") else ""
    tasks = entry.get("applies_to")
    applies = f", for {', '.join(map(str, tasks))}" if isinstance(tasks, list) else ""
    return f"{factor}{text}{gate}{applies}"


def _launcher(identity: Mapping[str, Any]) -> str:
    """The launcher; a run's identity does not tell python from ddp, whose checkpoints are the same."""
    launcher = str(identity.get("launcher", ""))
    return launcher if launcher != "plain" else "python" if identity.get("processes") == 1 else "ddp"


def _learning_rate(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    rate = recipe.get("learning_rate", max(series_of(metrics, "learning_rate").values, default=None))
    schedule = recipe.get("lr_scheduler_type")
    return f"{rate:g}{f', {schedule}' if schedule else ''}" if is_number(rate) else ""


def _steps(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    if not metrics:
        return ""
    epochs, tokens = series_of(metrics, "epoch").values, series_of(metrics, "num_tokens").values
    parts = [f"{number(epochs[-1])} epochs"] if epochs else []
    parts += [f"{tokens[-1]:,.0f} tokens"] if tokens else []
    return ", ".join([steps_of(recipe, metrics), *parts])


def _time(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Duration of the training steps, without interruptions."""
    seconds, each_step = training_seconds(metrics), series_of(metrics, "step_time").values
    if not seconds:
        return ""
    each = f"{number(sum(each_step) / len(each_step))} s a step"
    times = [time for time in series_of(metrics, "time").values if 0 <= time < YEAR_3000]
    ended = f"; last logged {datetime.fromtimestamp(times[-1], UTC):%Y-%m-%d %H:%M} UTC" if times else ""
    return f"{console.duration(seconds)} of training, {each}{ended}"
