"""Reward a final text that equals the row's reference after named normalisations: 1 or 0.

"Paris" is the answer of "#### Paris" with `answer_in: marker`, of "\\boxed{Paris}" with `boxed`, of
"<answer>Paris</answer>" with `tag`. Several stated answers must all be equal, so an enumeration earns nothing.

The normalisations, applied in this order:

    nfkc         compatibility characters of Unicode become plain ones (full width, ligatures)
    case         no difference of case (casefold)
    punctuation  no ASCII punctuation
    articles     no words a, an, the
    whitespace   one space for each run of white space, none at the ends
    squad        case, punctuation, articles, whitespace: `normalize_answer` of SQuAD's evaluate-v1.1.py (Rajpurkar et
                 al., 2016)

With any of them, white space at the ends does not count. Letters that look alike in different scripts stay different.
For numbers and formulas use `math_correctness`.

Exploits: where few answers are possible (yes and no), a guess earns its share.
"""

from __future__ import annotations

import contextlib
import json
import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

from rlvr import InputError, completion_text, own_turn
from rlvr.verifiers.math.normalize import closing_bracket

NORMALISATIONS = ("nfkc", "case", "punctuation", "articles", "whitespace")
SQUAD = ("case", "punctuation", "articles", "whitespace")
_PLACES = ("turn", "last_line", "marker", "boxed", "tag")
_BOX = re.compile(r"\\f?boxed\s{0,4}\{")
_TAG = re.compile(r"<(/?)answer>")
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MAX_EXTRA_CHARACTERS = 1000  # beyond four times the longest reference; NFKC is slow on long runs of accents
_WHOLE_FLOAT = re.compile(r"-?[0-9]+\.0")  # as data frames write the whole numbers of a column with gaps
_LONG_REFERENCE = 200  # characters


