"""What the Hugging Face hub refuses is explained; a local server plays the hub."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session, constants

import run_grpo
from tests.conftest import REPOSITORY


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for a gated and for an unknown repository."""

    def do_HEAD(self) -> None:
        gated = "gated-model" in self.path
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("X-Error-Message", "Access to this model is restricted." if gated else "Repository not found")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not the place for a server's log."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield address
    server.shutdown()
    server.server_close()
    close_session()


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_model_that_the_hub_refuses_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"), "--output_dir", str(tmp_path / "run")]
    for model in ("someone/gated-model", "someone/no-such-model"):
        assert run_grpo.main([*words, "--model_name_or_path", model]) == 2
    errors = capsys.readouterr().err
    assert "someone/gated-model" in errors and "is gated: accept its terms" in errors
    assert "no such public model" in errors
    assert "Traceback" not in errors and not (tmp_path / "run").exists()
