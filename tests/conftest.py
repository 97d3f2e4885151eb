"""What every test shares: no network, one thread, MLflow away from the repository, and a runner for the scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy otherwise draws examples slowly, which says nothing about what is tested.
settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("any machine")

# Before any test imports a library that reads them.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    TRANSFORMERS_VERBOSITY="error",
)

REPOSITORY = Path(__file__).resolve().parents[1]
TINY_MODEL = REPOSITORY / "models" / "tiny-arithmetic"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_script() -> Run:
    """Runs a script of the repository as a user would, and returns what it printed and its exit code."""

    def run(
        *words: str | Path, env: Mapping[str, str] | None = None, timeout: float = 900, cwd: Path = REPOSITORY
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def write_yaml(tmp_path: Path) -> Callable[..., Path]:
    """Writes a recipe file and returns its path."""

    def write(text: str, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def gsm8k_folder() -> Path:
    """The real GSM8K as two JSONL files, beside the repository; skips where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not (folder / "gsm8k_train.jsonl").is_file():
        pytest.skip("the GSM8K files are not on this machine (looked in ../shared/data)")
    return folder
