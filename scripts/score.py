#!/usr/bin/env python
"""Score existing completions with the rewards of a recipe, and explain single scores.

    python scripts/score.py --config recipes/demo-arithmetic.yaml runs/demo-arithmetic              # a run
    python scripts/score.py --config RECIPE completions.jsonl --why 17                              # explain one row
    python scripts/score.py --config RECIPE completions.jsonl --rewards.math_correctness.options.prose false

It needs neither a model nor a GPU. FILE is JSON, JSONL or parquet with a column `completion`, a run directory (its
sampled completions), or - for JSONL on standard input. Columns that a reward needs and the file lacks, such as
final_answer, are looked up in the recipe's task by the row's prompt. Any recipe key can be overridden, as with
run_grpo.py.

Exit codes: 0 scored; 2 the recipe, a reward or the file is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.data.io import Row
    from rlvr.rescoring.completions import CompletionRows
    from rlvr.rescoring.scores import Scores
    from rlvr.rescoring.summary import ColumnStats, Disagreement, GroupStats, RecordedComparison
    from rlvr.scoring.reward import Reward

# To fit a screen: pairs of disagreeing rewards, quoted rows of each pair, characters of a quote, steps in the table.
MAX_DISAGREEMENTS, MAX_QUOTES, QUOTE_LENGTH, MAX_STEPS = 6, 3, 72, 10
MAX_ERROR_LENGTH = 300  # of a reward


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        usage="score.py --config RECIPE FILE [--why ROW] [--limit N] [--json OUT]\n"
        "                [--completion_column NAME] [--key value …]",
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", required=True, type=Path, metavar="RECIPE", help="recipe of the rewards and the task"
    )
    parser.add_argument("--why", type=int, metavar="ROW", help="explain the score of one row; rows are counted from 0")
    parser.add_argument("--limit", type=int, metavar="N", help="read only the first N rows")
    parser.add_argument(
        "--completion_column",
        default="completion",
        metavar="NAME",
        help="column of the completions; default: completion",
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="write all statistics and the scores of each row to OUT"
    )
    words = sys.argv[1:] if words is None else words
    # FILE is parsed by hand: argparse would take the value of an earlier override for the file.
    options, others = parser.parse_known_args(words)

    console.silence_libraries()
    try:
        file, overrides = _file_and_overrides(others)
        if options.limit is not None and options.limit < 1:
            raise InputError(f"--limit is {options.limit}, but must be at least 1.", kind="invalid-flag", key="--limit")
        if options.json is not None and options.why is not None:
            raise InputError(
                "--json and --why exclude each other: --json writes all rows. Leave one of them out.",
                kind="invalid-flag",
                key="--json",
            )
        if options.json is not None and options.json.resolve() == Path(file).resolve():
            message = f"--json {options.json} would overwrite the completions. Name another file."
            raise InputError(message, kind="invalid-flag", key="--json")
        if options.json is not None:
            refuse_if_in_use(options.json.parent, "Name another file with --json")
        recipe = load_recipe(options.config, overrides)
        if options.why is not None:
            return explain(recipe, file, options.completion_column, options.limit, options.why)
        return score(recipe, file, options.completion_column, options.limit, options.json)
    except InputError as error:
        from rlvr.rescoring.completions import visible  # messages quote completions

        console.error(visible(str(error)))
        return 2


def _file_and_overrides(words: Sequence[str]) -> tuple[str, list[str]]:
    """Separate FILE from the overrides: it is the word that is neither a key nor a key's value."""
    files, overrides = [], []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("--"):
            files.append(word)
            continue
        overrides.append(word)
        if "=" not in word and remaining and not remaining[0].startswith("--"):
            overrides.append(remaining.pop(0))
    if len(files) != 1:
        raise InputError(
            f"{' and '.join(files)}: only one file can be scored at a time."
            if files
            else "FILE is missing. Name a JSON, JSONL or parquet file, a run directory, or - for standard input. If a "
            "key without a value stands before it, write --key true.",
            kind="number-of-files",
        )
    return files[0], overrides


