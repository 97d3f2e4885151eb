"""`vllm_mode: server`: a vLLM server of its own gets the adapter after each update, and is left as it was."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.launching import LAUNCH_S, Start
from tests.vllm.conftest import LORA, MODEL, Run, differences, succeed

SERVE = """
import sys

if __name__ == "__main__":  # its processes import this file
    from vllm.entrypoints.cli.main import main

    sys.argv = sys.argv[:-2]  # --output_dir, which `start` adds
    main()
"""


LORA_WORDS = ["--enable-lora", "--max-loras", "1", "--max-lora-rank", "16"]

# run_grpo.py, which sends weights through a store of PyTorch: NCCL needs GPUs, so the recipe would be refused.
WITHOUT_NCCL = """
import runpy
from concurrent.futures import ThreadPoolExecutor

from rlvr.preflight import vllm_checks
from trl.generation import vllm_client
from vllm.distributed.utils import StatelessProcessGroup

def connect(self, device):
    place = {"master_address": "127.0.0.1", "master_port": self.group_port}
    info = {**place, "rank_offset": 1, "world_size": 2}
    with ThreadPoolExecutor() as threads:
        reply = threads.submit(self._post, f"{self.base_url}/init_weight_transfer_engine", json={"init_info": info})
        self.communicator = StatelessProcessGroup.create("127.0.0.1", self.group_port, rank=0, world_size=2)
        reply.result()

def send(iterator, group, src, post_iter_func):
    for item in iterator:
        group.broadcast_obj(post_iter_func(item).detach().clone(), src)

vllm_checks._server_problems = lambda settings: ()
vllm_client.VLLMClient.init_communicator = connect
vllm_client.packed_nccl_broadcast_producer = send
runpy.run_path("run_grpo.py", run_name="__main__")
"""


@contextmanager
def held_port() -> Iterator[str]:
    """A port that is free for a program that reuses addresses, as vLLM and PyTorch do, and for no other."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield str(held.getsockname()[1])


@contextmanager
def serving(start: Start, folder: Path, *words: str) -> Iterator[str]:
    """The URL of the server that docs/training.md says how to start."""
    (folder / "serve.py").write_text(SERVE)
    words = ("serve", str(MODEL), "--host", "127.0.0.1", "--dtype", "float32", *words)
    words += ("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
    variables = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with held_port() as port:
        launch = start([folder / "serve.py", *words, "--port", port], folder / "run", **variables)
        try:
            launch.wait_until(lambda: is_up(f"http://127.0.0.1:{port}"), "a server")
            yield f"http://127.0.0.1:{port}"
        finally:
            launch.process.terminate()
            launch.wait()


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=LAUNCH_S).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(start, tmp_path_factory.mktemp("server"), *LORA_WORDS) as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "least", "most", "why"),
    [
        (LORA, 0.0, 1e-4, "the server has the base that is trained"),
        (
            ["--learning_rate", "5e-3"],
            1e-3,
            math.inf,  # of a rare token
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
    assert ("the server samples from a base model in 16 bits" in launch.output()) == (least > 0), why
    models = [model["root"] for model in httpx2.get(f"{server}/v1/models", timeout=LAUNCH_S).json()["data"]]
    assert len(models) == 1, "no adapter is left"


@pytest.mark.slow
def test_a_server_without_room_for_the_rank_is_refused_before_loading(train: Run, server: str, tmp_path: Path) -> None:
    words = ["--vllm_mode", "server", "--vllm_server_base_url", server, "--lora_r", "32"]
    launch = train(tmp_path / "run", *LORA, *words).wait()
    assert launch.process.returncode == 2 and "--max-lora-rank 32" in launch.output()


@pytest.mark.slow
def test_a_server_samples_from_merged_weights(start: Start, train: Run, tmp_path: Path) -> None:
    script = tmp_path / "without_nccl.py"
    script.write_text(WITHOUT_NCCL)
    words = [*LORA, "--vllm_weight_sync", "merged", "--vllm_mode", "server", "--max_steps", "3", "--warmup_steps", "0"]
    transfer = ["--weight-transfer-config", '{"backend": "store"}']
    with serving(start, tmp_path, *transfer) as url, held_port() as port:
        words += ["--vllm_server_base_url", url, "--vllm_group_port", port, "--evaluation", "null"]
        run = succeed(train(tmp_path / "run", *words, script=script)).run
    assert len(differences(run)) == 3 and max(differences(run)) < 1e-4
