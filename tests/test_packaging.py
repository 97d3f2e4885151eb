"""What an installation pulls in, and that the tested versions are ones that the project admits."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
PINS = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==")
        for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
}


def test_what_few_need_is_installed_only_by_its_extra() -> None:
    base = {canonicalize_name(requirement.name) for requirement in BASE}
    for name in ("flash-attn", "vllm", "ray", "sagemaker-train", "fastapi"):
        assert name not in base
        assert any(canonicalize_name(r.name) == name for extra in EXTRAS.values() for r in extra), name


def test_nothing_names_a_cpu_build() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text() + (REPOSITORY / "constraints.txt").read_text()
    assert "+cpu" not in text and "--index-url" not in text and "--find-links" not in text


def test_torch_is_pinned_to_the_tested_version() -> None:
    assert PINS["torch"] == "2.13.0"


def test_every_base_and_development_dependency_is_pinned_within_its_range() -> None:
    for requirement in [*BASE, *EXTRAS["dev"]]:
        pin = PINS[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(pin)), f"{requirement} does not admit {pin}"


def test_trl_is_bound_to_one_minor_version() -> None:
    """rlvr/training/train.py overrides underscore methods of it."""
    trl = next(requirement for requirement in BASE if requirement.name == "trl")
    assert not trl.specifier.contains(Version("1.17.0"))
