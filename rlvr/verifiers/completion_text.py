"""The model's own turn: what of a completion is its answer to the problem that it was given.

Cut are what it thinks aloud between <think> tags, and everything from the next problem that it invents for itself: a
base model answers, goes on with "Question:", and its last number belongs to that question.

Every pattern runs in linear time and no value raises an exception.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal


def completion_text(completion: str | list[dict]) -> str:
    """The text that the model wrote: the completion itself, or the content of its last assistant message."""
    if isinstance(completion, str):
        return completion
    content = _last_message(completion).get("content")
    if isinstance(content, list):  # parts, as multimodal templates write them
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _last_message(completion: Any) -> dict[str, Any]:
    """The last message of the assistant; empty if there is none."""
    messages = reversed(completion) if isinstance(completion, list) else ()
    own = (one for one in messages if isinstance(one, dict) and one.get("role", "assistant") == "assistant")
    return next(own, {})


def with_opened_think(completion: Any) -> Any:
    """The completion as if the model had written the <think> that its chat template has opened.

    A message whose thoughts are in a field of their own stays as it is.
    """
    if isinstance(completion, str):
        return f"<think>\n{completion}"
    opened = []
    for message in completion:
        content = message.get("content")
        is_own = message.get("role", "assistant") == "assistant" and all(message.get(key) is None for key in _THOUGHTS)
        if is_own and isinstance(content, str):
            message = {**message, "content": f"<think>\n{content}"}
        elif is_own and isinstance(content, list):
            message = {**message, "content": [{"type": "text", "text": "<think>\n"}, *content]}
        opened.append(message)
    return opened


_THOUGHTS = ("reasoning_content", "thinking")  # fields of their own, by the names that TRL's chat templates use


# A tag that is repeated at once opens once: some models repeat the one of their chat template.
_THINK_TAG = re.compile(r"<(/)think(?:ing)?>|<think(?:ing)?>(?:\s*<think(?:ing)?>)*+", re.IGNORECASE)

# A model that goes on after its answer invents the next problem. Its header stands at the start of a line, perhaps in
# Markdown ("### Question 2:", "**Problem:**", "Q:", "User:"), or is an end-of-turn token that was not taken out.
_HEADER = re.compile(
    r"""
    \n[ \t#>*_\[(<-]{0,16}+(?=[qpeuhnafsbrilt])  # the first letter of any header
    (?:
        (?:(?:next|new|another|follow-?up|similar|practice|bonus|sample)[ \t]+)?
        (?:question|problem|exercise|example|puzzle|riddle|prompt|instruction|user|human|task|(?-i:Q))
        (?:
            [ \t]{0,4}(?:[#(]{0,2}[0-9]{1,5}[)]?|[ivx]{1,5})?[ \t*_\])>]{0,8}[:：]    # "Question:", "**Problem 2**:"
          | [ \t](?:one|two|three|four|five|six)[ \t*_]{0,4}:                          # "Question two:"
          | [ \t]{0,4}[#(]{0,2}[0-9]{1,5}[*_\])]{0,4}[ \t]*(?:[.)]|$)                 # "Q2.", "Problem 3" and no more
          | [*_\])>]{0,8}[ \t]*$                                                      # "**Question**", "Problem"
        )
      | (?:here(?:'s|[ ]is)|now|let(?:'s|[ ]us))[ \t]+(?:try|solve|do|is)?[ \t]*
        (?:another|a[ ]new|the[ ]next|a[ ]similar)[ \t]+(?:problem|question|example|one)\b
    )
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_TOKEN = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|start_header_id|end|user|system|assistant)\|>|</s>"
    r"|\[INST\]|<(?:end_of_turn|start_of_turn|eos)>|<｜(?:end▁of▁sentence|User|Assistant)｜>",
    re.IGNORECASE,
)


def is_header(line: str) -> bool:
    """Whether a line looks like the header of a problem, such as "Question:"."""
    return _HEADER.match(f"\n{line}") is not None


