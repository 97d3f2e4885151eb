#!/usr/bin/env python
"""Measures a model, or a model with an adapter, on the held-out rows of a recipe's task.

    python scripts/evaluate.py --config RECIPE base                                          # before training
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter                   # the trained model
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter --compare base    # both, paired
    python scripts/evaluate.py --config RECIPE --adapter … --compare base --samples 8        # pass@1, 2, 4, 8 as well
    python scripts/evaluate.py --config RECIPE --adapter … --compare base --shots 0,1,2,4,8  # the sweep, and its plot

Greedy decoding, the recipe's own prompts, the recipe's own verifier. Prints a table and writes evaluation.json (and the
completions, as parquet) to --output; a sweep writes sweep.json, sweep.svg and sweep.png. In a run's own folder the
report is made anew; a run that is in MLflow gets all of it there (docs/tracking.md). Any key of the recipe can be
overridden, as with run_grpo.py: --evaluation.max_new_tokens 400, --task.shots 4, --temperature 0.6 (of --samples).

Answers are kept in OUTPUT/answers as they come: a killed evaluation goes on where it was by the same command.

Exits with 0 when done, 2 if the recipe, its data or an option is wrong, 1 if it failed, 75 if it was interrupted.
docs/evaluation.md says what every figure means.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr, rewards and tasks, wherever this is started from

from rlvr import console
from rlvr.config.recipe import SPLITS, EvaluationSpec, Recipe, load_recipe
from rlvr.errors import InputError

INTERRUPTED = 75
MOST_SAMPLES = 1024


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s --config RECIPE [base] [options] [--key value …]",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="task, rewards and model are its")
    parser.add_argument("--model", metavar="M", help="another model than the recipe's: a folder or a hub id")
    parser.add_argument("--adapter", metavar="A", help="an adapter, or a whole trained model: a folder or a hub id")
    parser.add_argument("--other_base", action="store_true", help="measure an adapter on a base that it doesn't name")
    parser.add_argument("--split", choices=SPLITS[1:], help="default: the recipe's, else test")
    parser.add_argument("--compare", choices=["base"], help="evaluate the model without the adapter as well")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows of the split")
    parser.add_argument("--samples", type=int, metavar="K", help="also draw K samples a row, for pass@1, 2, 4 … K")
    parser.add_argument("--shots", metavar="0,1,2,4,8", help="once for each number of shots, and a plot")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers", help="what generates")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: evaluations/<recipe>")
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    try:
        return run(options, overrides)
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nInterrupted. The answers are kept: the same command goes on from there.")
        return INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "RewardError":
            console.error(f"{error}\n\nThe answers are kept: once the reward is mended, the same command scores them.")
        elif type(error).__name__ == "OutOfMemoryError":
            console.error(
                "The GPU's memory is too small for so many prompts at a time. The answers so far are kept: go on with "
                "the same command and a smaller --evaluation.batch_size."
            )
        else:
            raise
        return 1


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def run(options: argparse.Namespace, overrides: list[str]) -> int:
    """Checks the options, evaluates, prints and writes."""
    base_only = _take_base(overrides)
    if base_only and options.adapter:
        raise InputError(
            "base evaluates the model before training, and --adapter the trained one. For both, paired: --adapter A "
            "--compare base."
        )
    if options.compare and not options.adapter:
        raise InputError("--compare base needs --adapter: there is nothing to compare the base with.")
    for name, most in (("limit", None), ("samples", MOST_SAMPLES)):
        value = getattr(options, name)
        if value is not None and (value < 1 or (most is not None and value > most)):
            raise InputError(f"--{name} is {value}, but should be {'at least 1' if most is None else f'1 to {most}'}.")
    if options.shots and options.samples:
        raise InputError("--shots and --samples: sweep greedily, then sample at the number of shots that matters.")
    if options.model:
        overrides = [*overrides, "--model_name_or_path", options.model]
    recipe = load_recipe(options.config, overrides)
    spec = recipe.evaluation or EvaluationSpec()
    spec = replace(spec, split=options.split or spec.split, rows=options.limit or spec.rows)
    recipe = replace(recipe, evaluation=spec)
    folder = options.output or Path("evaluations") / options.config.stem
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {folder} can't be made: {error.strerror}. Name a folder.") from error
    evaluate(options, recipe, folder)
    return 0


def _take_base(words: list[str]) -> bool:
    """Takes the word "base" out of what argparse left over, unless it is the value of a key."""
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word == "base" and not (before.startswith("--") and "=" not in before):
            del words[place]
            return True
    return False


def evaluate(options: argparse.Namespace, recipe: Recipe, folder: Path) -> None:
    """Evaluates the base and/or the adapter, prints the table and writes it to `folder`."""
    from rlvr import evaluation
    from rlvr.artifacts import directory
    from rlvr.config.batch_plan import reward_batch_timeout
    from rlvr.evaluation import shot_sweep
    from rlvr.modeling import adapters, loading
    from rlvr.scoring.registry import load_rewards, load_task
    from rlvr.scoring.scorer import Scorer
    from rlvr.training import launch

    evaluation.check_engine(options.engine, recipe)
    _spare_what_is_going_on(folder)
    assert recipe.evaluation is not None  # run sets it
    console.silence_loading_bars()
    adapter = None if options.adapter is None else adapters.find_adapter(options.adapter)
    if adapter is not None:
        directory.read_status(adapter.resolve().parent)
    rewards = load_rewards(recipe.rewards)
    metric = evaluation.metric_of(recipe.evaluation, rewards)
    if options.shots:
        points = shot_sweep.points_of(recipe, shot_sweep.shots_of(options.shots))
    else:
        shots = recipe.task.options.get("shots", 0)
        points = [shot_sweep.Point(shots, recipe, load_task(recipe.task))]
    task = points[0].task
    if len(task.split(recipe.evaluation.split)) == 0:
        raise InputError(f"The task {recipe.task.name} has no rows in its split {recipe.evaluation.split}.")
    if not options.shots:
        _spare_a_run(folder, _names(options), len(evaluation.held_out_rows(task, recipe)))
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    state = launch.join(recipe)
    if options.engine == "vllm" and state.num_processes > 1:
        raise InputError(
            "--engine vllm: start it with python, not accelerate launch; vLLM spreads over GPUs by itself."
        )
    measured_on = recipe.settings["model_name_or_path"]
    if adapter is not None and (other := adapters.other_base(adapter, measured_on)):
        # A folder that isn't here may be another machine's name for the same model.
        if not options.other_base and (not Path(other).is_absolute() or Path(other).is_dir()):
            raise InputError(
                f"The adapter {options.adapter} says that its base is {other}, but {measured_on} would be measured "
                f"with it. Name the right one (--config, or --model {other}), or add --other_base to measure this one."
            )
        console.info(f"  Note: the adapter says that its base is {other}; it is measured on {measured_on}.\n")
    if adapter is not None:
        loading.check_adapter(recipe, adapter)
    results: dict[int, dict[str, Any]] = {point.shots: {} for point in points}
    sampled: dict[str, Any] = {}
    drawn = None
    with Scorer(
        evaluation.scored_by(rewards, metric),
        deadline_s=recipe.settings["reward_timeout_s"],
        budget_s=reward_batch_timeout(recipe),
        rank=state.process_index,
    ) as scorer:
        for name in _names(options):
            subject = evaluation.EvaluatedModel(
                recipe,
                tokenizer,
                name,
                folder,
                adapter=adapter if name == "trained" else None,
                engine=options.engine,
            )
            for point in points:
                greedy = evaluation.greedy(point.task, point.recipe)
                when = name if len(points) == 1 else f"{name}, {point.shots} shots"
                results[point.shots][name] = subject.measure(
                    point.task, point.recipe, rewards, metric, scorer, greedy, when
                )
            if options.samples:
                drawn = replace(greedy, sampling=_sampling(recipe))
                when = f"{name}, {options.samples} samples"
                sampled[name] = subject.measure(
                    points[0].task, recipe, rewards, metric, scorer, drawn, when, samples=options.samples
                )[1]
            subject.close()
    if state.is_main_process:
        about = evaluation.about(recipe, metric)
        about["adapter"] = options.adapter
        about["engine"] = options.engine
        if options.shots:
            content = shot_sweep.write_sweep(folder, about, results)
            console.info(f"{shot_sweep.sweep_heading(content)}\n\n{shot_sweep.sweep_table(content)}\n")
            console.info(f"  {folder / 'sweep.json'}\n  {folder / 'sweep.svg'}")
        else:
            found = results[points[0].shots]
            _keep_earlier(folder, about)
            content = evaluation.write_evaluation(folder, about, found, sampled, options.samples or 0, drawn)
            console.info(f"{evaluation.heading(content)}\n\n{evaluation.results_table(content)}\n")
            console.info(f"  {folder / 'evaluation.json'}")
        _tell(folder, adapter)
    state.destroy_process_group()


def _tell(folder: Path, adapter: Path | None) -> None:
    """Makes the report of a run anew that has been measured again, and adds what was measured to its MLflow run."""
    from rlvr import report
    from rlvr.artifacts import directory
    from rlvr.tracking import mlflow_results

    if (folder / directory.STATUS).is_file():
        console.info(f"  {report.write_report(folder)}")
    run = mlflow_results.run_of(folder, adapter)
    said = mlflow_results.add_to_run(run, folder) if run is not None else None
    if said:
        console.info(f"  {said}")


def _spare_what_is_going_on(folder: Path) -> None:
    """Refuses to write where a run may be writing, or a later version of the project has written.

    Raises:
        InputError: one of both.
    """
    from rlvr.artifacts.directory import read_status

    status = read_status(folder)
    if status is not None and status["status"] == "running":
        raise InputError(
            f"--output {folder} is a run that is still going, or was killed: its evaluation.json would be replaced. "
            "Name another folder."
        )


def _spare_a_run(folder: Path, names: Sequence[str], rows: int) -> None:
    """Refuses to replace what a whole run has measured by something smaller.

    Raises:
        InputError: `folder` is a run's, and its evaluation.json holds more.
    """
    file = folder / "evaluation.json"
    if not (folder / "run.json").is_file() or not file.is_file():
        return
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        before = {name: found[name]["rows"] + found[name]["unscored"] for name in ("base", "trained") if name in found}
    except (ValueError, KeyError, TypeError):
        return  # half-written: there is nothing to lose
    if set(before) - set(names) or rows < max(before.values(), default=0):
        held = " and ".join(f"{name} on {count:,} rows" for name, count in before.items())
        raise InputError(
            f"--output {folder} is a run whose evaluation.json has {held}; {' and '.join(names)} on {rows:,} rows "
            "would replace it. Name another folder, or measure as much (--adapter … --compare base, no --limit)."
        )


def _keep_earlier(folder: Path, about: dict[str, Any]) -> None:
    """Moves an evaluation.json of something else aside; that of a run is another matter (`_spare_a_run`)."""
    file = folder / "evaluation.json"
    if not file.is_file() or (folder / "run.json").is_file():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        same = {key: content.get(key) for key in about} == json.loads(json.dumps(about))
    except (OSError, ValueError, AttributeError):  # half-written by one that was killed
        return
    if not same:
        stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(file.stat().st_mtime))
        file.replace(aside := folder / f"evaluation.{stamp}.json")
        console.info(f"  the earlier evaluation, of something else, is now {aside}\n")


def _names(options: argparse.Namespace) -> list[str]:
    """What is evaluated: "base" and/or "trained"."""
    base = bool(options.compare) or not options.adapter
    return [*(["base"] if base else []), *(["trained"] if options.adapter else [])]


def _sampling(recipe: Recipe) -> dict[str, Any]:
    """How samples are drawn: as in training."""
    from rlvr.evaluation import sampling_of

    return {**sampling_of(recipe), **(recipe.settings.get("generation_kwargs") or {})}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
