"""A vLLM server that fits the recipe is accepted; any other is refused, with the command that starts the right one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlvr.preflight.components import TargetMachine
from rlvr.preflight.vllm_server import check_vllm_server, start_command
from tests.support.launching import REPOSITORY
from tests.support.run_components import MODEL, make_components

ADAPTER = {"use_vllm": True, "vllm_mode": "server", "lora_r": 16, "vllm_server_timeout": 0}
MERGED = {**ADAPTER, "vllm_weight_sync": "merged"}
FACTS: dict[str, Any] = {
    "model": f"/elsewhere/{MODEL.name}",
    "logprobs_mode": "processed_logprobs",
    "lora": {"max_lora_rank": 16},
    "transfer": {"backend": "nccl"},
    "env": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": True},
    "status": 200,
    "shift": 0,  # of the numbers of its tokens
}


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of a server that answers as vLLM 0.30 does, and the facts that it answers with."""
    facts = dict(FACTS)
    tokenizer = make_components().tokenizer
    assert tokenizer is not None

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            model = {"model": facts["model"], "logprobs_mode": facts["logprobs_mode"]}
            config = {"model_config": model, "lora_config": facts["lora"], "weight_transfer_config": facts["transfer"]}
            self.answer({"vllm_config": config, "vllm_env": facts["env"]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tokens = tokenizer(request["prompt"], add_special_tokens=request["add_special_tokens"])["input_ids"]
            self.answer({"tokens": [token + facts["shift"] for token in tokens]})

        def answer(self, content: Any) -> None:
            self.send_response(facts["status"])
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}", facts
        http.shutdown()


@pytest.mark.parametrize(
    ("settings", "changed", "named", "why"),
    [
        (ADAPTER, {}, None, "right; its model lies in another folder"),
        (MERGED, {"lora": None, "env": {}}, None, "right for merged weights"),
        (ADAPTER, {"model": "Qwen/Qwen3-0.6B"}, "serves Qwen/Qwen3-0.6B", "another model"),
        (ADAPTER, {"shift": 1}, "another tokenizer", "another tokenizer"),
        (ADAPTER, {"lora": None}, "--enable-lora", "no room for adapters"),
        ({**ADAPTER, "lora_r": 20}, {}, "--max-lora-rank 32", "room for smaller ones"),
        (ADAPTER, {"env": {}}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", "adapters of its start alone"),
        (ADAPTER, {"logprobs_mode": "raw_logprobs"}, "--logprobs-mode processed_logprobs", "before temperature"),
        (MERGED, {"transfer": None}, "--weight-transfer-config", "takes no weights"),
        (ADAPTER, {"status": 404}, "VLLM_SERVER_DEV_MODE=1", "no endpoints for development, or no vLLM"),
    ],
)
def test_a_server_must_fit_the_recipe(
    server: tuple[str, dict[str, Any]], settings: dict[str, Any], changed: dict[str, Any], named: str | None, why: str
) -> None:
    url, facts = server
    facts.update(changed)
    problems = list(check_vllm_server(make_components({**settings, "vllm_server_base_url": url})))
    assert [problem.kind for problem in problems] == (["wrong-vllm-server"] if named else []), why
    assert all(named in problem.message and "vllm serve" in problem.message for problem in problems if named), why


def test_a_server_that_is_not_there_is_named_and_none_is_asked_for_another_machine() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and doesn't listen
        settings = {**ADAPTER, "vllm_server_host": "127.0.0.1", "vllm_server_port": taken.getsockname()[1]}
        for wrong in (settings, {**settings, "vllm_server_base_url": "localhost:8000", "vllm_server_timeout": 99}):
            assert [problem.kind for problem in check_vllm_server(make_components(wrong))] == ["no-vllm-server"]
        assert not list(check_vllm_server(make_components(settings, target=TargetMachine(world_size=2))))


def test_the_page_has_the_command_of_the_error() -> None:
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    settings = {"model_name_or_path": "Qwen/Qwen2.5-0.5B-Instruct", "use_peft": True, "dtype": "bfloat16"}
    assert start_command(settings) in " ".join(page.replace("\\\n", "").split())
