"""What the scores of the tried answers say about the rewards; of the metric, see rlvr/preflight/metric_verdicts.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from rlvr.config import schema
from rlvr.config.reward_location import is_remote
from rlvr.data.task import ANSWER_COLUMNS, GOLD_COLUMNS, Task
from rlvr.errors import Problem
from rlvr.formatting import count
from rlvr.preflight.trial_answers import EMPTY_ANSWERS, Answer, Values, score_answers
from rlvr.red_team.target import NOT_GOLD, REFERENCE_FORMS
from rlvr.rescoring.completions import visible
from rlvr.rescoring.explain import MAX_LINE_LENGTH, explanation
from rlvr.scoring.registry import companion_function
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total
from rlvr.scoring.scorer import Scorer
from rlvr.scoring.signature import columns_read, optional_columns, taken_from_kwargs

SHOWN_ROWS, SHOWN_LINES = 5, 6
MAX_SHOWN = 80  # characters of a column and its value in a message


def explain_answer(reward: Reward, task: Task, answer: Answer) -> list[str]:
    """What the reward's `explain` says of an answer; nothing if the file has none, or is on a server."""
    if is_remote(reward.where):
        return []
    explained = explanation({**task.train[answer.row], "completion": answer.text}, reward, [reward])
    lines = [visible(line)[:MAX_LINE_LENGTH] for text in explained.lines for line in text.splitlines()]
    return lines[:SHOWN_LINES]


def payment_problems(rewards: Sequence[Reward], metric: Reward, values: Values) -> Iterator[Problem]:
    """Rewards that pay for answers without content, where their gates let them."""
    names = [reward.name for reward in rewards]
    for index, reward in enumerate(rewards):
        gate = names.index(reward.gate) if reward.gate is not None else None
        payments: dict[tuple[str, str], list[str]] = {}  # score and rows -> the answers that earn it
        first_row = None
        for kind, words in EMPTY_ANSWERS.items():
            scores = {
                answer.row: row[index] or 0.0
                for answer, row in values.items()
                if answer.kind == kind and (gate is None or (row[gate] or 0.0) > 0)
            }
            paid = [row for row, score in scores.items() if score * reward.weight > 0]
            if not paid or (reward is metric and max(scores.values()) >= 1):  # else `metric_problems` reports it
                continue
            tried = sum(answer.kind == kind for answer in values)
            most = max((scores[row] for row in paid), key=abs)
            score = f"{'up to ' if len(paid) > 1 else ''}{most:.3g}"
            payments.setdefault((score, which(paid, tried)), []).append(words)
            first_row = paid[0] if first_row is None else first_row
        if payments:
            listed = "; ".join(
                f"{score} for {' and '.join(answers)} in {rows}" for (score, rows), answers in payments.items()
            )
            # A gate is another reward of the recipe, which applies to at least the same tasks.
            can_gate = metric in rewards and metric.name not in (reward.name, reward.gate)
            if metric.applies_to is not None:
                can_gate = can_gate and set(reward.applies_to or ("",)) <= set(metric.applies_to)
            gating = f", or set `gate: {metric.name}` for the reward in the recipe" if can_gate else ""
            yield Problem(
                f"The reward {reward.name} pays for answers without content ({listed}). Training finds "
                f"such answers first. Return 0 for them{gating}.",
                "paid-noise",
                f"rewards.{reward.name}",
                row=first_row,
                level="warning",
            )


def unscored_problems(rewards: Sequence[Reward | None], values: Values) -> Iterator[Problem]:
    """Rewards that score no answer at all, or none without content. None stands for a reward that failed."""
    for index, reward in enumerate(rewards):
        if reward is None:
            continue
        rows = {answer.row for answer, row in values.items() if row[index] is not None}  # it applies to these
        missed = {answer.kind for answer, row in values.items() if row[index] is None and answer.row in rows}
        words = [words for kind, words in EMPTY_ANSWERS.items() if kind in missed]
        if not rows:
            fault = f"all {len(values)} tried answers: each such row leaves the update, so nothing would be trained"
        elif words:
            fault = f"{', '.join(words)}: such answers leave the update and the accuracy, so they cost nothing"
        else:
            continue
        yield Problem(
            f"The reward {reward.name} returns None for {fault}. Return 0 for a wrong answer, and None only for a "
            "failure of the reward itself.",
            "unscored-rows",
            f"rewards.{reward.name}",
            level="warning",
        )


