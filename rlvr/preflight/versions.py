"""Installed versions that this project was not written for, among them those that are known to be broken."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

PROJECT = "grpo-recipes"

# Package, versions, what is broken, where it is discussed. All are outside of pyproject.toml's bounds, which say that
# something is wrong; this says what.
BROKEN = (
    ("transformers", "<5.5.4", "training under ZeRO-3 ends in `pop from an empty deque`", "huggingface/trl#4899"),
    ("deepspeed", "<0.18.6", "under ZeRO-3 the types of a LoRA's weights don't match", "huggingface/trl#6089"),
)


def requirements() -> list[Requirement]:
    """What pyproject.toml asks for, extras left out; nothing where the project runs without having been installed."""
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # of another packaging tool's making; pip would have said so
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(requirement)
    return found


def version_faults(installed: Callable[[str], str] = metadata.version) -> list[str]:
    """A sentence for each package that is missing or of a version that this project was not written for.

    Args:
        installed: gives a package's version, or raises `PackageNotFoundError`.
    """
    faults = []
    for requirement in requirements():
        try:
            version = installed(requirement.name)
        except metadata.PackageNotFoundError:
            faults.append(f"{requirement.name} is not installed: pip install -e . -c constraints.txt")
            continue
        if requirement.specifier.contains(version, prereleases=True):
            continue
        known = _known(requirement.name, version)
        faults.append(
            f"{requirement.name} {version} is installed, but this project was written for {requirement.specifier}"
            f"{f' ({known[0]})' if known else ''}: pip install -e . -c constraints.txt"
        )
    return faults


def _known(name: str, version: str) -> list[str]:
    return [
        f"{what}: {where}"
        for package, versions, what, where in BROKEN
        if package == name and SpecifierSet(versions).contains(version, prereleases=True)
    ]
