"""Overrides of a recipe: the command line's `--key value` words, and how they change the recipe's content."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ruamel.yaml.error import YAMLError

from rlvr.config import schema
from rlvr.config.yaml_reader import parse_yaml
from rlvr.errors import Problem


def parse_overrides(words: Sequence[str], problems: list[Problem]) -> list[tuple[str, Any]]:
    """Parse `["--seed", "3", "--bf16", "--optim=sgd"]` as `[("seed", 3), ("bf16", True), ("optim", "sgd")]`.

    Words that can't be read are added to `problems`.
    """
    overrides: list[tuple[str, Any]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--") or len(word) == 2:
            message = f"{word!r} on the command line belongs to no key. Write overrides as --key value."
            problems.append(Problem(message, "invalid-override"))
            continue
        key, equals, text = word[2:].partition("=")
        if not equals:
            # A private key begins with five dashes: a value, for the scan for secrets.
            if position < len(words) and (not words[position].startswith("--") or words[position].startswith("---")):
                text = words[position]
                position += 1
            elif schema.takes_flag(key):
                text = "true"
            else:
                problems.append(Problem(f"--{key} has no value. Write --{key} VALUE.", "invalid-override", key))
                continue
        try:
            overrides.append((key, parse_yaml(text)[0]))
        except YAMLError:
            fix = f"Close its brackets and quotation marks. For a text, write {shlex.quote(json.dumps(text))}."
            problems.append(Problem(f"--{key}: {text!r} is not YAML. {fix}", "invalid-override", key))
    return overrides


def apply_override(content: dict[str, Any], dotted: str, value: Any, sections: Sequence[str]) -> str | None:
    """Set a dotted key in place. Return what is wrong if it can't be set."""
    head, *keys = dotted.split(".")
    if not keys:
        content[head] = value
        return None
    if head not in sections:
        return f"only {', '.join(sections)} have keys of their own."
    section = content
    if head in ("rewards", "tasks"):
        entries = content[head] if isinstance(content.get(head), list) else []
        entries = [entry for entry in entries if isinstance(entry, dict)]
        names = Counter(entry.get("name") for entry in entries)
        named = {name: entry for entry in entries if (name := entry.get("name")) and names[name] == 1}
        named |= {str(entry["label"]): entry for entry in entries if entry.get("label")}
        # A name may hold dots itself, such as a dotted import path.
        name = next((name for name in named if dotted.startswith(f"{head}.{name}.")), None)
        if name is None or len(keys) < 2:
            listed = ", ".join(named) or "none"
            return f"write a key of an entry as --{head}.NAME.weight VALUE; the {head} of the recipe are: {listed}."
        section, keys = named[name], dotted.removeprefix(f"{head}.{name}.").split(".")
    elif content.get(head) is None:
        content[head] = {}
    for key in keys[:-1] if head in ("rewards", "tasks") else (head, *keys[:-1]):
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            return f"{key} is not a mapping in the recipe."
    section[keys[-1]] = value
    return None
