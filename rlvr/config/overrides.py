"""Overrides of a recipe: the command line's `--key value` words, and how they change the recipe's content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr.errors import InputError


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """Parse `["--lr", "1e-4", "--flag", "--a=b"]` as `[("lr", 0.0001), ("flag", True), ("a", "b")]`."""
    overrides: list[tuple[str, Any]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--") or len(word) == 2:
            raise InputError(
                f"{word!r} on the command line belongs to no key. Write overrides as --key value.",
                kind="invalid-override",
            )
        key, equals, text = word[2:].partition("=")
        if not equals:
            if position < len(words) and not words[position].startswith("--"):
                text = words[position]
                position += 1
            else:
                text = "true"
        overrides.append((key, _read_value(key, text)))
    return overrides


def _read_value(key: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise InputError(
            f"--{key}: {text!r} can't be read as a YAML value. Put it into quotes.", kind="invalid-override", key=key
        ) from error


def apply_override(content: dict[str, Any], dotted: str, value: Any, sections: Sequence[str]) -> str | None:
    """Set a dotted key in place. Return what is wrong if it can't be set."""
    head, *rest = dotted.split(".")
    if not rest:
        content[head] = value
        return None
    if head not in sections:
        return f"only {', '.join(sections)} have keys of their own."
    if head == "rewards":
        return _override_reward(content.get("rewards"), dotted, rest, value)
    if content.get(head) is None:
        content[head] = {}
    if not isinstance(content[head], dict):
        return f"{head} is not a mapping in the recipe."
    return _set(content[head], rest, value)


def _override_reward(rewards: Any, dotted: str, rest: list[str], value: Any) -> str | None:
    if len(rest) < 2:
        return "write a key of a reward as --rewards.NAME.weight VALUE."
    entries = rewards if isinstance(rewards, list) else []
    named = [entry for entry in entries if isinstance(entry, dict) and entry.get("name")]
    for entry in named:
        prefix = f"rewards.{entry['name']}."  # a name may hold dots itself, such as a dotted import path
        if dotted.startswith(prefix):
            return _set(entry, dotted.removeprefix(prefix).split("."), value)
    return f"the recipe has no reward {rest[0]!r}; it has {', '.join(entry['name'] for entry in named) or 'none'}."


def _set(section: dict[str, Any], keys: list[str], value: Any) -> str | None:
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            return f"{key} is not a mapping in the recipe."
    section[keys[-1]] = value
    return None
