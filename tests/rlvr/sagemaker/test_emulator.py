"""The emulator behaves as the training service documents, tested with shell commands as jobs."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import ACCOUNT, LOG_GROUP, EmulatedJob
from tests.support.sagemaker_emulator.service import TrainingService

pytestmark = pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))

IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/any:1"


@pytest.fixture(scope="module")
def service() -> Iterator[TrainingService]:
    with TrainingService(stop_s=4) as service:
        yield service


def request_of(service: TrainingService, name: str, shell: str, **more: Any) -> dict[str, Any]:
    base = f"s3://{service.bucket}/{name}"
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash"],
            "ContainerArguments": ["-c", shell],
        },
        "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/training",
        "OutputDataConfig": {"S3OutputPath": base},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **more,
    }


def run(service: TrainingService, name: str, shell: str, **more: Any) -> EmulatedJob:
    service.client("sagemaker").create_training_job(**request_of(service, name, shell, **more))
    return service.job(name)


def checkpoints(service: TrainingService, name: str) -> dict[str, str]:
    return {"S3Uri": f"s3://{service.bucket}/{name}/checkpoints", "LocalPath": "/opt/ml/checkpoints"}


def logged(service: TrainingService, name: str) -> dict[str, list[str]]:
    """The log lines of each stream."""
    logs = service.client("logs")
    streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    lines = {}
    for stream in streams:
        events = logs.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=True)[
            "events"
        ]
        lines[stream["logStreamName"]] = [event["message"] for event in events]
    return lines


def unpacked(service: TrainingService, uri: str) -> dict[str, bytes]:
    bucket, key = storage.place(uri)
    packed = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}  # type: ignore[union-attr]


def test_a_completed_job_has_logs_a_model_and_ordered_states(service: TrainingService) -> None:
    job = run(service, "well", "echo first; echo second >&2; echo m > /opt/ml/model/m; echo d > /opt/ml/output/data/d")
    ended = job.wait(60)
    assert ended["TrainingJobStatus"] == "Completed" and "FailureReason" not in ended
    description = service.client("sagemaker").describe_training_job(TrainingJobName="well")
    states = [transition["Status"] for transition in description["SecondaryStatusTransitions"]]
    assert states == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert description["TrainingEndTime"] >= description["TrainingStartTime"] >= description["CreationTime"]
    assert unpacked(service, description["ModelArtifacts"]["S3ModelArtifacts"]) == {"m": b"m\n"}
    assert unpacked(service, f"s3://{service.bucket}/well/well/output/output.tar.gz") == {"d": b"d\n"}
    ((stream, lines),) = logged(service, "well").items()
    assert stream.startswith("well/algo-1-") and lines == ["first", "second"]


def test_a_failure_has_the_reason_that_the_container_wrote(service: TrainingService) -> None:
    job = run(service, "reason", "echo -n 'no such reward' > /opt/ml/output/failure; exit 3")
    assert job.wait(60)["FailureReason"] == "AlgorithmError: no such reward, exit code: 3"
    assert job.status == "Failed"


def test_a_container_finds_its_channels_environment_and_configuration(service: TrainingService) -> None:
    s3 = service.client("s3")
    s3.put_object(Bucket=service.bucket, Key="inputs/input/a/b.txt", Body=b"content")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{service.bucket}/inputs/input"}
    job = run(
        service, "inputs",
        "cd /opt/ml/input; cat data/some/a/b.txt; echo; cat config/hyperparameters.json; echo; echo $COLOUR; hostname; "
        "echo $$; ls /tmp | wc -l; touch /outside 2> /dev/null || echo read-only",
        InputDataConfig=[{"ChannelName": "some", "DataSource": {"S3DataSource": source}}],
        Environment={"COLOUR": "it's \"blue\""}, HyperParameters={"a": "1"},
    )  # fmt: skip
    job.wait(60)
    lines = job.log().splitlines()
    assert lines[:5] == ["content", '{"a": "1"}', 'it\'s "blue"', "algo-1", "1"], "its process is number 1"
    assert lines[-1] == "read-only", "nothing of this machine can be changed"
    assert not Path("/outside").exists()


def test_hosts_of_all_groups_are_connected(service: TrainingService) -> None:
    shell = (
        'eval "$SCRIPT"; python3 -c \'import json; print(json.load(open("/opt/ml/input/config/resourceconfig.json")))\''
    )
    script = """
        if [ $(hostname) = algo-3 ]; then
            python3 -c "import socket; s = socket.create_server(('', 999)); print(s.accept()[0].recv(9).decode())"
        elif [ $(hostname) = algo-1 ]; then sleep 0.3
            python3 -c "import socket; socket.create_connection(('algo-3', 999)).sendall(b'hello')"
        fi"""
    groups = [
        {"InstanceGroupName": "gpus", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "cpus", "InstanceType": "ml.m5.large", "InstanceCount": 2},
    ]
    resources = {"InstanceGroups": groups, "VolumeSizeInGB": 30}
    job = run(service, "many", shell, ResourceConfig=resources, Environment={"SCRIPT": script})
    assert job.wait(60)["TrainingJobStatus"] == "Completed", job.log()
    streams = logged(service, "many")
    assert [name.split("/")[1][:6] for name in sorted(streams)] == ["algo-1", "algo-2", "algo-3"]
    assert "hello" in job.log()
    assert "'current_group_name': 'cpus', 'hosts': ['algo-1', 'algo-2', 'algo-3']" in job.log()


@pytest.mark.slow
def test_checkpoints_are_mirrored_during_the_job_and_restored_in_the_next(service: TrainingService) -> None:
    write = "mkdir -p /opt/ml/checkpoints/c; cd /opt/ml/checkpoints; echo 1 > c/one; echo 2 > c/two; "
    where = checkpoints(service, "kept")
    job = run(service, "kept", f"{write} sleep 1.2; rm c/one; echo written; sleep 60", CheckpointConfig=where)
    job.wait_for("written", 20)
    until = time.monotonic() + 20
    while [key.rsplit("/")[-1] for key in storage.keys(service.client("s3"), where["S3Uri"])] != ["two"]:
        assert time.monotonic() < until and job.status == "InProgress"
        time.sleep(0.1)
    job.stop()
    job.wait(60)
    again = run(service, "kept-on", "cat /opt/ml/checkpoints/c/*", CheckpointConfig=where)
    again.wait(60)
    assert again.log() == "2\n"


@pytest.mark.slow
def test_a_stop_is_sigterm_and_later_sigkill(service: TrainingService) -> None:
    heard = run(service, "hears", "trap 'echo heard; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    deaf = run(service, "deaf", "echo up; sleep 60; echo awake")
    for job in (heard, deaf):
        job.wait_for("up", 20)
        service.client("sagemaker").stop_training_job(TrainingJobName=job.name)
        ended = job.wait(60)
        assert ended["TrainingJobStatus"] == "Stopped" and "FailureReason" not in ended
    assert "heard" in heard.log() and heard.codes == [{"algo-1": 0}]
    assert deaf.codes == [{"algo-1": 137}], "killed when the time was over"
    with pytest.raises(service.client("sagemaker").exceptions.ClientError, match="is in status Stopped"):
        service.client("sagemaker").stop_training_job(TrainingJobName="deaf")


def test_after_a_spot_interruption_another_attempt_has_the_same_checkpoints(service: TrainingService) -> None:
    shell = (
        "cd /opt/ml/checkpoints; if [ -e noted ]; then echo again with $(cat noted); exit 0; fi; "
        "trap 'echo $RANDOM > noted; exit 143' TERM; echo up; while :; do sleep 0.1; done"
    )
    spot = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600},
    }
    job = run(service, "spot", shell, CheckpointConfig=checkpoints(service, "spot"), **spot)
    job.wait_for("up", 20)
    job.interrupt()
    ended = job.wait(60)
    states = [transition["Status"] for transition in ended["SecondaryStatusTransitions"]]
    assert states == [
        "Starting", "Downloading", "Training", "Interrupted", "Downloading", "Training", "Uploading", "Completed",
    ]  # fmt: skip
    assert "again with" in job.log() and job.codes == [{"algo-1": 143}, {"algo-1": 0}]
    assert len(logged(service, "spot")) == 2, "each attempt has a stream of its own"


def test_a_lost_machine_gets_no_signal(service: TrainingService) -> None:
    shell = "cd /opt/ml/checkpoints; [ -e x ] && exit 0; trap 'echo signalled' TERM; touch x; echo up; sleep 60"
    job = run(service, "lost", shell, CheckpointConfig=checkpoints(service, "lost"))
    job.wait_for("up", 20)
    time.sleep(1)
    job.interrupt(lost=True)
    assert job.wait(60)["TrainingJobStatus"] == "Completed"
    assert job.codes == [{"algo-1": 137}, {"algo-1": 0}] and "signalled" not in job.log(1)


@pytest.mark.slow
def test_a_job_stops_after_its_maximum_time(service: TrainingService) -> None:
    job = run(service, "long", "sleep 60", StoppingCondition={"MaxRuntimeInSeconds": 1})
    ended = job.wait(60)
    assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


@pytest.mark.parametrize(
    ("change", "words", "why"),
    [
        ({"TrainingJobName": "Qwen2.5"}, "Qwen2.5", "a name has no dots"),
        ({"Environment": {"A": "x" * 513}}, "513", "values are bounded, which botocore doesn't check"),
        ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds", "spot wants a limit for the waiting"),
        ({"TrainingJobName": "well"}, "unique", "a name is used once"),
    ],
)
def test_invalid_requests_are_refused(service: TrainingService, change: dict[str, Any], words: str, why: str) -> None:
    if change == {"TrainingJobName": "well"} and "well" not in service.jobs:
        run(service, "well", "true").wait(60)
    client = service.client("sagemaker")
    with pytest.raises(client.exceptions.ClientError) as refused:
        client.create_training_job(**(request_of(service, "refused", "true") | change))
    assert words in str(refused.value), why
    assert "refused" not in service.jobs


def test_a_warm_pool_exists_until_it_is_ended(service: TrainingService) -> None:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
    job = run(service, "warm", "true", ResourceConfig={**resources, "KeepAlivePeriodInSeconds": 600})
    assert job.wait(60)["WarmPoolStatus"] == {"Status": "Available"}
    service.client("sagemaker").update_training_job(
        TrainingJobName="warm", ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )
    assert job.description["WarmPoolStatus"] == {"Status": "Terminated"}


def test_the_account_has_a_role_and_the_configured_quotas() -> None:
    with TrainingService(quotas={"ml.g6.xlarge for training job usage": 2}) as service:
        listed = service.client("service-quotas").list_service_quotas(ServiceCode="sagemaker")["Quotas"]
        assert [(one["QuotaName"], one["Value"]) for one in listed] == [("ml.g6.xlarge for training job usage", 2.0)]
        role = service.client("iam").get_role(RoleName=service.role.rpartition("/")[2])["Role"]
        assert role["Arn"] == service.role


def test_a_container_reaches_other_services(service: TrainingService) -> None:
    secrets = service.client("secretsmanager")
    secrets.create_secret(Name="token", SecretString="hf_something")
    code = "import boto3; print(boto3.client('secretsmanager').get_secret_value(SecretId='token')['SecretString'][:3])"
    job = run(service, "reaches", f'python3 -c "{code}"')
    job.wait(60)
    assert job.log() == "hf_\n", job.log()


def test_nothing_remains_after_the_tests_are_killed(tmp_path: Path) -> None:
    """kill -9 of the process that runs the emulator."""
    code = f"""
