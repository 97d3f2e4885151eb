"""Summarise a held-out evaluation: the verdict in one sentence, the before/after table, the bars of its chart.

The input is the content of evaluation.json (`rlvr.evaluation.write_evaluation`). A missing or malformed part counts as
not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from rlvr.formatting import count, is_number, mapping, p_value_text, percent, points

MAX_SOURCES = 12
MODELS = ("base", "trained")
OFTEN_UNSCORED = 0.05  # of the rows; from here on an accuracy says little of the model


@dataclass(frozen=True)
class EvaluationVerdict:
    """The result in one sentence; `kind` is "better", "worse", "unclear" or "unknown", `label` a short form."""

    kind: str
    label: str
    sentence: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class BeforeAfterTable:
    """Base and trained side by side. The first cell of a row is its name; the others belong to `header`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict(evaluation: Mapping[str, Any] | None) -> EvaluationVerdict:
    """Decide from an evaluation (None: there is none) whether the model improved."""
    base, trained = score_of(evaluation, "base"), score_of(evaluation, "trained")
    if evaluation is None or (base is None and trained is None):
        return EvaluationVerdict(
            "unknown",
            "Not measured",
            "There is no held-out evaluation, so it is unknown whether the model improved: "
            "rewards during training are measured on the training problems.",
        )
    tasks, mean = tasks_of(evaluation), mapping(evaluation.get("average"))
    details = (_how_measured(evaluation), *_published(evaluation, base), *_unscored(base, trained))
    if base is None or trained is None:
        return EvaluationVerdict("unknown", "Not compared", _of_one_model(base, trained), details)
    if min(base["rows"], trained["rows"]) == 0:
        sentence = "The verifier could judge none of the answers, so it is unknown whether the model improved."
        return EvaluationVerdict("unknown", "Not measured", sentence, details)

    missed = {name: unscored_words(score) for name, score in (("base", base), ("trained", trained))}
    if any(map(often_unscored, (base, trained))):
        each = " and ".join(f"{words} of the {name} model" for name, words in missed.items() if words)
        sentence = f"The verifier did not judge {each}, so it is unknown whether the model improved."
        return EvaluationVerdict("unknown", "Not compared", sentence, details)
    on = f"On {count(max(measured_rows(base), measured_rows(trained)), 'held-out problem')} the accuracy"
    gain = mapping(evaluation.get("difference"))
    if all(is_number(mapping(mean.get(name)).get("accuracy")) for name in MODELS):
        on = on.replace(" the accuracy", f" of {len(tasks)} tasks the mean of their accuracies")
        base, trained, gain = (mapping(mean.get(part)) for part in (*MODELS, "difference"))
        details = (*(f"{label}: {_change_in_words(part)}." for label, part in tasks.items()), *details)
    before, after = percent(base["accuracy"]), percent(trained["accuracy"])
    if not is_number(gain.get("points")) or not _is_interval(gain.get("interval")):
        sentence = f"{on} was {before} before and {after} after training; the interval of the difference is unknown."
        return EvaluationVerdict("unknown", "Not compared", sentence, details)
    low, high = gain["interval"]["low"], gain["interval"]["high"]
    figures = f"({points(gain['points'])} points, 95 % interval {points(low)} … {points(high)})"
    if is_number(gain.get("gained")) and is_number(gain.get("lost")):
        changes = f"{count(gain['gained'], 'problem')} went from wrong to right, {gain['lost']:,} from right to wrong."
        p_value = gain.get("p_value")
        test = [f"McNemar's exact test: {p_value_text(p_value)}."] if is_number(p_value) else []
        details = (" ".join([changes, *test]), *details)
    if low > 0:
        return EvaluationVerdict("better", "Better", f"{on} rose from {before} to {after} {figures}.", details)
    if high < 0:
        return EvaluationVerdict("worse", "Worse", f"{on} fell from {before} to {after} {figures}.", details)
    moved = f"stayed at {after}" if before == after else f"went from {before} to {after}"
    sentence = f"{on} {moved} {figures}: the interval includes 0, so this may be chance."
    return EvaluationVerdict("unclear", "No clear change", sentence, details)


