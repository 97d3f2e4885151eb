"""The rewards, tried on a few rows before anything is loaded: a gold must earn what an empty answer and noise must not.

A reward that pays everything alike, refuses its own golds, or fails on the first text it sees costs a run; here it
costs a second. The golds are the task's (`Task.gold`); a task without them has its rewards tried on the other two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_elsewhere
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.preflight.data_checks import row_faults
from rlvr.scoring.failures import report
from rlvr.scoring.reward import Reward, apply_gates_and_mask

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

ROWS = 16  # of the training split, spread evenly over it
SHOWN = 5
STEP = -1  # what functions see as trainer_state.global_step: training begins at 0
NOISE = "qwv zzrt. Ploo banter umf, gree!"  # no number, no code, no sentence: right for no row of any task


def try_rewards(recipe: Recipe, task: Task, rewards: Sequence[Reward], metric: Reward, scorer: Scorer) -> list[str]:
    """Scores golds, empty answers and noise for some training rows; returns sentences on what a person should know.

    Args:
        metric: the reward that decides whether an answer is right.
        scorer: has the rewards, and the metric too if it is none of them.

    Raises:
        InputError: a reward fails on them, and `on_reward_error` is "raise"; or the metric, which compares with the
            data, takes golds for wrong or what is no answer for right; or a reward
            server refuses rows.
    """
    for reward in scorer.rewards:
        if is_elsewhere(reward.where) and (wrong_rows := row_faults(reward, task, scorer)):
            raise InputError("\n".join(wrong_rows))
    step = max(1, len(task.train) // ROWS)
    numbers = list(range(0, len(task.train), step))[:ROWS]
    rows = [task.train[number] for number in numbers]
    golds = [task.gold(row) if task.gold is not None else None for row in rows]
    with_gold = [place for place, gold in enumerate(golds) if gold is not None]

    tried = [rows[place] for place in with_gold] + rows + rows
    texts = [str(golds[place]) for place in with_gold] + [""] * len(rows) + [NOISE] * len(rows)
    completions: list[Any] = [[{"role": "assistant", "content": text}] if task.is_chat else text for text in texts]
    columns = {name: [row[name] for row in tried] for name in task.train.column_names if name != "prompt"}
    ids: list[list[int]] = [[0] * len(text) for text in texts]  # nobody has tokenised them; only their lengths differ
    prompts = [row["prompt"] for row in tried]
    scored = scorer.score(prompts, completions, columns, completion_ids=ids, step=STEP)
    if scored.faults:
        failed = f"The rewards were tried on {len(rows)} rows before training.\n{report(scored.faults)}"
        if recipe.settings["on_reward_error"] == "raise":
            raise InputError(failed)
        return [f"warning: {failed}"]

    # A metric that reads a column compares with the data, so what it says of golds is certain; one that looks at the
    # text alone may want what no gold of the task has.
    reads_data = bool(metric.columns)
    parts = {"gold": slice(0, len(with_gold)), "empty": slice(len(with_gold), len(with_gold) + len(rows))}
    parts["noise"] = slice(len(with_gold) + len(rows), None)
    values = {kind: scored.values[part] for kind, part in parts.items()}
    outcome = scorer.rewards.index(metric)
    faults: list[str] = []
    notes: list[str] = []
    serious = faults if reads_data else notes
    for kind, words in (("empty", "an empty answer"), ("noise", f"the answer {NOISE!r}")):
        right = [numbers[place] for place, row in enumerate(values[kind]) if (row[outcome] or 0.0) >= 1]
        if right:
            serious.append(f"{metric.name} takes {words} for right in {_rows(right, len(rows))}.")
    if not with_gold and not faults and not notes:
        notes.append(f"the rewards refuse empty and senseless answers; the task {recipe.task.name} has no golds to try")

    wrong = [numbers[with_gold[place]] for place, row in enumerate(values["gold"]) if (row[outcome] or 0.0) < 1]
    if wrong:
        sentence = (
            f"{metric.name} takes the task's own gold for wrong in {_rows(wrong, len(with_gold))}: such a row teaches "
            "the wrong thing. Do the rewards fit the task (answer format, options)? scripts/score.py --why explains one"
        )
        if len(wrong) > len(with_gold) / 10:
            serious.append(f"{sentence}.")
        else:
            notes.append(f"warning: {sentence}")
    notes += _paid_alike(rewards, values)
    if not faults and not notes:
        notes.append(f"the rewards pay {len(with_gold)} golds in full, and neither empty nor senseless answers")
    if faults:
        raise InputError("\n".join(faults))
    return notes


def _paid_alike(rewards: Sequence[Reward], values: dict[str, list[list[float | None]]]) -> list[str]:
    """Where the sum of the rewards, as training sees it, is no higher for golds than for what is no answer."""
    means: dict[str, float] = {}
    for kind, rows in values.items():
        settled = apply_gates_and_mask([row[: len(rewards)] for row in rows], rewards)
        totals = [
            sum(reward.weight * value for reward, value in zip(rewards, row, strict=True) if value is not None)
            for row in settled
            if None not in row
        ]
        if totals:
            means[kind] = sum(totals) / len(totals)
    gold = means.get("gold")
    return [
        f"warning: the sum of the rewards is {means[kind]:.3g} for {words} and {gold:.3g} for the task's golds, so "
        "training would not tell them apart. Look at the weights, and at rewards that pay for form alone"
        for kind, words in (("empty", "empty answers"), ("noise", "senseless ones"))
        if gold is not None and means.get(kind, gold - 1) >= gold
    ]


def _rows(numbers: Sequence[int], of: int) -> str:
    """`3 of 16 tried training rows (12, 40, 77)`."""
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return f"{len(numbers)} of {of} tried training rows ({shown}{', …' if len(numbers) > SHOWN else ''})"
