"""Reward thoughts between <think> tags and an answer after them: 1 or 0.

    <think>
    6 cookies at 3 dollars are 18 dollars.
    </think>
    18

The format: one think block that is not empty, nothing before it, an answer after it. A tag in another spelling
(<THINK>, <thinking>, </think >) counts as misplaced, because other programs may not recognize it. A tag that the
thoughts only mention counts, too.

Exploits: "<think>x</think>y" has the format. Use a small weight, gate it on a verifier, and let `reasoning_length` with
`shortest` demand longer thoughts.

`trl.rewards.think_format_reward` also rewards empty thoughts, missing answers and two closing tags, counts a block in
an invented next problem as a second one, and takes chat completions only. Neither sees a tag that is a special token:
the trainer's decoding drops it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rlvr import InputError, own_turn
from rlvr.verifiers.completion_text import full_text, has_content, prompt_opens_think

# All spellings of the tags; `_FORM` has the required one.
_TAG = re.compile(r"<[ ]{0,4}(/?)[ ]{0,4}(think|answer)(?:ing)?(?:[\s/][^<>]{0,40})?>", re.IGNORECASE)
_FORM = ("<think>", "</think>")
_FORM_WITH_ANSWER = ("<think>", "</think>", "<answer>", "</answer>")


def tag_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    answer: bool = False,
    opened: bool | None = None,
    soft: bool = False,
    **kwargs: Any,
) -> list[float | None]:
    """Check whether the model's own turn has the format, right or wrong.

    The turn extends to the last tag of the format, and from there to the next problem that the model invents.

    Args:
        prompts: strings, or lists of chat messages; read only to see whether they end in <think>.
        completions: strings, or lists of chat messages. Thoughts in a field of their own (`reasoning_content`, as TRL's
            parsing of responses writes it) count as a closed think block.
        answer: require <answer>…</answer> around the answer, with nothing but space around these tags.
        opened: whether the prompt has opened <think>, so that the completion must not. By default a text prompt tells.
            The additions of a chat template are not visible here: set `opened: true` for a template that ends in
            <think>.
        soft: pay an equal share for each tag that occurs once and in its place. A repeated tag earns nothing.

    Returns:
        1.0 or 0.0 for each completion; with `soft`, a share of 1.

    Raises:
        InputError: the lists differ in length.
    """
    if len(prompts) != len(completions):
        raise InputError(
            f"Reward tag_format: {len(prompts)} prompts for {len(completions)} completions. Pass one each.",
            kind="length-mismatch",
            key="prompts",
        )
    return [
        _score(completion, prompt_opens_think(prompt) if opened is None else opened, answer, soft)[0]
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def explain(
    completion: Any,
    *,
    prompt: Any = None,
    answer: bool = False,
    opened: bool | None = None,
    soft: bool = False,
    **kwargs: Any,
) -> list[str]:
    """Explain the reward of `tag_format`, one sentence a step; the last one is the reward.

    Args: as `tag_format`, for one row.
    """
    reward, steps = _score(completion, prompt_opens_think(prompt) if opened is None else opened, answer, soft)
    return [*steps, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tag:
    """A tag of the text; `kind` is its required spelling."""

    kind: str
    start: int
    end: int
    proper: bool


def _score(completion: Any, opened: bool, answer: bool, soft: bool) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    form: tuple[str, ...] = _FORM_WITH_ANSWER if answer else _FORM
    form = form[1:] if opened else form
    text = full_text(completion, think_opened=opened)
    tags = _tags(text, form, opened)
    end = _end_of_turn(text, tags, form)
    steps = [
        f"Read {end:,} characters" + (", up to the next problem that the model invents." if end < len(text) else ".")
    ]
    if opened:
        steps.append("The prompt has opened <think> already.")
    tags = [tag for tag in tags if tag.end <= end]

    in_place = 0
    for kind in form:
        fault = _fault(kind, text[:end], tags, form)
        in_place += int(fault is None)
        steps.append(f"{kind} {fault or 'is in its place'}.")
    # If the prompt has opened <think>, the tag is no part of the format.
    strays = [tag.kind for tag in tags if tag.kind not in form]
    if strays:
        steps.append(f"{strays[0]} is in the completion, although the prompt has opened it.")
        in_place = min(in_place, len(form) - 1)
    steps.append(f"{in_place} of {len(form)} parts of the format are right.")
    return (in_place / len(form) if soft else float(in_place == len(form))), steps


def _tags(text: str, form: tuple[str, ...], opened: bool) -> list[_Tag]:
    tags = []
    for match in _TAG.finditer(text):
        kind = f"<{match[1]}{match[2].lower()}>"
        if kind in form or (opened and kind == "<think>"):
            tags.append(_Tag(kind, match.start(), match.end(), match[0] == kind))
    return tags


def _end_of_turn(text: str, tags: list[_Tag], form: tuple[str, ...]) -> int:
    """Return the end of the own turn: the first invented header after the tags that match the format."""
    count = 0
    while count < min(len(tags), len(form)) and tags[count].proper and tags[count].kind == form[count]:
        count += 1
    start = tags[count - 1].end if count else 0
    stop = tags[count].start if count < len(tags) else len(text)
    kept = len(own_turn(text[start:stop]))
    return start + kept if kept < stop - start else len(text)


def _fault(kind: str, turn: str, tags: list[_Tag], form: tuple[str, ...]) -> str | None:
    """Return what is wrong with a tag, as the rest of a sentence; None if it is in its place."""
    own = [tag for tag in tags if tag.kind == kind]
    if not own:
        return "is missing"
    if len(own) > 1:
        return f"occurs {len(own)} times"
    if not own[0].proper:
        return f"is written {turn[own[0].start : own[0].end]!r}"
    index = form.index(kind)
    before = None
    if index:
        before = next((tag for tag in tags if tag.kind == form[index - 1]), None)
        if before is None or before.start > own[0].start:
            return f"has no {form[index - 1]} before it"
    between = turn[before.end if before else 0 : own[0].start]
    if kind.startswith("</"):
        if not has_content(_TAG.sub(" ", between)):
            return "has nothing but space or signs before it"
    elif between.strip():
        return "has something before it that does not belong there"
    after = turn[own[0].end :]
    if kind == "</think>" and not has_content(_TAG.sub(" ", after)):
        return "has no answer after it"
    if kind == "</answer>" and after.strip():
        return "has something after it"
    return None