def unpaid_problems(
    rewards: Sequence[Reward], metric: Reward, task: Task, scorer: Scorer, values: Values, *, is_played: bool
) -> Iterator[Problem]:
    """Rewards that compare with the data and pay for no answer, right ones included.

    A reward that compares text with a list of messages is one. That is certain if it pays for the same answers as text.

    Args:
        values: of all the scorer's rewards.
        is_played: whether completions call tools, so that no right one was tried.
    """
    others = {reward.label for reward in scorer.rewards}
    for reward in rewards:
        index = scorer.rewards.index(reward)
        yield from _absent_columns(reward, task, pays=any((row[index] or 0) != 0 for row in values.values()))
        read = columns_read(reward)
        right = [
            answer
            for answer in values
            if answer.kind == "gold" and reads_data(reward, task) or answer.kind == "answer" and answer.column in read
        ]
        paid = {answer.row for answer in right if (values[answer][index] or 0) > 0}
        unpaid = sorted({answer.row for answer in right} - paid)
        if paid and unpaid and right[0].kind == "answer":
            yield Problem(
                f"The reward {reward.name} pays for the right answer of training row {min(paid)}, but not for that of "
                f"{count(len(unpaid), 'other tried row')} ({', '.join(map(str, unpaid))}) in any usual form. It gets "
                "lists with one entry for each completion: does it compare each with the entry of its own row, and is "
                "the data right?",
                "pays-for-some-rows",
                f"rewards.{reward.name}",
                row=unpaid[0],
                level="warning",
            )
        if any((row[index] or 0) != 0 for row in values.values()):
            continue
        if all(row[index] is None for row in values.values()):
            continue  # `unscored_problems` reports it
        if not right:
            if not is_played:
                yield from _never_tried(reward, task, len(values))
            continue
        as_text = (
            score_answers(task, right, scorer, None, others - {reward.label}, as_text=True) if task.is_chat else None
        )
        rows = count(len({answer.row for answer in right}), "tried training row")
        what = f"pays nothing for the right answers of {rows}"
        if as_text is not None and any((row[index] or 0) > 0 for row in as_text.values):
            yield Problem(
                f"The reward {reward.name} {what}, and pays for the same as plain text. "
                "Completions of chat prompts are lists of messages: compare rlvr.completion_text(completion), or "
                'completion[-1]["content"].',
                "pays-for-no-answer",
                f"rewards.{reward.name}",
                level="error",
            )
        elif right[0].kind == "answer" or reward is not metric:  # `metric_problems` reports golds
            forms = " or ".join(f"`{form.format('42')}`" for form in REFERENCE_FORMS).replace("\n", " ")
            tried = f", as {forms}" if right[0].kind == "answer" else ""
            column = right[0].column or min(read & set(task.train.column_names))
            value = task.train[right[0].row][column]
            is_number = isinstance(value, int | float) or str(value).strip().lstrip("-").isdecimal()
            cause = ": does it compare a number with text?" if is_number else "."
            lines = explain_answer(reward, task, right[0])
            why = f" Why, by scripts/score.py --why:\n{chr(10).join(lines)}" if lines else ""
            yield Problem(
                f"The reward {reward.name} {what}{tried}, and for nothing else. In training row "
                f"{right[0].row} it gets {f'{column}={value!r}'[:MAX_SHOWN]}{cause} No fault if it wants another form "
                "of the answer, but then no right answer and no wrong one was tried: a `gold` of the task has it tried "
                f"(docs/check.md).{why}",
                "pays-for-no-answer",
                f"rewards.{reward.name}",
                level="warning",
            )


def _never_tried(reward: Reward, task: Task, tried: int) -> Iterator[Problem]:
    """A reward that paid for nothing, where nothing tells what a right answer is."""
    read = sorted(columns_read(reward) & set(task.train.column_names) - NOT_GOLD)
    if not read or companion_function(reward.function, "validate_rows") is not None:
        return  # `validate_rows` looks at the columns itself
    texts = [name for name in read if name not in ANSWER_COLUMNS and isinstance(task.train[0][name], str | int | float)]
    fix = (
        "If it is right, call it final_answer in the data (in the task jsonl with columns: "
        f"{{final_answer: {texts[0]}}}) and in the reward: right and wrong answers are then tried."
        if texts == read and len(texts) == 1
        else "Score a right answer and a wrong one of your own: docs/score.md."
    )
    yield Problem(
        f"The reward {reward.name} pays nothing for {count(tried, 'tried answer')}, and none of them is known to be "
        f"right: it reads {' and '.join(read)}. {fix}",
        "pays-for-no-answer",
        f"rewards.{reward.name}",
        level="warning",
    )


