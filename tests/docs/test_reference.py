"""docs/reference is what `python -m rlvr.reference` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr import reference
from rlvr.config import schema

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "run: python -m rlvr.reference"


def test_no_other_page_is_there() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {*PAGES, "problems.md"}


def test_every_key_and_every_option_is_described() -> None:
    for name in ("recipe-keys.md", "rewards.md", "tasks.md", "environments.md"):
        bare = [line for line in PAGES[name].splitlines() if re.match(r"- `.*\)$", line)]
        bare = [line for line in bare if not line.endswith("(column)")]
        assert not bare, name
    assert all(f"- `{key}` (" in PAGES["recipe-keys.md"] for key in schema.fields().keys() - schema.REFUSED)
