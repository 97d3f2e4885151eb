"""Checks for prompts that state their own answer, as rows of supervised fine-tuning do: the model would copy it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rlvr.config.specs import SPLITS
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents
from rlvr.preflight.data_checks import is_chat, tasks_with_rewards
from rlvr.red_team.target import answer_column
from rlvr.scoring.signature import columns_read

TRIED_ROWS = 1000  # of a split, spread over it
LEAST_SHARE = 0.8  # of the tried rows whose prompt states its answer; an example, or one of two choices, is in fewer
LEAST_ROWS = 8
LONG_GOLD = 40  # characters; a gold that long is in no prompt by chance
_MARK = re.compile(r"(?:####|boxed\{|\banswer(?: is)?:?|\bresponse:)[\s$*(]*\Z", re.IGNORECASE)


def check_last_turns(components: RunComponents) -> Iterator[Problem]:
    """Prompts that end in an assistant's turn. The same beginning of an answer in every row ("<think>") is a choice."""
    for task, name, _ in tasks_with_rewards(components):
        for split in SPLITS:
            last = [prompt[-1] for prompt in task.prompts(split) if is_chat(prompt) and prompt]
            ends = [str(turn.get("content")) for turn in last if turn.get("role") == "assistant"]
            if len(set(ends)) > 1:
                yield Problem(
                    f"{name}, {split}: {len(ends)} of {len(last)} prompts end in a turn of the assistant (such as "
                    f"{ends[0]!r:.60}), which the model sees and continues. If it is the solution, end the prompt with "
                    "the user's turn.",
                    "answered-prompt",
                    "prompt",
                    level="warning",
                )
                break  # the other splits are alike


def check_stated_answers(components: RunComponents) -> Iterator[Problem]:
    """Prompts that state the row's answer ("#### 72", "Answer: 72"), end with it, or have a long one in them.

    An answer that another row's prompt states too is a part of the instructions ("End with Answer: yes or Answer: no").
    """
    for task, name, rewards in tasks_with_rewards(components):
        read = {column for reward in rewards for column in columns_read(reward)}
        for split in SPLITS:
            rows = task.split(split)
            tried = [rows[number] for number in range(0, len(rows), max(1, len(rows) // TRIED_ROWS))]
            pairs = [
                (prompt_text(row["prompt"]), str(row[column]).strip())
                for row in tried
                if (column := answer_column(row, read)) in read
            ]
            others = [*pairs[1:], *pairs[:1]]
            stated = [
                own
                for own, other in zip(pairs, others, strict=True)
                if own[1] != other[1] and _states(*own) and not _states(other[0], own[1])
            ]
            if len(stated) >= max(LEAST_ROWS, LEAST_SHARE * len(pairs)):
                yield Problem(
                    f"{name}, {split}: {len(stated):,} of {len(pairs):,} prompts state their own answer (such as "
                    f"…{stated[0][0][-60:]!r}, where it is {stated[0][1]!r:.40}). The model would copy it. End the "
                    "prompt with the question.",
                    "answered-prompt",
                    "prompt",
                    level="warning",
                )
                break  # the other splits are alike


def prompt_text(prompt: Any) -> str:
    """Return a text prompt, or the contents of all messages."""
    return "\n".join(str(turn.get("content")) for turn in prompt) if is_chat(prompt) else str(prompt)


def _states(prompt: str, answer: str) -> bool:
    """Whether a prompt states the answer behind a mark, ends with it, or has it in it if it is long."""
    start = prompt.find(answer)
    while answer and start >= 0:
        before, after = prompt[:start], prompt[start + len(answer) :]
        is_whole = not before[-1:].isalnum() and not after[:1].isalnum()
        if is_whole and (len(answer) >= LONG_GOLD or _MARK.search(before[-30:]) or not re.search(r"\w", after)):
            return True
        start = prompt.find(answer, start + 1)
    return False
