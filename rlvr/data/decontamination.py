"""Find training questions that an evaluation set contains, word for word or in long passages.

    overlaps = find_overlaps(["…", …], ["…", …])
    dropped = {train for train, held, share in overlaps}

Texts are compared as words: lower case, without punctuation. Two texts overlap if all their words are equal, or if they
share a passage of 13 words (GPT-3's measure: Brown et al., 2020, appendix C). A text of 5 to 12 words overlaps if the
other contains all of it. A shorter one, such as "Solve the equation", must be equal. Passages in more than 10 training
texts ("the first line contains a single integer t, the number of test cases"), or of less than 5 different words, do
not count.

Most problems of programming contests share 13 words with another problem. Therefore shared passages must make up a
fifth of the held-out text. Of 808 problems and 291 others of the same site, 528 pairs share a passage, but none shares
a fifth. A copied problem shares nearly all.

Not found: the same problem in other words or in another language.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rlvr.data.io import Row
from rlvr.errors import InputError

WORDS = 13
MIN_WORDS = 5
MAX_TEXTS = 10
MIN_SHARE = 0.2

_WORD = re.compile(r"\w+")
_COLUMNS = ("question", "problem", "text", "description")

Passage = tuple[str, ...]


def find_overlaps(train: Sequence[str], held: Sequence[str]) -> list[tuple[int, int, float]]:
    """Find all overlapping pairs, in the order of the training texts.

    Returns:
        Tuples of the position in `train`, that in `held`, and the share of the held-out words in common passages.
    """
    held_words = [tuple(split_words(text)) for text in held]
    held_by_words: dict[Passage, list[int]] = defaultdict(list)
    # Where the held-out texts have a passage of 13 words, or of all words of a shorter text: (text, start).
    places: dict[Passage, list[tuple[int, int]]] = defaultdict(list)
    sizes: dict[Passage, set[int]] = defaultdict(set)  # of passages, by their first words
    for other, text in enumerate(held_words):
        held_by_words[text].append(other)
        size = min(len(text), WORDS)
        for start in range(len(text) - size + 1 if size >= MIN_WORDS else 0):
            passage = text[start : start + size]
            places[passage].append((other, start))
            sizes[passage[:MIN_WORDS]].add(size)

    same: set[tuple[int, int]] = set()
    containing: dict[Passage, set[int]] = defaultdict(set)  # training texts that contain a passage
    short: dict[Passage, set[int]] = defaultdict(set)  # short training texts, as a whole
    for position, train_text in enumerate(train):
        text = tuple(split_words(train_text))
        same.update((position, other) for other in held_by_words.get(text, ()) if text)
        if MIN_WORDS <= len(text) < WORDS:
            short[text].add(position)
        for start in range(len(text) - MIN_WORDS + 1):
            for size in sizes.get(text[start : start + MIN_WORDS], ()):
                if (passage := text[start : start + size]) in places:
                    containing[passage].add(position)

    spans: dict[tuple[int, int], set[tuple[int, int]]] = {pair: set() for pair in same}
    for passage, positions in containing.items():
        _add_spans(spans, passage, places[passage], positions)
    for size in {len(text) for text in short}:
        for other, text in enumerate(held_words):
            for start in range(len(text) - size + 1):
                passage = text[start : start + size]
                _add_spans(spans, passage, [(other, start)], short.get(passage, set()))
    covered = {pair: {word for span in found for word in range(*span)} for pair, found in spans.items()}
    overlaps = [
        (*pair, 1.0 if pair in same else len(words) / len(held_words[pair[1]]))
        for pair, words in sorted(covered.items())
    ]
    return [overlap for overlap in overlaps if overlap[2] >= MIN_SHARE]


def _add_spans(
    spans: dict[tuple[int, int], set[tuple[int, int]]],
    passage: Passage,
    places: Iterable[tuple[int, int]],
    positions: set[int],
) -> None:
    """Note where a passage is in the held-out texts, for each training text that contains it."""
    if len(set(passage)) >= MIN_WORDS and len(positions) <= MAX_TEXTS:
        for position in positions:
            for other, start in places:
                spans.setdefault((position, other), set()).add((start, start + len(passage)))


def split_words(text: str) -> list[str]:
    """Split a text into the words to compare: lower case, without punctuation."""
    return _WORD.findall(text.casefold())


def extract_question(row: Row, where: str, index: int | None = None) -> str:
    """Return the question of a row: a question column, or else the last user message or text of its prompt."""
    for column in _COLUMNS:
        if isinstance(row.get(column), str):
            return str(row[column])
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        contents = [message.get("content") for message in prompt if message.get("role") == "user"]
        if contents and isinstance(contents[-1], str):
            return contents[-1]
    raise InputError(
        f"{where} has no text to compare: none of the columns {', '.join(_COLUMNS)} and prompt. Rename a column.",
        kind="missing-column",
        key=_COLUMNS[0],
        row=index,
    )