# ----------------------------------------------------------------------------------------------------------------------
# All rows


def score(recipe: Recipe, file: str, column: str, limit: int | None, output: Path | None) -> int:
    """Score every row, print the summary and write `output`; return 2 if a reward raised."""
    with console.SlowStep(f"Reading {file}, the rewards and the task {recipe.task_name}"):
        from tqdm import tqdm

        from rlvr.rescoring import scores as rescoring
        from rlvr.rescoring import summary
        from rlvr.rescoring.completions import fill_columns, read_completions
        from rlvr.scoring.registry import load_rewards, load_tasks

        rewards = load_rewards(recipe.rewards)
        source = read_completions(file, column, limit)
        rewards, recorded_reward = rescoring.with_recorded_environment(rewards, source.rows)
        added = fill_columns(source.rows, rewards, lambda: load_tasks(recipe.tasks), recipe.task_name)
    quiet = not (console.is_main() and console.is_terminal())
    with tqdm(total=len(source.rows), desc="scoring", unit="row", delay=2, leave=False, disable=quiet) as bar:
        scores = rescoring.score(source.rows, rewards, bar.update, file=file)

    recorded = summary.compare_with_recorded(source.rows, scores, _metric(recipe, rewards))
    groups = summary.group_stats(source.rows, scores.totals, int(recipe.settings.get("num_generations") or 8))
    disagreements = summary.disagreements(scores)
    console.info(f"{_heading(file, recipe, source)}")
    for note in filter(None, [*source.notes, added, recorded_reward]):
        console.info(f"  {note}")
    console.info(f"\n{_score_table(scores)}")
    if steps := summary.by_step(source.rows, scores):
        console.info(f"\n{_step_table(steps, rewards)}")
    console.info()
    for line in [*_recorded_lines(recorded), _groups_line(groups, len(source.rows))]:
        console.info(f"  {line}")
    if len(rewards) > 1:
        console.info(f"\n{_disagreement_lines(disagreements, source.rows)}")
    if output is not None:
        content = summary.as_dict(scores, recorded, groups, disagreements)
        _write(output, {"file": file, "recipe": str(recipe.path), "rows": len(source.rows), **content})
        console.info(f"\n  {output}")
    raised = zip(rewards, scores.raised, strict=True)
    return _report_errors([(reward, number, error) for reward, rows in raised for number, error in rows.items()])


def _metric(recipe: Recipe, rewards: Sequence[Reward]) -> Reward | None:
    """The reward that decides the column `correct` of an evaluation, if the recipe lists it and has one task."""
    from rlvr.evaluation import choose_metrics

    if recipe.is_mixture:
        return None
    metric = choose_metrics(recipe, rewards)[""]
    return metric if metric in rewards else None


def _heading(file: str, recipe: Recipe, source: CompletionRows) -> str:
    rows = source.rows
    steps = sorted({row["step"] for row in rows}) if all(isinstance(row.get("step"), int) for row in rows) else []
    of_steps = f" of step {steps[0]}" if len(steps) == 1 else f" of {len(steps)} steps" if steps else ""
    name = "standard input" if file == "-" else file
    return console.bold(f"{name}: {len(rows):,} completion{'s' * (len(rows) != 1)}{of_steps}, rewards of {recipe.path}")


def _score_table(scores: Scores) -> str:
    from rlvr.rescoring.summary import column_stats

    header = ["", "weight", "gate", "mean", "std", "min", "max", "> 0", "unscored", "s/1000"]
    rows = []
    for index, reward in enumerate(scores.rewards):
        gate = next((other.label for other in scores.rewards if other.name == reward.gate), "–")
        stats = column_stats(scores.of(index))
        seconds = f"{1000 * scores.seconds[index] / len(scores.values):.2f}"
        rows.append([reward.label, f"{reward.weight:g}", gate, *_cells(stats), seconds])
    seconds = f"{1000 * sum(scores.seconds) / len(scores.values):.2f}"
    rows.append(["total", "", "", *_cells(column_stats(scores.totals)), seconds])
    return console.table(header, rows)


