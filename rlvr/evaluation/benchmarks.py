"""Measure a run's models with lm-eval (EleutherAI's evaluation harness), and lay its figures beside ours.

lm-eval runs as a program of its own: `python -m lm_eval`. Its tasks have their own prompts, examples, extraction of the
answer and decoding, so its figures are others than ours; `differences` names how.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.artifacts import directory
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.formatting import mapping

FILE = "lm_eval.json"
Figures = dict[str, Any]


def check_lm_eval() -> None:
    """Check that lm-eval is installed.

    Raises:
        InputError: of kind "package-not-installed".
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise InputError(
            "--lm_eval: lm-eval is not installed. Run `pip install -e '.[lm-eval]' -c constraints.txt`.",
            kind="package-not-installed",
            key="--lm_eval",
        )


def run_lm_eval(
    recipe: Recipe,
    weights: Path | None,
    tasks: str,
    *,
    chat: bool,
    include: Path | None = None,
    limit: int | None = None,
) -> Figures:
    """Measure one model; return the content of lm-eval's results file.

    Args:
        weights: the folder of an adapter or of a whole model; None for the base.
        tasks: lm-eval's names, with commas.
        chat: whether lm-eval applies the chat template.
        include: a folder with further tasks.

    Raises:
        InputError: of kind "lm-eval-failed"; its own message is on standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = lm_eval_command(recipe, weights, tasks, chat=chat, include=include, limit=limit)
        done = subprocess.run([*command, "--output_path", folder], stdout=subprocess.DEVNULL)
        files = sorted(Path(folder).rglob("results_*.json"))
        if done.returncode or not files:
            raise InputError(
                f"lm-eval failed on {tasks} (exit code {done.returncode}): its message is above. `python -m lm_eval ls "
                "tasks` lists its tasks; --lm_eval_tasks DIR adds your own.",
                kind="lm-eval-failed",
                key="--lm_eval",
            )
        return dict(json.loads(files[-1].read_text(encoding="utf-8")))


def lm_eval_command(
    recipe: Recipe, weights: Path | None, tasks: str, *, chat: bool, include: Path | None, limit: int | None
) -> list[str]:
    """The command that measures a model, without its output folder."""
    from rlvr.modeling import loading

    settings = recipe.settings
    arguments = {
        "pretrained": loading.find_model(str(settings["model_name_or_path"])),
        "revision": settings.get("model_revision", "main"),
        "dtype": settings.get("dtype", "float32"),
        "trust_remote_code": bool(settings.get("trust_remote_code", False)),
    }
    if weights is not None and (weights / "adapter_config.json").is_file():
        arguments["peft"] = str(weights)
    elif weights is not None:
        arguments |= {"tokenizer": arguments["pretrained"], "pretrained": str(weights)}
    batch = recipe.evaluation.batch_size if recipe.evaluation is not None else 1
    command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args", json.dumps(arguments)]
    device = "cpu" if settings.get("use_cpu") else str(loading.device(recipe))
    command += ["--tasks", tasks, "--device", device, "--batch_size", str(batch)]
    command += ["--apply_chat_template"] if chat else []
    command += ["--include_path", str(include)] if include is not None else []
    return command + (["--limit", str(limit)] if limit is not None else [])


def write_benchmarks(folder: Path, figures: Mapping[str, Figures]) -> None:
    """Write lm_eval.json: lm-eval's results by model, without paths of this machine."""
    kept = ("lm_eval_version", "results", "n-shot", "n-samples", "higher_is_better")
    content = {name: {key: each[key] for key in kept if key in each} for name, each in figures.items()}
    directory.write_json(folder / FILE, content)


def benchmark_table(figures: Mapping[str, Figures], evaluation: Mapping[str, Any]) -> str:
    """lm-eval's figures and ours, a row each; below them how the measurements differ.

    Args:
        figures: by model ("base", "trained"), as `run_lm_eval` returns them.
        evaluation: content of evaluation.json.
    """
    first = next(iter(figures.values()))
    rows = []
    for task, values in first["results"].items():
        for metric in (name for name in values if "," in name and "_stderr," not in name):
            cells = [_figure(mapping(mapping(each.get("results")).get(task)), metric) for each in figures.values()]
            rows.append([f"lm-eval {task}: {_words(metric)}", *cells])
    ours = [_ours(evaluation.get(name)) for name in figures]
    rows.append([f"ours {evaluation['task']['name']}: {evaluation['metric']}", *ours])
    return console.table(["", *figures], rows)


def differences(figures: Mapping[str, Figures], evaluation: Mapping[str, Any], *, quantised: bool) -> list[str]:
    """Why lm-eval's figure of each task is another than ours, a sentence each."""
    first = next(iter(figures.values()))
    rows = next(evaluation[name]["rows"] for name in figures if name in evaluation)
    limit = mapping(evaluation.get("settings")).get("max_new_tokens")
    lines = []
    for task, config in mapping(first.get("configs")).items():
        generation = mapping(config.get("generation_kwargs"))
        sampling = "sampled" if generation.get("do_sample") else "greedy"
        tokens = generation.get("max_gen_toks", "its default number of")
        filters = ", ".join(str(mapping(each).get("name")) for each in config.get("filter_list") or ()) or "none"
        answered = mapping(mapping(first.get("n-samples")).get(task)).get("effective", "?")
        lines += [
            f"{task}: {answered} rows of its own data; ours {rows} rows of {evaluation['task']['name']}/"
            f"{evaluation['split']}.",
            f"{task}: its own prompt with {mapping(first.get('n-shot')).get(task, 0)} examples; ours the task's.",
            f"{task}: the answer is extracted by its filter ({filters}); ours by {evaluation['metric']}.",
            f"{task}: {sampling}, at most {tokens} tokens; ours {evaluation['decoding']}, at most {limit}."
            if generation
            else f"{task}: compares the likelihood of given answers; ours generates.",
        ]
    return [*lines, *(["lm-eval loads the base unquantised; ours in the recipe's bits."] if quantised else [])]


def _figure(values: Mapping[str, Any], metric: str) -> str:
    value, error = values.get(metric), values.get(metric.replace(",", "_stderr,", 1))
    if not isinstance(value, int | float):
        return "–"
    return f"{value:.4g}{f' ± {error:.2g}' if isinstance(error, int | float) else ''}"


def _ours(score: Any) -> str:
    return f"{score['accuracy']:.4g}" if score else "–"


def _words(metric: str) -> str:
    name, _, extraction = metric.partition(",")
    return name if extraction == "none" else f"{name} ({extraction})"
