"""The pages are plain English: short sentences, short cells, and none of the patterns that readers stumble over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
PARSER = MarkdownIt().enable("table")
MOST_WORDS = 25  # of a sentence; 20 are the rule
MOST_CHARACTERS = 120  # of a cell
BANNED = {
    r";": "a semicolon: write two sentences",
    r"(?i)\b(?:pays|earns|gold|golds|beside|whose|that of|those of|the one)\b": "hard to read: name the thing",
    r"(?i)\bis no\b(?! longer| more)": "write 'is not a'",
    r"^(?:It|They) ": "begins with a pronoun: name the thing",
    r"^(?:This|That|These|Those) (?:is|are|was|were|has|have|can|may|does|do|will|\w+s)\b": "begins with a pronoun",
}
# Nouns on s after "This" that look like verbs.
NOUNS = re.compile(r"^(?:This|That) (?:class|process|address|loss|access|analysis)\b")


def blocks(text: str) -> Iterator[tuple[int, bool, str]]:
    """Line, whether it is a cell, and text of each paragraph, heading and cell; inline code is one word."""
    tokens = PARSER.parse(text)
    line = 0
    for index, token in enumerate(tokens):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            yield line, tokens[index - 1].type in ("td_open", "th_open"), "".join(map(plain, token.children or ()))


def plain(token: Token) -> str:
    return {"text": token.content, "code_inline": "code", "softbreak": " ", "hardbreak": ". "}.get(token.type, "")


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])[\"')]*\s+(?=[\"'($]*[A-Z0-9`]|code|\[|[a-z]+/)", text)


def faults(text: str) -> list[str]:
    found = []
    for line, is_cell, block in blocks(text):
        if is_cell and len(block) > MOST_CHARACTERS:
            found.append(f"line {line}: a cell of {len(block)} characters: {block[:60]} …")
        for sentence in sentences(block):
            if (words := len(re.findall(r"[^\s–—]+", sentence))) > MOST_WORDS:
                found.append(f"line {line}: {words} words: {sentence[:100]} …")
            for pattern, why in BANNED.items():
                if re.search(pattern, sentence) and not NOUNS.search(sentence):
                    found.append(f"line {line}: {why}: {sentence[:100]}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_plain_english(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []
