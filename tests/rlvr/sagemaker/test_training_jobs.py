"""Jobs that really train, with the uploaded recipe, the requested container, tiny models and few steps.

test_commands.py and tests/notebooks/test_sagemaker_grpo.py have jobs from plan to cleanup. Here are a job that fails,
and one on many hosts.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlvr.config.sagemaker import InstanceGroup
from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import EmulatedJob
from tests.support.sagemaker_emulator.service import TrainingService
from tests.support.sagemaker_emulator.submission import submit
from tests.support.short_job_runs import QUICK, logged_steps, reward_words, saved_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not())),
]


@pytest.mark.smoke
def test_a_failure_reason_is_one_line_for_people(service: TrainingService) -> None:
    job = submit(service, "fails", (*QUICK, "--max_completion_length", "100000"))
    ended = job.wait()
    reason = ended["FailureReason"]
    assert ended["TrainingJobStatus"] == "Failed" and job.codes == [{"algo-1": 2}], "nothing was trained"
    assert reason.startswith("AlgorithmError: ") and reason.endswith(", exit code: 2")
    assert "max_completion_length" in reason and "\n" not in reason and "Traceback" not in reason


@dataclass(frozen=True)
class ClusterRun:
    """A job on two hosts that train and two that judge, interrupted on spot capacity while it trained, then done.

    Attributes:
        kept: the steps of the checkpoints that the bucket had after the interruption.
        model: what the job made.
    """

    job: EmulatedJob
    kept: list[int]
    model: Path


@pytest.fixture(scope="module")
def cluster(service: TrainingService, tmp_path_factory: pytest.TempPathFactory) -> ClusterRun:
    words = reward_words(tmp_path_factory.mktemp("reward"), where="http://judge:8000")
    # The judges, so that the group that trains doesn't begin with the first host.
    groups = (InstanceGroup("gpus", "ml.m5.xlarge", 2, "train"), InstanceGroup("cpus", "ml.m5.large", 2, "judge"))
    checkpoints = f"s3://{service.bucket}/cluster/checkpoints"
    job = submit(
        service,
        "cluster",
        (*QUICK, *words, "--max_steps", "6", "--per_device_train_batch_size", "4"),
        instance_groups=groups,
        checkpoints=checkpoints,
        spot=True,
    )
    job.wait_for(" 2/6 ")
    job.interrupt()
    job.wait_for("continues from", attempt=2)
    kept = saved_steps(service, checkpoints)
    assert job.wait()["TrainingJobStatus"] == "Completed", job.log()[-5000:]
    bucket, key = storage.place(job.description["ModelArtifacts"]["S3ModelArtifacts"])
    packed = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    model = tmp_path_factory.mktemp("model")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(model, filter="data")
    return ClusterRun(job, kept, model)


def test_two_hosts_train_one_model(cluster: ClusterRun) -> None:
    assert cluster.job.codes[-1] == {f"algo-{number}": 0 for number in (1, 2, 3, 4)}
    for rank, host in enumerate(("algo-3", "algo-4")):
        line = f"{host}: train, host {rank} of its role; 2 processes on 2 hosts train, led by algo-3"
        assert line in cluster.job.log()
    assert json.loads((cluster.model / "run.json").read_text())["identity"]["processes"] == 2
    assert logged_steps(cluster.model / "metrics.jsonl") == [1, 2, 3, 4, 5, 6], "one run, not one a host"
    assert not list((cluster.job.roots[3] / "model").iterdir()), "the model is the first host's"


def test_an_interruption_saves_one_checkpoint_and_the_next_attempt_continues_from_it(cluster: ClusterRun) -> None:
    assert len(cluster.job.codes) == 2
    assert [cluster.job.codes[0][host] for host in ("algo-3", "algo-4")] == [143, 143]
    (step,) = cluster.kept
    assert 2 <= step < 6, "save_steps is 1000, so it was saved because of the signal"
    assert f"Saving a checkpoint of step {step}" in cluster.job.log(1)
    assert f"checkpoint-{step}, step {step}" in cluster.job.log(2)
    assert f" {step + 1}/6 " in cluster.job.log(2) and f" {step}/6 " not in cluster.job.log(2)


def test_judge_hosts_find_their_role_and_serve_the_training_hosts(cluster: ClusterRun) -> None:
    for attempt in (1, 2):
        assert "algo-2: judge, host 1 of its role" in cluster.job.log(attempt)
        assert cluster.job.log(attempt).count("Serving on http://0.0.0.0:8000") == 2
    recipe = (cluster.model / "recipe.yaml").read_text()
    assert "http://algo-1:8000,http://algo-2:8000" in recipe, "judge is whichever hosts judge"
    rewards = [json.loads(line).get("reward") for line in (cluster.model / "metrics.jsonl").open()]
    assert any(rewards), "the judges' scores are what it trained on"
