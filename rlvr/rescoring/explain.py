"""How one row came to its score, for a person: its texts, its columns, and each reward with its own explanation.

Everything quoted was written by a model or by a data set: no line of it can be taken for one of ours, and no character
of it reaches the terminal as a command.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlvr import console
from rlvr.data.io import Row
from rlvr.formatting import COMPLETION_LIMIT, PROMPT_LIMIT, shorten
from rlvr.rescoring import scores as rescoring
from rlvr.rescoring.completions import as_text, one_line, visible
from rlvr.rescoring.scores import Scores, turn_of
from rlvr.scoring.reward import Reward

# Lines of an explanation, characters of one, and characters of a column's value.
MOST_LINES, MOST_LINE, MOST_VALUE = 40, 300, 300
QUOTED = 72  # characters of what begins behind the own turn


def texts(row: Row) -> list[tuple[str, list[str]]]:
    """Titles and lines: the prompt, the completion, and what of it is the model's own turn."""

    prompt = row.get("prompt") or row.get("question")
    turn = turn_of(row["completion"])
    found = []
    if prompt:
        found.append(("prompt", _quote(as_text(prompt), PROMPT_LIMIT)))
    completion = row["completion"] if isinstance(row["completion"], str) else as_text(row["completion"])
    found.append((f"completion, {len(turn.text or completion):,} characters", _quote(completion, COMPLETION_LIMIT)))
    lines = []
    if turn.thinking:
        lines.append(f"{turn.thinking:,} characters of thinking are left out")
    if turn.rest:
        at = one_line(turn.rest, QUOTED)
        lines.append(f"cut after {len(turn.own):,} characters, {len(turn.rest):,} before the end, at: {at}")
    if not turn.own.strip():
        lines.append("nothing is left of it")
    elif not lines:
        lines.append("all of it")
    elif len(turn.own) < len(turn.text):
        lines += _quote(turn.own.strip("\n"), COMPLETION_LIMIT)
    found.append(("the model's own turn", lines))
    return found


def _quote(text: str, most: int) -> list[str]:
    """The text as it stands, marked line by line, so that none of it can be taken for a line of ours."""

    return [f"{console.dim('│')} {line}" for line in visible(shorten(text, most)).split("\n")]


def columns(row: Row, rewards: Sequence[Reward], in_file: set[str]) -> list[str]:
    """The columns that rewards ask for, with a mark on those that were looked up."""

    asked = {name for reward in rewards for name in reward.columns} | (row.keys() - in_file)
    names = sorted(name for name in asked - {"prompt", "completion"} if name in row)
    width = max((len(name) for name in names), default=0)
    lines = []
    for name in names:
        mark = "" if name in in_file or row[name] is None else console.dim("   (from the task, by the prompt)")
        lines.append(f"{name:<{width}}   {one_line(as_text(row[name]), MOST_VALUE)}{mark}")
    return lines or ["no reward asks for any"]


def verdicts(row: Row, place: int, scores: Scores, differing: set[str]) -> list[str]:
    """For each reward its value, weight, gate and explanation; then the total."""

    rewards, values, settled = scores.rewards, scores.values[place], scores.settled[place]
    width = max(len(reward.label) for reward in rewards)
    lines = []
    for reward, value, counted in zip(rewards, values, settled, strict=True):
        effect = f"x {reward.weight:g}"
        if reward.gate is not None:
            gate = next(other for other in range(len(rewards)) if rewards[other].name == reward.gate)
            gate_value = values[gate]
            shut = gate_value is None or gate_value <= 0
            effect += f", gate {rewards[gate].label} {'shut: counts as 0' if shut else 'open'}"
        lines.append(f"{reward.label:<{width}}   {_value(value)}   {console.dim(effect)}")
        said = rescoring.explanation(row, reward, rewards)
        lines += [f"    {one_line(line, MOST_LINE)}" for line in said.lines[:MOST_LINES]]
        if len(said.lines) > MOST_LINES:
            lines.append(f"    and {len(said.lines) - MOST_LINES:,} lines more")
        if said.fault:
            lines.append(console.red(f"    {one_line(said.fault, MOST_LINE)}"))
        for name in rescoring.recorded_names(reward):
            if name in differing:
                lines.append(
                    console.red(f"    the file has {name} = {row[name]} (gates and masks applied), now it is {counted}")
                )
    total = scores.totals[place]
    if total is None:
        lines.append(f"{'total':<{width}}   none: a reward could not say, so the row is left out of the update")
    else:
        terms = zip(settled, rewards, strict=True)
        sum_of = " + ".join(f"{reward.weight:g} x {counted:g}" for counted, reward in terms if counted is not None)
        lines.append(console.bold(f"{'total':<{width}}   {total:g}") + f" = {sum_of}")
    if "correct" in differing:
        lines.append(console.red(f"the file has correct = {row['correct']}, which is not what is said now"))
    return lines


def _value(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}".ljust(4)
