"""What the Hugging Face hub refuses is explained; a local server plays the hub."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


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
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


# Two runs in one process, which reads the address of the hub when it imports the client.
RUNS = """
import sys, run_grpo
words = ["--config", "recipes/demo-arithmetic.yaml", "--output_dir", sys.argv[1], "--model_name_or_path"]
print([run_grpo.main([*words, model]) for model in ("someone/gated-model", "someone/no-such-model")])
"""


@pytest.mark.slow
def test_a_model_that_the_hub_refuses_is_explained(run_script: Callable[..., Any], hub: str, tmp_path: Path) -> None:
    result = run_script(
        *("-c", RUNS, tmp_path / "run"),
        env={"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "cache")},
    )
    assert result.stdout.strip() == "[2, 2]", result.stderr
    assert "someone/gated-model" in result.stderr and "is gated: accept its terms" in result.stderr
    assert "no such public model" in result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "run").exists()
