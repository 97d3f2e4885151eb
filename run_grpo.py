#!/usr/bin/env python
"""Trains a model with GRPO as a recipe says, and measures on held-out rows whether it got better.

    python run_grpo.py --config recipes/demo-arithmetic.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml run_grpo.py --config RECIPE --learning_rate 1e-5

Any key of the recipe can be overridden: --key value; keys of a section are dotted: --task.shots 4,
--rewards.answer_format.weight 0.2, --evaluation.rows 100.

A run that was stopped or killed is continued by the same command (docs/resume.md).

Exit codes: 0 done; 2 the recipe or the data is wrong, nothing was trained; 1 it failed while running; 75 it was stopped
early, and the same command continues it; 130 Ctrl-C, where there was nothing to save or no wish to wait for it.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.config.recipe import Recipe, RecipeError, load_recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.preflight.check import TargetMachine

STARTED = time.monotonic()  # max_runtime_s counts the seconds of the imports too


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="run_grpo.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="the recipe, a YAML file")
    parser.add_argument(
        "--check", action="store_true", help="only check everything that needs no weights, and say what would run"
    )
    parser.add_argument(
        "--world_size", type=int, metavar="N", help="with --check: check for so many processes, wherever this is run"
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="with --check: estimate for this GPU or instance type, such as ml.g6e.12xlarge",
    )
    parser.add_argument(
        "--launcher",
        choices=["python", "ddp", "zero2", "zero2_offload", "zero3", "fsdp2"],
        help="with --machine: how it will be launched (accelerate_configs/); default: as this is",
    )
    options, overrides = parser.parse_known_args(words)

    elsewhere = any((options.world_size is not None, options.machine, options.launcher))
    if elsewhere and not options.check:
        parser.error("--world_size, --machine and --launcher go with --check; a run is where it is")
    if options.world_size is not None and options.world_size < 1:
        parser.error("--world_size is at least 1")

    console.silence_libraries()
    gc.disable()  # until training: it would walk through what is imported, for a tenth of the time of a check
    try:
        if options.check:
            return check(options, overrides)
        return run(load_recipe(options.config, overrides))
    except InputError as error:
        console.error(f"{error}")
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    except Exception as error:
        if type(error).__name__ not in ("RewardError", "TrainingError"):
            raise
        # The fault of a reward's author, or of the recipe, who are not helped by our frames; failure.txt has them.
        console.error(f"{error}")
        return 1
    finally:
        gc.enable()


def check(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """What `--check` does: all that is wrong, in one pass; what the recipe's text shows is told at once."""
    told: tuple[str, ...] = ()
    try:
        recipe = load_recipe(options.config, overrides)
    except RecipeError as error:
        if error.rest is None:
            raise
        console.error(f"{error}")
        recipe, told = error.rest, tuple(problem.message for problem in error.problems)
    from rlvr.preflight.check import TargetMachine

    try:
        return run(
            recipe,
            only_check=True,
            meant=TargetMachine(options.world_size, options.machine, options.launcher),
            told=told,
        )
    except InputError as error:
        if f"{error}":
            console.error(f"{error}")
        return 2


