"""Tags of thoughts and answers: whether each occurs once, in its place, in its spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr.verifiers.completion_text import has_content, own_turn

# All spellings of the tags; a form has the required ones.
_TAG = re.compile(r"<[ ]{0,4}(/?)[ ]{0,4}(think|answer)(?:ing)?(?:[\s/][^<>]{0,40})?>", re.IGNORECASE)


@dataclass(frozen=True)
class _Tag:
    """A tag of the text; `kind` is its required spelling."""

    kind: str
    start: int
    end: int
    proper: bool


def tag_faults(text: str, form: Sequence[str], *, opened: bool) -> list[str]:
    """Return what is wrong with each tag of a form; empty if the model's own turn has the form.

    The turn extends to the last tag of the form, and from there to the next problem that the model invents.

    Args:
        form: the tags in their order. "</think>" and "</answer>" need content before them, "</think>" also after it.
        opened: whether the prompt has opened <think>, so that the text must not.
    """
    tags = _tags(text, form, opened)
    end = _end_of_turn(text, tags, form)
    tags = [tag for tag in tags if tag.end <= end]
    faults = [f"{kind} {fault}" for kind in form if (fault := _fault(kind, text[:end], tags, form))]
    if not faults and any(tag.kind not in form for tag in tags):
        faults = ["<think> is in the completion, although the prompt has opened it"]
    return faults


def _tags(text: str, form: Sequence[str], opened: bool) -> list[_Tag]:
    tags = []
    for match in _TAG.finditer(text):
        kind = f"<{match[1]}{match[2].lower()}>"
        if kind in form or (opened and kind == "<think>"):
            tags.append(_Tag(kind, match.start(), match.end(), match[0] == kind))
    return tags


def _end_of_turn(text: str, tags: Sequence[_Tag], form: Sequence[str]) -> int:
    """Return the end of the own turn: the first invented header after the tags that match the format."""
    count = 0
    while count < min(len(tags), len(form)) and tags[count].proper and tags[count].kind == form[count]:
        count += 1
    start = tags[count - 1].end if count else 0
    stop = tags[count].start if count < len(tags) else len(text)
    kept = len(own_turn(text[start:stop]))
    return start + kept if kept < stop - start else len(text)


def _fault(kind: str, turn: str, tags: Sequence[_Tag], form: Sequence[str]) -> str | None:
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
