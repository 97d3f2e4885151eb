"""1 if the completion gives its program in one code block, else 0.

    style: block        one fenced or <code>-tagged block, with any text around it
    style: tags         <think>thoughts</think><code>program</code> and nothing else, as in the CodeFu prompts

No program is run, so a wrong program gets this too. Keep the weight small, or gate it on `code_execution`.

Known weakness: one block with any content. Blocks that `code_execution` ignores also count: a sample of the output in a
second block costs the reward.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from rlvr.sandbox.languages import find_language
from rlvr.verifiers.code.code_extraction import answer_prefill, is_label_of, parse_turn
from rlvr.verifiers.completion_text import full_text, has_content, prompt_opens_think

_CODE = re.compile(r"\s*<code>.*</code>\s*", re.DOTALL)


def code_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    language: list[Any] | str = "python",
    style: Literal["block", "tags"] = "block",
    opened: bool | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Check the form of the model's own turn.

    Args:
        prompts: strings, or lists of chat messages. Only the start of the answer is read from them.
        completions: strings, or lists of chat messages.
        language: of the program; also a column of the data. The block must not name another language.
        style: "block" or "tags".
        opened: whether the prompt has opened <think>. By default read from a prompt that is text. Set `opened: true`
            for a chat template that ends in <think>, which is not visible here.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: a language is unknown.
    """
    languages = language if isinstance(language, list) else [language] * len(completions)
    faults = [_fault(*row, style, opened) for row in zip(completions, prompts, languages, strict=True)]
    if log_extra is not None:
        log_extra(
            "code_format/why", [f"The form is wrong: {fault}." if fault else "The form is right." for fault in faults]
        )
    return [float(fault is None) for fault in faults]


def _fault(completion: Any, prompt: Any, language: str | None, style: str, opened: bool | None) -> str | None:
    """Return what is wrong with the form, or None."""
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
