"""The Hugging Face hub without a connection: one attempt, one line, and what to do instead."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.data.hub import mixed_columns
from rlvr.scoring.registry import load_task
from tests.conftest import Command
from tests.support.input_errors import input_error

REPOSITORY = Path(__file__).resolve().parents[3]
UNREACHABLE_HUB = "http://127.0.0.1:9"  # no program listens on this port


def environment(folder: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": UNREACHABLE_HUB, "HF_HOME": str(folder)}


@pytest.mark.slow
def test_a_check_without_a_connection_asks_once_and_says_what_to_do(
    run_script: Callable[..., Any], tmp_path: Path
) -> None:
    recipe = REPOSITORY / "recipes" / "gsm8k-qwen2.5-0.5b-instruct-qlora.yaml"
    result = run_script("run_grpo.py", "--config", recipe, "--check", "--json", env=environment(tmp_path))
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert UNREACHABLE_HUB in line and "offline" in line
    problems = json.loads(result.stdout)["problems"]
    unreachable = [problem["message"] for problem in problems if problem["kind"] == "hub-unreachable"]
    for fix in ("path: FOLDER", "hf download"):
        assert any(fix in message for message in unreachable), unreachable


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("gsm8k", ["openai/gsm8k", "path: FOLDER", "HF_HUB_OFFLINE"]),
        ("code_contests", ["path: FOLDER"]),
        ("humaneval", ["path: FOLDER"]),
        ("mbpp", ["path: mbpp.jsonl"]),
    ],
)
def test_without_a_network_the_error_names_the_local_files(task: str, words: list[str]) -> None:
    with input_error("hub-unreachable") as error:
        load_task(TaskSpec(task))
    assert all(word in str(error.value) for word in words)


ONCE = """
import os, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import get_session
from rlvr.data import hub

class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(404)
        self.end_headers()

constants.HF_HUB_OFFLINE = False  # it is imported already
hub.try_once()
server = HTTPServer(("127.0.0.1", 0), Hub)
if sys.argv[1] == "answers":
    threading.Thread(target=server.handle_request, daemon=True).start()
    get_session().head(f"http://127.0.0.1:{server.server_port}/x")
server.server_close()
try:
    get_session().head(f"http://127.0.0.1:{server.server_port}/x")
except Exception as error:
    print(type(error).__name__, os.environ["HF_HUB_OFFLINE"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hub", "outcome", "why"),
    [
        ("silent", "OfflineModeIsEnabled 1", "children inherit the environment"),
        ("answers", "ConnectError 0", "a hub that has answered may come back: its client tries again"),
    ],
)
def test_only_the_first_failure_makes_a_process_offline(
    command: Command, tmp_path: Path, hub: str, outcome: str, why: str
) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    result = subprocess.run(
        command(tmp_path / "once.py", hub),
        env={**os.environ, **environment(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert result.stdout.strip() == outcome, why


def test_columns_that_the_library_keeps_as_json_are_found(tmp_path: Path) -> None:
    from datasets import load_dataset

    rows = [
        {"answer": "105", "tests": [{"expected": "1"}], "id": 1},
        {"answer": 7, "tests": [{"expected": 1}], "id": 2},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert mixed_columns(load_dataset(str(tmp_path), cache_dir=str(tmp_path / "cache"))) == ["answer", "tests"]
