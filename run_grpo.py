#!/usr/bin/env python
"""Trains a model with GRPO as a recipe says, and measures on held-out rows whether it got better.

    python run_grpo.py --config recipes/demo-arithmetic.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml run_grpo.py --config RECIPE --learning_rate 1e-5

Any key of the recipe can be overridden: --key value; keys of a section are dotted: --task.shots 4,
--rewards.answer_format.weight 0.2, --evaluation.rows 100.

Exit codes: 0 done; 2 the recipe or the data is wrong, nothing was trained; 1 it failed while running.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.errors import InputError
from rlvr.recipe import Recipe, load_recipe
from rlvr.rewarding import RewardError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="run_grpo.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="the recipe, a YAML file")
    parser.add_argument(
        "--check", action="store_true", help="only check everything that needs no weights, and say what would run"
    )
    options, overrides = parser.parse_known_args(words)

    console.quieten()
    recipe = None
    try:
        recipe = load_recipe(options.config, overrides)
        run(recipe, only_check=options.check)
    except InputError as error:
        console.complain(f"{error}")
        return 2
    except KeyboardInterrupt:
        console.complain("\nStopped by Ctrl-C.")
        return 1
    except Exception as error:
        if recipe is not None and recipe.output_dir.is_dir():
            (recipe.output_dir / "failure.txt").write_text(traceback.format_exc(), encoding="utf-8")
        if not isinstance(error, RewardError):
            raise
        # The fault of a reward's author, who is not helped by our frames; failure.txt has them.
        print(f"{error}", file=sys.stderr, flush=True)
        return 1
    return 0


def run(recipe: Recipe, *, only_check: bool = False) -> None:
    """The story of a run."""
    from rlvr import evaluation, launch, model, preflight, report, run_directory
    from rlvr.plugins import conditions, load_rewards, load_task

    console.quieten_loading_bars()

    # 1. The data, the rewards, and everything that can be wrong with them, before a weight is loaded.
    launch.check_environment(recipe)
    rewards = load_rewards(recipe.rewards)
    task = load_task(recipe.task)
    metric = evaluation.metric_of(recipe.evaluation, rewards)
    tokenizer = model.load_tokenizer(recipe, chat=task.is_chat)
    config = model.load_config(recipe)
    state = launch.join(recipe)
    plan = preflight.check(recipe, task, rewards, metric, tokenizer, config, state.num_processes)

    from rlvr import training  # TRL takes five seconds to import: only now, when all else was found right

    training.check_config(recipe, task, rewards)
    surroundings = conditions(rewards)
    told = [f"attention: {model.attention(recipe)[1]}", *(f"{name}: {words}" for name, words in surroundings.items())]
    _introduce(recipe, [*task.notes, *plan.lines(), *told])
    if only_check:
        console.say("Nothing wrong was found.")
        return

    run_directory.prepare(recipe, state, surroundings)

    # 2. Before: the untouched model on held-out rows.
    results = {}
    if recipe.evaluation:
        base = model.load_model(recipe, tokenizer)
        results["base"] = evaluation.evaluate_split(base, tokenizer, task, recipe, rewards, metric, "before")
        console.say(f"  before training: {evaluation.in_short(results['base'][0])}")
        del base
        training.free_memory()

    # 3. Training.
    trainer = training.build_trainer(recipe, task, rewards, tokenizer)
    trainer.train(resume_from_checkpoint=recipe.settings.get("resume_from_checkpoint"))
    saved = training.save(trainer, recipe)
    del trainer
    training.free_memory()

    # 4. After: what was saved, loaded afresh, on the same rows with the same verifier.
    if recipe.evaluation:
        trained = model.load_model(recipe, tokenizer, adapter=saved)
        results["trained"] = evaluation.evaluate_split(trained, tokenizer, task, recipe, rewards, metric, "after")
    if state.is_main_process:
        if results:
            content = evaluation.write_evaluation(recipe.output_dir, evaluation.about(recipe, metric), results)
            console.say(f"\n{evaluation.heading(content)}\n\n{evaluation.results_table(content)}\n")
        console.say(f"  {saved.name:<9} {saved}")
        console.say(f"  report    {report.write_report(recipe.output_dir)}")
    state.destroy_process_group()


def _introduce(recipe: Recipe, lines: Sequence[str]) -> None:
    rewards = " + ".join(f"{spec.weight:g} x {spec.name}" for spec in recipe.rewards)
    console.say(f"{recipe.path}: {recipe.settings['model_name_or_path']} on {recipe.task.name}, reward = {rewards}")
    for line in lines:
        console.say(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
