"""Reward thoughts between <think> tags and an answer after them: 1 or 0.

    <think>
    6 cookies at 3 dollars are 18 dollars.
    </think>
    18

The format is one think block that is not empty, nothing before it, and an answer after it. A tag in another spelling
(<THINK>, <thinking>, </think >) counts as misplaced, because other programs may not recognize it. A tag that the
thoughts only mention counts, too.

Known weaknesses: "<think>x</think>y" has the format. Use a small weight, or gate the reward on a verifier.

`trl.rewards.think_format_reward` also accepts empty thoughts, missing answers and two closing tags, but only chat
completions. TRL's reward counts a block in an invented next problem as a second block. Neither this reward nor TRL's
reward sees a tag that is a special token: the trainer's decoding drops it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.verifiers.completion_text import full_text, prompt_opens_think
from rlvr.verifiers.tag_order import tag_faults

_FORM = ("<think>", "</think>")
_FORM_WITH_ANSWER = ("<think>", "</think>", "<answer>", "</answer>")


def tag_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    answer: bool = False,
    opened: bool | None = None,
    soft: bool = False,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Check whether the model's own turn has the format, correct or wrong.

    Args:
        prompts: strings, or lists of chat messages. Only a <think> at the end of the prompt matters.
        completions: strings, or lists of chat messages. Thoughts in a field of their own count as a closed think block.
            TRL's parsing of responses writes them to `reasoning_content`.
        answer: require <answer>…</answer> around the answer, with nothing but space around these tags.
        opened: whether the prompt has opened <think>, so that the completion must not. By default, the end of the
            prompt decides. Training and evaluation add the tag that a chat template opens, unless this option is set.
        soft: return an equal share for each tag that occurs once and in its place. A repeated tag scores nothing.

    Returns:
        1.0 or 0.0 for each completion. With `soft`, a share of 1.
    """
    form = _FORM_WITH_ANSWER if answer else _FORM
    rewards: list[float | None] = []
    reasons: list[str] = []
    for prompt, completion in zip(prompts, completions, strict=True):
        is_opened = prompt_opens_think(prompt) if opened is None else opened
        tags = form[1:] if is_opened else form
        faults = tag_faults(full_text(completion, think_opened=is_opened), tags, opened=is_opened)
        rewards.append(1 - len(faults) / len(tags) if soft else float(not faults))
        reasons.append("\n".join(f"{fault}." for fault in faults) or "Every tag is in its place.")
    if log_extra is not None:
        log_extra("tag_format/why", reasons)
    return rewards
