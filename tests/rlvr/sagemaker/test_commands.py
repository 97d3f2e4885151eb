"""scripts/sagemaker.py on jobs that really run (tests/support/sagemaker_emulator)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlvr.sagemaker import follow, job
from tests.conftest import REPOSITORY, Command
from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.job import ACCOUNT, REGION
from tests.support.sagemaker_emulator.service import TrainingService
from tests.support.short_job_runs import QUICK, logged_steps, reward_words, saved_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not())),
]

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
COMMAND_LINE = REPOSITORY / "tests" / "support" / "sagemaker_emulator" / "command_line.py"
MEASURED = ("--num_generations", "4", "--per_device_train_batch_size", "8", "--evaluation.rows", "8")

Sagemaker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def service(prefork: Path) -> Iterator[TrainingService]:
    with TrainingService(prefork=prefork) as service:
        service.client("iam").create_role(RoleName="training", AssumeRolePolicyDocument="{}")
        yield service


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
    role = f"arn:aws:iam::{ACCOUNT}:role/training"
    where = ["--role", role, "--bucket", service.bucket, "--region", REGION, "--instance_type", "ml.m5.xlarge"]
    return ["--config", str(DEMO), *where]


@pytest.mark.smoke
def test_plan_submit_fetch_evaluate_and_cleanup_of_a_job(
    service: TrainingService, working_folder: Path, sagemaker: Sagemaker
) -> None:
    words = [*recipe_options(service), *MEASURED, "--max_steps", "2", "--sagemaker.keep_alive_s", "600"]
    plan = sagemaker("plan", "--json", *words)
    assert plan.returncode == 0, plan.stderr
    submitted = sagemaker("submit", "--follow", *words)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    submitted_job = job.find_job("runs/demo-arithmetic")
    for line in (f"{submitted_job.name} is submitted.", submitted_job.link, "step 2/2   reward", "Completed after"):
        assert line in submitted.stdout, submitted.stdout
    assert "Traceback" not in service.job(submitted_job.name).log()

    planned = json.loads(json.dumps(json.loads(plan.stdout)["request"]))
    text = json.dumps(planned).replace(planned["TrainingJobName"], submitted_job.name)
    assert json.loads(text) == service.requests[-1], "what plan showed is what was sent"

    fetched = sagemaker("fetch", submitted_job.name)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    run = working_folder / "runs" / "demo-arithmetic"
    names = {path.name for path in run.iterdir()}
    assert {"adapter", "evaluation.json", "report.html", "recipe.yaml", "metrics.jsonl"} <= names
    assert not [name for name in names if name.startswith("checkpoint-")]
    assert (run / "adapter" / "adapter_model.safetensors").stat().st_size > 10_000
    assert {"base", "trained", "difference"} <= json.loads((run / "evaluation.json").read_text()).keys()
    assert logged_steps(run / "metrics.jsonl") == [1, 2]
    assert sagemaker("fetch", submitted_job.name).returncode == 2, "nothing is replaced unasked"

    evaluated = sagemaker("evaluate", "runs/demo-arithmetic", "--evaluation.rows", "8")
    assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
    assert "trained − base" in evaluated.stdout

    listed = sagemaker("cleanup", submitted_job.name)
    assert listed.returncode == 2, "without --yes it only lists"
    assert f"{submitted_job.name}: ends its warm pool" in listed.stdout and "deletes s3://" in listed.stdout
    assert service.job(submitted_job.name).keep_alive_s == 600
    assert sagemaker("cleanup", "--yes").returncode == 0
    assert service.job(submitted_job.name).keep_alive_s == 0
    assert service.client("s3").list_objects_v2(Bucket=service.bucket, Prefix="grpo-recipes/").get("KeyCount", 0) == 0


def test_a_stopped_job_has_not_failed_and_resumes_from_its_checkpoint(
    service: TrainingService, working_folder: Path, sagemaker: Sagemaker
) -> None:
    words = [*recipe_options(service), *QUICK, *reward_words(working_folder), "--max_steps", "20"]
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
    (step,) = saved_steps(service, first.checkpoints)
    assert reached <= step < 20, "save_steps is 1000, so it was saved because of the signal"
    assert f"Saving a checkpoint of step {step}" in stopped.log()

    time.sleep(1)  # names are of a second
    resumed = sagemaker("resume", first.name, "--sagemaker.instance_type", "ml.m5.2xlarge")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    second = job.find_job("runs/demo-arithmetic")
    assert second.name != first.name and second.checkpoints == first.checkpoints
    onward = service.job(second.name)
    assert onward.wait()["TrainingJobStatus"] == "Completed", onward.log()[-3000:]
    assert f"checkpoint-{step}, step {step}" in onward.log()
    fetched = sagemaker("fetch", second.name)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert logged_steps(working_folder / "runs" / "demo-arithmetic" / "metrics.jsonl") == list(range(1, 21)), (
        "each once, in two jobs"
    )