def tasks_of(evaluation: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The results of each task of a mixture, by its label; empty for one task."""
    parts = mapping(mapping(evaluation).get("tasks"))
    return {label: part for label, part in parts.items() if any(score_of(part, name) for name in MODELS)}


def overall(evaluation: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Accuracy of `base` and `trained`, and their `difference`: of several tasks the means, else those of all rows."""
    mean = mapping(evaluation.get("average"))
    parts = {name: mapping(mean.get(name) or evaluation.get(name)) for name in (*MODELS, "difference")}
    return {name: part for name, part in parts.items() if part}


def _change_in_words(part: Mapping[str, Any]) -> str:
    """`24.4 % before and 99.6 % after (+75.2 points, 95 % interval +69.6 … +80.8)`."""
    before, after, change = _figures(part, (*MODELS, "difference"))
    return f"{before} before and {after} after training{f', {change}' if change else ''}"


def _figures(part: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Accuracies and their difference, each with its interval; empty text for what is missing."""
    cells = []
    for name in names:
        each = mapping(part.get(name))
        value, interval = each.get("accuracy", each.get("points")), interval_of(each)
        if not is_number(value) or interval is None:
            cells.append("")
        elif name == "difference":
            cells.append(f"{points(value)} points ({points(interval['low'])} … {points(interval['high'])})")
        else:
            cells.append(f"{percent(value)} ({100 * interval['low']:.1f} … {100 * interval['high']:.1f})")
    return cells


def table(evaluation: Mapping[str, Any] | None) -> BeforeAfterTable | None:
    """Compare accuracy, rewards, cut-off share and length of base and trained; with a change column if both exist.

    Of several tasks, the accuracy and its interval are a row for each, and one for their mean.
    """
    scores = {name: score for name in MODELS if (score := score_of(evaluation, name)) is not None}
    if not scores:
        return None
    both = len(scores) == len(MODELS)
    comparable = both and not any(map(often_unscored, scores.values()))
    gain = mapping(mapping(evaluation).get("difference")) if comparable else {}
    interval = gain.get("interval")

    def line(label: str, cell: Callable[[Mapping[str, Any]], str], change: str) -> tuple[str, ...]:
        return (label, *map(cell, scores.values()), *([change] if both else []))

    def mean(label: str, show: Callable[[float], str], *keys: str, unit: str = "") -> tuple[str, ...]:
        values = [_reach(score, keys) for score in scores.values()]
        cells = ["–" if value is None else show(value) + unit for value in values]
        if not both:
            return (label, *cells)
        before, after = values
        change = "" if before is None or after is None else _signed(after - before, show)
        # The difference of two percentages is in points.
        return (label, *cells, f"{change} points" if unit == " %" and change not in ("", "0") else change)

    accuracies = [
        line(
            "accuracy",
            lambda score: percent(score["accuracy"]),
            f"{points(gain['points'])} points" if is_number(gain.get("points")) else "",
        ),
        line(
            "95 % interval",
            lambda score: f"{100 * score['interval']['low']:.1f} … {percent(score['interval']['high'])}",
            f"{points(interval['low'])} … {points(interval['high'])}" if _is_interval(interval) else "",
        ),
        line(
            "right",
            lambda score: f"{score['correct']:,} of {score['rows']:,}",
            _signed(scores["trained"]["correct"] - scores["base"]["correct"], lambda value: f"{value:,}")
            if comparable
            else "",
        ),
    ]
    if tasks := tasks_of(evaluation):
        columns = (*scores, *(["difference"] if both else []))
        accuracies = [(label, *_figures(part, columns)) for label, part in tasks.items()]
        average = mapping(mapping(evaluation).get("average"))
        accuracies += [("mean of the tasks", *_figures(average, columns))] if average else []
    rows = [
        *accuracies,
        *(
            mean(f"reward {label}", lambda value: f"{value:.2f}", "rewards", label)
            for label in dict.fromkeys(name for score in scores.values() for name in mapping(score.get("rewards")))
        ),
        mean("cut off", lambda value: f"{100 * value:.1f}", "cut_off", unit=" %"),
        mean("tokens a completion", lambda value: f"{value:.1f}", "mean_tokens"),
    ]
    # Older evaluations don't have these.
    for label, key in (
        ("in the required format", "formatted"),
        ("right without that format", "right_without_format"),
        ("right in any format", "lenient"),
    ):
        if any(is_number(score.get(key)) for score in scores.values()):
            rows.append(mean(label, lambda value: f"{value:,.0f}", key))
    if any(score.get("unscored") for score in scores.values()):
        rows.append(mean("not judged", lambda value: f"{value:,.0f}", "unscored"))
    return BeforeAfterTable((*scores, *(["change"] if both else [])), tuple(rows))


def bars(
    evaluation: Mapping[str, Any] | None, column: str = "source"
) -> tuple[list[tuple[str, Bar | None, Bar | None]], int]:
    """The accuracies as bars (label, base, trained), and the number of values of the column.

    The first bar is over all problems. If the column (`source`, `difficulty` or `task`) has several values, a bar for
    each of the largest `MAX_SOURCES` follows, by name. Empty without a measurement.
    """
    scores = [score_of(evaluation, name) for name in MODELS]
    base, trained = map(_bar, scores)
    if base is None and trained is None:
        return [], 0
    before, after = (mapping(mapping(score).get(f"by_{column}")) for score in scores)
    if column == "task":
        before, after = (
            {label: mapping(part.get(name)) for label, part in tasks_of(evaluation).items()} for name in MODELS
        )
    rows: dict[str, int] = {}
    for name in (*before, *after):
        rows[name] = max(int(_reach(part, (name, "rows")) or 0) for part in (before, after))
    total = max(score["rows"] for score in scores if score is not None)
    shown = [(f"all ({total:,})", base, trained)]
    if len(rows) > 1:
        largest = sorted(rows, key=lambda name: -rows[name])[:MAX_SOURCES]
        shown += [
            (f"{name} ({rows[name]:,})", _bar(before.get(name)), _bar(after.get(name))) for name in sorted(largest)
        ]
    return shown, len(rows)


def score_of(evaluation: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """One model's part of an evaluation, if it has all required figures."""
    score = mapping(mapping(evaluation).get(name))
    known = all(is_number(score.get(key)) for key in ("rows", "correct", "accuracy"))
    return score if known and _is_interval(score.get("interval")) else None


def measured_rows(score: Mapping[str, Any]) -> int:
    """Rows of a score, with those that the verifier did not judge."""
    return int(score["rows"]) + int(_reach(score, ("unscored",)) or 0)


def often_unscored(score: Mapping[str, Any]) -> bool:
    """Whether the verifier left out so many rows that an accuracy over the others says little of the model."""
    return measured_rows(score) - score["rows"] >= OFTEN_UNSCORED * max(measured_rows(score), 1)


def unscored_words(score: Mapping[str, Any]) -> str:
    """`39 of 40 answers`: those that the verifier did not judge; empty for none."""
    rows = measured_rows(score)
    return f"{rows - score['rows']:,} of {count(rows, 'answer')}" if rows > score["rows"] else ""


def interval_of(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The interval of a figure, if both ends are numbers."""
    return part["interval"] if _is_interval(part.get("interval")) else None


def _is_interval(value: Any) -> TypeGuard[Mapping[str, float]]:
    return isinstance(value, Mapping) and is_number(value.get("low")) and is_number(value.get("high"))


def _reach(value: Any, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        value = mapping(value).get(key)
    return value if is_number(value) else None


def _signed(change: float, show: Callable[[float], str]) -> str:
    size = show(abs(change))
    if size == show(0):
        return "0"
    return f"+{size}" if change > 0 else f"−{size}"


def _bar(score: Any) -> Bar | None:
    score = mapping(score)
    if not _is_interval(score.get("interval")) or not is_number(score.get("accuracy")) or not score.get("rows"):
        return None
    return Bar(score["accuracy"], score["interval"]["low"], score["interval"]["high"])


def _of_one_model(base: Mapping[str, Any] | None, trained: Mapping[str, Any] | None) -> str:
    name, score, other = ("trained", trained, "base") if base is None else ("base", base, "trained")
    if score is None or score["rows"] == 0:
        return f"Only the {name} model was evaluated, and the verifier could judge none of its answers."
    low, high = percent(score["interval"]["low"]), percent(score["interval"]["high"])
    return (
        f"Only the {name} model was evaluated: {percent(score['accuracy'])} right on "
        f"{count(score['rows'], 'held-out problem')} (95 % interval {low} … {high}). "
        f"Without the {other} model on the same problems it is unknown whether training helped."
    )


def _how_measured(evaluation: Mapping[str, Any]) -> str:
    task, split = mapping(evaluation.get("task")).get("name"), evaluation.get("split")
    rows = f" on the {split} split" if split else ""
    rows += f" of {task}" if task else ""
    decoding = f" with {evaluation['decoding']} decoding" if evaluation.get("decoding") else ""
    metrics = mapping(evaluation.get("metrics")) or {"": evaluation.get("metric")}
    each = [f"{metric}{f' ({label})' if label else ''}" for label, metric in metrics.items() if metric]
    metric = f". An answer is right if {' or '.join(each)} is 1" if each else ""
    return f"Measured{rows}{decoding}{metric}."


def _published(evaluation: Mapping[str, Any], base: Mapping[str, Any] | None) -> list[str]:
    reference = mapping(evaluation.get("reference"))
    if not is_number(reference.get("score")):
        return []
    ours = f"; measured here: {percent(base['accuracy'])}" if base is not None else ""
    return [f"Published for the base model: {percent(reference['score'])} ({reference.get('source', '?')}){ours}."]


def _unscored(*scores: Mapping[str, Any] | None) -> list[str]:
    most = max(int(_reach(score, ("unscored",)) or 0) for score in scores)
    if not most:
        return []
    return [f"Left out: up to {count(most, 'problem')} that the verifier failed to judge."]


@dataclass(frozen=True)
class Bar:
    """An accuracy (0..1) with its interval."""

    accuracy: float
    low: float
    high: float
