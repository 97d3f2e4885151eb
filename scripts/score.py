#!/usr/bin/env python
"""Scores completions that are already there with the rewards of a recipe, and explains single verdicts.

    python scripts/score.py --config recipes/demo-arithmetic.yaml runs/demo-arithmetic              # a run
    python scripts/score.py --config RECIPE completions.jsonl --why 17                              # one row, explained
    python scripts/score.py --config RECIPE completions.jsonl --rewards.math_correctness.options.prose false

No model is loaded and no GPU is needed. FILE is JSON, JSONL or parquet with a column `completion`, a run directory (its
sampled completions), or - for JSONL on standard input. What a reward asks for and the file lacks, such as final_answer,
is looked up in the recipe's task by the row's prompt. Any key of the recipe can be overridden, as with run_grpo.py.

Exit codes: 0 scored; 2 the recipe, a reward or the file is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr, rewards and tasks, wherever this is started from

from rlvr import console
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.data.io import Row
    from rlvr.rescoring.completions import Source
    from rlvr.rescoring.scores import Disagreement, Groups, Recorded, Scores, Spread
    from rlvr.scoring.reward import Reward

# At most a screenful: directions in which two rewards disagree, rows quoted of each, characters quoted of a row.
MOST_DISAGREEMENTS, MOST_QUOTED, QUOTED = 6, 3, 72
MOST_STEPS = 10
MOST_MESSAGE = 300  # characters of what a reward raised


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        usage="score.py --config RECIPE FILE [--why ROW] [--limit N] [--completion-column NAME] [--json OUT] "
        "[--key value …]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="rewards and task are its")
    parser.add_argument("--why", type=int, metavar="ROW", help="explain what one row got; rows are counted from 0")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--completion-column", default="completion", metavar="NAME", help="default: completion")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all figures, and each row's rewards, to OUT")
    # FILE is found by hand: argparse would take the value of an override that stands before it for the file.
    options, others = parser.parse_known_args(words)

    console.silence_libraries()
    try:
        file, overrides = _file_and_overrides(others)
        if options.limit is not None and options.limit < 1:
            raise InputError(f"--limit is {options.limit}, but should be at least 1.")
        if options.json is not None and options.why is not None:
            raise InputError(
                "--json writes the figures of all rows, so it doesn't go with --why. Leave one of them out."
            )
        if options.json is not None and options.json.resolve() == Path(file).resolve():
            raise InputError(f"--json {options.json} would overwrite the completions. Name another file.")
        recipe = load_recipe(options.config, overrides)
        if options.why is not None:
            return explain(recipe, file, options.completion_column, options.limit, options.why)
        return score(recipe, file, options.completion_column, options.limit, options.json)
    except InputError as error:
        from rlvr.rescoring.completions import visible  # messages quote what a model wrote

        console.error(visible(str(error)))
        return 2


def _file_and_overrides(words: Sequence[str]) -> tuple[str, list[str]]:
    """Parts FILE from the overrides: it is the word that is neither a key nor the word after one."""
    files, overrides = [], []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            files.append(word)
            continue
        overrides.append(word)
        if "=" not in word and left and not left[0].startswith("--"):
            overrides.append(left.pop(0))
    if len(files) != 1:
        raise InputError(
            f"{' and '.join(files)}: only one file can be scored at a time."
            if files
            else "Which completions? Name a JSON, JSONL or parquet file, a run directory, or - for standard input (and "
            "write --key true where a key stands right before it)."
        )
    return files[0], overrides


# ----------------------------------------------------------------------------------------------------------------------
# All rows


def score(recipe: Recipe, file: str, column: str, limit: int | None, output: Path | None) -> int:
    """Scores every row, prints the page and writes `output`; 2 where a reward raised."""
    from tqdm import tqdm

    from rlvr.rescoring import scores as rescoring
    from rlvr.rescoring.completions import fill_columns, read_completions
    from rlvr.scoring.registry import load_rewards, load_task

    rewards = load_rewards(recipe.rewards)
    source = read_completions(file, column, limit)
    looked_up = fill_columns(source.rows, rewards, lambda: load_task(recipe.task), recipe.task.name)
    quiet = not (console.is_main() and console.is_terminal())
    with tqdm(total=len(source.rows), desc="scoring", unit="row", delay=2, leave=False, disable=quiet) as bar:
        scores = rescoring.score(source.rows, rewards, bar.update)

    recorded = rescoring.compare_with_recorded(source.rows, scores, _metric(recipe, rewards))
    groups = rescoring.groups(source.rows, scores.totals)
    disagreements = rescoring.disagreements(scores)
    console.info(f"{_heading(file, recipe, source)}")
    for note in [*source.notes, *([looked_up] if looked_up else [])]:
        console.info(f"  {note}")
    console.info(f"\n{_figures(scores)}")
    if steps := rescoring.by_step(source.rows, scores):
        console.info(f"\n{_steps(steps, rewards)}")
    console.info()
    for line in [*_recorded(recorded), _groups(groups, len(source.rows))]:
        console.info(f"  {line}")
    if len(rewards) > 1:
        console.info(f"\n{_disagreements(disagreements, source.rows)}")
    if output is not None:
        content = rescoring.as_dict(scores, recorded, groups, disagreements)
        _write(output, {"file": file, "recipe": str(recipe.path), "rows": len(source.rows), **content})
        console.info(f"\n  {output}")
    raised = zip(rewards, scores.raised, strict=True)
    return _complain([(reward, number, said) for reward, rows in raised for number, said in rows.items()])


def _metric(recipe: Recipe, rewards: Sequence[Reward]) -> Reward | None:
    """The reward that the column `correct` of an evaluation was decided by, where the recipe lists it."""
    from rlvr.evaluation import choose_metric

    metric = choose_metric(recipe.evaluation, rewards)
    return metric if metric in rewards else None


def _heading(file: str, recipe: Recipe, source: Source) -> str:
    rows = source.rows
    steps = sorted({row["step"] for row in rows}) if all(isinstance(row.get("step"), int) for row in rows) else []
    of_steps = f" of step {steps[0]}" if len(steps) == 1 else f" of {len(steps)} steps" if steps else ""
    name = "standard input" if file == "-" else file
    return console.bold(f"{name}: {len(rows):,} completion{'s' * (len(rows) != 1)}{of_steps}, rewards of {recipe.path}")


def _figures(scores: Scores) -> str:
    from rlvr.rescoring.scores import spread

    header = ["", "weight", "gate", "mean", "std", "min", "max", "> 0", "unscored", "s/1000"]
    rows = []
    for place, reward in enumerate(scores.rewards):
        gate = next((other.label for other in scores.rewards if other.name == reward.gate), "–")
        of_reward = spread([row[place] for row in scores.values])
        seconds = f"{1000 * scores.seconds[place] / len(scores.values):.2f}"
        rows.append([reward.label, f"{reward.weight:g}", gate, *_cells(of_reward), seconds])
    seconds = f"{1000 * sum(scores.seconds) / len(scores.values):.2f}"
    rows.append(["total", "", "", *_cells(spread(scores.totals)), seconds])
    return _with_dim_rule(console.table(header, rows))


def _cells(figures: Spread) -> list[str]:
    """mean, std, min, max, share above 0, unscored"""
    if figures.mean is None or figures.std is None or figures.positive is None:
        return ["–", "–", "–", "–", "–", f"{figures.unscored:,}"]
    return [
        f"{figures.mean:.3f}",
        f"{figures.std:.3f}",
        f"{figures.least:.4g}",
        f"{figures.most:.4g}",
        f"{100 * figures.positive:.1f} %",
        f"{figures.unscored:,}",
    ]


def _steps(steps: dict[int, tuple[Spread, list[Spread]]], rewards: Sequence[Reward]) -> str:
    """The mean of each reward at up to MOST_STEPS steps, the first and the last among them."""
    numbers = list(steps)
    if len(numbers) > MOST_STEPS:
        numbers = [numbers[place * (len(numbers) - 1) // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]
    rows = []
    for number in numbers:
        of_total, of_rewards = steps[number]
        means = ["–" if one.mean is None else f"{one.mean:.3f}" for one in [*of_rewards, of_total]]
        rows.append([f"step {number}", f"{of_total.rows + of_total.unscored:,}", *means])
    labels = [reward.label for reward in rewards]
    return _with_dim_rule(console.table(["mean at", "rows", *labels, "total"], rows))


def _recorded(recorded: Sequence[Recorded]) -> list[str]:
    lines = []
    for one in recorded:
        if one.differing:
            first = ", ".join(str(number) for number in one.differing[:5])
            more = ", …" if len(one.differing) > 5 else ""
            differ = f"{len(one.differing):,} of {one.compared:,} rows differ (row {first}{more})"
            lines.append(console.red(f"{one.name} in the file is not what is said now: {differ}"))
    same = [one.name for one in recorded if not one.differing]
    if same:
        rows = max(one.compared for one in recorded if not one.differing)
        lines.append(f"{_listed(same)} in the file: no row differs ({rows:,} compared)")
    return lines


def _groups(groups: Groups, rows: int) -> str:
    if not groups.count:
        return "no prompt has two completions, so there are no groups to compare"
    size = f"{groups.smallest} to {groups.largest}" if groups.smallest < groups.largest else f"{groups.smallest}"
    alone = f"; rows in no group: {rows - groups.rows:,}" if groups.rows < rows else ""
    share = f"{100 * groups.without_spread / groups.count:.0f} %"
    groups_of = f"{groups.count:,} group{'s' * (groups.count != 1)} of {size} completions"
    flat = f"{groups.without_spread:,} ({share})"
    return f"{groups_of}: in {flat} all have the same total, and nothing is learnt from them{alone}"


def _disagreements(found: Sequence[Disagreement], rows: Sequence[Row]) -> str:
    if not found:
        return "  No two rewards disagree on which rows deserve anything."
    lines = [console.bold("Rows on which two rewards disagree (positive, or not)")]
    for one in found[:MOST_DISAGREEMENTS]:
        lines.append(f"  {one.yes} yes, {one.no} no: {len(one.rows):,} row{'s' * (len(one.rows) != 1)}")
        quoted: dict[str, int] = {}  # what says the same is quoted once
        for number in one.rows:
            quoted.setdefault(_quoted(rows[number]), number)
            if len(quoted) == MOST_QUOTED:
                break
        width = max(len(str(number)) for number in quoted.values())
        lines += [f"    row {number:<{width}}   {text}" for text, number in quoted.items()]
    if len(found) > MOST_DISAGREEMENTS:
        lines.append(f"  and {len(found) - MOST_DISAGREEMENTS} more pairs, on fewer rows (--json has them all)")
    return "\n".join(lines)


def _quoted(row: Row) -> str:
    """The end of the model's own turn, where its answer should be; of a completion without one, what it is."""
    from rlvr.rescoring.completions import as_text, one_line
    from rlvr.rescoring.scores import turn_of

    own = turn_of(row["completion"]).own.strip()
    if own:
        return one_line(own, QUOTED, end=True)
    return console.dim(f"(no own turn) {one_line(as_text(row['completion']), 50)}")


