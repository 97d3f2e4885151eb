"""Explain the score of one row: its texts, its columns, and each reward with its own explanation.

Models and data sets wrote the quoted texts. Each quoted line is marked, and control characters are escaped, so that no
quoted text looks like our output or controls the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlvr import console
from rlvr.data.io import Row
from rlvr.environments.transcript import as_text, cut, fit, is_conversation, labelled, turns
from rlvr.formatting import COMPLETION_LIMIT, PROMPT_LIMIT, one_line, shorten, visible
from rlvr.reward_audit.rescoring import Scores
from rlvr.reward_audit.reward_call import explanation, recorded_names
from rlvr.scoring.reward import Reward
from rlvr.verifiers.completion_text import completion_text, own_turn, without_thinking

# Lines of an explanation, characters of one, and characters of a column's value.
MAX_LINES, MAX_LINE_LENGTH, MAX_VALUE_LENGTH = 40, 300, 300
CUT_QUOTE = 72  # characters quoted after the own turn


def texts(row: Row) -> list[tuple[str, list[str]]]:
    """Titles and lines of the prompt, the completion and the model's own turn."""
    prompt, completion = row.get("prompt") or row.get("question"), row["completion"]
    sections = [("prompt", _quote(as_text(prompt), PROMPT_LIMIT))] if prompt else []
    text, several = completion_text(completion), is_conversation(completion)
    if several:
        shown = fit(turns(completion), COMPLETION_LIMIT)
        title = ", ".join([f"completion, {len(completion):,} messages", *filter(None, [cut(row)])])
        sections.append((title, _quote(labelled(shown), len(labelled(shown)))))
    else:
        quoted = as_text(completion)
        sections.append((f"completion, {len(text or quoted):,} characters", _quote(quoted, COMPLETION_LIMIT)))
    sections.append(("the model's own turn", own_turn_lines(text, several=several)))
    return sections


def own_turn_lines(text: str, *, several: bool = False) -> list[str]:
    """Say what verifiers read of a completion: what is left out, and the rest; of several messages, the last one."""
    own, outside = own_turn(text), without_thinking(text)
    lines = ["the last message of the assistant"] if several else []
    if len(outside) < len(text):
        lines.append(f"{len(text) - len(outside):,} characters of thinking are left out")
    if rest := outside[len(own) :]:
        cut = one_line(rest, CUT_QUOTE)
        lines.append(f"cut after {len(own):,} characters, {len(rest):,} before the end, at: {cut}")
    if not own.strip():
        return [*lines, "empty"]
    return [*lines, *_quote(own.strip("\n"), COMPLETION_LIMIT)] if lines else ["the whole completion"]


def _quote(text: str, limit: int) -> list[str]:
    """Mark each line as quoted."""
    return [f"{console.dim('│')} {line}" for line in visible(shorten(text, limit)).split("\n")]


def columns(row: Row, rewards: Sequence[Reward], in_file: set[str]) -> list[str]:
    """The columns that rewards ask for; those from the task are marked."""
    wanted = {name for reward in rewards for name in reward.columns} | (row.keys() - in_file)
    names = sorted(name for name in wanted - {"prompt", "completion"} if name in row)
    width = max((len(name) for name in names), default=0)
    lines = []
    for name in names:
        mark = "" if name in in_file or row[name] is None else console.dim("   (from the task, by the prompt)")
        lines.append(f"{name:<{width}}   {one_line(as_text(row[name]), MAX_VALUE_LENGTH)}{mark}")
    return lines or ["no reward asks for a column"]


def reward_lines(row: Row, index: int, scores: Scores, differing: set[str]) -> list[str]:
    """The value, weight, gate and explanation of each reward; then the total.

    Args:
        index: of the row in `scores`.
        differing: recorded columns of the row that differ from today's scores.
    """
    rewards, values, effective = scores.rewards, scores.values[index], scores.effective[index]
    width = max(len(reward.label) for reward in rewards)
    lines = []
    for reward, value, effective_value in zip(rewards, values, effective, strict=True):
        if not reward.applies(scores.tasks[index]):
            lines.append(f"{reward.label:<{width}}   {console.dim(f'does not apply to {scores.tasks[index]}')}")
            continue
        effect = f"x {reward.weight:g}"
        if reward.gate is not None:
            gate = next(index for index, other in enumerate(rewards) if other.name == reward.gate)
            is_open = (values[gate] or 0) > 0
            effect += f", gate {rewards[gate].label} {'open' if is_open else 'closed: counts as 0'}"
        shown = "none" if value is None else f"{value:.4g}"
        lines.append(f"{reward.label:<{width}}   {shown:<4}   {console.dim(effect)}")
        reasons, error = explanation(row, reward, rewards)
        lines += [f"    {one_line(line, MAX_LINE_LENGTH)}" for line in reasons[:MAX_LINES]]
        if len(reasons) > MAX_LINES:
            lines.append(f"    and {len(reasons) - MAX_LINES:,} more lines")
        if error:
            lines.append(console.red(f"    {one_line(error, MAX_LINE_LENGTH)}"))
        for name in recorded_names(reward):
            if name in differing:
                now = "none" if effective_value is None else f"{effective_value:g}"
                lines.append(console.red(f"    differs: the file has {name} = {row[name]} (after gates), now {now}"))
    total = scores.totals[index]
    if total is None:
        lines.append(f"{'total':<{width}}   none: a reward has no score, so the row is masked")
    else:
        terms = zip(effective, rewards, strict=True)
        terms_text = " + ".join(f"{reward.weight:g} x {value:g}" for value, reward in terms if value is not None)
        lines.append(console.bold(f"{'total':<{width}}   {total:g}") + f" = {terms_text}")
    if "correct" in differing:
        lines.append(console.red(f"differs: the file has correct = {row['correct']}"))
    return lines
