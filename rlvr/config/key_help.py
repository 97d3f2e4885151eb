"""All keys of a recipe with type, default and one sentence: for `run_grpo.py --keys` and docs/reference."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rlvr import console
from rlvr.config import schema
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.config.specs import EnvironmentSpec, EvaluationSpec, RewardSpec, TaskSpec
from rlvr.docstrings import described

SECTIONS = {
    "task": TaskSpec,
    "environment": EnvironmentSpec,
    "rewards": RewardSpec,
    "evaluation": EvaluationSpec,
    "sagemaker": SageMakerSettings,
    "sagemaker.instance_groups": InstanceGroup,
}


class KeyHelp(NamedTuple):
    """One key; `origin` is "section", "training" (GRPOConfig), "model" (ModelConfig) or "run" (ours)."""

    name: str
    type: str
    default: str
    help: str
    origin: str


def all_keys() -> list[KeyHelp]:
    """Return the keys of the sections, then ours, then TRL's by name."""
    flat = [
        KeyHelp(name, _type(name, field.annotation), _default(field), field.help, field.belongs_to)
        for name, field in sorted(schema.fields().items())
        if name not in schema.REFUSED
    ]
    ours = [key for key in flat if key.origin == "run"]
    return [*_section_keys(), *ours, *(key for key in flat if key.origin != "run")]


def matching(word: str) -> list[KeyHelp]:
    """Return the keys that have the word in their name, or else in their sentence."""
    found = [key for key in all_keys() if word.lower() in key.name.lower()]
    return found or [key for key in all_keys() if word.lower() in key.help.lower()]


class PrintKeys(argparse.Action):
    """An option that prints all keys, or those that match its word, and exits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs="?", **options)

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        found = matching(values or "")
        if not found:
            parser.error(f"no key of a recipe has {values!r} in its name or description")
        console.info(as_text(found))
        parser.exit()


def as_text(found: Iterable[KeyHelp]) -> str:
    """Format each key as two lines: name, type and default, then the sentence."""
    return "\n".join(f"{key.name}  ({key.type}; default {key.default})\n    {key.help}" for key in found)


def _section_keys() -> Iterator[KeyHelp]:
    for section, spec in SECTIONS.items():
        texts = described(spec.__doc__, "Attributes")
        for field in (field for field in dataclasses.fields(spec) if (section, field.name) != ("task", "options")):
            name = f"{section}.{field.name}"
            yield KeyHelp(name, _type(name, str(field.type)), _default(field), texts[field.name], "section")


def _type(name: str, annotation: str) -> str:
    if name in schema.CHOICES:
        return " | ".join(str(choice) for choice in schema.CHOICES[name])
    plain = re.sub(r"\b(?:\w+\.)+(?=\w)", "", annotation)  # without modules
    return re.sub(r"Literal\[(.*?)\]", lambda found: re.sub("[\"']", "", found[1]).replace(", ", " | "), plain)


def _default(field: Any) -> str:
    if isinstance(field, schema.Field):
        return _written(field.default) if field.has_default else "TRL decides"
    if field.default_factory is not dataclasses.MISSING:
        return _written(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else _written(field.default)


def _written(value: Any) -> str:
    if value in (None, "", (), []) or value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
