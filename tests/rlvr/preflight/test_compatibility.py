"""Installed versions that this project does not support."""

from __future__ import annotations

from importlib import metadata

import pytest

from rlvr.preflight.compatibility import check_versions
from tests.support.run_components import only


@pytest.mark.parametrize(
    ("name", "version", "kind", "named"),
    [
        ("trl", "1.17.0", "unsupported-version", "<1.17,>=1.16"),
        ("transformers", "5.5.0", "unsupported-version", "`pop from an empty deque`: huggingface/trl#4899"),
        ("deepspeed", "0.18.5", "unsupported-version", "huggingface/trl#6089"),
        ("peft", "", "package-not-installed", "pip install"),
    ],
)
def test_unsupported_versions_are_refused(name: str, version: str, kind: str, named: str) -> None:
    def installed(package: str) -> str:
        if package == name and not version:
            raise metadata.PackageNotFoundError(package)
        return version if package == name else metadata.version(package)

    assert list(check_versions(None)) == []
    problem = only(check_versions(None, installed))
    assert (problem.kind, problem.key) == (kind, name) and named in problem.message
