"""Whether questions to train on stand in an evaluation set as well, word for word or in long passages.

    overlaps = find_overlaps(["…", …], ["…", …])
    leave_out = {overlap.train for overlap in overlaps}

Texts are compared as their words: lower case, without punctuation. Two texts overlap if their words are the same
throughout, or if 13 words in a row stand in both (GPT-3's measure: Brown et al., 2020, appendix C). A text of less than
13 words overlaps if all its words stand in the other in a row; one of less than 5 must be the same throughout, since
"Solve the equation" says nothing. A passage that more than 10 training texts have is a turn of phrase ("the first line
contains a single integer t, the number of test cases") and doesn't count, nor does one of less than 5 different words.

Even so, most problems of a programming contest share 13 words with some other one. So at least a fifth of the held-out
text must be in such passages: of 808 problems and 291 others of the same site, 528 pairs have a passage in common, but
none has a fifth. A copied problem has nearly all of it.

What this can't see: the same problem in other words, with other numbers, or in another language.

100,000 texts against 1,000 take less than half a minute: passages are looked for as numbers, many texts at once, and
only what is found that way is compared word by word.
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
LEAST_WORDS = 5
MOST_TEXTS = 10
LEAST_SHARE = 0.2

_WORD = re.compile(r"\w+")
_CHUNK = 2_000_000  # words that are looked at in one go
_SHOWN = 40  # words of a passage
_COLUMNS = ("question", "problem", "text", "description")


@dataclass(frozen=True)
class Overlap:
    """A training text and a held-out one that have words in common.

    Attributes:
        train, held: their positions in the lists that were given.
        same: whether all their words are the same.
        words: the longest passage that both have, cut after 40 words.
        share: of the held-out text's words, how many stand in passages that both have, above 0 and up to 1.
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
    least_share: float = LEAST_SHARE,
    most_texts: int | None = MOST_TEXTS,
) -> list[Overlap]:
    """Every training text and held-out text that overlap, in the order of the training texts.

    Args:
        words: how many in a row are an overlap.
        least_share: of the held-out text's words, how many must stand in common passages. 0 with the other defaults is
            GPT-3's measure.
        most_texts: a passage that stands in more training texts than this doesn't count. None: every one counts.
    """
    if words < LEAST_WORDS:
        raise ValueError(f"words should be {LEAST_WORDS} or more, not {words}: fewer in a row stand in many texts")
    known = _Held(held, words)
    same: set[tuple[int, int]] = set()
    short: dict[int, dict[tuple[int, ...], list[int]]] = {}  # by their length, and their words
    hits: dict[int, list[Numbers]] = {size: [] for size in known.passages}
    for first, chunk in _chunks(train, known.vocabulary):
        for index, text in enumerate(chunk, start=first):
            if len(text) in known.lengths and 0 not in text:
                key = tuple(text)
                same.update((index, other) for other in known.whole.get(key, ()))
            if LEAST_WORDS <= len(text) < words and 0 not in text:
                short.setdefault(len(text), {}).setdefault(tuple(text), []).append(index)
        for size, passages in known.passages.items():
            hits[size].append(passages.hits(chunk, first))

    spots: dict[tuple[int, int], set[tuple[int, int]]] = {pair: set() for pair in same}
    for size, passages in known.passages.items():
        for index, other, place in passages.pairs(hits[size], most_texts):
            spots.setdefault((index, other), set()).add((place, place + size))
    for index, other, place, size in known.containing(short, most_texts):
        spots.setdefault((index, other), set()).add((place, place + size))
    found = (_overlap(pair, train, held, sorted(spots[pair]), pair in same) for pair in sorted(spots))
    return [overlap for overlap in found if overlap is not None and overlap.share >= least_share]


def _overlap(
    pair: tuple[int, int], train: Sequence[str], held: Sequence[str], spots: Sequence[tuple[int, int]], same: bool
) -> Overlap | None:
    """What two texts have in common at these spots of the held-out one; None if it was only the same numbers."""
    ours = split_words(held[pair[1]])
    theirs = f" {' '.join(split_words(train[pair[0]]))} "
    if same:
        return Overlap(*pair, True, _cut(ours), 1.0)
    covered: set[int] = set()
    longest: list[str] = []
    begin = 0
    for number, (start, end) in enumerate(spots):
        if len(set(ours[start:end])) < LEAST_WORDS or f" {' '.join(ours[start:end])} " not in theirs:
            continue
        covered.update(range(start, end))
        # Passages that overlap are one, as long as it stands in the training text in one piece, too.
        joined = number > 0 and start <= spots[number - 1][1] and f" {' '.join(ours[begin:end])} " in theirs
        begin = begin if joined else start
        if end - begin > len(longest):
            longest = ours[begin:end]
    return Overlap(*pair, False, _cut(longest), len(covered) / len(ours)) if covered else None


def _cut(words: Sequence[str]) -> str:
    return " ".join([*words[:_SHOWN], "…"] if len(words) > _SHOWN else words)


