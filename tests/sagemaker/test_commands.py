"""scripts/sagemaker.py as a person uses it, on jobs that really run (tests/sagemaker/emulator)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.sagemaker import follow, job
from tests.conftest import REPOSITORY
from tests.sagemaker.emulator import containers
from tests.sagemaker.emulator.job import ACCOUNT, REGION
from tests.sagemaker.emulator.service import TrainingService

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not())),
]

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
SMALL = (
    *("--num_generations", "4", "--per_device_train_batch_size", "8", "--evaluation.rows", "8"),
    *("--save_strategy", "steps", "--save_steps", "1000"),
)


@pytest.fixture(scope="module")
def service() -> Iterator[TrainingService]:
    with TrainingService() as service:
        service.client("iam").create_role(RoleName="training", AssumeRolePolicyDocument="{}")
        yield service


@pytest.fixture
def there(service: TrainingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and the account in the environment."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the script where one is."""
    script = str(REPOSITORY / "scripts" / "sagemaker.py")
    return subprocess.run(
        [sys.executable, script, *map(str, words)], capture_output=True, text=True, timeout=600, env=dict(os.environ)
    )


def described(service: TrainingService) -> list[str]:
    role = f"arn:aws:iam::{ACCOUNT}:role/training"
    where = ["--role", role, "--bucket", service.bucket, "--region", REGION, "--instance_type", "ml.m5.xlarge"]
    return ["--config", str(DEMO), *where, *SMALL]


def test_a_recipe_becomes_a_job_then_a_model_that_is_evaluated_and_nothing_is_left(
    service: TrainingService, there: Path
) -> None:
    words = [*described(service), "--max_steps", "2", "--sagemaker.keep_alive_s", "600"]
    plan = command("plan", "--json", *words)
    assert plan.returncode == 0, plan.stderr
    submitted = command("submit", "--follow", *words)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    found = job.find("runs/demo-arithmetic")
    for words in (f"{found.name} is submitted.", found.link, "step 2/2   reward", f"{found.name}: Completed"):
        assert words in submitted.stdout, submitted.stdout

    planned = json.loads(json.dumps(json.loads(plan.stdout)["request"]))
    text = json.dumps(planned).replace(planned["TrainingJobName"], found.name)
    assert json.loads(text) == service.requests[-1], "what plan showed is what was sent"

    fetched = command("fetch", found.name)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    run = there / "runs" / "demo-arithmetic"
    assert (run / "adapter" / "adapter_config.json").is_file() and (run / "report.html").is_file()
    assert command("fetch", found.name).returncode == 2, "nothing is replaced unasked"

    evaluated = command("evaluate", "runs/demo-arithmetic", "--evaluation.rows", "8")
    assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
    assert "trained − base" in evaluated.stdout

    listed = command("cleanup", found.name)
    assert listed.returncode == 2, "without --yes it only lists"
    assert f"{found.name}: ends its warm pool" in listed.stdout and f"{found.name}: deletes" in listed.stdout
    assert service.job(found.name).keep_alive_s == 600
    assert command("cleanup", "--yes").returncode == 0
    assert service.job(found.name).keep_alive_s == 0
    assert service.client("s3").list_objects_v2(Bucket=service.bucket, Prefix="grpo-recipes/").get("KeyCount", 0) == 0


def test_a_job_that_is_stopped_is_gone_on_with_from_where_it_was(service: TrainingService, there: Path) -> None:
    submitted = command("submit", *described(service), "--max_steps", "5000")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    first = job.find("runs/demo-arithmetic")

    again = command("submit", *described(service), "--max_steps", "5000")
    assert again.returncode == 0 and "no second job was started" in again.stdout
    assert "is still in progress" in command("resume", first.name).stderr

    reached = next(event.step for event in follow.watch(first, poll_s=0.2) if isinstance(event, follow.Figures))
    assert "is being stopped" in command("stop", first.name).stdout
    followed = command("follow", first.name)
    assert followed.returncode == 75, followed.stdout + followed.stderr
    assert f"{first.name}: Stopped" in followed.stdout

    refused = command("resume", first.name, "--learning_rate", "0.5")
    assert refused.returncode == 2 and "learning_rate was 0.0015, now 0.5" in refused.stderr, refused.stderr
    time.sleep(1)  # names are of a second
    resumed = command("resume", first.name, "--sagemaker.instance_type", "ml.m5.2xlarge")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    second = job.find("runs/demo-arithmetic")
    assert second.name != first.name and second.checkpoints == first.checkpoints
    onward = next(event.step for event in follow.watch(second, poll_s=0.2) if isinstance(event, follow.Figures))
    assert onward > reached
    job.stop(second)