import pathlib, sys, time
from tests.support.sagemaker_emulator import containers
folder = pathlib.Path({str(tmp_path)!r}); (folder / "ml").mkdir()
command = ["/bin/bash", "-c", "echo up; exec -a left-behind-{os.getpid()} sleep 100"]
host = containers.Host("algo-1", folder / "ml", command, containers.environment_of_the_image(), folder / "log")
containers.start([host], folder)
while "up" not in (folder / "log").read_text(): time.sleep(0.05)
print("up", flush=True)
time.sleep(100)
"""
    mounts, devices = Path("/proc/mounts").read_text(), sorted(os.listdir("/sys/class/net"))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=containers.REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    assert _commands(f"left-behind-{os.getpid()}"), "else the rest shows nothing"
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 10
    while _commands(f"left-behind-{os.getpid()}"):
        assert time.monotonic() < until, "the container still runs"
        time.sleep(0.05)
    assert Path("/proc/mounts").read_text() == mounts
    assert sorted(os.listdir("/sys/class/net")) == devices
    assert not Path("/opt/ml").exists() or not os.listdir("/opt/ml")


TRAINER = """
import os, rlvr, signal, socket, sys, time
print(__name__, sys.argv[1:], "torch" in sys.modules, rlvr.__file__, flush=True)
print(socket.gethostname(), os.getcwd(), os.listdir("/tmp/seen"), 1 < os.getpid() < 100, end=" ")
print(os.environ["WORDS"], flush=True)
if sys.argv[1] == "ends":
    sys.exit(75)
