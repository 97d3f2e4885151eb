"""Installed versions that this project does not support, and what is known to be broken in them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from rlvr.errors import Problem

PROJECT = "grpo-recipes"

# Package, versions, what is broken, where it is discussed. All are outside of pyproject.toml's bounds; this explains
# the bounds.
BROKEN = (
    ("transformers", "<5.5.4", "training under ZeRO-3 ends in `pop from an empty deque`", "huggingface/trl#4899"),
    ("deepspeed", "<0.18.6", "under ZeRO-3 the types of a LoRA's weights don't match", "huggingface/trl#6089"),
)


def requirements() -> list[Requirement]:
    """The requirements of pyproject.toml without extras; none if the project is not installed."""
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        return []
    required = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # written by another packaging tool; pip would have refused it
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            required.append(requirement)
    return required


def check_versions(_: object, installed: Callable[[str], str] = metadata.version) -> list[Problem]:
    """Find packages that are missing, or of a version that is not supported.

    Args:
        installed: returns a package's version, or raises `PackageNotFoundError`.
    """
    problems = []
    for requirement in requirements():
        name = requirement.name
        try:
            version = installed(name)
        except metadata.PackageNotFoundError:
            message = f"{name} is not installed. Run `pip install -e . -c constraints.txt`."
            problems.append(Problem(message, "package-not-installed", name))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            message = (
                f"{name} {version} is installed, but this project supports {requirement.specifier}"
                f"{_known_fault(name, version)}. Run `pip install -e . -c constraints.txt`."
            )
            problems.append(Problem(message, "unsupported-version", name))
    return problems


def _known_fault(name: str, version: str) -> str:
    for package, versions, fault, discussion in BROKEN:
        if package == name and SpecifierSet(versions).contains(version, prereleases=True):
            return f" ({fault}: {discussion})"
    return ""