def unpaid_rows(reward: Reward, task: Task, rows: Sequence[int], paid: int, first: Answer) -> Problem:
    """The problem of a reward that pays for the right answers of most training rows, but not for those of `rows`."""
    gold = f" {first.column}={task.train[first.row][first.column]!r}"[:MAX_SHOWN] if first.column else ""
    return Problem(
        f"The reward {reward.name} pays for the right answers of {count(paid, 'training row')}, but not for "
        f"{which(rows, paid + len(rows)).replace('tried ', '')}:{gold} as {first.text!r:.{MAX_SHOWN}}. Such a row "
        "trains nothing. Correct the data, or the comparison.",
        "pays-for-some-rows",
        f"rewards.{reward.name}",
        row=rows[0],
        level="warning",
    )


def _absent_columns(reward: Reward, task: Task, *, pays: bool) -> Iterator[Problem]:
    """Names that a reward can do without and the data lacks: `kwargs.get` and defaults raise nothing."""
    columns = [column for column in task.train.column_names if column != "prompt"]
    taken = taken_from_kwargs(reward.function)
    reads_gold = not columns_read(reward).isdisjoint(GOLD_COLUMNS & set(columns))
    for name in sorted(optional_columns(reward) - set(columns)):
        close = schema.nearest(name, columns)
        if name in taken:
            is_missed = bool(close) or not pays
        else:  # an option, unless it has the name of an answer, or nearly so
            is_missed = not pays and not reads_gold and not GOLD_COLUMNS.isdisjoint({name, *close})
        if not is_missed:
            continue
        how = f"reads {name!r} from its **kwargs" if name in taken else f"has the parameter {name} with a default"
        yield Problem(
            f"The reward {reward.name} {how}, but the task has no such column; it has "
            f"{', '.join(columns)}. {'' if pays else 'It paid for none of the tried answers. '}Name the column "
            f"as a parameter, `*, {close[0] if close else 'COLUMN'}, **kwargs`: a missing one is then an error.",
            "missing-column",
            f"rewards.{reward.name}",
            level="warning",
        )


def reads_data(reward: Reward, task: Task) -> bool:
    """Whether a reward compares with the data, rather than look at the text alone."""
    return not columns_read(reward).isdisjoint(task.train.column_names)


def weight_problems(rewards: Sequence[Reward], values: Values, label: str) -> Iterator[Problem]:
    """The sum of the rewards, as training sees it, must be higher for golds than for answers without content.

    Right answers without a gold may have no form that earns anything. So they bring a warning only if some form of them
    earns less than an empty answer or noise, and none earns more.
    """
    rows = [row[: len(rewards)] for row in values.values()]
    totals = [total(row, rewards) for row in apply_gates_and_mask(rows, rewards, [label] * len(rows))]
    of_kind: dict[str, list[float]] = {}
    for answer, value in zip(values, totals, strict=True):
        if value is not None:
            of_kind.setdefault(answer.kind, []).append(value)
    found: dict[tuple[str, str], list[str]] = {}  # sums of answers without content and of right ones -> the former
    for kind, words in EMPTY_ANSWERS.items():
        if not (nothing := of_kind.get(kind)):
            continue
        mean = fmean(nothing)
        if (golds := of_kind.get("gold")) and mean >= fmean(golds):
            right = f"{fmean(golds):.3g} for the task's golds"
        elif kind != "prompt" and (answers := of_kind.get("answer")) and max(answers) <= mean > min(answers):
            right = f"{min(answers):.3g} to {max(answers):.3g} for right answers"
        else:
            continue
        found.setdefault((f"{mean:.3g}", right), []).append(words)
    for (mean_words, right), without in found.items():
        yield Problem(
            f"the sum of the rewards is {mean_words} for {' and '.join(without)}, and {right}, so training would not "
            "tell them apart, or prefers the former. Check weights, signs, and rewards that pay for form alone.",
            "golds-earn-no-more",
            "rewards",
            level="warning",
        )


def which(numbers: Sequence[int], of: int) -> str:
    """`3 of 16 tried training rows (12, 40, 77)`, or `all 16 tried training rows`."""
    if len(numbers) == of > 1:
        return f"all {of} tried training rows"
    shown = ", ".join(map(str, numbers[:SHOWN_ROWS]))
    return f"{len(numbers)} of {of} tried training rows ({shown}{', …' if len(numbers) > SHOWN_ROWS else ''})"