signal.signal(signal.SIGTERM, lambda *about: print("heard", flush=True) or sys.exit(143))
open("/tmp/up", "w").write(str(os.getpid()))
time.sleep(60)
"""


@pytest.mark.slow
def test_a_forked_trainer_behaves_like_any_process_of_its_container(prefork: Path, tmp_path: Path) -> None:
    package = tmp_path / "ml" / "code" / "rlvr" / "sagemaker" / "container"
    package.mkdir(parents=True)
    for folder in (package.parent.parent, package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "rank.py").write_text(TRAINER)
    shell = """mkdir /tmp/seen; cd /opt/ml/code; export WORDS="it's"; rank="python3 -m rlvr.sagemaker.container.rank"
        $rank ends; echo ended with $?
        for signal in TERM KILL; do
            rm -f /tmp/up; $rank waits & while ! [ -s /tmp/up ]; do sleep 0.05; done
            kill -$signal $!; wait $!; echo $signal: $?
            while [ -e /proc/$(cat /tmp/up) ]; do sleep 0.05; done
        done
        rm -f /tmp/up; $rank waits & while ! [ -s /tmp/up ]; do sleep 0.05; done
        kill -TERM $(cat /tmp/up); wait $!; echo signalled itself: $?"""
    command = ["/bin/bash", "-c", shell]
    host = containers.Host("algo-1", tmp_path / "ml", command, containers.environment_of_the_image(), tmp_path / "log")
    attempt = containers.start([host], tmp_path, prefork=prefork)
    ended = attempt.wait(60)
    attempt.end()
    log = (tmp_path / "log").read_text()
    assert ended and attempt.codes == {"algo-1": 0}, log
    assert "__main__ ['ends'] True /opt/ml/code/rlvr/__init__.py" in log, "it has the libraries and the uploaded code"
    assert "algo-1 /opt/ml/code [] True it's" in log
    lines = log.splitlines()
    for line in ("ended with 75", "TERM: 143", "KILL: 137", "signalled itself: 143"):
        assert line in lines, log
    assert log.count("heard") == 2


def _commands(word: str) -> list[str]:
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if line.startswith(word):
            commands.append(line)
    return commands
