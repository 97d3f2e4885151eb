"""A fault between the trainer and vLLM ends the run at its first step; tests/rlvr/training has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vllm.conftest import LORA, Run

# run_grpo.py with a fault in how adapters are loaded.
FAULTY = """
import json, runpy

from rlvr.training import vllm_rollouts
from vllm.lora.request import LoRARequest

load = vllm_rollouts._EngineWithAdapter.use_adapter

def same_id(self, number, folder):
    if self._request is None:
        load(self, 1, folder)
    else:
        assert self._engine.llm_engine.add_lora(LoRARequest("policy-1", 1, str(folder)))

def other_scale(self, number, folder):
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {{"lora_alpha": 2 * config["lora_alpha"]}}))
    load(self, number, folder)

vllm_rollouts._EngineWithAdapter.use_adapter = {fault}
runpy.run_path("run_grpo.py", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("same_id", "the adapter did not arrive"),  # vLLM keeps what it has loaded under an id, and says nothing
        ("other_scale", "another adapter"),
    ],
)
def test_a_fault_of_vllm_ends_the_run(train: Run, tmp_path: Path, fault: str, message: str) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY.format(fault=fault), encoding="utf-8")
    words = ["--max_steps", "3", "--warmup_steps", "0", "--evaluation", "null", "--save_strategy", "steps"]
    launch = train(tmp_path / "run", *LORA, *words, "--save_steps", "1", script=tmp_path / "faulty.py").wait()
    assert launch.process.returncode == 1, launch.output()[-4000:]
    assert message in launch.output() and "Traceback" not in launch.output()
    assert "RolloutError" in (launch.run / "failure.txt").read_text(encoding="utf-8")
    assert [path.name for path in sorted(launch.run.glob("checkpoint-*"))] == ["checkpoint-1"]
