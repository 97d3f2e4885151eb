"""Summarise a held-out evaluation: the verdict in one sentence, the before/after table, the bars of its chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from rlvr.artifacts.evaluation import (
    Average,
    Difference,
    Estimate,
    Evaluation,
    Gain,
    Interval,
    Part,
    Score,
    TaskResults,
)
from rlvr.formatting import count, is_number, p_value_text, percent, points

MAX_SOURCES = 12
ABSENT = "–"
Bar = Score | Part  # with its interval


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


def interval_words(interval: Interval, *, signed: bool = False) -> str:
    """`45.3 … 93.7`; of a difference, with signs."""
    low, high = interval.low, interval.high
    return f"{points(low)} … {points(high)}" if signed else f"{100 * low:.1f} … {100 * high:.1f}"


def score_cell(score: Score | Estimate | None) -> str:
    """An accuracy with its interval."""
    return ABSENT if score is None else f"{percent(score.accuracy)} ({interval_words(score.interval)})"


def gain_cell(gain: Gain | None, unit: str = "") -> str:
    """A difference in points with its interval."""
    return ABSENT if gain is None else f"{points(gain.points)}{unit} ({interval_words(gain.interval, signed=True)})"


def verdict(evaluation: Evaluation) -> EvaluationVerdict:
    """Decide from an evaluation whether the model improved."""
    base, trained = evaluation.base, evaluation.trained
    if base is None and trained is None:
        return EvaluationVerdict(
            "unknown",
            "Not measured",
            "There is no held-out evaluation, so it is unknown whether the model improved: "
            "rewards during training are measured on the training problems.",
        )
    details = (_how_measured(evaluation), *_published(evaluation), *_unscored(evaluation))
    if base is None or trained is None:
        return EvaluationVerdict("unknown", "Not compared", _of_one_model(evaluation), details)
    if min(base.rows, trained.rows) == 0:
        sentence = "The verifier could judge none of the answers, so it is unknown whether the model improved."
        return EvaluationVerdict("unknown", "Not measured", sentence, details)
    if base.is_often_unscored or trained.is_often_unscored:
        missed = {name: score.unscored_words for name, score in evaluation.scores.items()}
        each = " and ".join(f"{words} of the {name} model" for name, words in missed.items() if words)
        sentence = f"The verifier did not judge {each}, so it is unknown whether the model improved."
        return EvaluationVerdict("unknown", "Not compared", sentence, details)
    on = f"On {count(max(base.measured, trained.measured), 'held-out problem')} the accuracy"
    overall = evaluation.overall
    if evaluation.average is not None:
        on = on.replace(" the accuracy", f" of {len(evaluation.tasks)} tasks the mean of their accuracies")
        details = (*(f"{label}: {_change_in_words(part)}." for label, part in evaluation.tasks.items()), *details)
    before, after = (percent(each.accuracy) if each is not None else ABSENT for each in (overall.base, overall.trained))
    gain = overall.difference
    if gain is None:
        sentence = f"{on} was {before} before and {after} after training; the interval of the difference is unknown."
        return EvaluationVerdict("unknown", "Not compared", sentence, details)
    figures = f"({points(gain.points)} points, 95 % interval {interval_words(gain.interval, signed=True)})"
    if isinstance(gain, Difference):
        changes = f"{count(gain.gained, 'problem')} went from wrong to right, {gain.lost:,} from right to wrong."
        details = (f"{changes} McNemar's exact test: {p_value_text(gain.p_value)}.", *details)
    if gain.interval.low > 0:
        return EvaluationVerdict("better", "Better", f"{on} rose from {before} to {after} {figures}.", details)
    if gain.interval.high < 0:
        return EvaluationVerdict("worse", "Worse", f"{on} fell from {before} to {after} {figures}.", details)
    moved = f"stayed at {after}" if before == after else f"went from {before} to {after}"
    sentence = f"{on} {moved} {figures}: the interval includes 0, so this may be chance."
    return EvaluationVerdict("unclear", "No clear change", sentence, details)


def _change_in_words(part: TaskResults) -> str:
    """`24.4 % (…) before and 99.6 % (…) after training, +75.2 points (…)`."""
    change = f", {gain_cell(part.difference, ' points')}" if part.difference is not None else ""
    return f"{score_cell(part.base)} before and {score_cell(part.trained)} after training{change}"


def table(evaluation: Evaluation) -> BeforeAfterTable | None:
    """Compare accuracy, rewards, cut-off share and length of base and trained; with a change column if both exist.

    Of several tasks, the accuracy and its interval are a row for each, and one for their mean.
    """
    scores = evaluation.scores
    if not scores:
        return None
    both = len(scores) > 1

    def mean(
        label: str, value: Callable[[Score], float | None], show: Callable[[float], str], unit: str = ""
    ) -> tuple[str, ...]:
        values = [each if is_number(each := value(score)) else None for score in scores.values()]
        cells = [ABSENT if each is None else show(each) + unit for each in values]
        if not both:
            return (label, *cells)
        before, after = values
        change = "" if before is None or after is None else _signed(after - before, show)
        # The difference of two percentages is in points.
        return (label, *cells, f"{change} points" if unit == " %" and change not in ("", "0") else change)

    labels = dict.fromkeys(name for score in scores.values() for name in score.rewards)
    counts: list[tuple[str, Callable[[Score], float | None]]] = [
        ("in the required format", lambda score: score.formatted),
        ("right without that format", lambda score: score.right_without_format),
        ("right in any format", lambda score: score.lenient),
        ("not judged", lambda score: score.unscored if any(each.unscored for each in scores.values()) else None),
    ]
    rows = [
        *(_of_tasks(evaluation, both) if evaluation.tasks else _accuracies(evaluation, both)),
        *(mean(f"reward {name}", partial(_mean_reward, name), "{:.2f}".format) for name in labels),
        mean("cut off", lambda score: score.cut_off, lambda value: f"{100 * value:.1f}", " %"),
        mean("tokens per completion", lambda score: score.mean_tokens, "{:.1f}".format),
        *(
            mean(label, value, "{:,.0f}".format)
            for label, value in counts
            if any(value(score) is not None for score in scores.values())
        ),
    ]
    return BeforeAfterTable((*scores, *(["change"] if both else [])), tuple(rows))


def _mean_reward(name: str, score: Score) -> float | None:
    return score.rewards.get(name)


def _accuracies(evaluation: Evaluation, both: bool) -> Iterator[tuple[str, ...]]:
    scores = evaluation.scores.values()
    gain, change = evaluation.difference, ("", "", "")
    if both and gain is not None and not any(score.is_often_unscored for score in scores):
        base, trained = scores
        change = (
            f"{points(gain.points)} points",
            interval_words(gain.interval, signed=True),
            _signed(trained.correct - base.correct, "{:,}".format),
        )
    cells: list[tuple[str, Callable[[Score], str]]] = [
        ("accuracy", lambda score: percent(score.accuracy)),
        ("95 % interval", lambda score: f"{interval_words(score.interval)} %"),
        ("right", lambda score: f"{score.correct:,} of {score.rows:,}"),
    ]
    for (label, cell), text in zip(cells, change, strict=True):
        yield (label, *map(cell, scores), *([text] if both else []))


def _of_tasks(evaluation: Evaluation, both: bool) -> Iterator[tuple[str, ...]]:
    parts: dict[str, TaskResults | Average] = {**evaluation.tasks}
    if evaluation.average is not None:
        parts["mean of the tasks"] = evaluation.average
    for label, part in parts.items():
        cells = {"base": score_cell(part.base), "trained": score_cell(part.trained)}
        yield (
            label,
            *map(cells.__getitem__, evaluation.scores),
            *([gain_cell(part.difference, " points")] if both else []),
        )


def pass_at_k_table(evaluation: Evaluation) -> BeforeAfterTable | None:
    """A row for each k; None if pass@k was not measured."""
    section = evaluation.pass_at_k
    if section is None or not section.rates:
        return None
    gains, rows = section.difference, []
    for k in dict.fromkeys(k for values in section.rates.values() for k in values):
        rates = [values.get(k) for values in section.rates.values()]
        cells = [score_cell(Estimate(rate.value, rate.interval) if rate else None) for rate in rates]
        rows.append((f"pass@{k}", *cells, *([gain_cell(gains.get(k))] if gains else [])))
    return BeforeAfterTable((*section.rates, *(["change"] if gains else [])), tuple(rows))


def bars(evaluation: Evaluation, column: str = "source") -> tuple[list[tuple[str, Bar | None, Bar | None]], int]:
    """The accuracies as bars (label, base, trained), and the number of values of the column.

    The first bar is over all problems. If the column (`source`, `difficulty` or `task`) has several values, a bar for
    each of the largest `MAX_SOURCES` follows, by name. Empty without a measurement.
    """
    models = [evaluation.base, evaluation.trained]
    before: Mapping[str, Bar | None]
    after: Mapping[str, Bar | None]
    if column == "task":
        before = {label: part.base for label, part in evaluation.tasks.items()}
        after = {label: part.trained for label, part in evaluation.tasks.items()}
    else:
        before, after = ({} if score is None else getattr(score, f"by_{column}") for score in models)
    rows = {
        name: max(bar.rows for bar in pair if bar is not None)
        for name, pair in {name: (before.get(name), after.get(name)) for name in {**before, **after}}.items()
        if any(pair)
    }
    known = [score.rows for score in models if score is not None]
    shown = [(f"all ({max(known):,})", _drawn(models[0]), _drawn(models[1]))] if any(known) else []
    if len(rows) > 1:
        largest = sorted(rows, key=lambda name: -rows[name])[:MAX_SOURCES]
        shown += [
            (f"{name} ({rows[name]:,})", _drawn(before.get(name)), _drawn(after.get(name))) for name in sorted(largest)
        ]
    return shown, len(rows)


def _drawn(bar: Bar | None) -> Bar | None:
    """None for the accuracy of no rows."""
    return bar if bar is not None and bar.rows else None


def _signed(change: float, show: Callable[[float], str]) -> str:
    size = show(abs(change))
    if size == show(0):
        return "0"
    return f"+{size}" if change > 0 else f"−{size}"


def _of_one_model(evaluation: Evaluation) -> str:
    [(name, score)] = evaluation.scores.items()
    if score.rows == 0:
        return f"Only the {name} model was evaluated, and the verifier could judge none of its answers."
    low, high = percent(score.interval.low), percent(score.interval.high)
    return (
        f"Only the {name} model was evaluated: {percent(score.accuracy)} right on "
        f"{count(score.rows, 'held-out problem')} (95 % interval {low} … {high}). "
        f"Without the {'base' if name == 'trained' else 'trained'} model on the same problems it is unknown whether "
        "training helped."
    )


def _how_measured(evaluation: Evaluation) -> str:
    rows = f" on the {evaluation.split} split" if evaluation.split else ""
    rows += f" of {evaluation.task['name']}" if evaluation.task.get("name") else ""
    decoding = f" with {evaluation.decoding} decoding" if evaluation.decoding else ""
    metrics = evaluation.metrics or {"": evaluation.metric}
    each = [f"{metric}{f' ({label})' if label else ''}" for label, metric in metrics.items() if metric]
    metric = f". An answer is right if {' or '.join(each)} is 1" if each else ""
    return f"Measured{rows}{decoding}{metric}."


def _published(evaluation: Evaluation) -> list[str]:
    reference, base = evaluation.reference, evaluation.base
    if reference is None:
        return []
    ours = f"; measured here: {percent(base.accuracy)}" if base is not None else ""
    return [f"Published for the base model: {percent(reference.score)} ({reference.source}){ours}."]


def _unscored(evaluation: Evaluation) -> list[str]:
    most = max(score.unscored for score in evaluation.scores.values())
    return [f"Left out: up to {count(most, 'problem')} that the verifier failed to judge."] if most else []
