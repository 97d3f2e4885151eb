"""Search a folder of text. Add a reward, such as math_correctness or keyword_coverage: the environment gives none.

    environment: {name: retrieval, options: {folder: data/articles}}

Needs `pip install 'grpo-recipes[retrieval]'` (bm25s). Every .txt or .md file of the folder is cut into passages at
empty lines. A search returns the passages with the highest BM25 score. Each process makes the index once.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from rlvr import InputError

try:
    import bm25s  # takes seconds: here, so that workers are forked with it
except ImportError:
    bm25s = None

SUFFIXES = (".txt", ".md")
_WORD = r"(?u)\b\w+\b"  # bm25s leaves out words of one letter otherwise


class Retrieval:
    """A search over passages, without state."""

    def __init__(self, folder: str, results: int = 3, passage_characters: int = 1000) -> None:
        """
        Args:
            folder: the folder of the text files, in subfolders of any depth.
            results: maximum number of passages that a search returns.
            passage_characters: maximum length of a passage. A longer paragraph is cut into several.
        """
        for name, value in (("results", results), ("passage_characters", passage_characters)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"option {name} is {value!r}. Use a number from 1 on.", kind="invalid-value", key=name)
        self._index = _index(Path(folder).resolve(), passage_characters)
        self._results = results

    def reset(self, **row: Any) -> None:
        """Begin a rollout. The prompt stays as it is."""

    def search(self, query: str) -> str:
        """
        Search for passages.

        Args:
            query: A few words.

        Returns:
            The best passages, each after the name of its file.
        """
        found = self._index.search(query[:1000], self._results)
        return "\n\n".join(f"[{name}]\n{text}" for name, text in found) or "No passage has any of these words."


class _Index:
    def __init__(self, passages: list[tuple[str, str]]) -> None:
        self._passages = passages
        self._tokenize = functools.partial(bm25s.tokenize, token_pattern=_WORD, stopwords=None, show_progress=False)
        self._scores = bm25s.BM25()
        self._scores.index(self._tokenize([text for _, text in passages]), show_progress=False)

    def search(self, query: str, most: int) -> list[tuple[str, str]]:
        words = self._tokenize(query, return_ids=False)
        numbers, scores = self._scores.retrieve(words, k=min(most, len(self._passages)), show_progress=False)
        pairs = zip(numbers[0], scores[0], strict=True)
        return [self._passages[number] for number, score in pairs if score > 0]


@functools.lru_cache(maxsize=8)
def _index(folder: Path, characters: int) -> _Index:
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    passages = [
        (str(path.relative_to(folder)), paragraph[start : start + characters])
        for path in files
        for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace").strip())
        for start in range(0, len(paragraph), characters)
    ]
    if not passages:
        message = f"{folder} has no text ({' or '.join(SUFFIXES)}). Set the option folder to a folder of text files."
        raise InputError(message, kind="file-not-found", key="folder")
    if bm25s is None:
        message = "retrieval needs bm25s. Install it with pip install 'grpo-recipes[retrieval]'."
        raise InputError(message, kind="missing-package", key="retrieval")
    return _Index(passages)