def split_words(text: str) -> list[str]:
    """The words of a text as they are compared: lower case, without punctuation."""
    return _WORD.findall(text.casefold())


def question_of(row: Row, where: str) -> str:
    """What a row asks, without a task's own words around it: its question, or else what its prompt's user says."""
    for column in _COLUMNS:
        if isinstance(row.get(column), str):
            return str(row[column])
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        said = [message.get("content") for message in prompt if message.get("role") == "user"]
        if said and isinstance(said[-1], str):
            return said[-1]
    raise InputError(
        f"{where} has no text to compare: none of the columns {', '.join(_COLUMNS)} and prompt. Rename a column."
    )


# ----------------------------------------------------------------------------------------------------------------------
# The search


class _Held:
    """The held-out texts as numbers, and what is looked for in training texts.

    Attributes:
        vocabulary: a number from 1 for each of their words. Words that they don't have are 0 in training texts.
        whole: the texts by all their words; `lengths` are those that occur.
        passages: by their size: all passages of `words` words, and short texts as a whole.
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
            if len(text) >= LEAST_WORDS:
                by_size.setdefault(min(len(text), words), []).append(index)
        self.lengths = {len(key) for key in self.whole}
        self.passages = {
            size: _Passages(size, self.texts, indices, len(self.vocabulary)) for size, indices in by_size.items()
        }

    def containing(
        self, short: dict[int, dict[tuple[int, ...], list[int]]], most_texts: int | None
    ) -> Iterator[tuple[int, int, int, int]]:
        """Short training texts that stand in a held-out one: (training text, held-out text, place, size)."""
        for size, keys in short.items():
            for other, text in enumerate(self.texts):
                for place in range(len(text) - size + 1):
                    found = keys.get(tuple(text[place : place + size]), ())
                    if most_texts is None or len(found) <= most_texts:
                        yield from ((index, other, place, size) for index in found)


class _Passages:
    """Passages of one size of held-out texts, each as one number of 64 bits."""

    def __init__(self, size: int, texts: Sequence[Sequence[int]], indices: Iterable[int], largest: int) -> None:
        import numpy

        self.size = size
        # A random number for each word, and one for each place, so that neither order nor sums can be mistaken. They
        # don't depend on the run: the same texts always give the same overlaps.
        random = numpy.random.default_rng(0)
        self._of_word = random.integers(1, 2**63, size=largest + 1, dtype=numpy.uint64)
        self._of_place = random.integers(1, 2**63, size=size, dtype=numpy.uint64) | numpy.uint64(1)
        chosen = list(indices)
        numbers, places, _ = self._windows([texts[index] for index in chosen])
        owners = numpy.asarray(chosen)[places[:, 0]]
        order = numpy.argsort(numbers, kind="stable")
        self._numbers, self._starts = numpy.unique(numbers[order], return_index=True)
        self._ends = numpy.append(self._starts[1:], len(order))
        self._where = numpy.stack([owners[order], places[order, 1]], axis=1)

    def _windows(self, texts: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of all windows of texts, (text, place) of each, and whether no word in it is unknown."""
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
        inside = owners[:count] == owners[self.size - 1 :][:count]  # no window reaches into the next text
        known = unknown[self.size :][:count] == unknown[:count]
        chosen = numpy.nonzero(inside & known)[0]
        return numbers[chosen], numpy.stack([owners[chosen], chosen - starts[chosen]], axis=1), chosen

    def hits(self, texts: Sequence[Sequence[int]], first: int) -> Numbers:
        """Each passage that stands in each of the training texts, as rows (number of the passage, training text)."""
        import numpy

        numbers, places, _ = self._windows(texts)
        at = numpy.minimum(numpy.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        found = self._numbers[at] == numbers
        return numpy.unique(numpy.stack([at[found], places[found, 0] + first], axis=1), axis=0)

    def pairs(self, hits: Sequence[Numbers], most_texts: int | None) -> Iterator[tuple[int, int, int]]:
        """(training text, held-out text, place in it) of the passages that aren't in too many training texts."""
        import numpy

        together = numpy.concatenate(hits) if hits else numpy.zeros((0, 2), dtype=numpy.int64)
        texts = numpy.bincount(together[:, 0], minlength=len(self._numbers))
        for passage, index in together.tolist():
            if most_texts is None or texts[passage] <= most_texts:
                for owner, place in self._where[self._starts[passage] : self._ends[passage]].tolist():
                    yield index, owner, place


def _chunks(texts: Sequence[str], vocabulary: dict[str, int]) -> Iterator[tuple[int, list[list[int]]]]:
    """The texts as numbers, some at a time: (the position of the first, the texts)."""
    known = vocabulary.get
    first, words = 0, 0
    chunk: list[list[int]] = []
    for index, text in enumerate(texts):
        chunk.append([known(word, 0) for word in _WORD.findall(text.casefold())])
        words += len(chunk[-1])
        if words >= _CHUNK or index == len(texts) - 1:
            yield first, chunk
            first, words, chunk = index + 1, 0, []
