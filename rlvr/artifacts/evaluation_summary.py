"""What a held-out evaluation says: the verdict in one sentence, the before/after table, and its bars.

Everything is made from the content of an evaluation.json (see `rlvr.evaluation.write_evaluation`). A part of it that
is missing or malformed counts as not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from rlvr.formatting import count, is_number, mapping, p_value_text, percent, points

MOST_SOURCES = 12
MODELS = ("base", "trained")


@dataclass(frozen=True)
class EvaluationVerdict:
    """The sentence on top; `kind` is "better", "worse", "unclear" or "unknown", `label` says it in two words."""

    kind: str
    label: str
    sentence: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """The before/after table: the first cell of a row names it, the others stand under `header`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict(evaluation: Mapping[str, Any] | None) -> EvaluationVerdict:
    """Whether the model got better, as far as an evaluation (None: there is none) can tell."""
    base, trained = score_of(evaluation, "base"), score_of(evaluation, "trained")
    if evaluation is None or (base is None and trained is None):
        return EvaluationVerdict(
            "unknown",
            "Not measured",
            "There is no held-out evaluation, so nobody knows whether the model got better: "
            "rewards during training are measured on the problems that it is trained on.",
        )
    details = (_how_measured(evaluation), *_published(evaluation, base), *_left_out(base, trained))
    if base is None or trained is None:
        return EvaluationVerdict("unknown", "Not compared", _of_one_model(base, trained), details)
    if min(base["rows"], trained["rows"]) == 0:
        sentence = "The verifier could judge none of the answers, so nobody knows whether the model got better."
        return EvaluationVerdict("unknown", "Not measured", sentence, details)

    before, after = percent(base["accuracy"]), percent(trained["accuracy"])
    on = f"On {count(max(base['rows'], trained['rows']), 'held-out problem')} the accuracy"
    gain = mapping(evaluation.get("difference"))
    if not is_number(gain.get("points")) or not _is_interval(gain.get("interval")):
        sentence = f"{on} was {before} before and {after} after training; the interval of the difference is not known."
        return EvaluationVerdict("unknown", "Not compared", sentence, details)
    low, high = gain["interval"]["low"], gain["interval"]["high"]
    figures = f"({points(gain['points'])} points, 95 % interval {points(low)} … {points(high)})"
    if is_number(gain.get("gained")) and is_number(gain.get("lost")):
        changed = f"{count(gain['gained'], 'problem')} went from wrong to right, {gain['lost']:,} from right to wrong."
        chance = gain.get("p_value")
        by_chance = [f"{p_value_text(chance)} by McNemar's exact test."] if is_number(chance) else []
        details = (" ".join([changed, *by_chance]), *details)
    if low > 0:
        return EvaluationVerdict("better", "Better", f"{on} rose from {before} to {after} {figures}.", details)
    if high < 0:
        return EvaluationVerdict("worse", "Worse", f"{on} fell from {before} to {after} {figures}.", details)
    moved = f"stayed at {after}" if before == after else f"went from {before} to {after}"
    sentence = f"{on} {moved} {figures}: the interval includes 0, so this may be chance alone."
    return EvaluationVerdict("unclear", "No clear change", sentence, details)


def table(evaluation: Mapping[str, Any] | None) -> Table | None:
    """Accuracy, every reward, cut-off share and length of base and trained, and the change where both are there."""
    scores = {name: score for name in MODELS if (score := score_of(evaluation, name)) is not None}
    if not scores:
        return None
    both = len(scores) == len(MODELS)
    gain = mapping(mapping(evaluation).get("difference"))
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

    rows = [
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
            if both
            else "",
        ),
        *(
            mean(f"reward {label}", lambda value: f"{value:.2f}", "rewards", label)
            for label in dict.fromkeys(name for score in scores.values() for name in mapping(score.get("rewards")))
        ),
        mean("cut off", lambda value: f"{100 * value:.1f}", "cut_off", unit=" %"),
        mean("tokens a completion", lambda value: f"{value:.1f}", "mean_tokens"),
    ]
    # Only newer evaluations count these.
    for label, key in (
        ("in the form asked for", "formatted"),
        ("right without that form", "right_without_format"),
        ("right, whatever the form", "lenient"),
    ):
        if any(is_number(score.get(key)) for score in scores.values()):
            rows.append(mean(label, lambda value: f"{value:,.0f}", key))
    if any(score.get("unscored") for score in scores.values()):
        rows.append(mean("not judged", lambda value: f"{value:,.0f}", "unscored"))
    return Table((*scores, *(["change"] if both else [])), tuple(rows))


def bars(
    evaluation: Mapping[str, Any] | None, column: str = "source"
) -> tuple[list[tuple[str, Bar | None, Bar | None]], int]:
    """The accuracies as bars: label, base and trained; and how many values the column has.

    First over all problems, then for each value of the column, `source` or `difficulty`, if there are several (the
    largest `MOST_SOURCES` of them, by name). Empty where nothing was measured.
    """
    scores = [score_of(evaluation, name) for name in MODELS]
    base, trained = map(_bar, scores)
    if base is None and trained is None:
        return [], 0
    before, after = (mapping(mapping(score).get(f"by_{column}")) for score in scores)
    rows: dict[str, int] = {}
    for name in (*before, *after):
        rows[name] = max(int(_reach(part, (name, "rows")) or 0) for part in (before, after))
    most = max(score["rows"] for score in scores if score is not None)
    found = [(f"all ({most:,})", base, trained)]
    if len(rows) > 1:
        largest = sorted(rows, key=lambda name: -rows[name])[:MOST_SOURCES]
        found += [
            (f"{name} ({rows[name]:,})", _bar(before.get(name)), _bar(after.get(name))) for name in sorted(largest)
        ]
    return found, len(rows)


def score_of(evaluation: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """One model's part of an evaluation, if it holds the figures that a score can't do without."""
    score = mapping(mapping(evaluation).get(name))
    known = all(is_number(score.get(key)) for key in ("rows", "correct", "accuracy"))
    return score if known and _is_interval(score.get("interval")) else None


def interval_of(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The interval of a figure of an evaluation, if both of its ends are numbers."""
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
        f"Without the {other} model on the same problems nobody knows whether training helped."
    )


def _how_measured(evaluation: Mapping[str, Any]) -> str:
    task, split = mapping(evaluation.get("task")).get("name"), evaluation.get("split")
    where = f" on the {split} split" if split else ""
    where += f" of {task}" if task else ""
    decoding = f" with {evaluation['decoding']} decoding" if evaluation.get("decoding") else ""
    metric = f"; right is an answer that {evaluation['metric']} gives 1" if evaluation.get("metric") else ""
    return f"Measured{where}{decoding}{metric}."


def _published(evaluation: Mapping[str, Any], base: Mapping[str, Any] | None) -> list[str]:
    reference = mapping(evaluation.get("reference"))
    if not is_number(reference.get("score")):
        return []
    ours = f"; here it is {percent(base['accuracy'])}" if base is not None else ""
    return [f"Published of the untrained model: {percent(reference['score'])} ({reference.get('source', '?')}){ours}."]


def _left_out(*scores: Mapping[str, Any] | None) -> list[str]:
    most = max(int(_reach(score, ("unscored",)) or 0) for score in scores)
    if not most:
        return []
    return [f"Left out: up to {count(most, 'problem')} that the verifier could not judge, through a fault of its own."]


@dataclass(frozen=True)
class Bar:
    """One accuracy (0..1) with its interval, or None where it wasn't measured."""

    accuracy: float
    low: float
    high: float
