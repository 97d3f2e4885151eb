"""Write the page that compares runs: paired differences, differing recipe keys, curves.

Each run is compared with the first one. If two runs answered the same held-out problems, the difference is paired,
problem by problem; otherwise the page says why they can't be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation import Evaluation
from rlvr.artifacts.evaluation_summary import ABSENT, EvaluationVerdict, gain_cell, score_cell, verdict
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import RESOLVED
from rlvr.errors import InputError
from rlvr.evaluation.statistics import paired_difference
from rlvr.formatting import count, flatten, mapping, percent, points, shorten
from rlvr.health import summary
from rlvr.health.run_metrics import logged_rewards, short_name
from rlvr.report import svg_charts
from rlvr.report.curves import METRICS, Panel, change
from rlvr.report.page import OTHER_FILE, template, write_page
from rlvr.report.result_table import short_names
from rlvr.report.rollouts import evaluated_rows
from rlvr.report.run_facts import facts
from rlvr.report.run_reader import RunRecord, read_run, series_of

OUTCOME = ("Steps", "Time")
SETUP = ("Model", "Trained", "Task", "Reward", "Sampling", "Learning rate", "Processes", "Launcher", "CPU", "GPU")
MAX_RUNS = len(svg_charts.SERIES)


def write_comparison(run_dirs: Sequence[Path], path: Path | None = None) -> Path:
    """Write the page that compares runs, by default as comparison.html in the last directory; return its path.

    Raises:
        InputError: of kind "number-of-runs", "not-a-run", "run-in-use" or "unwritable".
    """
    if not 2 <= len(run_dirs) <= MAX_RUNS:
        message = f"{len(run_dirs)} runs can't be compared on one page. Give 2 to {MAX_RUNS}."
        raise InputError(message, kind="number-of-runs")
    path = path or run_dirs[-1] / "comparison.html"
    refuse_if_in_use(path.parent, OTHER_FILE)
    runs = [read_run(folder) for folder in run_dirs]
    names = short_names([str(run.folder) for run in runs])
    page = template("comparison.html.jinja").render(
        title=" and ".join(names) if len(names) == 2 else f"{len(names)} runs, compared with {names[0]}",
        names=names,
        runs=runs,
        verdicts=[_compare(names[0], runs[0], name, run) for name, run in zip(names[1:], runs[1:], strict=True)],
        rows=_rows(runs),
        setups=[(name, cells) for name, cells in _facts(runs, SETUP) if set(cells) != {ABSENT}],
        differences=list(_differences([_settings(run) for run in runs])),
        versions=list(_differences([_shown(run.versions) for run in runs])),
        reward=_panel(runs, names, "reward", "Reward", wide=True),
        panels=_panels(runs, names),
        health=[summary(run.metrics, settings=run.recipe)[1:] for run in runs],
    )
    return write_page(path, page)


def _compare(first: str, before: RunRecord, name: str, after: RunRecord) -> EvaluationVerdict:
    pairs = _pairs(before, after)
    if isinstance(pairs, str):
        sentence = f"{name} and {first} can't be compared problem by problem: {pairs}."
        return EvaluationVerdict("unknown", "Not comparable", sentence)
    difference = paired_difference([one for one, _ in pairs], [other for _, other in pairs])
    low, high = difference.interval.low, difference.interval.high
    shares = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
    sentence = (
        f"On the same {count(len(pairs), 'held-out problem')} {name} is right in {percent(shares[1])}, {first} in "
        f"{percent(shares[0])} ({points(difference.points)} points, 95 % interval {points(low)} … {points(high)}; "
        f"{difference.gained:,} right only in {name}, {difference.lost:,} only in {first})"
    )
    if low > 0 or high < 0:
        kind = "better" if low > 0 else "worse"
        return EvaluationVerdict(kind, f"{name} is {kind}", f"{sentence}.")
    sentence += ": the interval includes 0, so this may be chance."
    return EvaluationVerdict("unclear", "No clear difference", sentence)


def _pairs(before: RunRecord, after: RunRecord) -> list[tuple[bool, bool]] | str:
    """Whether each of the two trained models was right, by problem; or the reason why there are no pairs."""
    measurements = [_measurement(run.evaluation) for run in (before, after)]
    for key, one in measurements[0].items():
        other = measurements[1][key]
        if one != other:
            return f"their evaluations differ in {key} ({_text(one)} and {_text(other)})"
    records = [_records(run) for run in (before, after)]
    if not all(records):
        return "one of them has no held-out answers of its trained model"
    digests = {run.evaluation.rows_digest for run in (before, after)}
    if records[0].keys() == records[1].keys() and len(digests) == 2:
        return "the content of their held-out rows differs, such as golds or tests"
    pairs = []
    for row in records[0].keys() & records[1].keys():
        (problem, right), (other_problem, other_right) = records[0][row], records[1][row]
        if problem == other_problem and isinstance(right, bool) and isinstance(other_right, bool):
            pairs.append((right, other_right))
    return pairs or "they were evaluated on different problems"


def _measurement(evaluation: Evaluation) -> dict[str, Any]:
    """What must be equal for two evaluations to be compared, by the name that a sentence gives it."""
    return {
        "task": evaluation.task,
        "split": evaluation.split,
        "metric": evaluation.metric,
        "decoding": evaluation.decoding,
        "max_new_tokens": evaluation.max_new_tokens,
        "the options of the metric": {label: each.get("options") for label, each in evaluation.verifier.items()},
        "the file of the metric": {label: str(each.get("digest"))[:8] for label, each in evaluation.verifier.items()},
    }


def _records(run: RunRecord) -> dict[Any, tuple[str, Any]]:
    return {
        row["row"]: (repr((row["prompt"], row.get("final_answer"))), row["correct"])
        for row in evaluated_rows(run.folder, "trained")
        if "row" in row
    }


def _rows(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The results table: a name, and a cell for each run."""
    rewards = [series_of(run.metrics, "reward").values for run in runs]
    return [
        ("verdict", [verdict(run.evaluation).label for run in runs]),
        ("base (95 % interval)", [score_cell(run.evaluation.base) for run in runs]),
        ("trained (95 % interval)", [score_cell(run.evaluation.trained) for run in runs]),
        ("gain in points (95 % interval)", [gain_cell(run.evaluation.difference) for run in runs]),
        ("reward, first to last tenth", [change(values) if values else ABSENT for values in rewards]),
        *((name.lower(), cells) for name, cells in _facts(runs, OUTCOME)),
        ("complete", [run.state or "yes" for run in runs]),
    ]


