"""The file of rewards of a test's module."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def puppets(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "puppets.py"
    path.write_text(request.module.REWARDS, encoding="utf-8")
    return path
