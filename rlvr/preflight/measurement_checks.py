"""Checks of what a measurement can show: repeated prompts, the size of the held-out split, the metric's weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlvr.config.specs import SPLITS, EvaluationSpec
from rlvr.data.splits import question_key
from rlvr.data.task import GOLD_COLUMNS, Task
from rlvr.errors import Problem
from rlvr.evaluation.statistics import wilson
from rlvr.formatting import count
from rlvr.preflight.components import RunComponents
from rlvr.preflight.data_checks import prompt_key
from rlvr.scoring.reward import metrics_of
from rlvr.scoring.signature import columns_read

MAX_HALF_WIDTH = 0.1  # of an accuracy's 95 % interval; a wider one can't show what a short training gains
GOOD_HALF_WIDTH = 0.05
REFERENCES = {"final_answer", "tests"}  # columns that hold what is right, whatever reads them
LEAST_GOLDS = 20  # rows; fewer may have one answer by chance
LEAST_SHARE_OF_TOKENS = 0.5  # of max_completion_length that an answer may have in the evaluation


def check_repeated_prompts(components: RunComponents) -> Iterator[Problem]:
    """Prompts that occur more than once in a split, perhaps with different golds."""
    pairs = ((name, task, split) for name, task in components.tasks for split in SPLITS)
    for name, task, split in pairs:
        keys = [prompt_key(prompt) for prompt in task.prompts(split)]
        counts = Counter(keys)
        repeated = len(keys) - len(counts)
        if not repeated:
            continue
        effect = (
            "they are trained on more often than the others"
            if split == "train"
            else "an accuracy counts them as independent, so its interval is too narrow"
        )
        row = next(row for row, key in enumerate(keys) if counts[key] > 1)
        yield Problem(
            f"task {name}, {split}: {repeated:,} of {len(keys):,} prompts repeat an earlier one "
            f"(row {row} occurs {counts[keys[row]]:,} times): {effect}. Remove the repeated rows.",
            "repeated-prompt",
            "prompt",
            row=row,
            level="warning",
        )
        if not components.environments:  # their `reset` may add the question
            yield from _different_golds(components, task, f"task {name}, {split}", split, keys)


def check_equal_golds(components: RunComponents) -> Iterator[Problem]:
    """One answer that is right for all prompts: a column that is not the answer, or data that teach one text."""
    for name, task in components.tasks if not components.environments else ():
        for column in _gold_columns(components, task):
            golds = task.train[column]
            if len(golds) >= LEAST_GOLDS and all(gold == golds[0] for gold in golds):
                yield Problem(
                    f"task {name}, train: all {len(golds):,} rows have the same {column}, {golds[0]!r:.60}: the same "
                    "answer is right everywhere. Is it the column with the answers?",
                    "equal-golds",
                    column,
                    row=0,
                    level="warning",
                )


def check_missing_golds(components: RunComponents) -> Iterator[Problem]:
    """Rows without an answer that could be right. Rewards that compare with such a row may also fail."""
    for name, task in components.tasks:
        for column in _gold_columns(components, task):
            if column == "tests":  # code rewards look at them
                continue
            for split in SPLITS:
                golds = task.split(split)[column] if len(task.split(split)) else []
                empty = [row for row, gold in enumerate(golds) if gold is None or not str(gold).strip()]
                if empty and len(empty) < len(golds):
                    yield Problem(
                        f"task {name}, {split}: {count(len(empty), 'row')} of {len(golds):,} "
                        f"{'has' if len(empty) == 1 else 'have'} no {column} (the first is row {empty[0]}), so no "
                        "answer can be right there. Correct or remove them.",
                        "missing-gold",
                        column,
                        row=empty[0],
                        level="warning",
                    )


def _gold_columns(components: RunComponents, task: Task) -> list[str]:
    """The columns of a task that say what is right: `REFERENCES`, and what rewards read under other usual names."""
    read = {column for reward in components.all_rewards for column in columns_read(reward)}
    return sorted((REFERENCES | GOLD_COLUMNS & read) & set(task.train.column_names))


def _different_golds(
    components: RunComponents, task: Task, where: str, split: str, keys: Sequence[str]
) -> Iterator[Problem]:
    rows = task.split(split)
    for column in _gold_columns(components, task):
        golds = list(map(question_key, rows[column]))
        firsts: dict[str, int] = {}
        others: dict[str, tuple[int, int]] = {}  # the first two rows that differ, by prompt
        for row, key in enumerate(keys):
            first = firsts.setdefault(key, row)
            if golds[row] != golds[first]:
                others.setdefault(key, (first, row))
        if others:
            first, second = min(others.values())
            verb = "has" if len(others) == 1 else "have"
            yield Problem(
                f"{where}: {count(len(others), 'repeated prompt')} {verb} different values of {column}, such as rows "
                f"{first} and {second}: {rows[first][column]!r:.40} and {rows[second][column]!r:.40}. Correct them, or "
                "remove the wrong ones.",
                "different-golds",
                column,
                row=first,
                level="warning",
            )


def check_held_out_size(components: RunComponents) -> Iterator[Problem]:
    """The held-out split must be large enough for an accuracy that says something."""
    evaluation = components.recipe.evaluation
    for name, task in components.tasks if evaluation is not None else ():
        assert evaluation is not None
        yield from _held_out_size(evaluation, task, f" of {name}" if components.recipe.task.parts else "")


def _held_out_size(evaluation: EvaluationSpec, task: Task, of_task: str) -> Iterator[Problem]:
    available = len(task.split(evaluation.split))
    rows = min(available, evaluation.rows or available)
    if 0 < available < (evaluation.rows or 0):
        yield Problem(
            f"evaluation.rows is {evaluation.rows:,}, but the split {evaluation.split}{of_task} has {available:,} "
            "rows: all are measured. Lower it, or give the task more rows.",
            "too-few-rows",
            "evaluation.rows",
            level="warning",
        )
    if not rows or half_width(rows) <= MAX_HALF_WIDTH:
        return
    wanted = [
        f"{rows_needed(width):,} rows for {100 * width:.0f} points" for width in (MAX_HALF_WIDTH, GOOD_HALF_WIDTH)
    ]
    yield Problem(
        f"evaluation: the {rows:,} rows of the split {evaluation.split}{of_task} give an accuracy with a 95 % interval "
        f"of up to ±{100 * half_width(rows):.0f} points, which hides what training gains. Use {', or '.join(wanted)}.",
        "small-split",
        "evaluation.split",
        level="warning",
    )


def check_answer_length(components: RunComponents) -> Iterator[Problem]:
    """An evaluation that cuts answers off where training doesn't measures the limit."""
    evaluation, trained = components.recipe.evaluation, components.settings.get("max_completion_length", 512)
    measured = evaluation.max_new_tokens if evaluation is not None else None
    if measured is not None and measured < trained * LEAST_SHARE_OF_TOKENS:
        yield Problem(
            f"evaluation.max_new_tokens is {measured}, but a completion may have {trained} tokens in training: answers "
            "that training allows would be cut off and count as wrong. Remove it, or raise it.",
            "short-answers",
            "evaluation.max_new_tokens",
            level="warning",
        )