def exact_match(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[Any],
    answer_in: Literal["turn", "last_line", "marker", "boxed", "tag"] = "turn",
    marker: str = "####",
    normalise: list[str] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the answer of the model's own turn with the column `final_answer`.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the reference of each row, or a list of references of which one must be met. The JSON text of a
            list of texts is such a list, and met by itself, too.
        answer_in: the whole "turn", its "last_line" that is not empty, the rest of a line after the "marker", the
            content of \\boxed{…} ("boxed"), or of <answer>…</answer> ("tag").
        marker: for `answer_in: marker`.
        normalise: names from the list above; by default nfkc and whitespace. [] compares the text as it is.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: the lists differ in length, a row has no reference, or an option is invalid.
    """
    steps = _check_options(answer_in, marker, normalise)
    if len(final_answer) != len(completions):
        raise InputError(
            f"Reward exact_match: {len(completions)} completions, but {len(final_answer)} entries in the column "
            "final_answer. Pass one for each completion.",
            kind="length-mismatch",
            key="final_answer",
        )
    for row, gold in enumerate(final_answer):
        if fault := _row_fault(gold, steps):
            message = f"Reward exact_match, column final_answer, row {row} of the batch: {fault}"
            raise InputError(message, kind="invalid-row", key="final_answer", row=row)
    return [
        _score(completion, gold, answer_in, marker, steps)[0]
        for completion, gold in zip(completions, final_answer, strict=True)
    ]


def validate_rows(*, final_answer: list[Any], normalise: list[str] | None = None, **kwargs: Any) -> list[str | None]:
    """Return for each row why no completion can match its reference, or None. Called once before training."""
    steps = _check_options("turn", "####", normalise)
    return [_row_fault(gold, steps) or _row_doubt(gold) for gold in final_answer]


def explain(
    completion: Any,
    *,
    final_answer: Any,
    answer_in: Literal["turn", "last_line", "marker", "boxed", "tag"] = "turn",
    marker: str = "####",
    normalise: list[str] | None = None,
    **kwargs: Any,
) -> list[str]:
    """Explain the reward of `exact_match`, one sentence a step; the last one is the reward.

    Args: as `exact_match`, for one row.
    """
    steps = _check_options(answer_in, marker, normalise)
    if fault := _row_fault(final_answer, steps):
        raise InputError(f"Reward exact_match, column final_answer: {fault}", kind="invalid-row", key="final_answer")
    reward, sentences = _score(completion, final_answer, answer_in, marker, steps)
    return [*sentences, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------


def _score(completion: Any, gold: Any, answer_in: str, marker: str, steps: Sequence[str]) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    answers = _answers(own_turn(completion_text(completion)), answer_in, marker)
    if not answers:
        return 0.0, [f"The own turn has no answer in its {answer_in}, or one that is not closed."]
    references = _references(gold)
    longest = 4 * max(map(len, references)) + _MAX_EXTRA_CHARACTERS
    if any(len(answer) > longest for answer in answers):
        return 0.0, ["The answer is much longer than the reference."]
    texts = {_normalise(answer, steps) for answer in answers}
    quoted = " and ".join(sorted(repr(text[:100]) for text in texts)[:3])
    if len(texts) > 1:
        return 0.0, [f"The own turn states different answers: {quoted}."]
    right = texts <= {_normalise(reference, steps) for reference in references}
    return float(right), [f"The answer reads {quoted}.", f"It {'equals' if right else 'differs from'} the reference."]


def _row_doubt(gold: Any) -> str | None:
    if all(_WHOLE_FLOAT.fullmatch(str(reference)) for reference in _references(gold)):
        return f"warning: its reference is {gold}, and a completion that says {str(gold)[:-2]} would be wrong"
    shortest = min(map(len, map(str, _references(gold))))
    if shortest <= _LONG_REFERENCE:
        return None
    return f"warning: its reference has {shortest:,} characters, which a completion must repeat: a whole solution?"


def _references(gold: Any) -> list[Any]:
    """Return the references of a row."""
    if isinstance(gold, str) and gold.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            listed = json.loads(gold)
            if all(isinstance(reference, str) for reference in listed):
                return [gold, *listed]
    return gold if isinstance(gold, list) else [gold]


def _answers(turn: str, answer_in: str, marker: str) -> list[str]:
    """Return all answers of a turn; none if one is not closed."""
    if answer_in == "turn":
        return [turn]
    if answer_in == "last_line":
        return [turn.rstrip().rpartition("\n")[2]]
    if answer_in == "marker":
        return [line.partition(marker)[2] for line in turn.split("\n") if marker in line]
    answers = []
    if answer_in == "boxed":
        end = 0
        while box := _BOX.search(turn, end):
            end = closing_bracket(turn, box.end())
            if end < 0:
                return []
            answers.append(turn[box.end() : end])
        return answers
    tags = list(_TAG.finditer(turn))
    if [tag[1] for tag in tags] != ["", "/"] * (len(tags) // 2):
        return []
    return [turn[start.end() : end.start()] for start, end in zip(tags[::2], tags[1::2], strict=True)]


def _normalise(text: str, steps: Sequence[str]) -> str:
    if "nfkc" in steps:
        text = unicodedata.normalize("NFKC", text)
    if "case" in steps:
        text = text.casefold()
    if "punctuation" in steps:
        text = text.translate(_NO_PUNCTUATION)
    if "articles" in steps:
        text = _ARTICLE.sub(" ", text)
    if "whitespace" in steps:
        text = " ".join(text.split())
    return text.strip() if steps else text  # "#### Paris" has a blank behind its marker


def _row_fault(gold: Any, steps: Sequence[str]) -> str | None:
    references = _references(gold)
    if not references or not all(isinstance(reference, str) for reference in references):
        return f"{gold!r:.80} is neither text nor a list of texts. Convert it with str(…) when loading the data."
    empty = next((reference for reference in references if not _normalise(reference, steps).strip()), None)
    if empty is not None:
        return (
            f"nothing is left of {empty!r:.80} after normalisation, so an empty answer would be right. Correct the row."
        )
    return None


def _check_options(answer_in: str, marker: str, normalise: list[str] | None) -> tuple[str, ...]:
    """Return the normalisations."""
    if answer_in not in _PLACES:
        raise _option_error("answer_in", f"{answer_in!r} is none of {', '.join(_PLACES)}.")
    if not isinstance(marker, str) or not marker.strip():
        raise _option_error("marker", f"{marker!r} is no text. Write one like '####'.")
    names = ["nfkc", "whitespace"] if normalise is None else normalise
    if not isinstance(names, list) or not all(name in (*NORMALISATIONS, "squad") for name in names):
        raise _option_error("normalise", f"{names!r} is no list of {', '.join(NORMALISATIONS)}, squad.")
    return tuple(step for name in names for step in (SQUAD if name == "squad" else (name,)))


def _option_error(option: str, problem: str) -> InputError:
    return InputError(f"Reward exact_match, option {option}: {problem}", kind="invalid-value", key=option)
