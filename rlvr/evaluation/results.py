"""Write and read evaluation.json and its tables, and format them for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.artifacts.evaluation_summary import measured_rows, often_unscored, unscored_words
from rlvr.artifacts.result_record import content_digest
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.project import PACKAGE
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.environments.messages import as_table
from rlvr.evaluation.engines import Decoding
from rlvr.evaluation.evaluate import Records
from rlvr.evaluation.scores import (
    OFTEN_CUT_OFF,
    Score,
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
from rlvr.evaluation.statistics import Interval, average
from rlvr.formatting import count, p_value_text, percent, points
from rlvr.scoring.call import digest_of_file
from rlvr.scoring.reward import Metric, Reward, file_of, label_of, metrics_of
from rlvr.scoring.source_files import imported_digests

if TYPE_CHECKING:
    from datasets import Dataset

MAX_PARTS = 12  # lines of a table by source or by difficulty
MODELS = ("base", "trained")


def describe_evaluation(recipe: Recipe, metric: Metric, rows: Dataset | None = None) -> dict[str, Any]:
    """Describe how an evaluation is made, for evaluation.json.

    Args:
        rows: the held-out rows. Evaluations of others are not compared; nor are those with other options or another
            file of the metric.
    """
    spec = recipe.evaluation or EvaluationSpec()
    max_new_tokens = spec.max_new_tokens or recipe.settings.get("max_completion_length", 512)
    about = {
        "recipe": recipe.path.name,
        "model": recipe.settings["model_name_or_path"],
        "task": {"name": recipe.task.name, **recipe.task.options},
        "split": spec.split,
        "metric": " + ".join(reward.label for reward in metrics_of(metric)),
        "verifier": {reward.label: describe_verifier(reward) for reward in metrics_of(metric)},
        "decoding": "greedy",
        "settings": {"rows": spec.rows, "max_new_tokens": max_new_tokens},
    }
    if not isinstance(metric, Reward):
        about["task"] = {"name": recipe.task.name, "tasks": [part.as_dict() for part in recipe.task.parts]}
        about["metrics"] = {label: reward.label for label, reward in metric.items()}
        about["rewards"] = {
            label: [label_of(spec.name) for spec in recipe.rewards if spec.applies(label)] for label in metric
        }
    if recipe.environments:
        about["environments"] = [asdict(environment) for environment in recipe.environments]
    if spec.reference is not None:
        about["reference"] = asdict(spec.reference)
    if rows is not None:
        about["rows_digest"] = content_digest(rows.to_list())
    return about


def describe_verifier(reward: Reward) -> dict[str, Any]:
    """What the verdicts of a metric depend on: its "options", and the "digest" of its file and the modules of that."""
    file = file_of(reward.function)
    modules = imported_digests([file]) if file is not None else {}
    modules.pop(PACKAGE.name, None)  # also changes where nothing of the verifier does
    options = reward.spec.options if reward.spec is not None else reward.options
    return {"options": dict(options), "digest": content_digest([digest_of_file(file), modules])}


def heading(content: Mapping[str, Any]) -> str:
    """Say in one sentence what an evaluation.json measured."""
    rows = next(measured_rows(content[name]) for name in ("trained", "base") if name in content)
    return (
        f"Accuracy ({content['metric']}) on {rows} rows of {content['task']['name']}/{content['split']}, "
        f"{content['decoding']} decoding:"
    )


def results_in_words(score: Score, records: Records) -> str:
    """Format a score, or that of each task."""
    parts = {label: score_in_words(summarise(own, [])) for label, own in by_task(records).items()}
    return "; ".join(f"{label} {words}" for label, words in parts.items()) or score_in_words(score)


def score_in_words(score: Score) -> str:
    """Format a score: "24.4 % right (95 % interval 19.5 … 30.1)"; and if most were cut off, or some not judged."""
    missed = f"; {words} not judged" if (words := unscored_words(asdict(score))) else ""
    cut_off = f"; {100 * score.cut_off:.0f} % cut off" if score.cut_off >= OFTEN_CUT_OFF else ""
    return f"{percent(score.accuracy)} right (95 % interval {interval_words(asdict(score.interval))}){missed}{cut_off}"


def write_evaluation(
    folder: Path,
    about: Mapping[str, Any],
    results: Mapping[str, tuple[Score, Records]],
    sampled: Mapping[str, Records] | None = None,
    samples: int = 0,
    decoding: Decoding | None = None,
) -> dict[str, Any]:
    """Write `evaluation.json` and one `completions/evaluation_<name>.parquet` per model; return the JSON's content.

    Args:
        folder: the run directory.
        about: as `describe_evaluation` returns it.
        results: "base" and/or "trained", each with what `evaluate` returned.
        sampled: records of `samples` samples a row, for the same names, drawn as `decoding` says; written to
            `completions/samples_<name>.parquet`.

    Raises:
        InputError: of kind "run-in-use".
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    refuse_if_in_use(folder, "Name another folder")
    content: dict[str, Any] = {**about, **{name: asdict(score) for name, (score, _) in results.items()}}
    both = set(MODELS) <= set(results)
    if both:
        content["difference"] = asdict(compare(results["base"][1], results["trained"][1]))
    records_of = {name: records for name, (_, records) in results.items()}
    content |= _of_tasks(about, records_of)
    if sampled and decoding is not None:
        pass_at_k: dict[str, Any] = {"samples": samples, "decoding": decoding.words(), "sampling": decoding.sampling}
        pass_at_k |= {name: pass_rates(records, samples) for name, records in sampled.items()}
        if both:
            pass_at_k["difference"] = compare_samples(sampled["base"], sampled["trained"], samples)
        content["pass_at_k"] = pass_at_k
    scores = {name: asdict(score) for name, (score, _) in results.items()}
    if "tasks" in content:
        scores = {f"{name}, {label}": part[name] for label, part in content["tasks"].items() for name in results}
    warnings = [
        reference_warning(content.get("reference"), content.get("base")),
        truncation_warning(about, {name: score["cut_off"] for name, score in scores.items()}),
        unscored_warning(scores),
        partial_value_warning(about.get("metrics") or {"": about.get("metric", "")}, records_of),
    ]
    if any(warnings):
        content["warnings"] = [warning for warning in warnings if warning]
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    tables = {f"evaluation_{name}": records for name, (_, records) in results.items()}
    tables |= {f"samples_{name}": records for name, records in (sampled or {}).items()}
    for name, records in tables.items():
        if records and "tool_seconds" in records[0]:
            conversations = as_table([record["completion"] for record in records])
            pairs = zip(records, conversations, strict=True)
            records = [{**record, "completion": conversation} for record, conversation in pairs]
        if "tasks" in content:
            records = _with_one_type(records, "id", "source", "difficulty", "final_answer")
        pq.write_table(pa.Table.from_pylist(records), folder / "completions" / f"{name}.parquet")
    (folder / "evaluation.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def _with_one_type(records: Records, *names: str) -> Records:
    """Records whose columns have one type each, as a table needs: text for one whose type differs between tasks."""
    mixed = [
        name
        for name in names
        if len({type(value) for record in records if (value := record.get(name)) is not None}) > 1
    ]
    texts = [{name: str(record[name]) for name in mixed if record.get(name) is not None} for record in records]
    return [{**record, **text} for record, text in zip(records, texts, strict=True)]


def _of_tasks(about: Mapping[str, Any], results: Mapping[str, Records]) -> dict[str, Any]:
    """The results of each task of a mixture, and their average; nothing for one task."""
    parts = {name: by_task(records) for name, records in results.items()}
    tasks: dict[str, dict[str, Any]] = {}
    for label, metric in about.get("metrics", {}).items():
        own = {name: part[label] for name, part in parts.items() if label in part}
        if len(own) < len(results):
            continue  # no held-out rows
        scores = {name: asdict(summarise(records, about["rewards"][label])) for name, records in own.items()}
        tasks[label] = {"metric": metric, **scores}
        if set(MODELS) <= set(own):
            tasks[label]["difference"] = asdict(compare(own["base"], own["trained"]))
    if len(tasks) < 2:
        return {"tasks": tasks} if tasks else {}
    averages = {name: _average(tasks, name, "accuracy") for name in results}
    if set(MODELS) <= set(results):
        averages["difference"] = _average(tasks, "difference", "points")
    return {"tasks": tasks, "average": averages}


def _average(tasks: Mapping[str, Mapping[str, Any]], part: str, figure: str) -> dict[str, Any]:
    value, interval = average([(each[part][figure], Interval(**each[part]["interval"])) for each in tasks.values()])
    return {figure: value, "interval": asdict(interval)}


# ----------------------------------------------------------------------------------------------------------------------
# In the terminal


def results_table(content: Mapping[str, Any]) -> str:
    """Format the before/after table of an evaluation.json, its parts and its warnings."""
    names = [name for name in MODELS if name in content]
    scores = {name: content[name] for name in names}
    blocks = [_tasks(content, names) if "tasks" in content else _accuracies(scores)]
    if "difference" in content and "tasks" not in content and not any(map(often_unscored, scores.values())):
        blocks.append(_difference(content["difference"]))
    forms = [line for name, score in scores.items() if (line := _form(name, score, len(names) > 1))]
    if forms and "tasks" not in content:
        blocks.append("\n".join(forms))
    for column in () if "tasks" in content else ("source", "difficulty"):
        blocks += _parts(column, scores)
    if "pass_at_k" in content:
        blocks.append(_pass_at_k(content["pass_at_k"], names))
    if reference := content.get("reference"):
        blocks.append(f"  Published: {percent(reference['score'])} ({reference['source']})")
    blocks += [f"  {console.red('Warning:')} {warning}" for warning in content.get("warnings", [])]
    return "\n\n".join(blocks)


def interval_words(interval: Mapping[str, float], *, signed: bool = False) -> str:
    low, high = interval["low"], interval["high"]
    return f"{points(low)} … {points(high)}" if signed else f"{100 * low:.1f} … {100 * high:.1f}"


def _tasks(content: Mapping[str, Any], names: Sequence[str]) -> str:
    """A row for each task, and one for their average."""
    columns = [*names, *(["difference"] if "difference" in content else [])]
    rows = []
    for label, part in content["tasks"].items():
        measured = str(max(measured_rows(part[name]) for name in names))
        rows.append([label, part["metric"], measured, *_figures(part, columns)])
    if "average" in content:
        rows.append(["mean of the tasks", "", "", *_figures(content["average"], columns)])
    return console.table(["task", "metric", "rows", *_with_intervals(columns)], rows)


def _figures(part: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    cells = []
    for name in columns:
        signed = name == "difference"
        cells += [points(part[name]["points"]) if signed else percent(part[name]["accuracy"])]
        cells += [interval_words(part[name]["interval"], signed=signed)]
    return cells


def _accuracies(scores: Mapping[str, Mapping[str, Any]]) -> str:
    labels = list(next(iter(scores.values()))["rewards"])
    rows = [
        [
            name,
            percent(score["accuracy"]),
            interval_words(score["interval"]),
            f"{score['correct']}/{score['rows']}",
            *(f"{score['rewards'][label]:.2f}" for label in labels),
            f"{100 * score['cut_off']:.0f} %",
            f"{score['mean_tokens']:.0f}",
        ]
        for name, score in scores.items()
    ]
    return console.table(["", "accuracy", "95 % interval", "right", *labels, "cut off", "tokens"], rows)


def _difference(gain: Mapping[str, Any]) -> str:
    chance = f"; McNemar's exact test: {p_value_text(gain['p_value'])}" if "p_value" in gain else ""
    return (
        f"  trained − base: {points(gain['points'])} points (95 % interval "
        f"{interval_words(gain['interval'], signed=True)}; {count(gain['gained'], 'row')} gained, {gain['lost']:,} lost"
        f"{chance})"
    )


def _form(name: str, score: Mapping[str, Any], several: bool) -> str:
    facts = []
    rows = score["rows"]
    if score.get("formatted") is not None:
        facts.append(f"{score['formatted']} of {rows} answers have the required format")
    if score.get("lenient") is not None:
        facts.append(f"{score['lenient']} are right in any format ({percent(score['lenient'] / max(rows, 1))})")
    if score.get("right_without_format") is not None:
        facts.append(f"{score['right_without_format']} of them without the required one")
    if score.get("unscored"):
        facts.append(f"{score['unscored']} more could not be judged")
    for label, missed in (score.get("unscored_rewards") or {}).items():
        facts.append(f"{label} gave no score for {missed}, which its mean leaves out")
    return f"  {f'{name}: ' if several else ''}{', '.join(facts)}" if facts else ""


def _parts(column: str, scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    parts = {name: score.get(f"by_{column}") or {} for name, score in scores.items()}
    values = list(dict.fromkeys(value for part in parts.values() for value in part))
    if not 1 < len(values) <= MAX_PARTS:
        return []
    rows = []
    for value in values:
        cells = [value, str(max(part[value]["rows"] for part in parts.values() if value in part))]
        for part in parts.values():
            cell = part.get(value)
            cells += [percent(cell["accuracy"]), interval_words(cell["interval"])] if cell else ["–", "–"]
        rows.append(cells)
    return [console.table([column, "rows", *_with_intervals(parts)], rows)]


def _with_intervals(names: Iterable[str]) -> list[str]:
    return [title for name in names for title in (name, "95 % interval")]


def _pass_at_k(pass_at_k: Mapping[str, Any], names: Sequence[str]) -> str:
    rows = []
    for k in next(pass_at_k[name] for name in names):
        cells = [f"pass@{k}"]
        for name in names:
            value = pass_at_k[name].get(k)
            cells += [percent(value["value"]), interval_words(value["interval"])] if value else ["–", "–"]
        gain = (pass_at_k.get("difference") or {}).get(k)
        if gain:
            cells += [points(gain["points"]), interval_words(gain["interval"], signed=True)]
        rows.append(cells)
    header = ["", *_with_intervals([*names, *(["difference"] if "difference" in pass_at_k else [])])]
    return f"  {pass_at_k['samples']} samples a row, {pass_at_k['decoding']}:\n\n{console.table(header, rows)}"
