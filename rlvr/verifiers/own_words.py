"""The words of an answer that are its own: neither copied from the prompt nor dictated by an instruction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlvr.verifiers.completion_text import completion_text
from rlvr.verifiers.words import WORD

COPIED_WORDS = 8


def own_words(text: str, prompt: Any, dictated_texts: Iterable[str]) -> list[str]:
    """Return the words of a text, without numbers, single letters, passages of the prompt and dictated words."""
    words, asked = _words(text), _words(_prompt_text(prompt))
    size = min(COPIED_WORDS, len(asked)) or 1
    passages = {tuple(asked[start : start + size]) for start in range(len(asked) - size + 1)}
    copied: set[int] = set()
    for start in range(len(words) - size + 1):
        if tuple(words[start : start + size]) in passages:
            copied.update(range(start, start + size))
    dictated = {word for text in dictated_texts for word in _words(text)}
    return [
        word
        for number, word in enumerate(words)
        if number not in copied
        and word not in dictated
        and not word[0].isdigit()
        and (len(word) > 1 or not word.isascii())
    ]


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    messages = [message for message in prompt or () if isinstance(message, dict)]
    return "\n".join(completion_text([{**message, "role": "assistant"}]) for message in messages)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(text)]
