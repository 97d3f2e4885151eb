"""The command line's `--key value` words, and what they change in a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr.errors import InputError


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """`["--lr", "1e-4", "--flag", "--a=b"]` as `[("lr", 0.0001), ("flag", True), ("a", "b")]`."""
    found: list[tuple[str, Any]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--") or len(word) == 2:
            raise InputError(f"{word!r} on the command line belongs to no key: overrides are written --key value.")
        key, equals, text = word[2:].partition("=")
        if not equals:
            if position < len(words) and not words[position].startswith("--"):
                text = words[position]
                position += 1
            else:
                text = "true"
        found.append((key, _read_value(key, text)))
    return found


def _read_value(key: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise InputError(f"--{key}: {text!r} can't be read as a YAML value; put it into quotes.") from error


def apply_override(content: dict[str, Any], dotted: str, value: Any, sections: Sequence[str]) -> str | None:
    """Sets a dotted key in place; says what is wrong when it can't."""
    head, *rest = dotted.split(".")
    if not rest:
        content[head] = value
        return None
    if head not in sections:
        return f"only {', '.join(sections)} have keys of their own."
    if head == "rewards":
        if len(rest) < 2:
            return "a reward's key is written --rewards.NAME.weight VALUE."
        # The name may itself hold dots (a dotted import path), so the key is what stands after a known name.
        for entry in content.get("rewards") or []:
            name = entry.get("name") if isinstance(entry, dict) else None
            if name and dotted.startswith(f"rewards.{name}."):
                return _set(entry, dotted.removeprefix(f"rewards.{name}.").split("."), value)
        entries = content.get("rewards") or []
        names = [entry["name"] for entry in entries if isinstance(entry, dict) and "name" in entry]
        return f"the recipe has no reward {rest[0]!r}; it has {', '.join(names) or 'none'}."
    if content.get(head) is None:
        content[head] = {}
    if not isinstance(content[head], dict):
        return f"{head} is not a mapping in the recipe."
    return _set(content[head], rest, value)


def _set(section: dict[str, Any], keys: list[str], value: Any) -> str | None:
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            return f"{key} is not a mapping in the recipe."
    section[keys[-1]] = value
    return None
