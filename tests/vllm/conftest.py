"""vLLM on a CPU: an environment of its own (`make test-vllm`), in which these tests run run_grpo.py as users do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlvr.artifacts.metrics import read_metrics
from tests.support.launching import DEMO, REPOSITORY, Launch, Start, accelerated
from tests.support.vllm_on_cpu import ENVIRONMENT, write_plugin

Run = Callable[..., Launch]
LORA = ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--learning_rate", "5e-3"]
MODEL = REPOSITORY / "models" / "tiny-arithmetic"
STEPS = ["--max_steps", "4", "--warmup_steps", "0", "--evaluation.rows", "50"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("vllm") is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed: `make test-vllm` runs these tests"))


@pytest.fixture(scope="session")
def vllm_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The variables of vLLM on a CPU, in this process and in all that it starts."""
    plugin = write_plugin(tmp_path_factory.mktemp("plugin"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", f"{REPOSITORY}:{plugin}")
        yield


@pytest.fixture(scope="session")
def prefork(vllm_environment: None, prefork: Path) -> Path:
    """The prefork server, which has imported vLLM too."""
    return prefork


@pytest.fixture(scope="session")
def train(start: Start) -> Run:
    """Start a run of demo-arithmetic with vLLM: (run directory, words) -> launch.

    It has two processes where a launcher is named, of accelerate_configs/.
    """

    def run(folder: Path, *words: str, script: str | Path = "run_grpo", launcher: str | None = None) -> Launch:
        own = ["--config", str(DEMO), "--use_vllm", "true"]
        own += ["--report_to", "none", *words]
        if launcher is None:
            return start([script, *own], folder)
        switches = {"SHARD_ON_CPUS": "1" if launcher == "fsdp2" else ""}
        return start(accelerated(launcher, *own, script=script), folder, **switches)

    return run


@pytest.fixture(scope="session")
def lora(train: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a whole run with LoRA, of a rank that vLLM has no kernels for: it takes the next larger one."""
    return succeed(train(tmp_path_factory.mktemp("lora") / "run", *LORA, *STEPS, "--lora_r", "12")).run


def succeed(launch: Launch) -> Launch:
    """Wait for its end, which must be a good one."""
    assert launch.wait().process.returncode == 0, launch.output()[-4000:]
    return launch


def differences(run: Path) -> list[float]:
    """The largest difference of a token's log probability between vLLM and the trainer, step by step."""
    return [line["sampling/sampling_logp_difference/max"] for line in read_metrics(run / "metrics.jsonl")]
