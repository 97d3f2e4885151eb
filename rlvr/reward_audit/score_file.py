"""Score a file of completions, or explain one of its rows, on the terminal: scripts/score.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.data.io import Row
from rlvr.environments.transcript import as_text
from rlvr.errors import InputError, writing
from rlvr.formatting import count, one_line
from rlvr.reward_audit import explain, score_summary
from rlvr.reward_audit.completions import CompletionRows, read_completions
from rlvr.reward_audit.missing_columns import fill_columns
from rlvr.reward_audit.rescoring import Scores, batches, score, with_recorded_environment
from rlvr.scoring.failures import ADVICE
from rlvr.scoring.metric_choice import choose_metrics
from rlvr.scoring.registry import load_rewards, load_tasks
from rlvr.scoring.reward import Reward
from rlvr.verifiers.completion_text import completion_text, own_turn

# To fit a screen: pairs of disagreeing rewards, quoted rows of each pair, characters of a quote.
MAX_DISAGREEMENTS, MAX_QUOTES, QUOTE_LENGTH = 6, 3, 72
MAX_ERROR_LENGTH = 300  # of a reward


def score_file(recipe: Recipe, file: str, column: str, limit: int | None, output: Path | None) -> int:
    """Score every row, print the summary and write `output`; return 2 if a reward raised."""
    with console.SlowStep(f"Scoring {file} with the rewards of {recipe.path}"):
        source = read_completions(file, column, limit)
        rewards, recorded_reward = with_recorded_environment(load_rewards(recipe.rewards), source.rows)
        added = fill_columns(source.rows, rewards, lambda: load_tasks(recipe.tasks), recipe.task_name)
    with console.ProgressBar("scoring", len(source.rows)) as progress:
        scores = score(source.rows, rewards, progress.update, file=file)
    recorded = score_summary.compare_with_recorded(source.rows, scores, _metric(recipe, rewards))
    groups = score_summary.group_stats(source.rows, scores.totals, int(recipe.settings.get("num_generations") or 8))
    disagreements = score_summary.disagreements(scores)
    console.info(_heading(file, recipe, source))
    for note in filter(None, [*source.notes, added, recorded_reward]):
        console.info(f"  {note}")
    console.info(f"\n{_table(scores)}\n")
    for line in [*_recorded_lines(recorded), _groups_line(groups, len(source.rows))]:
        console.info(f"  {line}")
    if len(rewards) > 1:
        console.info(f"\n{_disagreement_lines(disagreements, source.rows)}")
    if output is not None:
        about = {"file": file, "recipe": str(recipe.path), "rows": len(source.rows)}
        content = json.dumps({**about, **score_summary.as_dict(scores)}, indent=2, default=str)
        with writing(output, "Name a file in an existing folder.", key="--json"):
            output.write_text(f"{content}\n", encoding="utf-8")
        console.info(f"\n  {output}")
    raised = zip(rewards, scores.raised, strict=True)
    return _report_errors([(reward, number, error) for reward, rows in raised for number, error in rows.items()])


def explain_row(recipe: Recipe, file: str, column: str, limit: int | None, number: int) -> int:
    """Print the score of one row with its explanation; return 2 if a reward raised."""
    with console.SlowStep(f"Reading {file} and the rewards"):
        everything = read_completions(file, column, limit).rows
        rewards, recorded_reward = with_recorded_environment(load_rewards(recipe.rewards), everything)
    if not 0 <= number < len(everything):
        message = f"--why {number}: {file} has no such row. Its rows are 0 to {len(everything) - 1:,}."
        raise InputError(message, kind="invalid-flag", key="--why", row=number)
    # Score its whole batch, as the table does: a reward may compare the rows of a batch.
    batch = next(batch for batch in batches(everything) if number in batch)
    rows, index = everything[batch.start : batch.stop], number - batch.start
    in_file = {name for name, value in rows[index].items() if value is not None}
    fill_columns(rows, rewards, lambda: load_tasks(recipe.tasks), recipe.task_name)
    scores = score(rows, rewards, file=file)
    recorded = score_summary.compare_with_recorded(rows, scores, _metric(recipe, rewards))
    differing = {one.name for one in recorded if index in one.differing}

    row = rows[index]
    step = f" (step {row['step']})" if isinstance(row.get("step"), int) else ""
    console.info(console.bold(f"row {number} of {_name(file)}{step}"))
    lines = [*([recorded_reward] if recorded_reward else []), *explain.reward_lines(row, index, scores, differing)]
    for title, own in (*explain.texts(row), ("columns", explain.columns(row, rewards, in_file)), ("rewards", lines)):
        console.info("\n".join([f"\n{console.bold(title)}", *(f"  {line}" for line in own)]))
    raised = zip(rewards, scores.raised, strict=True)
    return _report_errors([(reward, number, errors[index]) for reward, errors in raised if index in errors])


def _metric(recipe: Recipe, rewards: Sequence[Reward]) -> Reward | None:
    """The reward that decides the column `correct` of an evaluation, if the recipe lists it and has one task."""
    if recipe.is_mixture:
        return None
    metric = choose_metrics(recipe, rewards)[""]
    return metric if metric in rewards else None


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _heading(file: str, recipe: Recipe, source: CompletionRows) -> str:
    rows = source.rows
    steps = sorted({row["step"] for row in rows}) if all(isinstance(row.get("step"), int) for row in rows) else []
    of_steps = f" of step {steps[0]}" if len(steps) == 1 else f" of {len(steps)} steps" if steps else ""
    return console.bold(f"{_name(file)}: {count(len(rows), 'completion')}{of_steps}, rewards of {recipe.path}")


def _table(scores: Scores) -> str:
    header = ["", "weight", "gate", "mean", "std", "min", "max", "> 0", "unscored", "s/1000"]
    rows = []
    for index, reward in enumerate(scores.rewards):
        gate = next((other.label for other in scores.rewards if other.name == reward.gate), "–")
        cells = _cells(score_summary.column_stats(scores.of(index)))
        seconds = f"{1000 * scores.seconds[index] / len(scores.values):.2f}"
        rows.append([reward.label, f"{reward.weight:g}", gate, *cells, seconds])
    seconds = f"{1000 * sum(scores.seconds) / len(scores.values):.2f}"
    rows.append(["total", "", "", *_cells(score_summary.column_stats(scores.totals)), seconds])
    return console.table(header, rows)


def _cells(stats: score_summary.ColumnStats) -> list[str]:
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


def _recorded_lines(recorded: Sequence[score_summary.RecordedComparison]) -> list[str]:
    lines = []
    for one in recorded:
        if one.differing:
            first = ", ".join(str(number) for number in one.differing[:5])
            more = ", …" if len(one.differing) > 5 else ""
            differing = f"{len(one.differing):,} of {one.compared:,} rows (row {first}{more})"
            lines.append(console.red(f"the scores differ from {one.name} in the file: {differing}"))
    equal = [one for one in recorded if one.compared and not one.differing]
    if equal:
        rows, names = max(one.compared for one in equal), " and ".join(one.name for one in equal)
        lines.append(f"the scores equal {names} in the file: {rows:,} rows compared")
    return lines


def _groups_line(groups: score_summary.GroupStats, rows: int) -> str:
    if not groups.count:
        return "no groups: no prompt has two completions"
    size = f"{groups.smallest} to {groups.largest}" if groups.smallest < groups.largest else f"{groups.smallest}"
    alone = f"; rows in no group: {rows - groups.rows:,}" if groups.rows < rows else ""
    equal = f"{groups.without_spread:,} ({100 * groups.without_spread / groups.count:.0f} %)"
    groups_of = f"{count(groups.count, 'group')} of {size} completions"
    return f"{groups_of}; {equal} with equal totals, whose advantages are 0{alone}"


def _disagreement_lines(disagreements: Sequence[score_summary.Disagreement], rows: Sequence[Row]) -> str:
    if not disagreements:
        return "  The rewards are positive on the same rows."
    lines = [console.bold("Rows on which one reward is positive and another is not")]
    for one in disagreements[:MAX_DISAGREEMENTS]:
        lines.append(f"  {one.yes} yes, {one.no} no: {count(len(one.rows), 'row')}")
        quoted: dict[str, int] = {}  # equal texts are quoted once
        for number in one.rows:
            quoted.setdefault(_quote(rows[number]), number)
            if len(quoted) == MAX_QUOTES:
                break
        width = max(len(str(number)) for number in quoted.values())
        lines += [f"    row {number:<{width}}   {text}" for text, number in quoted.items()]
    if len(disagreements) > MAX_DISAGREEMENTS:
        more_pairs = len(disagreements) - MAX_DISAGREEMENTS
        lines.append(f"  and {more_pairs} more pairs, on fewer rows")
    return "\n".join(lines)


def _quote(row: Row) -> str:
    """The end of the model's own turn, where its answer should be; without a turn, the completion's beginning."""
    own = own_turn(completion_text(row["completion"])).strip()
    if own:
        return one_line(own, QUOTE_LENGTH, end=True)
    return console.dim(f"(no own turn) {one_line(as_text(row['completion']), 50)}")


def _report_errors(errors: Sequence[tuple[Reward, int, str]]) -> int:
    """Print a line for each reward that raised; return the exit code."""
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
