"""Jobs that really train: the recipe as it is uploaded, the container as it is asked for, tiny models, few steps."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlvr.sagemaker.settings import InstanceGroup
from tests.sagemaker.emulator import containers, storage
from tests.sagemaker.emulator.job import Job
from tests.sagemaker.emulator.service import TrainingService
from tests.sagemaker.emulator.submitting import submit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not())),
]

# Two prompts a step, four completions each; a checkpoint only when one is asked for by a signal.
SHORT = (
    *("--num_generations", "4", "--per_device_train_batch_size", "8", "--evaluation", "null"),
    *("--save_strategy", "steps", "--save_steps", "1000", "--disable_tqdm", "true"),
)
# As quick as a step can be; the reward that goes with it finds differences all the same.
QUICK = (
    *(*SHORT, "--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--max_completion_length", "8"),
    *("--mask_truncated_completions", "false", "--temperature", "2.0"),
)
# A number that the text alone decides, so that every step has a gradient.
REWARD = """
import time, zlib

def drawn(prompts, completions, *, seconds: float = 0.0, **kwargs):
    time.sleep(seconds)
    return [zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""


def rewarded(folder: Path, **options: Any) -> tuple[str, ...]:
    """Words that make REWARD the only reward."""
    (folder / "drawn.py").write_text(REWARD)
    return ("--rewards", json.dumps([{"name": str(folder / "drawn.py"), "options": options}]))


@pytest.fixture(scope="module")
def service() -> Iterator[TrainingService]:
    with TrainingService() as service:
        yield service


def unpacked(service: TrainingService, job: Job, folder: Path) -> Path:
    """The job's model.tar.gz, as somebody who fetches it has it."""
    bucket, key = storage.place(job.description["ModelArtifacts"]["S3ModelArtifacts"])
    packed = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def steps(metrics: Path) -> list[int]:
    """The steps of a run that metrics.jsonl has."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["step"] for line in lines if "loss" in line or "reward" in line]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_job_trains_and_its_model_holds_the_adapter_and_how_it_was_measured(
    service: TrainingService, tmp_path: Path
) -> None:
    evaluation = ("--evaluation", '{"rows": 8, "batch_size": 8, "metric": "math_correctness"}')
    job = submit(service, "trains", (*SHORT, "--max_steps", "3", "--seed", "1", *evaluation))
    assert job.wait()["TrainingJobStatus"] == "Completed", job.log()[-3000:]
    model = unpacked(service, job, tmp_path)
    assert {"adapter", "evaluation.json", "report.html", "recipe.yaml", "metrics.jsonl"} <= names(model)
    assert not [name for name in names(model) if name.startswith("checkpoint-")]
    assert (model / "adapter" / "adapter_model.safetensors").stat().st_size > 10_000
    assert {"base", "trained", "difference"} <= json.loads((model / "evaluation.json").read_text()).keys()
    assert steps(model / "metrics.jsonl") == [1, 2, 3]
    assert not [line for line in job.log().splitlines() if "Traceback" in line]


def test_a_job_that_fails_says_why_in_one_line_for_people(service: TrainingService) -> None:
    job = submit(service, "fails", (*SHORT, "--max_completion_length", "100000"))
    ended = job.wait()
    reason = ended["FailureReason"]
    assert ended["TrainingJobStatus"] == "Failed" and job.codes == [{"algo-1": 2}], "nothing was trained"
    assert reason.startswith("AlgorithmError: ") and reason.endswith(", exit code: 2")
    assert "max_completion_length" in reason and "\n" not in reason and "Traceback" not in reason


@dataclass(frozen=True)
class Long:
    """One run over a spot interruption, a stop, and a second job on the same checkpoints.

    Attributes:
        spot: the job that was interrupted, and stopped in its second attempt.
        second: the one on the same checkpoints.
        kept: the checkpoints that the bucket had after the interruption and after the stop.
        model: of the second job.
    """

    spot: Job
    second: Job
    kept: list[list[int]]
    model: Path


@pytest.fixture(scope="module")
def long(service: TrainingService, tmp_path_factory: pytest.TempPathFactory) -> Long:
    folder = tmp_path_factory.mktemp("long")
    words = (*QUICK, *rewarded(folder, seconds=0.3), "--max_steps", "12")
    checkpoints = f"s3://{service.bucket}/long/checkpoints"
    spot = submit(service, "long-1", words, checkpoints=checkpoints, spot=True)
    kept = []
    spot.wait_for(" 2/12 ")
    spot.interrupt()
    spot.wait_for("continues from", attempt=2)
    kept.append(saved(service, checkpoints))
    at = kept[0][-1]
    spot.wait_for(f" {at + 2}/12 ", attempt=2)
    service.client("sagemaker").stop_training_job(TrainingJobName=spot.name)
    spot.wait()
    kept.append(saved(service, checkpoints))
    second = submit(service, "long-2", words, checkpoints=checkpoints)
    second.wait()
    assert second.status == "Completed", second.log()[-3000:]
    return Long(spot, second, kept, unpacked(service, second, tmp_path_factory.mktemp("model")))


def saved(service: TrainingService, uri: str) -> list[int]:
    """The steps of the complete checkpoints in a bucket."""
    found = [key.split("/") for key in storage.keys(service.client("s3"), uri)]
    return sorted(int(parts[-2].removeprefix("checkpoint-")) for parts in found if parts[-1] == "complete.json")


def test_a_spot_interruption_is_a_checkpoint_and_the_next_attempt_goes_on_from_it(long: Long) -> None:
    (step, *_) = long.kept[0]
    assert 2 <= step < 12, "save_steps is 1000, so it was saved because of the signal"
    assert f"Saving a checkpoint of step {step}" in long.spot.log(1)
    assert f"checkpoint-{step}, step {step}" in long.spot.log(2)
    assert f" {step + 1}/12 " in long.spot.log(2) and f" {step}/12 " not in long.spot.log(2)


def test_a_stop_is_a_checkpoint_and_no_failure(long: Long) -> None:
    ended = long.spot.description
    assert ended["TrainingJobStatus"] == "Stopped" and "FailureReason" not in ended
    assert long.spot.codes == [{"algo-1": 143}, {"algo-1": 143}]
    assert long.kept[1][-1] > long.kept[0][-1]


def test_another_job_on_the_same_checkpoints_makes_the_steps_that_are_left(long: Long) -> None:
    step = long.kept[1][-1]
    assert f"checkpoint-{step}, step {step}" in long.second.log()
    assert steps(long.model / "metrics.jsonl") == list(range(1, 13)), "each step once, in three pieces"
    assert (long.model / "adapter" / "adapter_model.safetensors").is_file()


def test_two_hosts_train_as_one(service: TrainingService, tmp_path: Path) -> None:
    words = (*QUICK, *rewarded(tmp_path), "--max_steps", "3", "--per_device_train_batch_size", "4")
    job = submit(service, "two", words, instance_count=2)
    assert job.wait()["TrainingJobStatus"] == "Completed", job.log()[-5000:]
    assert job.codes == [{"algo-1": 0, "algo-2": 0}]
    model = unpacked(service, job, tmp_path)
    assert json.loads((model / "run.json").read_text())["identity"]["processes"] == 2
    assert steps(model / "metrics.jsonl") == [1, 2, 3], "one run, not one a host"
    assert not list((job.roots[1] / "model").iterdir()), "the model is the first host's"


def test_a_group_of_judges_finds_its_role_and_serves_the_group_that_trains(service: TrainingService) -> None:
    places = [
        word
        for name in ("math_correctness", "answer_format")
        for word in (f"--rewards.{name}.where", "http://judge:8000")
    ]
    groups = (InstanceGroup("gpus", "ml.m5.xlarge", 1, "train"), InstanceGroup("cpus", "ml.m5.large", 2, "judge"))
    words = (*SHORT, "--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--max_steps", "2", *places)
    job = submit(service, "judged", words, instance_groups=groups)
    assert job.wait()["TrainingJobStatus"] == "Completed", job.log()[-5000:]
    assert job.codes == [{"algo-1": 0, "algo-2": 0, "algo-3": 0}], "the judges end when the training has"
    assert "algo-3: train, host 0 of its role; 1 processes on 1 hosts train, led by algo-3" in job.log()
    assert "algo-2: judge, host 1 of its role" in job.log()
    assert job.log().count("Serving on http://0.0.0.0:8000") == 2
    recipe = (job.roots[2] / "model" / "recipe.yaml").read_text()
    assert recipe.count("http://algo-1:8000,http://algo-2:8000") == 2, "judge is whichever hosts judge"
    rewards = [json.loads(line).get("reward") for line in (job.roots[2] / "model" / "metrics.jsonl").open()]
    assert any(rewards), "the judges' scores are what it trained on"
