"""Installed versions that this project does not support, and what is known to be broken in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rlvr.errors import Problem

PROJECT = "grpo-recipes"

# Package, versions, what is broken, where it is discussed. All are outside of pyproject.toml's bounds; this explains
# the bounds.
BROKEN = (
    ("transformers", "<5.5.4", "training under ZeRO-3 ends in `pop from an empty deque`", "huggingface/trl#4899"),
    ("deepspeed", "<0.18.6", "under ZeRO-3 the types of a LoRA's weights don't match", "huggingface/trl#6089"),
)


def check_versions(_: object, installed: Callable[[str], str] = metadata.version) -> Iterator[Problem]:
    """Compare the installed packages with the requirements of pyproject.toml, if this project is installed.

    Args:
        installed: returns a package's version, or raises `PackageNotFoundError`.
    """
    fix = "Run `pip install -e . -c constraints.txt`."
    try:
        required = [Requirement(line) for line in metadata.requires(PROJECT) or []]
    except metadata.PackageNotFoundError:
        return
    for requirement in required:
        name = requirement.name
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = installed(name)
        except metadata.PackageNotFoundError:
            yield Problem(f"{name} is not installed. {fix}", "package-not-installed", name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            supported = f"this project supports {requirement.specifier}{_known_fault(name, version)}"
            yield Problem(f"{name} {version} is installed, but {supported}. {fix}", "unsupported-version", name)


def _known_fault(name: str, version: str) -> str:
    for package, versions, fault, discussion in BROKEN:
        if package == name and SpecifierSet(versions).contains(version, prereleases=True):
            return f" ({fault}: {discussion})"
    return ""
