"""The SDK's request for a spec: a contract with the installed SDK, whose private names rlvr/sagemaker/sdk.py uses.

Nothing is asked of AWS, and no file of the user changes the request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr.sagemaker import cloudwatch_metrics, sdk
from rlvr.sagemaker.request import request_problems

ROLE = "arn:aws:iam::111122223333:role/x"
ROOT = "s3://bucket/pre/fix"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, and an endpoint where nothing listens."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("SAGEMAKER_VALIDATE_ROLE", "false")


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "code" / "scripts").mkdir(parents=True)
    (tmp_path / "drivers").mkdir()
    (tmp_path / "code" / "scripts" / "start.sh").write_text("echo it's me\n", encoding="utf-8")
    (tmp_path / "code" / "requirements.txt").write_text("trl\n", encoding="utf-8")
    return {
        "job_name": "mine-20260101-000000", "region": "eu-west-1", "bucket": "bucket", "prefix": "pre/fix",
        "role": ROLE, "code": str(tmp_path / "code"), "drivers": str(tmp_path / "drivers"),
        "entry_script": "scripts/start.sh", "requirements": "requirements.txt", "image": None,
        "image_key": "pytorch-amzn2023", "image_version": "2.13", "image_for": "ml.g6e.12xlarge",
        "instance_type": "ml.g6e.12xlarge", "instance_count": 2, "volume_gb": 30, "spot": False,
        "max_runtime_s": 3600, "max_wait_s": None, "keep_alive_s": 0, "retries": 0,
        "environment": {"GRPO_RECIPE": "recipe.yaml", "WITH": "an apostrophe's here"}, "channels": {},
        "output": ROOT, "checkpoints": f"{ROOT}/c", "tags": {"team": "nlp"}, "subnets": [], "security_groups": [],
        "metrics": cloudwatch_metrics.metric_definitions(), "tensorboard": None,
    }  # fmt: skip


def made(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = sdk.make_request({**spec, **changes})["request"]
    assert request_problems(request) == []
    return request


def test_the_request_has_the_specs_values_and_no_others(spec: dict[str, Any]) -> None:
    request = made(spec)
    assert set(request) == {
        "TrainingJobName", "AlgorithmSpecification", "HyperParameters", "InputDataConfig", "ResourceConfig", "RoleArn",
        "Tags", "StoppingCondition", "OutputDataConfig", "CheckpointConfig", "Environment",
    }  # fmt: skip
    assert request["TrainingJobName"] == spec["job_name"]
    assert request["HyperParameters"] == {}, "nothing goes through hyperparameters"
    assert request["Environment"] == spec["environment"]
    assert request["ResourceConfig"] == {
        "InstanceType": "ml.g6e.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30,
    }  # fmt: skip
    assert request["RoleArn"] == ROLE
    assert request["Tags"] == [{"Key": "team", "Value": "nlp"}]
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert request["OutputDataConfig"]["S3OutputPath"] == ROOT
    assert request["CheckpointConfig"] == {"S3Uri": f"{ROOT}/c", "LocalPath": "/opt/ml/checkpoints"}
    assert request["AlgorithmSpecification"]["MetricDefinitions"] == spec["metrics"]


def test_the_container_starts_pid1(spec: dict[str, Any]) -> None:
    algorithm = made(spec)["AlgorithmSpecification"]
    assert algorithm["ContainerEntrypoint"] == ["/bin/bash"]
    assert algorithm["ContainerArguments"] == sdk.ARGUMENTS
    assert all(len(argument) <= 256 for argument in sdk.ARGUMENTS)


def test_the_sdks_own_command_is_the_one_that_arguments_replaces() -> None:
    """If this changes, so must ARGUMENTS."""
    from sagemaker.train import constants

    assert constants.DEFAULT_CONTAINER_ENTRYPOINT == ["/bin/bash"]
    theirs = f"chmod +x {sdk.DRIVERS} && {sdk.DRIVERS}"
    assert list(constants.DEFAULT_CONTAINER_ARGUMENTS) == ["-c", theirs]


def test_code_and_drivers_go_to_the_folders_that_the_request_names(spec: dict[str, Any]) -> None:
    found = sdk.make_request(spec)
    channels = {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"] for one in found["request"]["InputDataConfig"]
    }
    place = f"{ROOT}/{spec['job_name']}/input"
    assert channels == {"code": f"{place}/code", "sm_drivers": f"{place}/sm_drivers"}
    assert found["uploads"] == [
        {"folder": spec["code"], "uri": f"{place}/code"},
        {"folder": spec["drivers"], "uri": f"{place}/sm_drivers"},
    ]
    drivers = {str(path.relative_to(spec["drivers"])) for path in Path(spec["drivers"]).rglob("*") if path.is_file()}
    assert {"sm_train.sh", "sourcecode.json", "scripts/environment.py", "scripts/install_requirements.py"} <= drivers
    assert not [name for name in drivers if "__pycache__" in name]
    script = Path(spec["drivers"], "sm_train.sh").read_text()
    assert "requirements.txt" in script and "cd /opt/ml/input/data/code" in script


def test_a_channel_of_data_is_named_by_its_uri(spec: dict[str, Any]) -> None:
    request = made(spec, channels={"data": f"{ROOT}/d"})
    assert request["InputDataConfig"][0]["ChannelName"] == "data"
    assert request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == f"{ROOT}/d"


def test_spot_waits_and_is_no_default(spec: dict[str, Any]) -> None:
    request = made(spec, spot=True, max_wait_s=7200)
    assert request["EnableManagedSpotTraining"] is True
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    assert "EnableManagedSpotTraining" not in made(spec)


def test_groups_vpc_retries_warm_pool_and_tensorboard_reach_the_request(spec: dict[str, Any]) -> None:
    groups = [
        {"name": "gpus", "instance_type": "ml.g6e.12xlarge", "instance_count": 2},
        {"name": "judges", "instance_type": "ml.c5.4xlarge", "instance_count": 1},
    ]
    request = made(spec, instance_groups=groups, subnets=["subnet-1"], security_groups=["sg-1"], retries=3)
    assert request["ResourceConfig"]["InstanceGroups"] == [
        {
            "InstanceGroupName": group["name"],
            "InstanceType": group["instance_type"],
            "InstanceCount": group["instance_count"],
        }
        for group in groups
    ]
    assert "InstanceType" not in request["ResourceConfig"]
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert request["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    request = made(spec, keep_alive_s=600, tensorboard=f"{ROOT}/t")
    assert request["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600
    assert request["TensorBoardOutputConfig"] == {
        "S3OutputPath": f"{ROOT}/t", "LocalPath": "/opt/ml/output/tensorboard",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "end", "why"),
    [
        ({}, "/pytorch:2.13-cu133-amzn2023-sagemaker", "the recommended one, with torch 2.13 for CUDA"),
        ({"image_for": "ml.m5.xlarge"}, "/pytorch:2.13-cpu-amzn2023-sagemaker", "hosts without GPUs"),
        ({"image_version": "2.14"}, "/pytorch:2.14-cu133-amzn2023-sagemaker", "another version"),
        ({"image": "me/mine:1"}, "me/mine:1", "an image of one's own"),
    ],
)
def test_the_image_is_found_by_key_version_and_instance_type(
    spec: dict[str, Any], changes: dict[str, str], end: str, why: str
) -> None:
    assert sdk.image_of({**spec, **changes}).endswith(end), why


def test_the_users_sdk_configuration_does_not_change_the_request(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made(spec)
    path = tmp_path / "config.yaml"
    path.write_text(
        "SchemaVersion: '1.0'\nSageMaker:\n  TrainingJob:\n    EnableNetworkIsolation: true\n"
        "    Tags: [{Key: sneaked, Value: in}]\n    Environment: {SNEAKED: in}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(path))
    assert made(spec) == before


def test_a_process_of_its_own_builds_the_same_request_and_returns_refusals(spec: dict[str, Any]) -> None:
    whole, broken = sdk.RequestBuilder(spec), sdk.RequestBuilder({**spec, "entry_script": "gone.sh"})
    assert whole.result() == sdk.make_request(spec)
    with pytest.raises(sdk.SdkError, match="entry_script"):
        broken.result()


def test_with_stubbed_imports_the_sdk_builds_the_same_request(spec: dict[str, Any]) -> None:
    """Without the fallback to the whole SDK, which would hide that a stub lacks something."""
    program = (
        "import json, sys; from rlvr.sagemaker import sdk\n"
        "sdk.stub_unused_imports(); import sagemaker.train.model_trainer\n"
        "made = sdk.make_request(json.load(sys.stdin))\n"
        "names = ('pandas', 'numpy', 'scipy', 'omegaconf')\n"
        "whole = [name for name in names if hasattr(sys.modules[name], '__file__')]\n"
        "json.dump([made, whole], sys.stdout)"
    )
    groups = [{"name": "gpus", "instance_type": "ml.g6e.12xlarge", "instance_count": 2}]
    full = {
        **spec, "instance_groups": groups, "spot": True, "max_wait_s": 7200, "retries": 2, "subnets": ["subnet-1"],
        "security_groups": ["sg-1"], "channels": {"data": f"{ROOT}/d"}, "tensorboard": f"{ROOT}/t",
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(full), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [sdk.make_request(full), []]


@pytest.mark.slow
def test_if_a_stub_lacks_something_the_whole_sdk_builds_the_request(spec: dict[str, Any], tmp_path: Path) -> None:
    """An SDK that needs a data frame after all, in the place of the installed one."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif '--whole' not in sys.argv:\n    import importlib.abc\n"
        "    class Gone(importlib.abc.MetaPathFinder):\n"
        "        def find_spec(self, name, path, target=None):\n"
        "            if name == 'sagemaker.train.model_trainer': raise AttributeError('DataFrame has no attribute x')\n"
        "    sys.meta_path.insert(0, Gone())\n",
        encoding="utf-8",
    )
    run = subprocess.run(
        [sys.executable, "-m", "rlvr.sagemaker.sdk"],
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        check=False,
        cwd=sdk.PROJECT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{sdk.PROJECT}"},
    )
    assert json.loads(run.stdout) == sdk.make_request(spec), run.stderr


def test_a_forbidden_call_is_named() -> None:
    with pytest.raises(sdk.SdkError, match="it would ask sts for get_caller_identity"):
        sdk.ForbiddenClient("sts").get_caller_identity()
