"""1 where the completion gives its program in one code block, else 0.

    style: block        one fenced or <code>-tagged block, with whatever words around it
    style: tags         <think>thoughts</think><code>program</code> and nothing else, as the CodeFu prompts ask for

Nothing is run here, so this can be had without being right: keep its weight small, or gate it on `code_execution`.

What it can be fooled by: one block with anything in it. Blocks that `code_execution` does not take for the program
count here as well, so that a sample of the output in a second block costs the form.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from rlvr.errors import InputError
from rlvr.sandbox.languages import find_language
from rlvr.verifiers.code.code_extraction import begun_by, is_label_of, read_turn
from rlvr.verifiers.completion_text import full_text, has_content, prompt_opens_think

STYLES = ("block", "tags")
_CODE = re.compile(r"\s*<code>.*</code>\s*", re.DOTALL)


def code_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    language: list[Any] | str = "python",
    style: Literal["block", "tags"] = "block",
    opened: bool | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Whether the model's own turn has the form.

    Args:
        prompts: strings, or lists of chat messages; read only to see what of the answer they have begun.
        completions: strings, or lists of chat messages.
        language: what the program should be in; also a column of the data. A block that names another has not the form.
        style: which form.
        opened: whether the prompt has opened <think>. If not given, it is read from a prompt that is text. What a chat
            template adds can't be seen here: say `opened: true` for one that ends in <think>.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: there is no such style or language, or not one prompt or language for each completion.
    """
    languages = language if isinstance(language, list) else [language] * len(completions)
    for what, there in (("prompts", prompts), ("entries in the column language", languages)):
        if len(there) != len(completions):
            raise InputError(
                f"Reward code_format: {len(there)} {what} for {len(completions)} completions. Give one each."
            )
    return [
        float(_fault(completion, prompt, own, style, opened) is None)
        for completion, prompt, own in zip(completions, prompts, languages, strict=True)
    ]


def explain(
    completion: Any,
    *,
    prompt: Any = None,
    language: str | None = "python",
    style: str = "block",
    opened: bool | None = None,
    **kwargs: Any,
) -> list[str]:
    """Why `code_format` gives this completion its reward: a sentence, and the reward.

    Args: as `code_format`, for one row.
    """
    fault = _fault(completion, prompt, language, style, opened)
    return [f"The form is wrong: {fault}." if fault else "The form is right.", f"Reward: {float(fault is None):g}"]


def _fault(completion: Any, prompt: Any, language: str | None, style: str, opened: bool | None) -> str | None:
    """What is wrong with the form, as the rest of a sentence; None if nothing is."""
    if style not in STYLES:
        raise InputError(f"Reward code_format, option style: {style!r:.60} is none of {', '.join(STYLES)}.")
    name = find_language(language or "python").name
    if style == "tags":
        return _tags_fault(completion, prompt_opens_think(prompt) if opened is None else opened, name)
    return _block_fault(completion, begun_by(prompt) if opened is None else "<think>" if opened else "", name)


def _block_fault(completion: Any, begun: str, language: str) -> str | None:
    turn = read_turn(completion, language=language, begun=begun)
    blocks = [block for block in turn.blocks if not block.inline]
    if turn.thoughts == "open":
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
        return "<think> stands there, although the prompt has opened it" if opened else "it does not begin with <think>"
    thoughts, closing, rest = text.removeprefix("<think>").partition("</think>")
    if not closing:
        return "the thoughts never end"
    if not has_content(thoughts):
        return "there are no thoughts"
    if "think>" in rest:
        return "a tag of thoughts stands behind the thoughts"
    turn = read_turn(rest, language=language)
    blocks = [block for block in turn.blocks if block.tagged]
    if turn.unclosed or not blocks:
        return "<code> is never closed" if turn.unclosed else "there is no <code>…</code> behind the thoughts"
    if len(turn.blocks) > 1:
        return f"there are {len(turn.blocks)} blocks"
    if not _CODE.fullmatch(turn.text):
        return "something stands beside <code>…</code>"
    if not is_label_of(blocks[0].label, language):
        return f"the block is in {blocks[0].label:.40}, not in {language}"
    return None
