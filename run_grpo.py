#!/usr/bin/env python
"""Train a model with GRPO from a recipe, and measure on held-out rows whether it improved.

    python run_grpo.py --config recipes/demo-arithmetic.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml run_grpo.py --config RECIPE --learning_rate 1e-5

Override any key of the recipe: --learning_rate 1e-5, --task.shots 4, --rewards.answer_format.weight 0.2.

Exit codes: 0 done; 1 failed while running; 2 the recipe or its data is wrong, nothing was trained; 75 stopped early,
the same command continues; 130 Ctrl-C with nothing to save.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.artifacts.run_lock import lock_before_launch
from rlvr.config.key_help import PrintKeys
from rlvr.errors import FailedRun, InputError, Problem, disk_full, problems_as_json
from rlvr.formatting import count
from rlvr.preflight import LAUNCHERS, add_profile_option


def main(words: Sequence[str] | None = None) -> int:
    started = time.monotonic()  # max_runtime_s counts the seconds of the imports below
    options, overrides = parse_arguments(words)
    if not console.are_installed("ruamel", "torch", "trl"):
        return 2
    console.silence_libraries()
    gc.disable()  # until training starts: collecting after imports takes a tenth of a check's time
    try:
        return execute(options, overrides, started)
    except InputError as error:
        if options.json:
            console.print_json(problems_as_json(error.problems))
        elif str(error):  # empty if `execute` has printed all of it
            console.error(str(error))
        if options.check and not options.json:
            console.error(f"{count(sum(one.level == 'error' for one in error.problems), 'error')}: see above.")
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    except Exception as error:
        message = str(error) if isinstance(error, FailedRun) else disk_full(error)
        if not message:
            raise
        console.error(message)
        return 1
    finally:
        gc.enable()


def execute(options: argparse.Namespace, overrides: Sequence[str], started: float) -> int:
    """Read the recipe, and check, profile or run it; return the exit code."""
    from rlvr.config.recipe import RecipeError, load_recipe  # needs a package: after `are_installed`

    try:
        recipe, problems = load_recipe(options.config, overrides), tuple[Problem, ...]()
    except RecipeError as error:
        if not options.check or error.rest is None:
            raise
        recipe, problems = error.rest, error.problems  # check what is left without its wrong keys
        if not options.json:
            console.error(str(error))
    if not options.json:
        console.error("Loading torch, transformers and TRL …")
    if options.check or (recipe.value("use_cpu") and not recipe.value("torch_compile")):
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # bitsandbytes would load torch's compiler for two seconds
    if options.check:
        from rlvr.check import TargetMachine, check

        target = TargetMachine(options.world_size, options.machine, options.launcher)
        return check(recipe, target, problems, as_json=options.json, show=options.show)
    if options.profile:
        from rlvr import run

        return run.profile(recipe, started, options.profile, options.machine)
    with console.remembered_interrupts(signal.SIGINT) as interrupts, lock_before_launch(recipe.output_dir):
        from rlvr import run

        return run.train_and_measure(recipe, started, interrupts)


def parse_arguments(words: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the remaining words: overrides of the recipe."""
    parser = argparse.ArgumentParser(prog="run_grpo.py", description=__doc__, formatter_class=console.HelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    add = parser.add_argument
    add("--config", required=True, type=Path, metavar="RECIPE", help="the recipe, a YAML file")
    add("--keys", action=PrintKeys, metavar="WORD", help="print the keys of recipes, or those with WORD, and exit")
    mode.add_argument("--check", action="store_true", help="only check: load no weights, write nothing")
    add_profile_option(mode)
    add("--show", action="store_true", help="with --check: also print the recipe with all of its keys")
    add("--json", action="store_true", help="with --check: print one JSON object (docs/recipes.md)")
    add("--world_size", type=console.positive_int, metavar="N", help="with --check: check for N processes")
    add("--launcher", choices=LAUNCHERS, help="with --check: check for this launcher; default: the one in use")
    add("--machine", metavar="NAME", help="a GPU or an instance type, to estimate (--check) or price (--profile)")
    options, overrides = parser.parse_known_args(words)
    if not options.check and (options.json or options.show or options.world_size or options.launcher):
        parser.error("--json, --show, --world_size and --launcher need --check")
    if options.machine and not (options.check or options.profile):
        parser.error("--machine needs --check or --profile")
    return options, overrides


if __name__ == "__main__":
    code = main()
    gc.freeze()  # otherwise Python collects all imported modules once more before it ends
    # A launcher sends SIGTERM to the other processes once one has ended. They must keep their own exit codes.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)
