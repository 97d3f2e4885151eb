"""Find training questions that an evaluation set contains, word for word or in long passages.

    overlaps = find_overlaps(["…", …], ["…", …])
    dropped = {overlap.train for overlap in overlaps}

Texts are compared as words: lower case, without punctuation. Two texts overlap if all their words are equal, or if they
share a passage of 13 words (GPT-3's measure: Brown et al., 2020, appendix C). A text of 5 to 12 words overlaps if the
other contains all of it. A shorter one, such as "Solve the equation", must be equal. Passages in more than 10 training
texts ("the first line contains a single integer t, the number of test cases"), or of less than 5 different words, do
not count.

Most problems of programming contests share 13 words with another problem. Therefore shared passages must make up a
fifth of the held-out text. Of 808 problems and 291 others of the same site, 528 pairs share a passage, but none shares
a fifth. A copied problem shares nearly all.

Not found: the same problem in other words, with other numbers, or in another language.

100,000 texts against 1,000 take less than half a minute: passages are hashed in bulk, and only hits are compared word
by word.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.data.io import Row
from rlvr.errors import InputError

if TYPE_CHECKING:
    import numpy

    Numbers = numpy.ndarray[Any, Any]

WORDS = 13
MIN_WORDS = 5
MAX_TEXTS = 10
MIN_SHARE = 0.2

_WORD = re.compile(r"\w+")
_CHUNK = 2_000_000  # words a chunk
_MAX_SHOWN = 40  # words of a passage
_COLUMNS = ("question", "problem", "text", "description")


@dataclass(frozen=True)
class Overlap:
    """A training text and a held-out text with common words.

    Attributes:
        train, held: their positions in the two lists.
        same: whether all their words are equal.
        words: the longest common passage, cut after 40 words.
        share: share of the held-out text's words in common passages, above 0 and up to 1.
    """

    train: int
    held: int
    same: bool
    words: str
    share: float


def find_overlaps(
    train: Sequence[str],
    held: Sequence[str],
    *,
    words: int = WORDS,
    min_share: float = MIN_SHARE,
    max_texts: int | None = MAX_TEXTS,
) -> list[Overlap]:
    """Find all overlapping pairs, in the order of the training texts.

    Args:
        words: length of a common passage.
        min_share: minimal share of the held-out text's words in common passages. 0 is GPT-3's measure.
        max_texts: ignore passages in more training texts than this. None ignores none.
    """
    if words < MIN_WORDS:
        raise ValueError(f"words is {words}. Use {MIN_WORDS} or more: shorter passages occur in many texts")
    index = _HeldOutIndex(held, words)
    same: set[tuple[int, int]] = set()
    short: dict[int, dict[tuple[int, ...], list[int]]] = {}  # by length, then by words
    hits: dict[int, list[Numbers]] = {size: [] for size in index.passages}
    for first, chunk in _chunks(train, index.vocabulary):
        for position, text in enumerate(chunk, start=first):
            if len(text) in index.lengths and 0 not in text:
                same.update((position, other) for other in index.whole.get(tuple(text), ()))
            if MIN_WORDS <= len(text) < words and 0 not in text:
                short.setdefault(len(text), {}).setdefault(tuple(text), []).append(position)
        for size, passages in index.passages.items():
            hits[size].append(passages.hits(chunk, first))

    spans: dict[tuple[int, int], set[tuple[int, int]]] = {pair: set() for pair in same}
    for size, passages in index.passages.items():
        for position, other, start in passages.pairs(hits[size], max_texts):
            spans.setdefault((position, other), set()).add((start, start + size))
    for position, other, start, size in index.containing(short, max_texts):
        spans.setdefault((position, other), set()).add((start, start + size))
    overlaps = (_build_overlap(pair, train, held, sorted(spans[pair]), pair in same) for pair in sorted(spans))
    return [overlap for overlap in overlaps if overlap is not None and overlap.share >= min_share]


def _build_overlap(
    pair: tuple[int, int], train: Sequence[str], held: Sequence[str], spans: Sequence[tuple[int, int]], same: bool
) -> Overlap | None:
    """Compare two texts word by word at these spans of the held-out one; None if only hashes were equal."""
    ours = split_words(held[pair[1]])
    theirs = f" {' '.join(split_words(train[pair[0]]))} "
    if same:
        return Overlap(*pair, True, _cut(ours), 1.0)
    covered: set[int] = set()
    longest: list[str] = []
    begin = 0
    for number, (start, end) in enumerate(spans):
        if len(set(ours[start:end])) < MIN_WORDS or f" {' '.join(ours[start:end])} " not in theirs:
            continue
        covered.update(range(start, end))
        # Join overlapping passages if the training text contains the joined one.
        joined = number > 0 and start <= spans[number - 1][1] and f" {' '.join(ours[begin:end])} " in theirs
        begin = begin if joined else start
        if end - begin > len(longest):
            longest = ours[begin:end]
    return Overlap(*pair, False, _cut(longest), len(covered) / len(ours)) if covered else None


def _cut(words: Sequence[str]) -> str:
    return " ".join([*words[:_MAX_SHOWN], "…"] if len(words) > _MAX_SHOWN else words)


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


# ----------------------------------------------------------------------------------------------------------------------
# Index


class _HeldOutIndex:
    """Held-out texts as numbers, indexed for the search.

    Attributes:
        vocabulary: a number from 1 for each word. Other words of training texts are 0.
        whole: the texts by all their words; `lengths` are their lengths.
        passages: by size: all passages of `words` words, and short texts as a whole.
    """

    def __init__(self, texts: Sequence[str], words: int) -> None:
        self.vocabulary: dict[str, int] = {}
        self.texts = [
            [self.vocabulary.setdefault(word, len(self.vocabulary) + 1) for word in split_words(text)] for text in texts
        ]
        self.whole: dict[tuple[int, ...], list[int]] = {}
        by_size: dict[int, list[int]] = {}
        for index, text in enumerate(self.texts):
            if text:
                self.whole.setdefault(tuple(text), []).append(index)
            if len(text) >= MIN_WORDS:
                by_size.setdefault(min(len(text), words), []).append(index)
        self.lengths = {len(key) for key in self.whole}
        self.passages = {
            size: _PassageIndex(size, self.texts, indices, len(self.vocabulary)) for size, indices in by_size.items()
        }

    def containing(
        self, short: dict[int, dict[tuple[int, ...], list[int]]], max_texts: int | None
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield short training texts within a held-out one: (training text, held-out text, start, size)."""
        for size, keys in short.items():
            for other, text in enumerate(self.texts):
                for start in range(len(text) - size + 1):
                    positions = keys.get(tuple(text[start : start + size]), ())
                    if max_texts is None or len(positions) <= max_texts:
                        yield from ((position, other, start, size) for position in positions)


