"""The code of a model card for vLLM gives the answer that the run measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.publishing.snippets import snippets
from rlvr.report.rollouts import evaluated_rows
from rlvr.report.run_reader import read_run
from tests.vllm.conftest import MODEL


@pytest.mark.slow
def test_the_code_for_vllm_loads_base_and_adapter(lora: Path, vllm_environment: None, tmp_path: Path) -> None:
    run, first = read_run(lora), evaluated_rows(lora, "trained")[0]
    *_, vllm = snippets("acme/adapter", run.recipe, first["prompt"], max_new_tokens=40, base="acme/base")
    code = vllm.code.replace('snapshot_download("acme/adapter")', repr(str(lora / "adapter")))
    code = code.replace('"acme/base"', repr(str(MODEL)))
    assert "acme" not in code
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=dict(os.environ), cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    assert first["completion"] in done.stdout
