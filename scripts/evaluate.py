#!/usr/bin/env python
"""Measure a model, or a model with an adapter, on the held-out rows of a recipe's task.

    python scripts/evaluate.py --config RECIPE base                                          # before training
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter                   # the trained model
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter --compare base    # both, paired
    python scripts/evaluate.py --config RECIPE --adapter … --compare base --samples 8        # pass@1, 2, 4, 8 as well
    python scripts/evaluate.py --config RECIPE --adapter … --compare base --shots 0,1,2,4,8  # a sweep, and its plot
    python scripts/evaluate.py --config RECIPE --split train --samples 8    # pass rates, for the task's pass_rates

Decoding is greedy, with the recipe's own prompts and verifier. Prints a table and writes evaluation.json and the
completions (parquet) to --output; a sweep writes sweep.json, sweep.svg and sweep.png. In a run's own folder the report
is written again. A run that is in MLflow, W&B or trackio gets the results there (docs/tracking.md). Any recipe key can
be overridden, as with run_grpo.py: --evaluation.max_new_tokens 400, --task.shots 4, --temperature 0.6 (for --samples).

Answers are kept in OUTPUT/answers: a killed evaluation continues by the same command.

Exit codes: 0 done, 2 the recipe, its data or an option is wrong, 1 failed, 75 interrupted.
docs/evaluation.md explains every figure.
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
from typing import TYPE_CHECKING, Any

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config import schema
from rlvr.config.recipe import Recipe, load_recipe, require_one_task
from rlvr.config.specs import SPLITS, EvaluationSpec
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from rlvr.evaluation.scores import Record

INTERRUPTED = 75
MAX_SAMPLES = 1024


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s --config RECIPE [base] [options] [--key value …]",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="names task, rewards and model")
    parser.add_argument("--model", metavar="M", help="another model than the recipe's: a folder or a hub id")
    parser.add_argument("--adapter", metavar="A", help="an adapter, or a whole trained model: a folder or a hub id")
    parser.add_argument(
        "--allow_base_mismatch", action="store_true", help="measure an adapter on a base that it doesn't name"
    )
    parser.add_argument("--split", choices=SPLITS, help="default: the recipe's, else test")
    parser.add_argument("--compare", choices=["base"], help="evaluate the model without the adapter as well")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows of the split")
    parser.add_argument("--samples", type=int, metavar="K", help="also draw K samples a row, for pass@1, 2, 4 … K")
    parser.add_argument("--shots", metavar="0,1,2,4,8", help="once for each number of shots, and a plot")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers", help="what generates")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: evaluations/<recipe>")
    options, overrides = parser.parse_known_args(sys.argv[1:] if words is None else words)
    console.silence_libraries()
    try:
        with console.remembered_interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
            return run(options, overrides, interrupts)
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nInterrupted. The answers are kept: the same command continues.")
        return INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "RewardError":
            console.error(f"{error}\n\nThe answers are kept: correct the reward, and the same command scores them.")
        elif type(error).__name__ == "OutOfMemoryError":
            console.error(
                "Out of GPU memory: the batch is too large. The answers so far are kept. Continue with the same "
                "command and a smaller --evaluation.batch_size."
            )
        else:
            raise
        return 1


def run(options: argparse.Namespace, overrides: list[str], interrupts: Sequence[int]) -> int:
    """Check the options, then evaluate."""
    one, both = "base evaluates the model before training, and --adapter the trained one", "--adapter A --compare base"
    alone = "--compare base needs --adapter: there is no model to compare the base with."
    sweep = "--shots and --samples exclude each other. Sweep greedily, then sample at one number of shots."
    rates = "--split train is for pass rates of the base. Add --samples 8, and leave --adapter out."
    for is_conflict, key, message in (
        (_take_base(overrides) and options.adapter, "--adapter", f"{one}. For both, paired: {both}."),
        (options.compare and not options.adapter, "--compare", alone),
        (options.shots and options.samples, "--shots", sweep),
        (options.split == "train" and (options.adapter or not options.samples), "--split", rates),
    ):
        if is_conflict:
            raise InputError(message, kind="conflicting-keys", key=key)
    for name, maximum in (("limit", None), ("samples", MAX_SAMPLES)):
        value = getattr(options, name)
        if value is not None and (value < 1 or (maximum is not None and value > maximum)):
            expected = "at least 1" if maximum is None else f"1 to {maximum}"
            raise InputError(f"--{name} is {value}, but should be {expected}.", kind="out-of-range", key=f"--{name}")
    if options.model:
        overrides = [*overrides, "--model_name_or_path", options.model]
    recipe = load_recipe(options.config, overrides)
    for flag in ("shots", "samples"):
        if getattr(options, flag) is not None:
            require_one_task(recipe, f"--{flag}")
    spec = recipe.evaluation or EvaluationSpec()
    spec = replace(spec, split=options.split or spec.split, rows=options.limit or spec.rows)
    recipe = replace(recipe, evaluation=spec)
    folder = options.output or Path("evaluations") / options.config.stem
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--output {folder} can't be created: {error.strerror}. Name a folder.",
            kind="unwritable",
            key="--output",
            path=folder,
        ) from error
    evaluate(options, recipe, folder, interrupts)
    return 0


def _take_base(words: list[str]) -> bool:
    """Remove the word "base" from the overrides, unless it is the value of a key."""
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word.startswith("--") or (before.startswith("--") and "=" not in before):
            continue
        if word == "base":
            del words[place]
            return True
        if schema.nearest(word, ["base"]):
            raise InputError(f"{word} is no option. Did you mean base?", kind="invalid-override", key="base")
    return False


def evaluate(options: argparse.Namespace, recipe: Recipe, folder: Path, interrupts: Sequence[int]) -> None:
    """Evaluate the base and/or the adapter, print the table and write it to `folder`.

    Args:
        interrupts: signals that arrived (`console.remembered_interrupts`).
    """
    console.error(f"{recipe.path}: loading torch and transformers …")
    from rlvr import evaluation
    from rlvr.artifacts import directory, result_record
    from rlvr.artifacts.finished_run import check_base
    from rlvr.artifacts.run_lock import lock_run
    from rlvr.config.batch_plan import reward_batch_timeout
    from rlvr.evaluation import shot_sweep
    from rlvr.evaluation.trained_rows import check_not_trained_on
    from rlvr.modeling import adapters, loading
    from rlvr.scoring.registry import load_rewards, load_task
    from rlvr.scoring.scorer import Scorer
    from rlvr.training import launch

    evaluation.check_engine(options.engine, recipe)
    _check_not_running(folder)
    assert recipe.evaluation is not None  # run sets it
    console.silence_loading_bars()
    adapter = None if options.adapter is None else adapters.find_adapter(options.adapter)
    if adapter is not None:
        directory.read_status(adapter.resolve().parent)
    rewards = load_rewards(recipe.rewards)
    metric = evaluation.choose_metrics(recipe, rewards)
    if options.shots:
        points = shot_sweep.sweep_points(recipe, shot_sweep.parse_shots(options.shots))
    else:
        shots = recipe.task.options.get("shots", 0)
        points = [shot_sweep.SweepPoint(shots, recipe, load_task(recipe.task))]
    task = points[0].task
    empty = [
        name
        for name, part in (task.parts or {recipe.task.name: task}).items()
        if len(part.split(recipe.evaluation.split)) == 0
    ]
    if empty:
        raise InputError(
            f"The task {empty[0]} has no rows in its split {recipe.evaluation.split}.",
            kind="no-rows",
            key="evaluation.split",
        )
    if adapter is not None:
        held_out = evaluation.held_out_rows(task, recipe)
        check_not_trained_on(adapter.resolve().parent, held_out, task.train, recipe.evaluation.split)
    if not options.shots:
        parts = [*_names(options), *(["pass_at_k"] if options.samples else [])]
        _check_run_results(folder, parts, len(evaluation.held_out_rows(task, recipe)), recipe)
    tokenizer = loading.load_tokenizer(recipe, chat=task.is_chat)
    state = launch.join(recipe)
    if options.engine == "vllm" and state.num_processes > 1:
        raise InputError(
            "--engine vllm: start it with python, not accelerate launch.", kind="conflicting-keys", key="--engine"
        )
    model_name = recipe.settings["model_name_or_path"]
    if adapter is not None and (named_base := adapters.named_base(adapter, model_name)):
        # A folder that doesn't exist here may be another machine's name for the same model.
        if not options.allow_base_mismatch and (not Path(named_base).is_absolute() or Path(named_base).is_dir()):
            raise InputError(
                f"The adapter {options.adapter} was trained on {named_base}, but {model_name} would be measured with "
                f"it. Name the right base (--config, or --model {named_base}), or add --allow_base_mismatch.",
                kind="base-mismatch",
                key="--model",
            )
        console.info(f"  Note: the adapter was trained on {named_base}; it is measured on {model_name}.\n")
    if adapter is not None:
        if not options.allow_base_mismatch and (adapter.resolve().parent / result_record.FILE).is_file():
            check_base(recipe, result_record.read_record(adapter.resolve().parent))
        loading.check_adapter(recipe, adapter)
        if not (adapter / "adapter_config.json").is_file() and recipe.settings.get("load_in_4bit"):
            console.info(f"  Note: {adapter} is a whole model, and is loaded in 4 bits as the recipe says.\n")
    results: dict[int, dict[str, Any]] = {point.shots: {} for point in points}
    sampled: dict[str, Any] = {}
    sampling = None
    scorer = Scorer(
        evaluation.rewards_to_run(rewards, metric),
        timeout_s=recipe.settings["reward_timeout_s"],
        batch_timeout_s=reward_batch_timeout(recipe),
        rank=state.process_index,
    )
    with lock_run(folder, state), scorer:
        for name in _names(options):
            model = evaluation.EvaluatedModel(
                recipe,
                tokenizer,
                name,
                folder,
                adapter=adapter if name == "trained" else None,
                engine=options.engine,
            )
            for point in points:
                greedy = evaluation.greedy_decoding(point.task, point.recipe)
                when = name if len(points) == 1 else f"{name}, {point.shots} shots"
                results[point.shots][name] = model.measure(
                    point.task, point.recipe, rewards, metric, scorer, greedy, when
                )
            if options.samples:
                sampling = replace(greedy, sampling=evaluation.training_decoding(points[0].task, recipe).sampling)
                when = f"{name}, {options.samples} samples"
                sampled[name] = model.measure(
                    points[0].task, recipe, rewards, metric, scorer, sampling, when, samples=options.samples
                )[1]
            model.close()
            if interrupts:
                raise KeyboardInterrupt
        if state.is_main_process:
            rows = None if options.shots else evaluation.held_out_rows(task, recipe)  # prompts depend on the shots
            about = evaluation.describe_evaluation(recipe, metric, rows)
            about["adapter"] = options.adapter
            about["engine"] = options.engine
            if options.shots:
                content = shot_sweep.write_sweep(folder, about, results)
                console.info(f"{shot_sweep.sweep_heading(content)}\n\n{shot_sweep.sweep_table(content)}\n")
                console.info(f"  {folder / 'sweep.json'}\n  {folder / 'sweep.svg'}")
            else:
                scores = results[points[0].shots]
                _move_earlier(folder, about, {*scores, *(["pass_at_k"] if sampled else [])})
                found = evaluation.write_evaluation(folder, about, scores, sampled, options.samples or 0, sampling)
                console.info(f"{evaluation.heading(found)}\n\n{evaluation.results_table(found)}\n")
                console.info(f"  {folder / 'evaluation.json'}")
                if rows is not None and recipe.evaluation.split == "train":
                    _write_pass_rates(folder / "pass_rates.jsonl", rows, sampled["base"])
            _update_run(folder, adapter, options.limit, measured=not options.shots)
    state.destroy_process_group()


def _write_pass_rates(path: Path, rows: Dataset, samples: Sequence[Record]) -> None:
    from rlvr.data.row_selection import write_pass_rates
    from rlvr.evaluation.scores import count_samples

    counts = count_samples(samples)
    write_pass_rates(path, rows, [counts[row] for row in range(len(rows))])
    often = sum(0 < right < scored for scored, right in counts.values())
    console.info(
        f"  {path}: {often:,} of {len(rows):,} rows are solved sometimes. Train on them: --task.pass_rates {path}"
    )


def _update_run(folder: Path, adapter: Path | None, limit: int | None, *, measured: bool) -> None:
    """Write the record and the report of a run again, and add the results to its MLflow run."""
    from rlvr import report
    from rlvr.artifacts import directory
    from rlvr.artifacts.result_record import record_evaluation
    from rlvr.publishing.model_card import renew_cards
    from rlvr.tracking import final_results

    if (folder / directory.STATUS).is_file():
        console.info(f"  {report.write_report(folder)}")
        if adapter is not None and adapter.resolve().parent == folder.resolve():
            renew_cards(folder, adapter)
    run = final_results.find_run_dir(folder, adapter)
    for message in final_results.add_results(run, folder, limit) if run is not None else ():
        console.info(f"  {message}")
    is_run = (folder / directory.STATUS).is_file() and (folder / "recipe.yaml").is_file()
    if is_run and measured and adapter is not None and adapter.resolve().parent == folder.resolve():
        record_evaluation(folder, load_recipe(folder / "recipe.yaml"), adapter.resolve().name)


def _check_not_running(folder: Path) -> None:
    """Check that no run or evaluation writes to the folder, that no run there was killed, and that the format is known.

    Raises:
        InputError: of kind "run-in-use", "run-in-progress" or "later-format".
    """
    from rlvr.artifacts.directory import read_status
    from rlvr.artifacts.run_lock import refuse_if_in_use

    refuse_if_in_use(folder, "Name another folder with --output")
    status = read_status(folder)
    if status is not None and status["status"] == "running":
        raise InputError(
            f"--output {folder} is a run that has not ended: it was killed, or its file system has no locks. Its "
            "evaluation.json would be replaced. Continue it first, or name another folder.",
            kind="run-in-progress",
            key="--output",
            path=folder,
        )


def _check_run_results(folder: Path, parts: Sequence[str], rows: int, recipe: Recipe) -> None:
    """Check that a run's results are not replaced by fewer, or by those of another task or base.

    Args:
        parts: "base", "trained" and "pass_at_k", as far as they are measured now.

    Raises:
        InputError: of kind "would-overwrite": `folder` is a run's.
    """
    from rlvr.artifacts.evaluation import read_evaluation
    from rlvr.artifacts.result_record import FILE, other_measurement, read_record

    if not (folder / "run.json").is_file() or not (folder / "evaluation.json").is_file():
        return
    why = other_measurement(read_record(folder), recipe) if (folder / FILE).is_file() else None
    if why is not None:
        raise InputError(
            f"--output {folder} is a run, and its record would get figures that are not its own: {why}. Name another "
            "folder.",
            kind="would-overwrite",
            key="--output",
            path=folder,
        )
    try:
        before = read_evaluation(folder)
    except InputError:
        return  # half-written: nothing to lose
    held = [*before.scores, *(["pass_at_k"] if before.pass_at_k is not None else [])]
    most = max((score.measured for score in before.scores.values()), default=0)
    if set(held) - set(parts) or rows < most:
        raise InputError(
            f"--output {folder} is a run whose evaluation.json has {', '.join(held)} on {most:,} rows; "
            f"{', '.join(parts)} on {rows:,} rows would replace it. Name another folder, or measure as much "
            "(--adapter … --compare base, no --limit, --samples if it has pass_at_k).",
            kind="would-overwrite",
            key="--output",
            path=folder,
        )


def _move_earlier(folder: Path, about: dict[str, Any], parts: set[str]) -> None:
    """Rename an evaluation.json that was made differently or has more parts; for a run's see `_check_run_results`."""
    file = folder / "evaluation.json"
    if not file.is_file() or (folder / "run.json").is_file():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        same = {key: content.get(key) for key in about} == json.loads(json.dumps(about))
        same = same and {"base", "trained", "pass_at_k"} & set(content) <= parts
    except (OSError, ValueError, AttributeError):  # half-written by a killed evaluation
        return
    if not same:
        stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(file.stat().st_mtime))
        file.replace(renamed := folder / f"evaluation.{stamp}.json")
        console.info(f"  The earlier evaluation, which was made differently or has more parts, is now {renamed}.\n")


def _names(options: argparse.Namespace) -> list[str]:
    """The models to evaluate: "base" and/or "trained"."""
    base = bool(options.compare) or not options.adapter
    return [*(["base"] if base else []), *(["trained"] if options.adapter else [])]


if __name__ == "__main__":
    sys.exit(main())