def _cells(stats: ColumnStats) -> list[str]:
    """Cells for mean, std, min, max, share above 0, unscored."""
    if stats.mean is None or stats.std is None or stats.positive is None:
        return ["–", "–", "–", "–", "–", f"{stats.unscored:,}"]
    return [
        f"{stats.mean:.3f}",
        f"{stats.std:.3f}",
        f"{stats.least:.4g}",
        f"{stats.most:.4g}",
        f"{100 * stats.positive:.1f} %",
        f"{stats.unscored:,}",
    ]


def _step_table(steps: dict[int, tuple[ColumnStats, list[ColumnStats]]], rewards: Sequence[Reward]) -> str:
    """The mean of each reward at up to MAX_STEPS steps, including the first and the last."""
    numbers = list(steps)
    if len(numbers) > MAX_STEPS:
        numbers = [numbers[index * (len(numbers) - 1) // (MAX_STEPS - 1)] for index in range(MAX_STEPS)]
    rows = []
    for number in numbers:
        of_total, of_rewards = steps[number]
        means = ["–" if one.mean is None else f"{one.mean:.3f}" for one in [*of_rewards, of_total]]
        rows.append([f"step {number}", f"{of_total.rows + of_total.unscored:,}", *means])
    labels = [reward.label for reward in rewards]
    return console.table(["mean at", "rows", *labels, "total"], rows)


def _recorded_lines(recorded: Sequence[RecordedComparison]) -> list[str]:
    lines = []
    for one in recorded:
        if one.differing:
            first = ", ".join(str(number) for number in one.differing[:5])
            more = ", …" if len(one.differing) > 5 else ""
            differing = f"{len(one.differing):,} of {one.compared:,} rows (row {first}{more})"
            lines.append(console.red(f"the scores differ from {one.name} in the file: {differing}"))
        if one.unread:
            lines.append(
                f"not compared with {one.name}: {len(one.unread):,} rows (first: row {one.unread[0]}) have neither a "
                "number nor true or false"
            )
    equal = [one for one in recorded if one.compared and not one.differing]
    if equal:
        rows = max(one.compared for one in equal)
        lines.append(f"the scores equal {_listed([one.name for one in equal])} in the file: {rows:,} rows compared")
    return lines


def _groups_line(groups: GroupStats, rows: int) -> str:
    if not groups.count:
        return "no groups: no prompt has two completions"
    size = f"{groups.smallest} to {groups.largest}" if groups.smallest < groups.largest else f"{groups.smallest}"
    alone = f"; rows in no group: {rows - groups.rows:,}" if groups.rows < rows else ""
    share = f"{100 * groups.without_spread / groups.count:.0f} %"
    groups_of = f"{groups.count:,} group{'s' * (groups.count != 1)} of {size} completions"
    equal = f"{groups.without_spread:,} ({share})"
    return f"{groups_of}; {equal} with equal totals, whose advantages are 0{alone}"


def _disagreement_lines(disagreements: Sequence[Disagreement], rows: Sequence[Row]) -> str:
    if not disagreements:
        return "  The rewards are positive on the same rows."
    lines = [console.bold("Rows on which one reward is positive and another is not")]
    for one in disagreements[:MAX_DISAGREEMENTS]:
        lines.append(f"  {one.yes} yes, {one.no} no: {len(one.rows):,} row{'s' * (len(one.rows) != 1)}")
        quoted: dict[str, int] = {}  # equal texts are quoted once
        for number in one.rows:
            quoted.setdefault(_quote(rows[number]), number)
            if len(quoted) == MAX_QUOTES:
                break
        width = max(len(str(number)) for number in quoted.values())
        lines += [f"    row {number:<{width}}   {text}" for text, number in quoted.items()]
    if len(disagreements) > MAX_DISAGREEMENTS:
        more_pairs = len(disagreements) - MAX_DISAGREEMENTS
        lines.append(f"  and {more_pairs} more pairs, on fewer rows (--json has them all)")
    return "\n".join(lines)


def _quote(row: Row) -> str:
    """The end of the model's own turn, where its answer should be; without a turn, the completion's beginning."""
    from rlvr.rescoring.completions import one_line
    from rlvr.rescoring.conversations import as_text
    from rlvr.verifiers.completion_text import completion_text, own_turn

    own = own_turn(completion_text(row["completion"])).strip()
    if own:
        return one_line(own, QUOTE_LENGTH, end=True)
    return console.dim(f"(no own turn) {one_line(as_text(row['completion']), 50)}")


def _report_errors(errors: Sequence[tuple[Reward, int, str]]) -> int:
    """Print a line for each reward that raised; return the exit code."""
    from rlvr.rescoring.completions import one_line
    from rlvr.scoring.failures import ADVICE

    for name in dict.fromkeys(reward.name for reward, _, _ in errors):
        rows = {number: error for reward, number, error in errors if reward.name == name}
        first = min(rows)
        more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        fix = "".join(f" {advice}" for words, advice in ADVICE.items() if words in rows[first])
        console.error(
            f"The reward {name} failed on row {first}{more}: {one_line(rows[first], MAX_ERROR_LENGTH)}. "
            f"A training run would stop.{fix}"
        )
    return 2 if errors else 0


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--json {path} can't be written: {error.strerror}. Name a file in an existing folder.",
            kind="unwritable",
            key="--json",
            path=path,
        ) from error


# ----------------------------------------------------------------------------------------------------------------------
# One row


def explain(recipe: Recipe, file: str, column: str, limit: int | None, number: int) -> int:
    """Print the score of one row with its explanation; return 2 if a reward raised."""
    with console.SlowStep(f"Reading {file} and the rewards"):
        from rlvr.rescoring import explain
        from rlvr.rescoring import scores as rescoring
        from rlvr.rescoring.completions import fill_columns, read_completions
        from rlvr.rescoring.summary import compare_with_recorded
        from rlvr.scoring.registry import load_rewards, load_tasks

        rewards = load_rewards(recipe.rewards)
        everything = read_completions(file, column, limit).rows
        rewards, recorded_reward = rescoring.with_recorded_environment(rewards, everything)
    if not 0 <= number < len(everything):
        message = f"--why {number}: {file} has no such row. Its rows are 0 to {len(everything) - 1:,}."
        raise InputError(message, kind="invalid-flag", key="--why", row=number)
    # Score its whole batch, as the table does: a reward may compare the rows of a batch.
    batch = next(batch for batch in rescoring.batches(everything) if number in batch)
    rows, index = everything[batch.start : batch.stop], number - batch.start
    in_file = {name for name, value in rows[index].items() if value is not None}
    fill_columns(rows, rewards, lambda: load_tasks(recipe.tasks), recipe.task_name)
    scores = rescoring.score(rows, rewards, file=file)
    recorded = compare_with_recorded(rows, scores, _metric(recipe, rewards))
    differing = {one.name for one in recorded if index in one.differing}

    row = rows[index]
    step = f" (step {row['step']})" if isinstance(row.get("step"), int) else ""
    console.info(console.bold(f"row {number} of {'standard input' if file == '-' else file}{step}"))
    for title, lines in (*explain.texts(row), ("columns", explain.columns(row, rewards, in_file))):
        console.info(f"\n{console.bold(title)}")
        for line in lines:
            console.info(f"  {line}")
    console.info(f"\n{console.bold('rewards')}")
    if recorded_reward is not None:
        console.info(f"  {recorded_reward}")
    for line in explain.reward_lines(row, index, scores, differing):
        console.info(f"  {line}")
    raised = zip(rewards, scores.raised, strict=True)
    return _report_errors([(reward, number, errors[index]) for reward, errors in raised if index in errors])


# ----------------------------------------------------------------------------------------------------------------------
# The terminal


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


if __name__ == "__main__":
    sys.exit(main())
