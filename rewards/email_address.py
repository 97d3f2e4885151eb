"""Reward an answer that ends with the e-mail address of the message: 1 or 0. A short example of a custom reward.

The last line counts: "The address is a.b@c.example." is correct. A line that is copied from the prompt scores 0, unless
the line is the address itself. A line with two addresses scores 0.
"""

from __future__ import annotations

from typing import Any

from rlvr import completion_text


def email_address(
    prompts: list[Any], completions: list[Any], *, final_answer: list[str], most_words: int = 5, **kwargs: Any
) -> list[float | None]:
    """Compare the last words of the answer with the reference address.

    Args:
        final_answer: the reference address of each row.
        most_words: maximum number of words in the last line. A longer line scores 0.
    """
    rewards: list[float | None] = []
    for prompt, completion, reference in zip(prompts, completions, final_answer, strict=True):
        answer = completion_text(completion).strip().rpartition("\n")[2].rstrip(".").lower()
        question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        is_copy = answer != reference.lower() and answer in question.lower()
        words, expected = answer.split(), reference.lower().split()
        is_right = words[-len(expected) :] == expected and answer.count("@") == 1 and len(words) <= most_words
        rewards.append(float(is_right and not is_copy))
    return rewards
