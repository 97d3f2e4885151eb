"""docs/troubleshooting.md quotes fragments of messages that the code still contains."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
FOLDERS = ("rlvr", "rewards", "tasks", "scripts")
# The sections on messages of this project. The other sections list symptoms, and messages of libraries.
SECTIONS = ("Messages before training", "Messages during training and afterwards", "SageMaker")
ANY = "…"


def quoted_fragments(section: str) -> list[str]:
    """The fragments in the first column of a section's tables."""
    text = re.split(r"^## ", PAGE.split(f"\n## {section}\n")[1], flags=re.MULTILINE)[0]
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [fragment for cell in cells for fragment in re.findall(r"`([^`]+)`", cell)]


def literal_text(node: ast.expr) -> str | None:
    """A string literal with `…` for its placeholders; adjacent literals are one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(value) or ANY for value in node.values)
    return None


@cache
def literals() -> tuple[str, ...]:
    """All texts that the programs can print; a shell script is one text."""
    files = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (REPOSITORY / "run_grpo.py", *files)]
    expressions = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr))
    scripts = (file.read_text(encoding="utf-8") for file in (REPOSITORY / "scripts").glob("*.sh"))
    return (*filter(None, map(literal_text, expressions)), *scripts)


def is_in_the_code(fragment: str) -> bool:
    pattern = re.compile(".*".join(re.escape(part) for part in fragment.split(ANY)), re.DOTALL)
    return any(pattern.search(text) for text in literals())


@pytest.mark.slow
@pytest.mark.parametrize("fragment", [fragment for section in SECTIONS for fragment in quoted_fragments(section)])
def test_a_quoted_fragment_is_in_the_code(fragment: str) -> None:
    assert len(fragment) > 8, "too short to search for"
    assert is_in_the_code(fragment)
