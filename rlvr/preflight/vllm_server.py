"""Whether a vLLM server is there, and serves what the recipe trains: `vllm_mode: server`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import httpx2

from rlvr.config.recipe import value_of
from rlvr.errors import Problem
from rlvr.modeling.vllm_engines import room_for_rank, sends_adapter
from rlvr.preflight.components import RunComponents

RETRY_S = 1.0
REQUEST_TIMEOUT_S = 30.0
SAMPLE = (
    "A train covers 3.5 km in 7 minutes.\n\n#### The final answer is 30."  # any text: tokenizers cut it differently
)


def check_vllm_server(components: RunComponents) -> Iterator[Problem]:
    """Compare a running server with the recipe. It may take `vllm_server_timeout` seconds to start."""
    settings = components.settings
    if not settings.get("use_vllm") or settings.get("vllm_mode") != "server" or not components.target.is_here:
        return
    url = settings.get("vllm_server_base_url")
    key = "vllm_server_base_url" if url else "vllm_server_port"
    url = url or f"http://{settings.get('vllm_server_host', '0.0.0.0')}:{settings.get('vllm_server_port', 8000)}"
    try:
        reply = _wait_for(f"{url}/server_info?config_format=json", value_of(settings, "vllm_server_timeout"))
        facts = reply.json() if reply.status_code == 200 else {}
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        message = f"{key}: no vLLM server answers at {url} ({error}). Start it: {start_command(settings)}"
        yield Problem(message, "no-vllm-server", key)
        return
    if "vllm_config" not in facts:
        faults = [f"it answers /server_info with status {reply.status_code}"]
    else:
        faults = list(_faults(settings, facts["vllm_config"], facts["vllm_env"]))
        if not faults and components.tokenizer is not None:
            content = {"prompt": SAMPLE, "add_special_tokens": False}
            tokens = httpx2.post(f"{url}/tokenize", json=content, timeout=REQUEST_TIMEOUT_S).json().get("tokens")
            if tokens != components.tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]:
                faults = ["it has another tokenizer"]
    for fault in faults:
        message = f"The vLLM server at {url}: {fault}. Restart it: {start_command(settings)}"
        yield Problem(message, "wrong-vllm-server", key)


def start_command(settings: Mapping[str, Any]) -> str:
    """The command that starts the server that a recipe needs."""
    variables = ["VLLM_SERVER_DEV_MODE=1"]
    words = ["vllm", "serve", str(settings["model_name_or_path"])]
    words += ["--port", str(value_of(settings, "vllm_server_port")), "--dtype", value_of(settings, "dtype")]
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    if sends_adapter(settings):
        variables.append("VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
        rank = room_for_rank(value_of(settings, "lora_r"))
        words += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)]
    else:
        words += ["--weight-transfer-config", '{"backend": "nccl"}']
    return " ".join([*variables, shlex.join(words)])


def _wait_for(url: str, seconds: float) -> httpx2.Response:
    """Ask until a server answers; an error is raised after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return httpx2.get(url, timeout=REQUEST_TIMEOUT_S)
        except (httpx2.NetworkError, httpx2.TimeoutException):
            if time.monotonic() + RETRY_S > deadline:
                raise
        time.sleep(RETRY_S)


def _faults(settings: Mapping[str, Any], server: Mapping[str, Any], env: Mapping[str, Any]) -> Iterator[str]:
    """What the server's configuration lacks."""
    model, wanted = server["model_config"], str(settings["model_name_or_path"])
    if PurePath(model["model"]).name != PurePath(wanted).name:  # the server's host may have it in another folder
        yield f"it serves {model['model']}, and not {wanted}"
    if model["logprobs_mode"] != "processed_logprobs":
        yield "its log probabilities are before temperature"
    if not sends_adapter(settings):
        if server["weight_transfer_config"] is None:
            yield "it takes no weights"
        return
    lora, rank = server["lora_config"], value_of(settings, "lora_r")
    if lora is None:
        yield "it has no room for an adapter"
    elif lora["max_lora_rank"] < rank:
        yield f"it takes adapters up to rank {lora['max_lora_rank']}, and lora_r is {rank}"
    if not env.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        yield "it doesn't load adapters while it runs"
