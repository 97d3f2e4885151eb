"""Training with vLLM: it samples from the policy, at every step, whatever is trained and however it is sampled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch

from rlvr.artifacts.metrics import read_metrics
from tests.support.launching import LAUNCH_S, REPOSITORY, Launch, Start, adapter
from tests.vllm.conftest import LORA, MODEL, STEPS, Run, differences, succeed

QLORA = ["--learning_rate", "5e-3"]
FULL = ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--use_peft", "false", "--learning_rate", "5e-4"]
SAVED = ["--save_strategy", "steps", "--save_steps", "2"]
SHORT = ["--max_steps", "2", "--warmup_steps", "0", "--evaluation", "null"]

SPREAD = """
import zlib

def spread(completions, **kwargs):
    return [zlib.crc32(str(completion).encode()) % 100 / 100 for completion in completions]
"""

# run_grpo.py, which prints after training whether vLLM's weights are still in memory.
WATCHED = """
import runpy, weakref

from rlvr.training import train
from rlvr.training.vllm_rollouts import VllmRollouts

close, free_memory, models = VllmRollouts.close, train.free_memory, []

def close_watched(self):
    models.append(weakref.ref(self.llm.llm_engine.model_executor.driver_worker.model_runner.model))
    close(self)

def free_memory_watched():
    free_memory()
    if models:
        print("vLLM's model is", "in memory" if models[0]() is not None else "freed")