def _facts(runs: Sequence[RunRecord], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    known = [dict(facts(run)) for run in runs]
    return [(name, ["; ".join(facts.get(name, [])) or ABSENT for facts in known]) for name in names]


def _settings(run: RunRecord) -> dict[str, str]:
    """The recipe's values by dotted key, without paths and secrets, which are no differences between runs."""
    recipe = {key: value for key, value in run.recipe.items() if key not in ("output_dir", "run_name")}
    rewards = recipe.get("rewards")
    if isinstance(rewards, list):
        names = [short_name(str(mapping(entry).get("name"))) for entry in rewards]
        recipe["rewards"] = [
            {**entry, "name": name} if mapping(entry) else entry for entry, name in zip(rewards, names, strict=True)
        ]
    return _shown(dict(flatten(recipe)))


def _shown(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 300)


def _differences(settings: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys whose values differ between runs.

    A derived value is left out if one of the runs lacks it, or if it repeats a recipe key, as `resolved.lora.r` repeats
    `lora_r`.
    """
    listed = set()
    keys = dict.fromkeys(key for one in settings for key in one)
    for key in sorted(keys, key=lambda key: key.startswith(f"{RESOLVED}.")):
        values = tuple(one.get(key, ABSENT) for one in settings)
        is_repeated = key.startswith(f"{RESOLVED}.") and (ABSENT in values or values in listed)
        if len(set(values)) > 1 and not is_repeated:
            listed.add(values)
            yield key, list(values)


def _panels(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Panel]:
    rewards = dict.fromkeys(name for run in runs for name in logged_rewards(run.metrics))
    panels = [_panel(runs, names, f"rewards/{name}/mean", name, f"each-{place}") for place, name in enumerate(rewards)]
    for metric in METRICS:
        if not metric.optional or any(any(series_of(run.metrics, metric.key).values) for run in runs):
            panels.append(_panel(runs, names, metric.key, metric.title, share=metric.share, unit=metric.unit))
    return [panel for panel in panels if panel is not None]


def _panel(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    key: str,
    title: str,
    name: str = "",
    *,
    share: bool = False,
    unit: str = "",
    wide: bool = False,
) -> Panel | None:
    """Draw one metric of all runs. A run without the metric keeps its colour and has no line."""
    lines = [series_of(run.metrics, key, run_name) for run, run_name in zip(runs, names, strict=True)]
    if not any(line.values for line in lines):
        return None
    changes = [change(line.values, share=share) + unit if line.values else ABSENT for line in lines]
    svg = svg_charts.line_chart(name or re.sub(r"\W", "-", key), lines, share=share, wide=wide)
    return Panel(title, svg, "; ".join(f"{run}: {text}" for run, text in zip(names, changes, strict=True)), "")
