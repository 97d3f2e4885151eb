"""scripts/sagemaker.py on jobs that really run (tests/support/sagemaker_emulator)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlvr.sagemaker import follow, job
from tests.conftest import REPOSITORY, Command
from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import REGION
from tests.support.sagemaker_emulator.service import TrainingService
from tests.support.short_job_runs import DRAWN, logged_steps, reward_words, saved_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not())),
]

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
COMMAND_LINE = REPOSITORY / "tests" / "support" / "sagemaker_emulator" / "command_line.py"
MEASURED = ("--num_generations", "4", "--per_device_train_batch_size", "8", "--evaluation.rows", "8")

Sagemaker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def working_folder(service: TrainingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and the account in the environment."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sagemaker(command: Command) -> Sagemaker:
    """Run the script in the working folder."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        whole = command(COMMAND_LINE, *words)
        return subprocess.run(whole, capture_output=True, text=True, timeout=600, env=dict(os.environ))

    return run


def recipe_options(service: TrainingService) -> list[str]:
    where = ["--role", service.role, "--bucket", service.bucket, "--region", REGION]
    return ["--config", str(DEMO), *where, "--sagemaker.instance_type", "ml.m5.xlarge"]


# The reward encodes the host that it ran on. The emulator numbers the judge group first.
HOST_REWARD = """
import os, zlib

def host_reward(prompts, completions, **kwargs):
    base = 10.0 if os.uname().nodename == "algo-1" else 0.0
    return [base + zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""
GROUPS = [
    {"name": "gpus", "instance_type": "ml.m5.xlarge", "role": "train"},
    {"name": "cpus", "instance_type": "ml.m5.large", "role": "judge"},
]
FULL = ("--use_peft", "false", "--load_in_4bit", "false", "--use_bnb_nested_quant", "false")
FEW_ROWS = ("--task.train_rows", "64", "--task.test_rows", "8")


def clean_up(service: TrainingService, sagemaker: Sagemaker, name: str) -> None:
    keeps_warm = service.job(name).keep_alive_s > 0
    listed = sagemaker("cleanup", name)
    assert listed.returncode == 2, "without --yes it only lists"
    assert f"{name}: deletes s3://" in listed.stdout
    assert ("ends its warm pool" in listed.stdout) == keeps_warm
    assert sagemaker("cleanup", name, "--yes").returncode == 0
    assert service.job(name).keep_alive_s == 0
    left = service.client("s3").list_objects_v2(Bucket=service.bucket, Prefix=f"grpo-recipes/{name}/")
    assert left["KeyCount"] == 0


def fetch(sagemaker: Sagemaker, name: str, trained: str) -> Path:
    """The folder with the results of a job, which has a `trained` one, `model` or `adapter`."""
    fetched = sagemaker("fetch", name)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    run = Path("runs/demo-arithmetic")
    names = {path.name for path in run.iterdir()}
    assert {trained, "evaluation.json", "report.html", "recipe.yaml", "metrics.jsonl"} <= names
    assert not [name for name in names if name.startswith("checkpoint-")]
    assert sum(file.stat().st_size for file in (run / trained).glob("*.safetensors")) > 10_000
    assert {"base", "trained", "difference"} <= json.loads((run / "evaluation.json").read_text()).keys()
    return run


def test_a_full_model_that_reads_channels_on_spot_capacity_is_stopped_and_resumed(
    service: TrainingService, working_folder: Path, sagemaker: Sagemaker, command: Command
) -> None:
    uri = f"s3://{service.bucket}/grpo-recipes/data/sums"
    prepared = subprocess.run(
        command(REPOSITORY / "scripts/prepare_data.py", "--config", DEMO, *FEW_ROWS, "--output", "sums", "--s3", uri),
        capture_output=True,
        text=True,
        timeout=600,
        env=dict(os.environ),
    )
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    section = yaml.safe_load("task:" + prepared.stdout.partition("\ntask:")[2])
    channels = section["sagemaker"]["channels"]
    assert channels == {split: f"{uri}/{split}" for split in ("train", "validation", "test") if split in channels}
    words = [
        *(*recipe_options(service), *MEASURED, *FULL, *DRAWN, *reward_words(working_folder), "--max_steps", "9"),
        *("--task", json.dumps(section["task"]), "--sagemaker.channels", json.dumps(channels)),
        *("--sagemaker.spot", "true", "--evaluation.metric", "math_correctness"),
        *("--sagemaker.environment", "{NCCL_DEBUG: INFO, MLFLOW_TAGS: {team: nlp}, GLOO_SOCKET_IFNAME: eth0}"),
    ]
    submitted = sagemaker("submit", *words)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    first = job.find_job("runs/demo-arithmetic")
    again = sagemaker("submit", *words)
    assert again.returncode == 0 and first.name in again.stdout and "is submitted" not in again.stdout
    assert "is still in progress" in sagemaker("resume", first.name).stderr
    reached = next(event.step for event in follow.watch(first, poll_s=0.5) if isinstance(event, follow.StepMetrics))
    assert "saves a checkpoint" in sagemaker("stop", first.name).stdout
    followed = sagemaker("follow", first.name)
    assert followed.returncode == 75, followed.stdout + followed.stderr
    assert f"{first.name}: Stopped" in followed.stdout
    stopped = service.job(first.name)
    assert stopped.codes == [{"algo-1": 143}] and "FailureReason" not in stopped.description
    assert stopped.request["Environment"]["MLFLOW_TAGS"] == '{"team": "nlp"}'
    (step,) = saved_steps(service, first.checkpoints)
    assert reached <= step < 9, "save_steps is 1000, so it was saved because of the signal"
    assert f"Saving a checkpoint of step {step}" in stopped.log()
    assert "rows from /opt/ml/input/data" in stopped.log()

    time.sleep(1)  # names are of a second
    changes = ("--sagemaker.instance_type", "ml.m5.2xlarge", "--sagemaker.spot", "false")
    resumed = sagemaker("resume", first.name, *changes, "--sagemaker.keep_alive_s", "600")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    second = job.find_job("runs/demo-arithmetic")
    assert second.name != first.name and second.checkpoints == first.checkpoints
    onward = service.job(second.name)
    assert onward.wait()["TrainingJobStatus"] == "Completed", onward.log()[-3000:]
    assert f"checkpoint-{step}, step {step}" in onward.log()
    run = fetch(sagemaker, second.name, "model")
    assert logged_steps(run / "metrics.jsonl") == list(range(1, 10)), "each once, in two jobs"
    evaluated = sagemaker("evaluate", "runs/demo-arithmetic", "--evaluation.rows", "8")
    assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
    assert "trained − base" in evaluated.stdout
    clean_up(service, sagemaker, second.name)
    assert sagemaker("submit", "--config", "gone.yaml").returncode == 2


def test_all_commands_of_an_isolated_job_whose_judge_hosts_form_a_ray_cluster(
    service: TrainingService, working_folder: Path, sagemaker: Sagemaker
) -> None:
    pytest.importorskip("ray")
    (working_folder / "host_reward.py").write_text(HOST_REWARD)
    rewards = [{"name": "host_reward.py", "where": "ray"}, {"name": "math_correctness", "where": "local"}]
    words = [
        *(*recipe_options(service), *MEASURED, *FEW_ROWS, "--max_steps", "2"),
        *("--rewards", json.dumps(rewards), "--evaluation.metric", "math_correctness"),
        *("--sagemaker.instance_type", "null", "--sagemaker.instance_groups", json.dumps(GROUPS)),
        *("--sagemaker.network_isolation", "true", "--sagemaker.image", "registry.example/x:1"),
        *("--sagemaker.processes_per_host", "2", "--per_device_train_batch_size", "4"),
    ]
    plan = sagemaker("plan", "--json", *words)
    assert plan.returncode == 0, plan.stderr
    submitted = sagemaker("submit", *words)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    name = job.find_job("runs/demo-arithmetic").name
    emulated = service.job(name)
    followed = sagemaker("follow", name)
    assert followed.returncode == 0, followed.stdout + followed.stderr
    for line in (f"{name}  https://", "/2   reward", "Completed after"):
        assert line in followed.stdout, followed.stdout
    planned = json.loads(plan.stdout)["request"]
    text = json.dumps(planned).replace(planned["TrainingJobName"], name)
    assert json.loads(text) == service.requests[-1], "what plan showed is what was sent"

    assert emulated.codes == [{"algo-1": 0, "algo-2": 0}]
    log = emulated.log()
    assert "All 2 hosts are in the Ray cluster" in log and "CPUs of the judge hosts" in log
    assert "Ray node on this host ends" in log and not any(
        words in log for words in ("Serving on", "RAY_AUTH", "Traceback")
    )
    run = fetch(sagemaker, name, "adapter")
    assert logged_steps(run / "metrics.jsonl") == [1, 2], "one run, not one a host"
    assert json.loads((run / "run.json").read_text())["identity"]["processes"] == 2, "on one host"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    rewards_seen = [line["reward"] for line in lines if "reward" in line]
    assert rewards_seen and all(10.0 <= reward < 12.1 for reward in rewards_seen), rewards_seen
    clean_up(service, sagemaker, name)


def test_a_profile_is_followed_to_its_projection_and_leaves_no_run(
    service: TrainingService, working_folder: Path, sagemaker: Sagemaker
) -> None:
    words = [*recipe_options(service), *MEASURED, *FEW_ROWS, "--max_steps", "9", "--profile", "--follow"]
    done = sagemaker("submit", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("generation 2", "whole run", "Completed after"):
        assert part in done.stdout, done.stdout
    profiled = job.find_job("runs/demo-arithmetic")
    emulated = service.job(profiled.name)
    assert emulated.codes == [{"algo-1": 0}] and "9 updates" in emulated.log()
    assert storage.keys(service.client("s3"), f"{profiled.checkpoints}/run") == []
