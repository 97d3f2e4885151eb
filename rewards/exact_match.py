"""Reward a final text that equals the row's reference after named normalisations: 1 or 0.

"Paris" is the answer of "#### Paris" with `answer_in: marker`, of "\\boxed{Paris}" with `boxed`, and of
"<answer>Paris</answer>" with `tag`. Several stated answers must all be equal, so an enumeration scores 0.

The normalisations run in this order. With any of them, white space at the ends does not count.
- nfkc: compatibility characters of Unicode. Letters that look alike in different scripts stay different.
- squad: case, punctuation (ASCII), articles (a, an, the) and whitespace. Each of these four is also a name. SQuAD's
  evaluate-v1.1.py (Rajpurkar et al., 2016) calls them `normalize_answer`.

Known weaknesses: a guess is often correct if few answers are possible. Use `math_correctness` for numbers and formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlvr import completion_text, own_turn
from rlvr.verifiers.final_text import Place, Step, final_texts, normalised, read_references, read_steps

_MAX_EXTRA_CHARACTERS = 1000  # beyond four times the longest reference, since NFKC is slow on long runs of accents


def exact_match(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[Any],
    answer_in: Literal["turn", "last_line", "marker", "boxed", "tag"] = "turn",
    marker: str = "####",
    normalise: list[str] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the answer of the model's own turn with the column `final_answer`.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the reference of each row, or a list of references. One match is enough. JSON text of a list
            counts as a list, and as a reference itself.
        answer_in: "turn": the whole turn. "last_line": its last line that is not empty. "marker": the rest of a line
            after the marker. "boxed": the content of \\boxed{…}. "tag": the content of <answer>…</answer>.
        marker: the text before the answer, for `answer_in: marker`.
        normalise: names from nfkc, case, punctuation, articles, whitespace and squad (the last four). By default nfkc
            and whitespace. [] compares the text as it is.

    Returns:
        1.0 or 0.0 for each completion. None if the row has no reference.

    Raises:
        InputError: a normalisation is unknown.
    """
    steps = read_steps(normalise)
    scored = [
        _score(own_turn(completion_text(completion)), gold, answer_in, marker, steps)
        for completion, gold in zip(completions, final_answer, strict=True)
    ]
    if log_extra is not None:
        log_extra("exact_match/why", [why for _, why in scored])
    return [reward for reward, _ in scored]


def validate_rows(*, final_answer: list[Any], normalise: list[str] | None = None, **kwargs: Any) -> list[str | None]:
    """Return for each row why no completion can match its reference, or None. Called before training."""
    return [_row_fault(gold, read_steps(normalise)) for gold in final_answer]


def _score(turn: str, gold: Any, answer_in: Place, marker: str, steps: list[Step]) -> tuple[float | None, str]:
    if fault := _row_fault(gold, steps):
        return None, f"The row can't be scored: {fault}"
    answers, references = final_texts(turn, answer_in, marker), read_references(gold)
    longest = 4 * max(map(len, references)) + _MAX_EXTRA_CHARACTERS
    if any(len(answer) > longest for answer in answers):
        return 0.0, "The answer is much longer than the reference."
    texts = {normalised(answer, steps) for answer in answers}
    shown = " and ".join(sorted(repr(text[:100]) for text in texts)[:3]) or "nothing"
    is_right = len(texts) == 1 and texts <= {normalised(reference, steps) for reference in references}
    return float(is_right), f"The {answer_in} states {shown}; the reference is {gold!r:.100}."


def _row_fault(gold: Any, steps: list[Step]) -> str | None:
    references = read_references(gold)
    if not references or not all(isinstance(reference, str) for reference in references):
        return f"{gold!r:.80} is neither text nor a list of texts. Convert it with str(…) when loading the data."
    for reference in references:
        if not normalised(reference, steps).strip():
            return f"nothing is left of {reference!r:.80} after normalisation. Correct the row."
    return None