class _PassageIndex:
    """Passages of one size of held-out texts, hashed to 64 bits."""

    def __init__(self, size: int, texts: Sequence[Sequence[int]], indices: Iterable[int], largest: int) -> None:
        import numpy

        self.size = size
        # Random numbers for each word and each place make hashes depend on the order. The seed is fixed, so the same
        # texts always give the same overlaps.
        random = numpy.random.default_rng(0)
        self._of_word = random.integers(1, 2**63, size=largest + 1, dtype=numpy.uint64)
        self._of_place = random.integers(1, 2**63, size=size, dtype=numpy.uint64) | numpy.uint64(1)
        chosen = list(indices)
        numbers, places = self._windows([texts[index] for index in chosen])
        owners = numpy.asarray(chosen)[places[:, 0]]
        order = numpy.argsort(numbers, kind="stable")
        self._numbers, self._starts = numpy.unique(numbers[order], return_index=True)
        self._ends = numpy.append(self._starts[1:], len(order))
        self._where = numpy.stack([owners[order], places[order, 1]], axis=1)

    def _windows(self, texts: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers]:
        """Return the hashes of all windows without unknown words, and their (text, place)."""
        import numpy

        lengths = numpy.array([len(text) for text in texts], dtype=numpy.int64)
        words = numpy.fromiter(itertools.chain.from_iterable(texts), dtype=numpy.int64, count=int(lengths.sum()))
        count = max(0, len(words) - self.size + 1)
        of_word = self._of_word[words]
        numbers = numpy.zeros(count, dtype=numpy.uint64)
        for place in range(self.size):
            numbers += of_word[place : place + count] * self._of_place[place]  # modulo 2**64
        unknown = numpy.concatenate([[0], numpy.cumsum(words == 0)])
        owners = numpy.repeat(numpy.arange(len(texts)), lengths)
        starts = numpy.repeat(numpy.cumsum(lengths) - lengths, lengths)
        inside = owners[:count] == owners[self.size - 1 :][:count]  # no window crosses into the next text
        known = unknown[self.size :][:count] == unknown[:count]
        chosen = numpy.nonzero(inside & known)[0]
        return numbers[chosen], numpy.stack([owners[chosen], chosen - starts[chosen]], axis=1)

    def hits(self, texts: Sequence[Sequence[int]], first: int) -> Numbers:
        """Return rows (passage, training text) for the passages that training texts contain."""
        import numpy

        numbers, places = self._windows(texts)
        at = numpy.minimum(numpy.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        is_hit = self._numbers[at] == numbers
        return numpy.unique(numpy.stack([at[is_hit], places[is_hit, 0] + first], axis=1), axis=0)

    def pairs(self, hits: Sequence[Numbers], max_texts: int | None) -> Iterator[tuple[int, int, int]]:
        """Yield (training text, held-out text, start) of the passages that are not in too many training texts."""
        import numpy

        all_hits = numpy.concatenate(hits) if hits else numpy.zeros((0, 2), dtype=numpy.int64)
        texts = numpy.bincount(all_hits[:, 0], minlength=len(self._numbers))
        for passage, index in all_hits.tolist():
            if max_texts is None or texts[passage] <= max_texts:
                for owner, place in self._where[self._starts[passage] : self._ends[passage]].tolist():
                    yield index, owner, place


def _chunks(texts: Sequence[str], vocabulary: dict[str, int]) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield the texts as numbers in chunks: (position of the first, texts)."""
    known = vocabulary.get
    first, words = 0, 0
    chunk: list[list[int]] = []
    for index, text in enumerate(texts):
        chunk.append([known(word, 0) for word in _WORD.findall(text.casefold())])
        words += len(chunk[-1])
        if words >= _CHUNK or index == len(texts) - 1:
            yield first, chunk
            first, words, chunk = index + 1, 0, []
