#!/usr/bin/env python
"""Measure a model, or a model with an adapter, on the held-out rows of a recipe's task.

    python scripts/evaluate.py --config RECIPE                                               # before training
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter                   # the trained model
    python scripts/evaluate.py --config RECIPE --adapter runs/NAME/adapter --compare base    # both, paired
    python scripts/evaluate.py --config RECIPE --adapter … --compare base --samples 8        # pass@1, 2, 4, 8 as well
    python scripts/evaluate.py --config RECIPE --split train --samples 8    # pass rates, for the task's pass_rates

Decoding is greedy, with the recipe's own prompts and verifier. Prints a table and writes evaluation.json and the
completions (parquet) to --output. In a run's own folder the report is written again. A run that is in MLflow or W&B
gets the results there (docs/monitoring.md). Any recipe key can be overridden, as with run_grpo.py:
--evaluation.max_new_tokens 400, --task.shots 4, --temperature 0.6 (for --samples).

Answers are kept in OUTPUT/answers: a killed evaluation continues by the same command.

Exit codes: 0 done, 2 the recipe, its data or an option is wrong, 1 failed, 75 interrupted.
docs/evaluation.md explains every figure.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config.recipe import load_recipe, require_one_task
from rlvr.config.specs import SPLITS, EvaluationSpec
from rlvr.errors import InputError, writing

INTERRUPTED = 75


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s --config RECIPE [options] [--key value …]",
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="names task, rewards and model")
    parser.add_argument("--model", metavar="M", help="another model than the recipe's: a folder or a hub id")
    parser.add_argument("--adapter", metavar="A", help="an adapter, or a whole trained model: a folder or a hub id")
    parser.add_argument(
        "--allow_base_mismatch", action="store_true", help="measure an adapter on a base that it doesn't name"
    )
    parser.add_argument("--split", choices=SPLITS, help="default: the recipe's, else test")
    parser.add_argument("--compare", choices=["base"], help="evaluate the model without the adapter as well")
    parser.add_argument("--limit", type=console.positive_int, metavar="N", help="only the first N rows of the split")
    parser.add_argument(
        "--samples", type=console.positive_int, metavar="K", help="also draw K samples a row, for pass@1, 2, 4 … K"
    )
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


def run(options: argparse.Namespace, overrides: list[str], interrupts: Sequence[int]) -> int:
    """Check the options, then evaluate."""
    alone = "--compare base needs --adapter: there is no model to compare the base with."
    rates = "--split train is for pass rates of the base. Add --samples 8, and leave --adapter out."
    for is_conflict, key, message in (
        (options.compare and not options.adapter, "--compare", alone),
        (options.split == "train" and (options.adapter or not options.samples), "--split", rates),
    ):
        if is_conflict:
            raise InputError(message, kind="conflicting-keys", key=key)
    if options.model:
        overrides = [*overrides, "--model_name_or_path", options.model]
    recipe = load_recipe(options.config, overrides)
    if options.samples is not None:
        require_one_task(recipe, "--samples")
    spec = recipe.evaluation or EvaluationSpec()
    spec = replace(spec, split=options.split or spec.split, rows=options.limit or spec.rows)
    recipe = replace(recipe, evaluation=spec)
    folder = options.output or Path("evaluations") / options.config.stem
    with writing(folder, "Name another folder with --output.", key="--output"):
        folder.mkdir(parents=True, exist_ok=True)
    console.error(f"{recipe.path}: loading torch and transformers …")
    from rlvr import evaluate_models

    plan = evaluate_models.EvaluationPlan(
        recipe,
        folder,
        adapter=options.adapter,
        compare=bool(options.compare),
        samples=options.samples or 0,
        engine=options.engine,
        allow_base_mismatch=options.allow_base_mismatch,
    )
    return evaluate_models.evaluate(plan, options.limit, interrupts)


if __name__ == "__main__":
    sys.exit(main())
