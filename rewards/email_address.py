"""Reward an answer that ends with the e-mail address of the message: 1 or 0. An example of a reward of your own.

The last line counts: "The address is a.b@c.example." is right. A line that is copied from the prompt is wrong, unless
it is the address itself.
"""

from __future__ import annotations

import re
from typing import Any

from rlvr import completion_text

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


def email_address(
    prompts: list[Any], completions: list[Any], *, final_answer: list[str], most_words: int = 5, **kwargs: Any
) -> list[float | None]:
    """Compare the only address of the last line with the reference. A line of more than `most_words` words gets 0."""
    rewards: list[float | None] = []
    for prompt, completion, reference in zip(prompts, completions, final_answer, strict=True):
        answer = completion_text(completion).strip().rpartition("\n")[2].rstrip(".").lower()
        question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        is_copy = answer != reference.lower() and answer in question.lower()
        is_right = ADDRESS.findall(answer) == [reference.lower()] and len(answer.split()) <= most_words
        rewards.append(float(is_right and not is_copy))
    return rewards
