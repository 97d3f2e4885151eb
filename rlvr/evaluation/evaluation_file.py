"""Write and read evaluation.json and its tables, and format them for the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr import console
from rlvr.artifacts.directory import content_digest
from rlvr.artifacts.evaluation import (
    MODELS,
    Average,
    Difference,
    Estimate,
    Evaluation,
    Gain,
    Part,
    PassAtK,
    Score,
    TaskResults,
    from_json,
)
from rlvr.artifacts.evaluation_summary import interval_words
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.project import PACKAGE
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.data.task import RECORDED_COLUMNS
from rlvr.environments.messages import as_table
from rlvr.evaluation.engines import Decoding
from rlvr.evaluation.evaluate import Records
from rlvr.evaluation.scores import (
    OFTEN_CUT_OFF,
    Record,
    by_task,
    compare,
    compare_samples,
    partial_value_warning,
    pass_rates,
    reference_warning,
    summarise,
    truncation_warning,
    unscored_warning,
)
from rlvr.evaluation.statistics import average
from rlvr.formatting import count, p_value_text, percent, points
from rlvr.scoring.reward import Metrics, Reward, file_of, label_of, metrics_of
from rlvr.scoring.source_files import digest_of_file, imported_digests

if TYPE_CHECKING:
    from datasets import Dataset

MAX_PARTS = 12  # lines of a table by source or by difficulty


def describe_evaluation(recipe: Recipe, metrics: Metrics, rows: Dataset) -> dict[str, Any]:
    """Describe how an evaluation is made, for evaluation.json.

    Args:
        rows: the held-out rows. Evaluations of others are not compared; nor are those with other options or another
            file of the metric.
    """
    spec = recipe.evaluation or EvaluationSpec()
    max_new_tokens = spec.max_new_tokens or recipe.value("max_completion_length")
    about = {
        "recipe": recipe.path.name,
        "model": recipe.settings["model_name_or_path"],
        "task": {"name": recipe.task_name, **recipe.tasks[0].options},
        "split": spec.split,
        "metric": " + ".join(reward.label for reward in metrics_of(metrics)),
        "verifier": {reward.label: describe_verifier(reward) for reward in metrics_of(metrics)},
        "decoding": "greedy",
        "settings": {"rows": spec.rows, "max_new_tokens": max_new_tokens},
        "rows_digest": content_digest(rows.to_list()),
    }
    if recipe.is_mixture:
        about["task"] = {"name": recipe.task_name, "tasks": [task.as_dict() for task in recipe.tasks]}
        about["metrics"] = {label: reward.label for label, reward in metrics.items()}
        about["rewards"] = {
            label: [label_of(spec.name) for spec in recipe.rewards if spec.applies(label)] for label in metrics
        }
    if recipe.environments:
        about["environments"] = [asdict(environment) for environment in recipe.environments]
    if spec.reference is not None:
        about["reference"] = asdict(spec.reference)
    return about


def describe_verifier(reward: Reward) -> dict[str, Any]:
    """What the verdicts of a metric depend on: its "options", and the "digest" of its file and the modules of that."""
    file = file_of(reward.function)
    modules = imported_digests([file]) if file is not None else {}
    modules.pop(PACKAGE.name, None)  # it also changes where no verifier does
    options = reward.spec.options if reward.spec is not None else reward.options
    return {"options": dict(options), "digest": content_digest([digest_of_file(file), modules])}


def heading(evaluation: Evaluation) -> str:
    """Say in one sentence what an evaluation measured."""
    rows = list(evaluation.scores.values())[-1].measured
    held_out = "" if evaluation.split == "train" else "held-out "
    return (
        f"Accuracy ({evaluation.metric}) on {rows} {held_out}rows of {evaluation.task['name']}/{evaluation.split}, "
        f"{evaluation.decoding} decoding:"
    )


def results_in_words(score: Score, records: Records) -> str:
    """Format a score, or that of each task."""
    parts = {label: score_in_words(summarise(own, [])) for label, own in by_task(records).items()}
    return "; ".join(f"{label} {words}".strip() for label, words in parts.items()) or score_in_words(score)


def score_in_words(score: Score) -> str:
    """Format a score: "24.4 % right (95 % interval 19.5 … 30.1)"; and if most were cut off, or some not judged."""
    missed = f"; {score.unscored_words} not judged" if score.unscored else ""
    cut_off = f"; {100 * score.cut_off:.0f} % cut off" if score.cut_off >= OFTEN_CUT_OFF else ""
    return f"{percent(score.accuracy)} right (95 % interval {interval_words(score.interval)}){missed}{cut_off}"


def write_evaluation(
    folder: Path,
    about: Mapping[str, Any],
    results: Mapping[str, tuple[Score, Records]],
    sampled: Mapping[str, Records] | None = None,
    samples: int = 0,
    decoding: Decoding | None = None,
) -> Evaluation:
    """Write `evaluation.json` and one `completions/evaluation_<name>.parquet` per model; return what the JSON holds.

    Args:
        folder: the run directory.
        about: as `describe_evaluation` returns it.
        results: "base" and/or "trained", each with what `evaluate` returned.
        sampled: records of `samples` samples a row, for the same names, drawn as `decoding` says; written to
            `completions/samples_<name>.parquet`.

    Raises:
        InputError: of kind "run-in-use".
    """
    refuse_if_in_use(folder, "Name another folder")
    records_of = {name: records for name, (_, records) in results.items()}
    evaluation: Evaluation = replace(
        from_json(Evaluation, json.loads(json.dumps(about, default=str))),
        **{name: score for name, (score, _) in results.items()},
        difference=_difference_of(records_of),
        tasks=_of_tasks(about, records_of),
    )
    evaluation = replace(evaluation, average=_average(evaluation.tasks))
    if sampled and decoding is not None:
        rates = {name: pass_rates(records, samples) for name, records in sampled.items()}
        gains = compare_samples(sampled["base"], sampled["trained"], samples) if len(sampled) > 1 else {}
        pass_at_k = PassAtK(samples, decoding.words(), decoding.sampling or {}, **rates, difference=gains)
        evaluation = replace(evaluation, pass_at_k=pass_at_k)
    scores = {f"{name}, {label}": one for label, part in evaluation.tasks.items() for name, one in part.scores.items()}
    warnings = [
        reference_warning(evaluation.reference, evaluation.base),
        truncation_warning(evaluation.settings.get("max_new_tokens"), scores or evaluation.scores),
        unscored_warning(scores or evaluation.scores),
        partial_value_warning(evaluation.metrics or {"": evaluation.metric}, records_of),
    ]
    evaluation = replace(evaluation, warnings=tuple(filter(None, warnings)))
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    tables = {f"evaluation_{name}": records for name, records in records_of.items()}
    tables |= {f"samples_{name}": records for name, records in (sampled or {}).items()}
    for name, records in tables.items():
        if records and "tool_seconds" in records[0]:
            conversations = as_table([record["completion"] for record in records])
            pairs = zip(records, conversations, strict=True)
            records = [{**record, "completion": conversation} for record, conversation in pairs]
        if evaluation.tasks:
            records = _with_one_type(records)
        pq.write_table(pa.Table.from_pylist(records), folder / "completions" / f"{name}.parquet")
    evaluation.write(folder)
    return evaluation


def _with_one_type(records: Records) -> Records:
    """Records whose columns have one type each, as a table needs: text for one whose type differs between tasks."""
    mixed = [
        name
        for name in RECORDED_COLUMNS
        if len({type(value) for record in records if (value := record.get(name)) is not None}) > 1
    ]
    texts = [{name: str(record[name]) for name in mixed if record.get(name) is not None} for record in records]
    return [{**record, **text} for record, text in zip(records, texts, strict=True)]


def _difference_of(results: Mapping[str, Sequence[Record]]) -> Difference | None:
    return compare(results["base"], results["trained"]) if set(MODELS) <= set(results) else None


def _of_tasks(about: Mapping[str, Any], results: Mapping[str, Records]) -> dict[str, TaskResults]:
    """The results of each task of a mixture; nothing for one task."""
    parts = {name: by_task(records) for name, records in results.items()}
    tasks = {}
    for label, metric in about.get("metrics", {}).items():
        own = {name: part[label] for name, part in parts.items() if label in part}
        if len(own) == len(results):  # else it has no held-out rows
            scores = {name: summarise(records, about["rewards"][label]) for name, records in own.items()}
            base, trained = map(scores.get, MODELS)
            tasks[label] = TaskResults(metric, base=base, trained=trained, difference=_difference_of(own))
    return tasks


def _average(tasks: Mapping[str, TaskResults]) -> Average | None:
    """The means over several tasks."""
    if len(tasks) < 2:
        return None
    models = {}
    for name in MODELS:
        scores = [score for part in tasks.values() if (score := part.scores.get(name)) is not None]
        if scores:
            models[name] = Estimate(*average([(score.accuracy, score.interval) for score in scores]))
    gains = [(part.difference.points, part.difference.interval) for part in tasks.values() if part.difference]
    return Average(**models, difference=Gain(*average(gains)) if gains else None)


# ----------------------------------------------------------------------------------------------------------------------
# In the terminal


def results_table(evaluation: Evaluation) -> str:
    """Format the before/after table of an evaluation, its parts and its warnings."""
    scores, gain = evaluation.scores, evaluation.difference
    blocks = [_tasks(evaluation) if evaluation.tasks else _accuracies(scores)]
    if not evaluation.tasks:
        if gain is not None and not any(score.is_often_unscored for score in scores.values()):
            blocks.append(_difference(gain))
        forms = [line for name, score in scores.items() if (line := _form(name, score, len(scores) > 1))]
        blocks += ["\n".join(forms)] if forms else []
        blocks += _parts("source", {name: score.by_source for name, score in scores.items()})
        blocks += _parts("difficulty", {name: score.by_difficulty for name, score in scores.items()})
    if evaluation.pass_at_k is not None:
        blocks.append(_pass_at_k(evaluation.pass_at_k))
    if evaluation.reference is not None:
        blocks.append(f"  Published: {percent(evaluation.reference.score)} ({evaluation.reference.source})")
    blocks += [f"  {console.red('Warning:')} {warning}" for warning in evaluation.warnings]
    return "\n\n".join(blocks)


def _tasks(evaluation: Evaluation) -> str:
    """A row for each task, and one for their average."""
    names = list(evaluation.scores)
    columns = [*names, *(["difference"] if len(names) > 1 else [])]
    rows = [
        [label, part.metric, str(max(score.measured for score in part.scores.values())), *_figures(part, names)]
        for label, part in evaluation.tasks.items()
    ]
    if evaluation.average is not None:
        rows.append(["mean of the tasks", "", "", *_figures(evaluation.average, names)])
    return console.table(["task", "metric", "rows", *_with_intervals(columns)], rows)


def _figures(part: TaskResults | Average, names: Sequence[str]) -> list[str]:
    cells = []
    for each in (part.base if "base" in names else None, part.trained if "trained" in names else None):
        cells += [percent(each.accuracy), interval_words(each.interval)] if each is not None else []
    gain = part.difference
    return cells + ([points(gain.points), interval_words(gain.interval, signed=True)] if gain is not None else [])


def _accuracies(scores: Mapping[str, Score]) -> str:
    labels = list(next(iter(scores.values())).rewards)
    rows = [
        [
            name,
            percent(score.accuracy),
            interval_words(score.interval),
            f"{score.correct}/{score.rows}",
            *(f"{math.nan if (mean := score.rewards[label]) is None else mean:.2f}" for label in labels),
            f"{100 * score.cut_off:.0f} %",
            f"{score.mean_tokens:.0f}",
        ]
        for name, score in scores.items()
    ]
    return console.table(["", "accuracy", "95 % interval", "right", *labels, "cut off", "tokens"], rows)


def _difference(gain: Difference) -> str:
    return (
        f"  trained − base: {points(gain.points)} points (95 % interval {interval_words(gain.interval, signed=True)}; "
        f"{count(gain.gained, 'row')} gained, {gain.lost:,} lost; McNemar's exact test: {p_value_text(gain.p_value)})"
    )


def _form(name: str, score: Score, several: bool) -> str:
    facts = []
    if score.formatted is not None:
        facts.append(f"{score.formatted} of {score.rows} answers have the required format")
    if score.lenient is not None:
        facts.append(f"{score.lenient} are right in any format ({percent(score.lenient / max(score.rows, 1))})")
    if score.right_without_format is not None:
        facts.append(f"{score.right_without_format} of them without the required one")
    if score.unscored:
        facts.append(f"{score.unscored} more could not be judged")
    for label, missed in score.unscored_rewards.items():
        facts.append(f"{label} gave no score for {missed}, which its mean leaves out")
    return f"  {f'{name}: ' if several else ''}{', '.join(facts)}" if facts else ""


def _parts(column: str, parts: Mapping[str, Mapping[str, Part]]) -> list[str]:
    values = list(dict.fromkeys(value for part in parts.values() for value in part))
    if not 1 < len(values) <= MAX_PARTS:
        return []
    rows = []
    for value in values:
        cells = [value, str(max(part[value].rows for part in parts.values() if value in part))]
        for part in parts.values():
            cell = part.get(value)
            cells += [percent(cell.accuracy), interval_words(cell.interval)] if cell else ["–", "–"]
        rows.append(cells)
    return [console.table([column, "rows", *_with_intervals(parts)], rows)]


def _with_intervals(names: Iterable[str]) -> list[str]:
    return [title for name in names for title in (name, "95 % interval")]


def _pass_at_k(pass_at_k: PassAtK) -> str:
    rates, gains = pass_at_k.rates, pass_at_k.difference
    rows = []
    for k in next(iter(rates.values())):
        cells = [f"pass@{k}"]
        for values in rates.values():
            rate = values.get(k)
            cells += [percent(rate.value), interval_words(rate.interval)] if rate else ["–", "–"]
        if k in gains:
            cells += [points(gains[k].points), interval_words(gains[k].interval, signed=True)]
        rows.append(cells)
    header = ["", *_with_intervals([*rates, *(["difference"] if gains else [])])]
    return f"  {pass_at_k.samples} samples a row, {pass_at_k.decoding}:\n\n{console.table(header, rows)}"
