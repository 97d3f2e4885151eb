#!/usr/bin/env python
"""Measures a model, or a model with an adapter, on the held-out rows of a recipe's task.

    python scripts/evaluate.py --config recipes/gsm8k-qwen2.5-0.5b-instruct-qlora.yaml                 # the base model
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter                             # the trained one
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter --compare base              # both, paired

Greedy decoding, the recipe's own prompts, the recipe's own verifier. Prints a table and writes evaluation.json (and the
completions, as parquet) to --output. Any key of the recipe can be overridden, as with run_grpo.py:
--evaluation.rows 100, --task.shots 4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr, rewards and tasks, wherever this is started from

from rlvr import console
from rlvr.errors import InputError
from rlvr.recipe import SPLITS, EvaluationSpec, Recipe, load_recipe


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="task, rewards and model are its")
    parser.add_argument("--model", metavar="M", help="another model than the recipe's: a folder or a hub id")
    parser.add_argument("--adapter", type=Path, metavar="A", help="an adapter, or the folder of a fully trained model")
    parser.add_argument("--split", choices=SPLITS[1:], help="default: the recipe's, else test")
    parser.add_argument("--compare", choices=["base"], help="evaluate the model without the adapter as well")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: evaluations/<recipe>")
    options, overrides = parser.parse_known_args(words)
    console.quieten()
    try:
        if options.compare and not options.adapter:
            raise InputError("--compare base needs --adapter: there is nothing to compare the base with.")
        if options.model:
            overrides += ["--model_name_or_path", options.model]
        recipe = load_recipe(options.config, overrides)
        spec = recipe.evaluation or EvaluationSpec()
        recipe = replace(recipe, evaluation=replace(spec, split=options.split or spec.split))
        folder = options.output or Path("evaluations") / options.config.stem
        evaluate(recipe, options.adapter, with_base=bool(options.compare) or not options.adapter, folder=folder)
    except InputError as error:
        console.complain(str(error))
        return 2
    return 0


def evaluate(recipe: Recipe, adapter: Path | None, *, with_base: bool, folder: Path) -> None:
    """Evaluates the base and/or the adapter, prints the table and writes `folder`/evaluation.json."""
    from rlvr import evaluation, launch, model, preflight
    from rlvr.plugins import load_rewards, load_task
    from rlvr.scorer import Scorer

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {folder} can't be made: {error.strerror}. Name a folder.") from error
    console.quieten_loading_bars()
    assert recipe.evaluation is not None  # main sets it
    rewards = load_rewards(recipe.rewards)
    metric = evaluation.metric_of(recipe.evaluation, rewards)
    task = load_task(recipe.task)
    if len(task.split(recipe.evaluation.split)) == 0:
        raise InputError(f"The task {recipe.task.name} has no rows in its split {recipe.evaluation.split}.")
    tokenizer = model.load_tokenizer(recipe, chat=task.is_chat)
    state = launch.join(recipe)
    scorer = Scorer(
        evaluation.scored_by(rewards, metric),
        deadline_s=recipe.settings["reward_deadline_s"],
        budget_s=preflight.reward_budget(recipe),
        rank=state.process_index,
    )
    scorer.start()
    results = {}
    for name, folder_of in (("base", None), ("trained", adapter)):
        if (name == "base" and with_base) or (name == "trained" and adapter is not None):
            loaded = model.load_model(recipe, tokenizer, adapter=folder_of)
            results[name] = evaluation.evaluate_split(loaded, tokenizer, task, recipe, rewards, metric, scorer, name)
            del loaded
    scorer.close()
    if state.is_main_process:
        content = evaluation.write_evaluation(folder, evaluation.about(recipe, metric), results)
        console.say(f"{evaluation.heading(content)}\n\n{evaluation.results_table(content)}\n")
        console.say(f"  {folder / 'evaluation.json'}")
    state.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