VllmRollouts.close, train.free_memory = close_watched, free_memory_watched
runpy.run_path("run_grpo.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def qlora(train: Run, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """A whole run with QLoRA, watched."""
    folder = tmp_path_factory.mktemp("qlora")
    (folder / "watched.py").write_text(WATCHED)
    return succeed(train(folder / "run", *QLORA, *STEPS, *SAVED, script=folder / "watched.py"))


def check(run: Path, why: str) -> None:
    assert len(differences(run)) == 4 and max(differences(run)) < 1e-4, why
    evaluation = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    base, trained = (evaluation[name]["accuracy"] for name in ("base", "trained"))
    assert trained > base + 0.1, why


@pytest.mark.slow
def test_qlora_samples_from_the_policy_and_vllm_is_gone_after_training(qlora: Launch) -> None:
    check(qlora.run, "4-bit weights are sent once as what they stand for, then adapters")
    assert "vLLM's model is freed" in qlora.output()
    assert "Invalid process group" not in qlora.output(), "vLLM ends before the process group"


@pytest.mark.slow
def test_lora_samples_from_the_policy(lora: Path) -> None:
    check(lora, "adapters")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([*LORA, "--vllm_weight_sync", "merged"], "LoRA merged into the weights, all of which are sent"),
        (FULL, "full fine-tuning: all weights"),
    ],
)
def test_vllm_samples_from_the_policy(train: Run, tmp_path: Path, overrides: list[str], why: str) -> None:
    check(succeed(train(tmp_path / "run", *STEPS, *overrides)).run, why)


@pytest.mark.slow
def test_a_stopped_run_continues_with_the_samples_of_an_uninterrupted_one(
    train: Run, qlora: Launch, tmp_path: Path
) -> None:
    words = [*QLORA, *STEPS, *SAVED]
    stopped = train(tmp_path / "run", *words)
    stopped.wait_for_lines(2)
    rank = psutil.Process(int((stopped.notes / "0.pid").read_text()))
    children = rank.children(recursive=True)
    stopped.process.terminate()
    assert stopped.wait().process.returncode == 75, stopped.output()[-4000:]
    assert not psutil.wait_procs(children, timeout=LAUNCH_S)[1], "no process is left"
    run = succeed(train(tmp_path / "run", *words)).run
    for name, tensor in adapter(qlora.run).items():
        assert torch.equal(tensor, adapter(run)[name]), name
    names = ["loss", "reward", "completions/mean_length", "sampling/importance_sampling_ratio/mean"]
    lines = [
        [[line[name] for name in names] for line in read_metrics(one / "metrics.jsonl")] for one in (run, qlora.run)
    ]
    assert lines[0] == lines[1]


def completions(run: Path) -> list[str]:
    tables = [pd.read_parquet(file) for file in sorted((run / "completions").glob("completions_*.parquet"))]
    texts = pd.concat(tables)["completion"]
    return [text if isinstance(text, str) else text[-1]["content"] for text in texts]


@pytest.mark.slow
def test_completions_end_where_training_says(train: Run, tmp_path: Path) -> None:
    """At a stop string, at each of several tokens, or at the length; each with a mode of importance sampling."""
    from transformers import AutoTokenizer

    prompt = (
        "<|im_start|>user\nA box holds {a} coins and a bag holds {b}. How many coins are there altogether?<|im_end|>\n"
    )
    rows = [
        {"prompt": prompt.format(a=10 + n, b=80 - n) + "<|im_start|>assistant\n", "final_answer": "90"}
        for n in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spread.py").write_text(SPREAD)
    short = [
        *LORA,
        *SHORT,
        "--rewards",
        json.dumps([{"name": str(tmp_path / "spread.py"), "where": "trainer"}]),
        "--temperature",
        "1.5",
    ]
    task = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "stop_strings": ["\ntens"]}
    words = ["--task", json.dumps(task), "--vllm_importance_sampling_mode", "token_truncate"]
    run = succeed(train(tmp_path / "strings", *short, *words)).run
    ended = [text for text in completions(run) if "\ntens" in text]
    assert ended and all(text.index("\ntens") == len(text) - 5 for text in ended)
    assert max(differences(run)) < 1e-4

    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    newline = AutoTokenizer.from_pretrained(model).encode("\n", add_special_tokens=False)[-1]
    file = model / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [2, newline]}))
    words = ["--model_name_or_path", str(model), "--vllm_importance_sampling_mode", "token_mask"]
    words += ["--lora_target_modules", '["q_proj", "down_proj"]']  # vLLM fuses q, k and v
    run = succeed(train(tmp_path / "tokens", *short, *words)).run
    assert all("\n" not in text.rstrip("\n") for text in completions(run))
    assert max(differences(run)) < 1e-4

    words = ["--max_completion_length", "30", "--mask_truncated_completions", "true", "--dynamic_sampling", "2"]
    words += ["--vllm_importance_sampling_mode", "sequence_truncate"]
    run = succeed(train(tmp_path / "length", *short, *words)).run
    assert 0 < read_metrics(run / "metrics.jsonl")[0]["completions/clipped_ratio"] < 1
    assert max(differences(run)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "overrides", "most", "why"),
    [
        ("fsdp2", [*QLORA, "--bnb_4bit_quant_storage", "float32"], 1e-4, "the base and the adapter are sharded"),
        ("zero3", QLORA, 1e-2, "the adapter is sharded; TRL trains it in bfloat16, so its products are rounded"),
    ],
)
def test_each_of_two_processes_samples_from_the_policy(
    train: Run, tmp_path: Path, launcher: str, overrides: list[str], most: float, why: str
) -> None:
    words = [*overrides, *SHORT, "--per_device_train_batch_size", "32"]
    launch = succeed(train(tmp_path / "run", *words, launcher=launcher))
    assert len(differences(launch.run)) == 2 and max(differences(launch.run)) < most, why
    sharded = [names.count("Qwen2DecoderLayer") for names in launch.sharded()]
    assert sharded == ([2, 2] if launcher == "fsdp2" else [])


@pytest.mark.slow
def test_turns_between_tools_are_sampled_from_the_policy(start: Start, tmp_path: Path) -> None:
    words = ["--config", REPOSITORY / "recipes" / "demo-tools.yaml", "--use_vllm", "true", "--report_to", "none"]
    run = succeed(start(["run_grpo", *words, *SHORT], tmp_path / "run")).run
    assert len(differences(run)) == 2 and max(differences(run)) < 1e-4
    assert all(line["tools/turns"] > 1.1 for line in read_metrics(run / "metrics.jsonl") if "reward" in line)


@pytest.mark.slow
def test_what_vllm_reports_at_its_start_is_an_error_before_training(train: Run, tmp_path: Path) -> None:
    launch = train(tmp_path / "run", *QLORA, *SHORT, "--vllm_max_model_length", "100000").wait()
    assert launch.process.returncode == 2 and "vLLM can't generate" in launch.output(), launch.output()[-4000:]
    assert "Traceback" not in launch.output()
