"""Evaluation with vLLM: the answers of transformers, and no process of vLLM that outlives its use."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from rlvr.evaluation.evaluation_file import MODELS
from tests.support.launching import DEMO, LAUNCH_S, REPOSITORY, Launch, Start
from tests.vllm.conftest import LORA, succeed

# scripts/evaluate.py, which prints what processes of vLLM there are when an engine starts.
WATCHED = """
import runpy

import psutil

from rlvr.evaluation import evaluated_model

def processes():
    own = psutil.Process()
    # vLLM forks its processes (tests/support/vllm_on_cpu.py): they have this command line. Reward workers have another.
    return sum(child.cmdline() == own.cmdline() for child in own.children(recursive=True))

def engine_watched(*args, make=evaluated_model.VllmEngine):
    print("processes before:", processes())
    engine = make(*args)
    print("processes after:", processes(), flush=True)
    return engine

if __name__ == "__main__":
    evaluated_model.VllmEngine = engine_watched
    runpy.run_path("scripts/evaluate.py", run_name="__main__")
"""


def evaluate(start: Start, run: Path, folder: Path) -> Launch:
    folder.mkdir()
    (folder / "watched.py").write_text(WATCHED)
    words = ["--config", str(DEMO), *LORA, "--use_peft", "true", "--limit", "50"]
    words += ["--adapter", str(run / "adapter"), "--compare", "base", "--output", str(folder), "--engine", "vllm"]
    return start([folder / "watched.py", *words], folder / "run")


@pytest.mark.slow
def test_vllm_gives_the_answers_of_transformers_with_one_engine_at_a_time(
    start: Start, lora: Path, tmp_path: Path
) -> None:
    launch = succeed(evaluate(start, lora, tmp_path / "evaluation"))
    for name in MODELS:
        folders = (lora, tmp_path / "evaluation")
        transformers, vllm = (pq.read_table(one / "completions" / f"evaluation_{name}.parquet") for one in folders)
        assert transformers["prompt"].to_pylist() == vllm["prompt"].to_pylist()
        assert transformers["completion"].to_pylist() == vllm["completion"].to_pylist()
    counts = [int(line.split()[-1]) for line in launch.output().splitlines() if line.startswith("processes ")]
    assert counts[0::2] == [0, 0] and min(counts[1::2]) > 0, "before and after the start of each engine"


@pytest.mark.slow
def test_vllm_plays_environments(start: Start, tmp_path: Path) -> None:
    recipe, output = REPOSITORY / "recipes" / "demo-tools.yaml", tmp_path / "evaluation"
    words = ["--config", recipe, "--load_in_4bit", "false", "--use_bnb_nested_quant", "false"]
    # Few prompts: vLLM reads many in parts, takes draws back, and its generators of a CPU can't (set_offset).
    words += ["--limit", "6", "--samples", "5", "--output", output, "--engine", "vllm"]
    succeed(start([REPOSITORY / "scripts" / "evaluate.py", *words], tmp_path / "run"))
    rows = pq.read_table(output / "completions" / "samples_base.parquet").to_pylist()
    called = [row for row in rows if len(row["completion"]) > 1]
    assert len(rows) == 6 * 5 and any(row["correct"] for row in called)
    for row in called:
        results = [message["content"] for message in row["completion"] if message["role"] == "tool"]
        assert len(json.loads(row["tool_seconds"])) == len(results)
        assert not row["correct"] or row["final_answer"] in results, "by the tool's answer alone"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])  # test_training.py has SIGTERM
def test_a_signal_leaves_no_process_of_vllm(start: Start, lora: Path, tmp_path: Path, number: signal.Signals) -> None:
    launch = evaluate(start, lora, tmp_path / "evaluation")
    launch.wait_until(lambda: "processes after" in launch.output(), "an engine")
    children = psutil.Process(int((launch.notes / "0.pid").read_text())).children(recursive=True)
    launch.process.send_signal(number)
    assert launch.wait().process.returncode != 0 and children
    assert not psutil.wait_procs(children, timeout=LAUNCH_S)[1]
