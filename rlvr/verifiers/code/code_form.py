"""The form in which a completion gives its program: one code block, or thoughts and code in tags."""

from __future__ import annotations

import re
from typing import Any, Literal

from rlvr.sandbox.languages import find_language
from rlvr.verifiers.code.code_extraction import answer_prefill, is_label_of, parse_turn
from rlvr.verifiers.completion_text import full_text, has_content, prompt_opens_think

Style = Literal["block", "tags"]
_CODE = re.compile(r"\s*<code>.*</code>\s*", re.DOTALL)


def form_fault(completion: Any, prompt: Any, language: str | None, style: Style, opened: bool | None) -> str | None:
    """Return what is wrong with the form, or None.

    Args:
        prompt: only the start of the answer is read from it.
        language: the block must not name another one.
        opened: whether the prompt has opened <think>; by default the prompt tells.

    Raises:
        InputError: the language is unknown.
    """
    name = find_language(language or "python").name
    if style == "tags":
        return _tags_fault(completion, prompt_opens_think(prompt) if opened is None else opened, name)
    return _block_fault(completion, answer_prefill(prompt, opened), name)


def _block_fault(completion: Any, prefill: str, language: str) -> str | None:
    turn = parse_turn(completion, language=language, prefill=prefill)
    blocks = [block for block in turn.blocks if not block.inline]
    if turn.endless_thoughts:
        return "the thoughts never end"
    if turn.unclosed:
        return "a block is never closed"
    if len(blocks) != 1:
        return f"there are {len(blocks)} blocks" if blocks else "there is no block"
    if not is_label_of(blocks[0].label, language):
        return f"the block is in {blocks[0].label:.40}, not in {language}"
    return None


def _tags_fault(completion: Any, opened: bool, language: str) -> str | None:
    text = full_text(completion, think_opened=opened).lstrip()
    if opened == text.startswith("<think>"):
        return "it repeats <think>, which the prompt has opened" if opened else "it does not begin with <think>"
    thoughts, closing, rest = text.removeprefix("<think>").partition("</think>")
    if not closing:
        return "the thoughts never end"
    if not has_content(thoughts):
        return "there are no thoughts"
    if "think>" in rest:
        return "a <think> tag follows the thoughts"
    turn = parse_turn(rest, language=language)
    blocks = [block for block in turn.blocks if block.tagged]
    if turn.unclosed or not blocks:
        return "<code> is never closed" if turn.unclosed else "no <code>…</code> follows the thoughts"
    if len(turn.blocks) > 1:
        return f"there are {len(turn.blocks)} blocks"
    if not _CODE.fullmatch(turn.text):
        return "there is text beside <code>…</code>"
    if not is_label_of(blocks[0].label, language):
        return f"the block is in {blocks[0].label:.40}, not in {language}"
    return None
