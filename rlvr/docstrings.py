"""Read what docstrings in Google style say about arguments."""

from __future__ import annotations

import inspect
import re


def first_paragraph(docstring: str | None) -> str:
    """Return the text before the first empty line, on one line."""
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


def described(docstring: str | None, section: str) -> dict[str, str]:
    """Return what a section ("Args", "Attributes") says, by name; names with commas between share a text."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    if f"{section}:" not in lines:
        return {}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index(f"{section}:") + 1 :]:
        if line and not line.startswith(" "):
            break
        if entry := re.match(r" {4}(\w[\w, ]*?): (.*)", line):
            names = entry[1].split(", ")
            found.update(dict.fromkeys(names, entry[2]))
        else:
            found.update({name: f"{found[name]} {line.strip()}".strip() for name in names})
    return found
