"""Keys that are none of ours, each with its successor, and configurations of other programs.

The tables are in foreign_keys.yaml, which is read when a key or a file is none of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_suffix(".yaml")
# Names of the programs that can be converted.
AWS, OPEN_R1, TRL = "the AWS sample grpo-with-verifiable-reward", "open-r1", "`trl grpo`"


class Program(NamedTuple):
    """A program whose configurations are recognised; foreign_keys.yaml explains the attributes."""

    name: str
    marks: frozenset[str]
    keys: Mapping[str, str]
    instead: str = ""


@functools.cache
def _tables() -> dict[str, Any]:
    from ruamel.yaml import YAML  # workers never read the tables

    tables: dict[str, Any] = YAML(typ="safe", pure=True).load(FILE.read_text(encoding="utf-8"))
    return tables


def _by_key(keys_of: Mapping[str, list[str]]) -> dict[str, str]:
    return {key.replace(".", "_"): successor for successor, keys in keys_of.items() for key in keys}


@functools.cache
def usual_names() -> Mapping[str, str]:
    """Usual names of other programs, each with ours."""
    return _by_key(_tables()["usual_names"])


@functools.cache
def removed() -> Mapping[str, str]:
    """Keys that a recipe can't have, each with its successor, a key of ours or advice."""
    return _by_key(_tables()["removed"])


@functools.cache
def removed_options() -> Mapping[str, str]:
    """Options that rewards and tasks had, each with what to write instead."""
    return _by_key(_tables()["removed_options"])


@functools.cache
def programs() -> tuple[Program, ...]:
    """The programs whose configurations are recognised."""
    return tuple(
        Program(one["name"], frozenset(one["marks"]), _by_key(one.get("keys", {})), one.get("instead", ""))
        for one in _tables()["programs"]
    )


def find_program(content: Mapping[str, Any]) -> Program | None:
    """Return the program that a configuration is for; None for a recipe of ours, or if it has no mark of any."""
    if {"task", "rewards"} & content.keys():
        return None
    rewards = content.get("reward_funcs")
    words = {*content, *(str(name) for name in (rewards if isinstance(rewards, list) else ()))}
    return next((program for program in programs() if program.marks & words), None)


def find_advice(key: str, program: Program | None = None) -> str | None:
    """Return the successor of a key, or advice on it; of any program's by default. Dots are those of nested keys."""
    tables = [one.keys for one in programs()] if program is None else [program.keys]
    return next((table[name] for table in tables if (name := key.replace(".", "_")) in table), None)
