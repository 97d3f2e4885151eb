"""Tables of many runs from their records (result.json)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.artifacts.evaluation import Difference, Estimate, Evaluation, Score
from rlvr.artifacts.evaluation_summary import ABSENT, gain_cell
from rlvr.artifacts.result_record import FILE, ResultRecord, find_faults, read_record
from rlvr.errors import InputError
from rlvr.formatting import count, mapping, p_value_text, percent, visible

KEPT = ("run", "accuracy", "gain (95 % interval)", "not judged")  # columns that stay, even if all runs agree
LEADING = ("model", "recipe", "task", "rows")  # of the line above a table


@dataclass(frozen=True)
class Result:
    """A record and its name in a table; `faults` are a sentence for each file that differs from the record."""

    run: str
    record: ResultRecord
    faults: Sequence[str] = ()

    @property
    def measurement(self) -> tuple[Any, ...]:
        """Results are comparable if this is equal: the same rows, metric with its options, and decoding."""
        evaluation = self.record.measured
        how = [evaluation.metric, evaluation.split, evaluation.decoding, evaluation.max_new_tokens]
        how.append(_metric_options(evaluation))
        return (str(self.record.task["name"]), *map(str, how), str(self.record.held_out_digest))


def read_results(paths: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """Read run directories and files of records, sorted by recipe, model and seed; and why others have no record."""
    results, problems = [], []
    runs = {(path.parent if path.name == FILE else path).resolve(): path for path in paths}  # each once
    for path in runs.values():
        if path.name in ("mlartifacts", "mlruns") or (path.is_file() and path.suffix != ".json"):
            continue  # runs/* has MLflow's folders and other files beside runs
        try:
            record = read_record(path)
            folder = path if path.is_dir() else path.parent if path.name == FILE else None
            results.append(Result(str(folder or path), record, find_faults(folder, record) if folder else ()))
        except InputError as error:
            problems.append(str(error))
    names = short_names([result.run for result in results])
    results = [replace(result, run=name) for result, name in zip(results, names, strict=True)]
    return sorted(results, key=lambda result: (*result.measurement, *_order(result))), problems


def _order(result: Result) -> tuple[Any, ...]:
    return (result.record.recipe, result.record.model, result.record.seeds.get("seed") or 0, result.run)


def short_names(paths: Sequence[str]) -> list[str]:
    """The shortest ends of paths that differ."""
    parts = [Path(path.removesuffix(".json")).resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def as_text(results: Sequence[Result], *, markdown: bool = False) -> str:
    """A table for each set of runs that can be compared, with what all its runs share in a line above it."""
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.measurement].append(result)
    blocks = []
    if len(groups) > 1:
        blocks.append(
            f"{count(len(groups), 'table')}: runs of different tables are not comparable, since they answered other "
            "rows, or were measured in another way."
        )
    for group in groups.values():
        blocks += _table(group, markdown)
    blocks += [f"! {result.run}: {' '.join(result.faults)}" for result in results if result.faults]
    return "\n\n".join(blocks)


def _table(results: Sequence[Result], markdown: bool) -> list[str]:
    rows = [_cells(result) for result in results]
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: [row.get(name, ABSENT) for row in rows] for name in names}
    shared = {name: cells[0] for name, cells in values.items() if len(set(cells)) == 1 and name not in KEPT}
    columns = [name for name in names if name not in shared]
    body = [[values[name][place] for name in columns] for place in range(len(rows))]
    order = [*LEADING, *(name for name in shared if name not in LEADING and not name.endswith(" digest"))]
    above = " · ".join(f"{name} {shared[name]}" for name in order if shared.get(name, ABSENT) != ABSENT)
    if not markdown:
        return [above, console.table(columns, body)]
    return [above, markdown_table(columns, [[cell.replace("|", "\\|") for cell in line] for line in body])]


def markdown_table(columns: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [columns, ["---"] * len(columns), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: Result) -> dict[str, str]:
    """What a table shows of a run, as text by column."""
    record, evaluation = result.record, result.record.measured
    scores, overall, limit = evaluation.scores.values(), evaluation.overall, evaluation.max_new_tokens
    is_compared, p_value = not any(score.is_often_unscored for score in scores), ABSENT
    if is_compared and isinstance(overall.difference, Difference):
        p_value = p_value_text(overall.difference.p_value).removeprefix("p ").removeprefix("= ")
    cells = {
        "run": f"{'! ' if result.faults else ''}{result.run}",
        "accuracy": f"{_percent(overall.base)} → {_percent(overall.trained)}",
        "gain (95 % interval)": gain_cell(overall.difference) if is_compared else "not comparable",
        "p": p_value,
        "rows": str(max((score.measured for score in scores), default=ABSENT)),
        "recipe": record.recipe,
        "model": record.model + (f"@{record.revision[:8]}" if record.revision else ""),
        "trained weights": record.trained or ABSENT,
        "task": _options(record.task),
        "rewards": " + ".join(f"{weight:g} × {name}" for name, weight in record.rewards.items()),
        "metric": f"{evaluation.metric or ABSENT}{', mean of the tasks' if evaluation.average else ''}",
        "metric options": _metric_options(evaluation) or ABSENT,
        "decoding": f"{evaluation.decoding or ABSENT}{f', at most {limit} tokens' if limit else ''}",
        "steps": f"{record.steps:,}{' (stopped early)' if record.stopped_early else ''}",
        "completions per step": str(record.completions_per_update or ABSENT),
        "tokens": f"{record.tokens['trained'] / 1e6:.2f} M",
        "hours": f"{record.times['training_hours']:.2g}",
        "tokens/s": f"{speed:,.0f}" if (speed := record.tokens_per_second) is not None else ABSENT,
        "finished": str(record.times["finished"])[:10],
        "commit": short_commit(record.commit) or ABSENT,
        **{name: str(seed) for name, seed in record.seeds.items() if seed is not None},
        "processes": str(record.processes),
        "launcher": record.launcher,
        **record.hardware,
        **record.versions,
    }
    if any(score.unscored for score in scores):
        cells["not judged"] = " → ".join(str(score.unscored) for score in scores)
    for name in ("recipe", "base", "train", "held_out"):
        cells[f"{name} digest".replace("_", "-")] = str(getattr(record, f"{name}_digest") or ABSENT)[:8]
    digests = [str(each.get("digest"))[:8] for each in evaluation.verifier.values()]
    cells["metric-file digest"] = " ".join(digests) or ABSENT
    return {name: visible(cell) for name, cell in cells.items()}  # a record may come from anywhere


def short_commit(commit: str | None) -> str | None:
    """The first characters of a commit, and whether tracked files differed from it."""
    return commit and f"{commit[:8]}{'-dirty' if commit.endswith('-dirty') else ''}"


def _metric_options(evaluation: Evaluation) -> str:
    """The options of the verifiers; empty without any."""
    options = {label: mapping(each.get("options")) for label, each in evaluation.verifier.items()}
    return "; ".join(f"{label} {key} {value}" for label, own in options.items() for key, value in sorted(own.items()))


def _percent(score: Score | Estimate | None) -> str:
    return ABSENT if score is None else percent(score.accuracy)


def _options(task: Mapping[str, Any]) -> str:
    if tasks := mapping(task.get("tasks")):
        return " + ".join(f"{label}: {_options(part)}" for label, part in tasks.items())
    options = ", ".join(f"{key} {value}" for key, value in task.items() if key != "name")
    return f"{task['name']}{f' ({options})' if options else ''}".replace("\n", " ⏎ ")


def as_json(results: Sequence[Result]) -> str:
    """A list of the records, each with its `run` and its `faults`."""
    content = [{"run": result.run, "faults": list(result.faults), **asdict(result.record)} for result in results]
    return json.dumps(content, indent=2, ensure_ascii=False)