def run(
    recipe: Recipe, *, only_check: bool = False, meant: TargetMachine | None = None, told: Sequence[str] = ()
) -> int:
    """The story of a run; returns its exit code.

    Args:
        only_check: ends before anything is written or loaded.
        meant: where it is meant to run, if not here; only with `only_check`.
        told: what was found wrong with the recipe's text, for a check of what is left of it.
    """
    from rlvr import evaluation, report
    from rlvr.artifacts import directory, resumption
    from rlvr.preflight.check import prepare_run
    from rlvr.tracking.mlflow_tracker import Status, tracker_of
    from rlvr.training import trl_config
    from rlvr.training.interruption import Interrupted, StopRequest, time_limit

    stop = StopRequest(time_limit(recipe.settings["max_runtime_s"]), STARTED)
    console.silence_loading_bars()

    # 1. The data, the rewards, and everything that can be wrong with them, before a weight is loaded.
    with prepare_run(recipe, meant, brief=only_check, told=told) as found:
        task, rewards, metric, tokenizer = found.task, found.rewards, found.metric, found.tokenizer
        state, begin, scorer = found.state, found.begin, found.scorer
        _introduce(recipe, (*map(str, recipe.warnings), *found.notes))
        if only_check:
            warnings = sum(line.startswith("warning: ") for line in found.notes)
            but = f", but {warnings} warning{'s' if warnings > 1 else ''}: see above" if warnings else ""
            console.info(f"Nothing wrong was found{but}.")
            return 0

        from rlvr.training import (
            train as training,  # with TRL's trainer takes seconds to import: only now, when all was found right
        )

        gc.enable()
        directory.prepare(recipe, state, found.surroundings, fresh=begin.fresh)
        status = resumption.RunStatus(recipe.output_dir, found.identity, state.is_main_process)
        tracker = tracker_of(recipe) if state.is_main_process else None
        status.update("trained" if begin.trained else "running", saved=training.saved_folder(recipe).name)
        stop.install_handlers()
        end: Status = "FAILED"
        try:
            if tracker is not None:
                tracker.start()
            results = {}

            # 2. Before: the untouched model on held-out rows, once a run.
            if recipe.evaluation:
                about, greedy = evaluation.about(recipe, metric), evaluation.greedy(task, recipe)
                earlier = evaluation.read_results(recipe.output_dir, "base", about, rewards)
                if earlier is not None:
                    results["base"] = earlier
                else:
                    base = evaluation.EvaluatedModel(recipe, tokenizer, "base", recipe.output_dir)
                    results["base"] = base.measure(task, recipe, rewards, metric, scorer, greedy, "before")
                    base.close()
                    trl_config.free_memory()
                    if state.is_main_process:
                        evaluation.write_evaluation(recipe.output_dir, about, results)
                console.info(f"  before training: {evaluation.in_short(results['base'][0])}")

            # 3. Training.
            saved = training.saved_folder(recipe)
            if not begin.trained:
                trainer = training.build_trainer(
                    recipe, task, rewards, metric, tokenizer, scorer, found.identity, steps=found.plan.steps
                )
                with stop:
                    why = training.train(trainer, recipe, stop, begin.checkpoint, tracker)
                    if why is not None:
                        raise Interrupted(why)
                    training.save(trainer, saved)
                    status.update("trained", saved=saved.name)
                del trainer
                trl_config.free_memory()
                stop.raise_if_requested()

            # 4. After: what was saved, loaded afresh, on the same rows with the same verifier.
            if recipe.evaluation:
                trained = evaluation.EvaluatedModel(recipe, tokenizer, "trained", recipe.output_dir, adapter=saved)
                results["trained"] = trained.measure(task, recipe, rewards, metric, scorer, greedy, "after")
            if state.is_main_process:
                if results:
                    content = evaluation.write_evaluation(recipe.output_dir, about, results)
                    console.info(f"\n{evaluation.heading(content)}\n\n{evaluation.results_table(content)}\n")
                console.info(f"  {saved.name:<9} {saved}")
                console.info(f"  report    {report.write_report(recipe.output_dir)}")
            status.update("done")
            end = "FINISHED"
        except Interrupted as error:
            end = "KILLED"
            return status.interrupted(str(error))
        except BaseException as error:
            status.failed(traceback.format_exc(), can_continue=not isinstance(error, training.TrainingError))
            raise
        finally:
            stop.deferred = True
            if tracker is not None:
                tracker.close(end, timeout_s=30 if end == "FINISHED" else 10)
            stop.restore_handlers()
        state.destroy_process_group()
        return 0


def _introduce(recipe: Recipe, lines: Sequence[str]) -> None:
    rewards = " + ".join(f"{spec.weight:g} x {spec.name}" for spec in recipe.rewards)
    console.info(f"{recipe.path}: {recipe.settings['model_name_or_path']} on {recipe.task.name}, reward = {rewards}")
    for line in lines:
        console.info(f"  {line}")


if __name__ == "__main__":
    if "--check" in sys.argv:
        # Nothing is computed then, and bitsandbytes, which TRL imports, would load torch's compiler for two seconds.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    code = main()
    gc.freeze()  # Python would walk through all that was imported once more before it ends
    # A launcher sends SIGTERM to the other processes as soon as one has ended; their exit codes are to stay theirs.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)