def check_metric_weight(components: RunComponents) -> Iterator[Problem]:
    """The reward that an evaluation reports as accuracy must not be trained against."""
    assert components.metric is not None
    for metric in metrics_of(components.metric):
        if metric not in (components.rewards or ()) or metric.weight >= 0:
            continue
        yield Problem(
            f"rewards: {metric.name} is the metric, but has the weight {metric.weight:g}: training lowers the accuracy "
            "that the run reports. Use a positive weight, or name another reward in evaluation.metric.",
            "negative-metric",
            "rewards",
            level="warning",
        )
    yield from _blind_metrics(components)
    measured = " + ".join(metric.label for metric in metrics_of(components.metric))
    for reward in components.rewards or ():
        read = sorted(GOLD_COLUMNS & columns_read(reward))
        if reward.weight >= 0 or reward in metrics_of(components.metric) or not read:
            continue
        yield Problem(
            f"rewards: {reward.name} reads {' and '.join(read)}, and has the weight {reward.weight:g}: if it pays for "
            f"right answers, training unlearns them. Accuracy is measured by {measured}. Use a positive weight, or "
            "name the metric in evaluation.metric.",
            "negative-verifier",
            "rewards",
            level="warning",
        )


def _blind_metrics(components: RunComponents) -> Iterator[Problem]:
    """Metrics that look at the answer's text alone, beside a reward that compares it with the data."""
    metrics = components.metric if isinstance(components.metric, Mapping) else {None: components.metric}
    for label, metric in metrics.items():
        if metric is None or metric.columns or GOLD_COLUMNS & columns_read(metric) or components.environments:
            continue
        others = [reward for reward in components.rewards or () if label is None or reward.applies(label)]
        comparing = next(
            (reward for reward in others if GOLD_COLUMNS & columns_read(reward) and reward.weight >= 0), None
        )
        if comparing is None:
            continue
        of_task = f" of {label}" if label else ""
        name = f"{{{label}: {comparing.name}}}" if label else comparing.name
        yield Problem(
            f"The metric{of_task} is {metric.name}, which does not read what is right: the accuracy would be the share "
            f"of answers that {metric.name} pays 1. Set evaluation.metric: {name}, which reads "
            f"{' and '.join(sorted(GOLD_COLUMNS & columns_read(comparing)))}; or give it the largest weight.",
            "blind-metric",
            "evaluation.metric",
            level="warning",
        )


def half_width(rows: int) -> float:
    """Half of the 95 % interval of an accuracy of 50 %, where it is widest."""
    interval = wilson(rows / 2, rows)
    return (interval.high - interval.low) / 2


def rows_needed(width: float) -> int:
    """The number of rows with which `half_width` is at most `width`."""
    rows = 1
    while half_width(rows) > width:
        rows += 1
    return rows
