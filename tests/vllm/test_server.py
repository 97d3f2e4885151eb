"""`vllm_mode: server`: a vLLM server of its own gets the adapter after each update, and is left as it was."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.launching import Start
from tests.vllm.conftest import LORA, Run, differences, succeed

STARTED_S = 300.0
SERVE = """
import sys

if __name__ == "__main__":  # its processes import this file
    from vllm.entrypoints.cli.main import main

    sys.argv = sys.argv[:-2]  # --output_dir, which `start` adds
    main()
"""


@pytest.fixture(scope="module")
def server(start: Start, wide_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server that docs/launchers.md says how to start."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "serve.py").write_text(SERVE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", wide_model, "--host", "127.0.0.1", "--port", port, "--dtype", "float32"]
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    words += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", "16"]
    variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    launch = start([folder / "serve.py", *map(str, words)], folder / "run", **variables)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + STARTED_S
    while True:
        assert launch.process.poll() is None and time.monotonic() < deadline, launch.output()[-4000:]
        try:
            httpx2.get(f"{url}/health")
            break
        except httpx2.TransportError:
            time.sleep(0.5)
    yield url
    launch.process.terminate()
    launch.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "least", "most", "why"),
    [
        (LORA, 0.0, 1e-4, "the server has the base that is trained"),
        (
            ["--learning_rate", "5e-3"],
            1e-3,
            1.0,
            "QLoRA: its base has not lost what 4 bits lose, and a warning says so",
        ),
    ],
)
def test_a_server_samples_from_the_policy(
    train: Run, server: str, tmp_path: Path, overrides: list[str], least: float, most: float, why: str
) -> None:
    words = ["--vllm_mode", "server", "--vllm_server_base_url", server, "--max_steps", "3", "--evaluation", "null"]
    launch = succeed(train(tmp_path / "run", *overrides, *words, "--warmup_steps", "0"))
    assert len(differences(launch.run)) == 3 and least <= max(differences(launch.run)) < most, why
    assert ("the server's base has 16 bits" in launch.output()) == (least > 0), why
    models = [model["root"] for model in httpx2.get(f"{server}/v1/models").json()["data"]]
    assert len(models) == 1, "no adapter is left"
    assert not list(Path("/dev/shm").glob("grpo-adapter-*"))


@pytest.mark.slow
def test_a_server_without_room_for_the_rank_is_refused_before_loading(train: Run, server: str, tmp_path: Path) -> None:
    words = ["--vllm_mode", "server", "--vllm_server_base_url", server, "--lora_r", "32"]
    launch = train(tmp_path / "run", *LORA, *words).wait()
    assert launch.process.returncode == 2 and "--max-lora-rank 32" in launch.output()
