#!/usr/bin/env python
"""Keep the training prompts that a model solves sometimes: only these have nonzero advantages.

    python scripts/filter_by_pass_rate.py --config recipes/x.yaml                        # 8 samples a prompt
    python scripts/filter_by_pass_rate.py --config recipes/x.yaml --samples 16 --low 0.1 --high 0.9
    python scripts/filter_by_pass_rate.py --config recipes/x.yaml --limit 50 --temperature 0.7    # any recipe key

Samples completions of the recipe's untrained model for every training prompt, with the recipe's sampling settings, and
scores them with the recipe's metric. Plays the recipe's environments. Writes the prompts whose share of right
completions (`pass_rate`) is within the bounds to --output, and all held-out rows to a file beside it. Prints a
histogram, and the recipe section that trains on these files.

OUTPUT.rates records every rate at once: an interrupted run continues from there, and other bounds need no sampling.

Runs in one process with transformers' generation, even with `use_vllm`. Exits with 0 when done, 2 if the recipe or its
data is wrong, 1 if a reward failed, 75 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.data.io import task_section, write_rows
from rlvr.data.pass_rates import PassRate, PassRateBounds, PassRateFile, histogram, row_key
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from rlvr.config.recipe import Recipe
    from rlvr.data.task import Task
    from rlvr.evaluation.conversations import Player
    from rlvr.evaluation.engines import Completion
    from rlvr.scoring.reward import Reward
    from rlvr.scoring.scorer import Scorer

INTERRUPTED = 75


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter, allow_abbrev=False)
    parser.add_argument(
        "--config", required=True, type=Path, metavar="RECIPE", help="YAML file with the task, metric and model"
    )
    parser.add_argument("--samples", type=int, default=8, metavar="N", help="completions a prompt (default 8)")
    parser.add_argument("--low", type=float, default=0.01, help="lowest pass rate to keep (default 0.01)")
    parser.add_argument("--high", type=float, default=0.99, help="highest pass rate to keep (default 0.99)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: runs/filtered/<recipe>.jsonl")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N training rows")
    parser.add_argument("--batch_size", type=int, default=64, metavar="N", help="completions at a time (default 64)")
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    try:
        return filter_rows(options, overrides)
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nInterrupted. The measured rates are kept: run the same command to continue.")
        return INTERRUPTED


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def filter_rows(options: argparse.Namespace, overrides: list[str]) -> int:
    """Measure every row without a rate, then write the files and print a summary."""
    from rlvr.config.recipe import load_recipe, require_one_task

    _check(options)
    recipe = load_recipe(options.config, overrides)
    require_one_task(recipe, "filter_by_pass_rate.py")
    console.error(f"{recipe.path}: loading torch and transformers …")
    output = options.output or Path("runs") / "filtered" / f"{options.config.stem}.jsonl"
    bounds = PassRateBounds(options.low, options.high)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--output {output}: cannot create its folder: {error.strerror}. Name another.",
            kind="unusable-output",
            path=output,
        ) from error

    from rlvr import evaluation
    from rlvr.scoring.registry import load_rewards, load_task

    task = load_task(recipe.task)
    rows = task.train if options.limit is None else task.train.select(range(min(options.limit, len(task.train))))
    if len(rows) == 0:
        raise InputError(f"The task {recipe.task.name} has no training rows.", kind="empty-data", key="task")
    metric = evaluation.choose_metric(recipe.evaluation, load_rewards(recipe.rewards))
    keys = [row_key(row) for row in rows]
    with PassRateFile(Path(f"{output}.rates"), settings_of(recipe, task, metric, options.samples)) as rates:
        missing = [number for number, key in enumerate(keys) if key not in rates.known]
        if len(missing) < len(rows):
            console.info(f"{len(rows) - len(missing):,} of {len(rows):,} rows are already measured.")
        if missing:
            measure(recipe, task, rows, missing, keys, metric, rates, options.samples, options.batch_size)
        measured = [rates.known[key] for key in keys]
    if output.exists():
        console.info(f"{output} of an earlier command is replaced.")
    write(output, task, rows, measured, bounds)
    console.info(page(recipe, task, output, measured, bounds, metric, options.samples))
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("samples", "limit", "batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}. Use 1 or more.", kind="invalid-value", key=name)
    if not 0 <= options.low <= options.high <= 1:
        raise InputError(
            f"--low {options.low:g} and --high {options.high:g} are no bounds. Use 0 <= low <= high <= 1.",
            kind="invalid-value",
            key="low",
        )
    if options.output is not None and options.output.suffix != ".jsonl":
        raise InputError(f"--output {options.output} must end in .jsonl.", kind="unusable-output", path=options.output)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "filter_by_pass_rate.py samples in one process. Start it with python, not accelerate launch.",
            kind="unsupported-launcher",
        )


def settings_of(recipe: Recipe, task: Task, metric: Reward, samples: int) -> dict[str, Any]:
    """Return the settings that pass rates depend on; rates with different settings must not be mixed."""
    from rlvr.evaluation import sampling_settings
    from rlvr.evaluation.answer_cache import environment_settings
    from rlvr.evaluation.results import describe_verifier
    from rlvr.modeling.digests import base_digests

    names = (
        *("model_name_or_path", "model_revision", "dtype", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type"),
        *("use_bnb_nested_quant", "max_completion_length", "generation_kwargs", "chat_template_kwargs"),
    )
    model_settings = {name: recipe.settings[name] for name in names if recipe.settings.get(name) is not None}
    options = {"metric": metric.name, "stop_strings": list(task.stop_strings), **describe_verifier(metric)}
    options |= {f"base {part}": digest for part, digest in base_digests(recipe).items()}
    everything = {"samples": samples, **sampling_settings(recipe), **model_settings, **options}
    everything |= environment_settings(recipe)
    plain: dict[str, Any] = json.loads(json.dumps(everything, default=str))  # as JSON reads it
    return plain


# ----------------------------------------------------------------------------------------------------------------------
# Measuring


def measure(
    recipe: Recipe,
    task: Task,
    rows: Dataset,
    missing: Sequence[int],
    keys: Sequence[str],
    metric: Reward,
    rates: PassRateFile,
    samples: int,
    batch_size: int,
) -> None:
    """Sample and score `samples` completions of each missing row, and add its rate to `rates`."""
    from rlvr.console import ProgressBar
    from rlvr.evaluation import rewards_to_run, sampling_settings
    from rlvr.evaluation.conversations import open_player
    from rlvr.evaluation.engines import Decoding, TransformersEngine
    from rlvr.modeling import loading as models
    from rlvr.modeling.generation import prompt_tokens
    from rlvr.scoring.scorer import Scorer

    console.silence_loading_bars()
    tokenizer = models.load_tokenizer(recipe, chat=task.is_chat)
    engine = TransformersEngine(models.load_model(recipe, tokenizer), tokenizer)
    sampling = {**sampling_settings(recipe), **(recipe.settings.get("generation_kwargs") or {})}
    decoding = Decoding(recipe.settings.get("max_completion_length", 512), task.stop_strings, sampling)
    prompts = [rows[number]["prompt"] for number in missing]
    tokens = prompt_tokens(tokenizer, prompts, recipe.settings.get("chat_template_kwargs"))
    ids = dict(zip(missing, tokens, strict=True))
    # Long prompts first: out-of-memory errors show early, and prompts of similar length need little padding.
    order = sorted(missing, key=lambda number: -len(ids[number]))
    each = max(1, batch_size // samples)
    batches = [order[start : start + each] for start in range(0, len(order), each)]
    with (
        Scorer(rewards_to_run([], metric), timeout_s=recipe.settings.get("reward_timeout_s", 30.0)) as scorer,
        open_player(recipe, tokenizer, rows.column_names) as player,
        ProgressBar("sampling", len(order)) as progress,
    ):
        for batch in batches:
            pairs = [(number, sample) for number in batch for sample in range(samples)]
            answers: list[Completion] = []
            # Other random numbers than those of the rows that were measured before.
            seed = int(recipe.settings.get("seed", 42)) + len(rates.known)
            for start in range(0, len(pairs), batch_size):  # several if one prompt has more samples than a batch
                part = pairs[start : start + batch_size]
                if player is None:
                    answers += engine.complete([ids[number] for number, _ in part], decoding, seed + start)
                else:
                    answers += player.play(engine, [rows[number] for number, _ in part], part, decoding, seed + start)
            values = _score(recipe, rows, pairs, answers, scorer, player)
            groups = [values[start : start + samples] for start in range(0, len(values), samples)]
            rates.add([keys[number] for number in batch], [PassRate.of(group) for group in groups])
            progress.update(len(batch))


def _score(
    recipe: Recipe,
    rows: Dataset,
    pairs: Sequence[tuple[int, int]],
    answers: Sequence[Completion],
    scorer: Scorer,
    player: Player | None,
) -> list[float | None]:
    """Score completions with the metric; None if it cannot score one.

    Raises:
        RewardError: the metric failed, and the recipe does not mask such rows.
    """
    from rlvr.rescoring.scores import completion_argument
    from rlvr.scoring.environment_reward import ENVIRONMENTS
    from rlvr.scoring.reward import RewardError
    from rlvr.scoring.scorer import report

    selected = [rows[number] for number, _ in pairs]
    columns: dict[str, list[Any]] = {
        name: [row[name] for row in selected] for name in rows.column_names if name not in ("prompt", "completion")
    }
    if player is None:
        prompts = [row["prompt"] for row in selected]
        records = [{**row, "completion": answer.text} for row, answer in zip(selected, answers, strict=True)]
        completions = [completion_argument(record) for record in records]
    else:
        conversations = [answer.conversation for answer in answers if answer.conversation is not None]
        prompts = [conversation.prompt for conversation in conversations]
        completions = [conversation.messages for conversation in conversations]
        columns[ENVIRONMENTS] = list(player.replay(selected, pairs, conversations))
    scored = scorer.score(prompts, completions, columns)
    values = scored.values if player is None else player.mask_failures(scored.values)
    if scored.failures and recipe.settings.get("on_reward_error", "raise") == "raise":
        raise RewardError(
            f"{report(scored.failures)}\n\nWhat was measured is kept. "
            "on_reward_error: mask would go on without such rows."
        )
    return [row[0] for row in values]


# ----------------------------------------------------------------------------------------------------------------------
# Output


def held_out_file(output: Path) -> Path:
    """Return the path of the held-out rows: x.test.jsonl for x.jsonl."""
    return output.with_suffix(".test.jsonl")


def write(output: Path, task: Task, rows: Dataset, rates: Sequence[PassRate], bounds: PassRateBounds) -> None:
    """Write the kept rows with their `pass_rate`, and all rows of the test split.

    Rows without `difficulty` get 1 - pass_rate, for `curriculum: easy_first`.

    Raises:
        InputError: no row is within the bounds.
    """
    kept = []
    for row, rate in zip(rows, rates, strict=True):
        if rate.share is not None and bounds.keep(rate):
            measured = {"pass_rate": rate.share}
            if "difficulty" not in row:
                measured["difficulty"] = round(1 - rate.share, 6)
            kept.append({**row, **measured})
    if not kept:
        raise InputError(
            f"None of the {len(rows)} rows has a pass rate between {bounds.low:g} and {bounds.high:g}. Widen --low and "
            f"--high, or use another model or other data.\n\n{histogram(rates, bounds)}",
            kind="empty-data",
            key="low",
        )
    files = {output: kept}
    if len(task.test):
        files[held_out_file(output)] = list(task.test)
    for file, content in files.items():
        write_rows(file, content)


def page(
    recipe: Recipe,
    task: Task,
    output: Path,
    rates: Sequence[PassRate],
    bounds: PassRateBounds,
    metric: Reward,
    samples: int,
) -> str:
    """Format the summary: how often rows are solved, and how to train on the kept rows."""
    kept = sum(bounds.keep(rate) for rate in rates)
    unscored = sum(rate.share is None for rate in rates)
    lines = [
        f"Pass rate ({metric.label}) of {recipe.settings['model_name_or_path']}, {samples} samples a row:",
        "",
        histogram(rates, bounds),
        "",
        f"  Kept {kept:,} of {len(rates):,} rows: those solved in {100 * bounds.low:g} to {100 * bounds.high:g} % of "
        "their samples.",
    ]
    if unscored:
        lines.append(f"  Left out {unscored:,} rows that could not be scored.")
    lines += [
        "",
        f"Written to {output}. A recipe trains on these rows with:",
        "",
        *task_section(output, held_out_file(output) if len(task.test) else None, task.stop_strings),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
