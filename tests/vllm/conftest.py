"""vLLM on a CPU: an environment of its own (`make test-vllm`), in which these tests run run_grpo.py as users do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.vllm_on_cpu import widen_heads, write_plugin

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("vllm") is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed: `make test-vllm` runs these tests"))


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/tiny-arithmetic with heads of 32 numbers: vLLM has no kernels for its 16."""
    folder = tmp_path_factory.mktemp("models") / "tiny-arithmetic-wide"
    widen_heads(REPOSITORY / "models" / "tiny-arithmetic", folder)
    return folder


@pytest.fixture
def command(wide_model: Path, tmp_path: Path) -> Callable[..., None]:
    """Run a script of this project on demo-arithmetic with the wide model, as users do."""
    plugin = write_plugin(tmp_path / "plugin")

    def run(script: str, *words: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{plugin}",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_CI_ENV": "1",  # compile nothing
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
        }
        own = ["--config", "recipes/demo-arithmetic.yaml", "--model_name_or_path", str(wide_model)]
        done = subprocess.run(
            [sys.executable, script, *own, "--report_to", "none", *words],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    return run