def own_turn(text: str) -> str:
    """What of the completion is the model's answer to this problem.

    Drops what stands between <think> tags (a missing opening tag was in the prompt; a missing closing one means that
    the model never came to its answer), and everything from the next "Question:"-like header at a line's start. A
    header that opens the completion is one too: such a model did not answer the problem that it was given.
    """
    text = without_thinking(text)
    if is_header(text.partition("\n")[0]):
        return ""
    # The pattern begins with "\n", so the search skips from line to line.
    header = _HEADER.search(text)
    end = header.start() + 1 if header else len(text)
    token = _TOKEN.search(text, 0, end) if "<" in text or "[" in text else None
    return text[: token.start() if token else end]


def without_thinking(text: str) -> str:
    """The text outside <think>…</think>; `own_turn` is the beginning of it. Line ends become "\n"."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "<" not in text:
        return text
    kept: list[str] = []
    start, depth, first_tag = 0, 0, True
    for tag in _THINK_TAG.finditer(text):
        closes = tag.group(1) == "/"
        if depth == 0 and not (closes and first_tag):
            kept.append(text[start : tag.start()])
        depth = max(0, depth - 1) if closes else depth + 1
        start, first_tag = tag.end(), False
    if depth == 0:
        kept.append(text[start:])
    return "\n".join(kept)  # a line break, so that no marker comes into being from the two sides of what was taken out


_ANSWER_OPENING = re.compile(r"<answer>", re.IGNORECASE)
_ANSWER_CLOSING = re.compile(r"</answer>", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"^####[ \t]*(?:The final answer is[ \t:]*)?(.+)$", re.MULTILINE | re.IGNORECASE)


def tagged_answer(completion: str) -> str | None:
    """The text in the <answer> tags of the model's own turn, or else on its `#### The final answer is …` line.

    None if there is neither, or if two of them differ.
    """
    text = without_thinking(completion)
    turn = own_turn(completion)
    first: str | None = None
    for opening in _ANSWER_OPENING.finditer(turn):
        # Search the whole text: a line of the answer may look like the header that ends the turn.
        closing = _ANSWER_CLOSING.search(text, opening.end())
        answer = text[opening.end() : closing.start() if closing else len(turn)].strip()
        if first is not None and answer != first:
            return None  # at once: of many tags that are not closed, each would be a copy of the rest
        first = answer
    if first is not None:
        return first
    lines = {line.group(1).strip() for line in _ANSWER_LINE.finditer(turn)}
    return lines.pop() if len(lines) == 1 else None


def full_text(completion: Any, *, think_opened: bool = False) -> str:
    """All text of a completion, thoughts included, with "\\n" for every line end.

    A message's thoughts may be in a field of their own. They are put back between <think> tags; with `think_opened` the
    opening tag stays in the prompt.
    """
    text, message = completion_text(completion), _last_message(completion)
    thoughts = next(filter(None, map(message.get, _THOUGHTS)), None)
    if thoughts and isinstance(thoughts, str):
        text = f"{'' if think_opened else '<think>'}\n{thoughts}\n</think>\n{text}"
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def text_lengths(
    completions: Sequence[Any], completion_ids: Sequence[Sequence[int]] | None, unit: Literal["tokens", "characters"]
) -> list[int]:
    """The lengths of completions, thoughts included.

    Without `completion_ids`, as in an evaluation or for a file, four characters count as a token: usual for English,
    too few for code or Chinese.
    """
    if unit == "tokens" and completion_ids is not None:
        return [len(tokens) for tokens in completion_ids]
    characters = [len(full_text(completion)) for completion in completions]
    return characters if unit == "characters" else [math.ceil(number / 4) for number in characters]


def prompt_opens_think(prompt: Any) -> bool:
    """Whether the prompt ends in <think>: as text, or in a last message of the assistant."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return prompt[-1].get("role") == "assistant" and completion_text(prompt).rstrip().endswith("<think>")
    return isinstance(prompt, str) and prompt.rstrip().endswith("<think>")


def has_content(text: str) -> bool:
    """Whether a text has a letter, a digit or a symbol such as ∞; punctuation alone is no content."""
    return any(
        character.isalnum() or (character > "\x7f" and unicodedata.category(character) in ("Sm", "So"))
        for character in text
    )