def _complain(failures: Sequence[tuple[Reward, int, str]]) -> int:
    """Says, a line a reward, on how many rows it raised and what it said first; 2 if there is anything to say."""
    from rlvr.rescoring.completions import one_line

    for name in dict.fromkeys(reward.name for reward, _, _ in failures):
        rows = {number: said for reward, number, said in failures if reward.name == name}
        first = min(rows)
        more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        console.error(
            f"The reward {name} failed on row {first}{more}: {one_line(rows[first], MOST_MESSAGE)}. "
            "A training run would stop there."
        )
    return 2 if failures else 0


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--json {path} can't be written: {error.strerror}. Name a file in a folder that exists."
        ) from error


# ----------------------------------------------------------------------------------------------------------------------
# One row


def explain(recipe: Recipe, file: str, column: str, limit: int | None, number: int) -> int:
    """Prints what one row got, and why, step by step; 2 where a reward raised on it."""
    from rlvr.rescoring import explain
    from rlvr.rescoring import scores as rescoring
    from rlvr.rescoring.completions import fill_columns, read_completions
    from rlvr.scoring.registry import load_rewards, load_task

    rewards = load_rewards(recipe.rewards)
    everything = read_completions(file, column, limit).rows
    if not 0 <= number < len(everything):
        raise InputError(f"--why {number}: there is no such row; {file} has the rows 0 to {len(everything) - 1:,}.")
    # With its batch, as in the table: a reward may look at what stands beside a row.
    batch = next(batch for batch in rescoring.batches(everything) if number in batch)
    rows, place = everything[batch.start : batch.stop], number - batch.start
    in_file = {name for name, value in rows[place].items() if value is not None}
    fill_columns(rows, rewards, lambda: load_task(recipe.task), recipe.task.name)
    scores = rescoring.score(rows, rewards)
    recorded = rescoring.compare_with_recorded(rows, scores, _metric(recipe, rewards))
    differing = {one.name for one in recorded if place in one.differing}

    row = rows[place]
    step = f" (step {row['step']})" if isinstance(row.get("step"), int) else ""
    console.info(console.bold(f"row {number} of {'standard input' if file == '-' else file}{step}"))
    for title, lines in (*explain.texts(row), ("columns", explain.columns(row, rewards, in_file))):
        console.info(f"\n{console.bold(title)}")
        for line in lines:
            console.info(f"  {line}")
    console.info(f"\n{console.bold('rewards')}")
    for line in explain.verdicts(row, place, scores, differing):
        console.info(f"  {line}")
    return _complain(
        [(reward, number, said[place]) for reward, said in zip(rewards, scores.raised, strict=True) if place in said]
    )


# ----------------------------------------------------------------------------------------------------------------------
# The terminal


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _with_dim_rule(table: str) -> str:
    header, rule, *rest = table.split("\n")
    return "\n".join([header, console.dim(rule), *rest])


if __name__ == "__main__":
    sys.exit(main())
