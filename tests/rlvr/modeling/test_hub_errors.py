"""What the Hugging Face hub refuses is explained; a local server plays the hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

import run_grpo
from tests.conftest import REPOSITORY
from tests.support.hub_server import Failure, served


@pytest.mark.slow
def test_a_model_that_the_hub_refuses_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    words = ["--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"), "--output_dir", str(tmp_path / "run")]
    with served() as hub:
        hub.failures.append(Failure("gated-model", 403, times=100, code="GatedRepo"))
        template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        for model in ("someone/gated-model", "someone/no-such-model"):
            assert run_grpo.main([*words, "--model_name_or_path", model]) == 2
    close_session()
    errors = capsys.readouterr().err
    assert "someone/gated-model" in errors and "is gated: accept its terms" in errors
    assert "no such public model" in errors
    assert "Traceback" not in errors and not (tmp_path / "run").exists()
