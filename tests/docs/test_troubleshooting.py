"""docs/troubleshooting.md quotes our messages as they are: whoever searches for one finds it, and none is outdated."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "troubleshooting.md"
FOLDERS = ("rlvr", "rewards", "tasks", "scripts")
ANY = "…"


def quoted(part: str) -> list[str]:
    """The messages in the first column of the tables of a part of the page."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"\n## {part}\n")[1], flags=re.MULTILINE)[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `") or line.startswith("| …")]
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def words_of(node: ast.expr) -> str | None:
    """What a literal says, with `…` for what is put in; strings that stand beside one another are one literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(value) or ANY for value in node.values)
    return None


@cache
def literals() -> tuple[str, ...]:
    """Every text that our programs can say; a shell script counts as one text, its variables as what is put in."""
    files = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (REPOSITORY / "run_grpo.py", *files)]
    expressions = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr))
    scripts = (file.read_text(encoding="utf-8") for file in (REPOSITORY / "scripts").glob("*.sh"))
    return (*filter(None, map(words_of, expressions)), *(re.sub(r"\$\{?\w+\}?", ANY, text) for text in scripts))


@pytest.mark.parametrize("message", quoted("What this project says"))
def test_a_quoted_message_of_ours_is_still_said_so(message: str) -> None:
    parts = [re.escape(part) for part in message.split(ANY)]
    assert any(len(part) > 8 for part in parts), "enough words to find it by"
    pattern = re.compile(".*".join(parts), re.DOTALL)
    assert any(pattern.search(words) for words in literals())


def test_a_message_that_nobody_says_is_noticed() -> None:
    """The test above can fail: it would find none of these."""
    for message in ("A generation takes … prompts, but nobody", "load_in_4bit with use_vllm: all is well"):
        pattern = re.compile(".*".join(re.escape(part) for part in message.split(ANY)), re.DOTALL)
        assert not any(pattern.search(words) for words in literals())


def test_every_row_says_why_and_what_to_do() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for row in rows:
        assert len(row.strip("|").split(" | ")) == 3, row
