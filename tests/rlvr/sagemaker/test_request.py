"""The request's values and the service's limits on them, lengths and patterns included."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.sagemaker import images, request
from rlvr.sagemaker.request import required_quotas
from rlvr.sagemaker.validation import settings_problems
from tests.support.cases import cases
from tests.support.input_errors import input_error

PROJECT = Path(__file__).resolve().parents[3]
DEMO = PROJECT / "recipes" / "demo-arithmetic.yaml"
QLORA = PROJECT / "recipes" / "gsm8k-qwen2.5-1.5b-instruct-qlora.yaml"
ROLE = "arn:aws:iam::111122223333:role/x"
VALID: dict[str, Any] = {
    "TrainingJobName": "mine-20260101-000000",
    "RoleArn": ROLE,
    "AlgorithmSpecification": {
        "TrainingInputMode": "File",
        "TrainingImage": "image:1",
        "ContainerArguments": ["-c", "x" * 256],
        "MetricDefinitions": [{"Name": "reward", "Regex": "(.*)"}],
    },
    "OutputDataConfig": {"S3OutputPath": "s3://b/p"},
    "ResourceConfig": {"InstanceType": "ml.g6e.12xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "Environment": {"A": "it's " + "x" * 507},
    "Tags": [{"Key": "grpo-recipes:recipe", "Value": "x y"}],
    "InputDataConfig": [
        {"ChannelName": "data", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/d"}}}
    ],
}


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(content: dict[str, Any]) -> None:
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in keys:
            content = content[key]
        content[last] = value

    return apply


def test_a_request_within_all_limits_has_no_problem() -> None:
    assert request.request_problems(VALID) == []


def test_an_invalid_name_of_a_variable_is_named_once() -> None:
    content = copy.deepcopy(VALID)
    content["Environment"]["MY-VAR"] = "x"
    (problem,) = request.request_problems(content)
    assert problem.kind == "invalid-request" and problem.message.count("MY-VAR") == 1


@pytest.mark.parametrize(
    ("apply", "names", "why"),
    [
        (change("TrainingJobName", "x" * 64), "64 characters; the maximum is 63", "a name too long"),
        (change("Environment.A", "x" * 513), "Environment.A has 513 characters", "a long value of a variable"),
        (change("AlgorithmSpecification.ContainerArguments.1", "x" * 257), "ContainerArguments[1]", "a long argument"),
        (change("RoleArn", "arn:aws:iam::1:role/x"), "RoleArn", "a role without an account"),
        (change("ResourceConfig.InstanceType", "ml.g6e.12xlrge"), "Did you mean ml.g6e.12xlarge?", "a mistyped type"),
        (change("ResourceConfig.KeepAlivePeriodInSeconds", 10**6), "KeepAlivePeriodInSeconds", "kept warm too long"),
        (change("StoppingCondition.MaxRuntimeInSeconds", 0), "valid min value: 1", "no time at all"),
        (change("Tags.0.Key", "a;b"), "Tags[0].Key 'a;b'", "a character that tags don't allow"),
        (change("Unknown", 1), "Unknown", "a name that the service doesn't know"),
        (change("StoppingCondition.MaxRuntimeInSeconds", "1h"), "MaxRuntimeInSeconds", "a type"),
        (lambda content: content.pop("RoleArn"), "RoleArn", "a missing name"),
    ],
)
def test_a_request_beyond_a_limit_is_a_problem(apply: Callable[[dict[str, Any]], None], names: str, why: str) -> None:
    content = copy.deepcopy(VALID)
    apply(content)
    problems = request.request_problems(content)
    assert {problem.kind for problem in problems} == {"invalid-request"}
    assert any(names in problem.message for problem in problems), why


GOOD: dict[str, Any] = {"instance_type": "ml.g6e.12xlarge", "region": "us-east-1", "role": ROLE, "bucket": "b"}
PLAN = "arn:aws:sagemaker:us-east-1:111122223333:training-plan/mine"


@pytest.mark.parametrize(("changes", "words", "kind", "key", "fix", "why"), cases(__file__, "sections"))
def test_a_section_that_cannot_work_has_one_problem_with_a_fix(
    changes: dict[str, Any], words: list[str], kind: str, key: str, fix: str, why: str
) -> None:
    (problem,) = settings_problems(load_recipe(QLORA, words), SageMakerSettings(**{**GOOD, **changes}))
    assert (problem.kind, problem.key) == (kind, key) and fix in problem.message, (why, problem)


@pytest.mark.parametrize("key", ["hf_token_secret_arn", "rewards_key_secret_arn"])
def test_a_secret_in_place_of_its_arn_is_not_repeated(key: str) -> None:
    (problem,) = settings_problems(load_recipe(QLORA), SageMakerSettings(**GOOD, **{key: "hf_abc"}))
    assert "hf_abc" not in problem.message


def test_a_good_section_has_no_problem() -> None:
    assert settings_problems(load_recipe(QLORA), SageMakerSettings(**GOOD)) == []
    assert settings_problems(load_recipe(DEMO), SageMakerSettings(**{**GOOD, "instance_type": "ml.m5.xlarge"})) == []
    harmless = {
        "prefix": "a..b/c",
        "output": "s3://b/x..y",
        "environment": {"HF_HOME": "/tmp/x", "GRPO_JUDGE_SLOTS": "4"},
        "mlflow_tracking_uri": "https://mlflow.internal",
    }
    assert settings_problems(load_recipe(QLORA), SageMakerSettings(**GOOD, **harmless)) == []


def build(recipe: Path = QLORA, words: Sequence[str] = (), own: Sequence[str] = ("code",), **settings: Any) -> Any:
    section = SageMakerSettings(**{**GOOD, **settings})
    built = request.build_request(load_recipe(recipe, words), section, "mine-20260101-000000", own, "0" * 64)
    assert request.request_problems(built) == []
    return built


def test_the_request_has_the_sections_values_and_no_others() -> None:
    built = build(own=("code", "data"), instance_count=2, tags={"team": "nlp"})
    root = "s3://b/grpo-recipes"
    assert set(built) == {
        "TrainingJobName",
        "AlgorithmSpecification",
        "InputDataConfig",
        "ResourceConfig",
        "RoleArn",
        "Tags",
        "StoppingCondition",
        "OutputDataConfig",
        "CheckpointConfig",
        "Environment",
    }
    channels = {one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"] for one in built["InputDataConfig"]}
    assert channels == {name: f"{root}/mine-20260101-000000/input/{name}" for name in ("code", "data")}
    assert built["ResourceConfig"] == {"InstanceType": "ml.g6e.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
    assert built["Tags"] == [
        {"Key": "grpo-recipes", "Value": "grpo-recipes"},
        {"Key": "grpo-recipes:recipe", "Value": "0" * 64},
        {"Key": "team", "Value": "nlp"},
    ]
    assert built["StoppingCondition"] == {"MaxRuntimeInSeconds": 4 * 3600}
    assert built["OutputDataConfig"]["S3OutputPath"] == root
    assert built["CheckpointConfig"] == {
        "S3Uri": f"{root}/mine-20260101-000000/checkpoints",
        "LocalPath": "/opt/ml/checkpoints",
    }


def test_optional_keys_reach_the_request() -> None:
    groups = (InstanceGroup("gpus", "ml.g6e.12xlarge", 2), InstanceGroup("judges", "ml.c5.4xlarge", 1, "judge"))
    built = build(
        instance_groups=groups,
        spot=True,
        max_wait_s=20000,
        retries=3,
        subnets=("subnet-1",),
        security_groups=("sg-1",),
        training_plan=PLAN,
        output_kms_key="alias/o",
        volume_kms_key="alias/v",
        max_pending_s=7200,
        network_isolation=True,
        encrypt_traffic=True,
        channels={"train": "s3://b/d/train/"},
        environment={"FI_PROVIDER": "efa", "PIP_NO_INDEX": "0"},
    )
    assert built["ResourceConfig"] == {
        "InstanceGroups": [
            {"InstanceGroupName": "gpus", "InstanceType": "ml.g6e.12xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "judges", "InstanceType": "ml.c5.4xlarge", "InstanceCount": 1},
        ],
        "VolumeSizeInGB": 30,
        "VolumeKmsKeyId": "alias/v",
        "TrainingPlanArn": PLAN,
    }
    assert built["OutputDataConfig"]["KmsKeyId"] == "alias/o"
    assert built["EnableNetworkIsolation"] is built["EnableInterContainerTrafficEncryption"] is True
    assert built["Environment"]["FI_PROVIDER"] == "efa" and built["Environment"]["PIP_NO_INDEX"] == "1"
    channels = [(one["ChannelName"], one["DataSource"]["S3DataSource"]["S3Uri"]) for one in built["InputDataConfig"]]
    assert channels[1:] == [("train", "s3://b/d/train")], "in addition to the job's own"
    assert built["EnableManagedSpotTraining"] is True
    assert built["StoppingCondition"] == {
        "MaxRuntimeInSeconds": 14400,
        "MaxWaitTimeInSeconds": 20000,
        "MaxPendingTimeInSeconds": 7200,
    }
    assert built["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert built["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert build(keep_alive_s=600)["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600


def test_images_are_those_of_the_sdks_table() -> None:
    from sagemaker.core import image_uris

    for version, entry in image_uris.config_for_framework(images.KEY)["training"]["versions"].items():
        for region, account in entry["registries"].items():
            if "iso" in region or region.startswith("eusc-"):
                continue  # their own domains
            for instance_type, build in zip(("ml.m5.xlarge", "ml.g5.xlarge"), ("cpu", "gpu"), strict=True):
                uri = images.image_uri(f"{images.KEY}:{version}", region, instance_type)
                name = f"{entry['repository']}:{entry['tag_prefix']}-{entry['container_version'][build]}"
                assert uri.startswith(f"{account}.dkr.ecr.{region}.amazonaws.com") and uri.endswith(f"/{name}")


def test_the_default_image_a_uri_and_unknown_images() -> None:
    default = images.image_uri(None, "eu-west-1", "ml.g6e.12xlarge")
    assert default.endswith(".eu-west-1.amazonaws.com/pytorch:2.13-cu133-amzn2023-sagemaker")
    assert images.image_uri("me/mine:1", "eu-west-1", "ml.m5.xlarge") == "me/mine:1"
    for image, region in (("pytorch-amzn2023:9.9", "eu-west-1"), ("nothing", "eu-west-1"), (None, "eu-west-9")):
        with input_error("unknown-image", "image"):
            images.image_uri(image, region, "ml.g6e.12xlarge")


def test_the_environment_has_the_containers_variables() -> None:
    groups = "[{name: gpus, instance_type: ml.g6e.12xlarge}, {name: cpus, instance_type: ml.c5.xlarge, role: judge}]"
    words = ["--sagemaker.instance_type", "null", "--sagemaker.instance_groups", groups]
    recipe = load_recipe(QLORA, [*words, "--sagemaker.max_runtime_s", "3600"])
    assert recipe.sagemaker is not None
    assert request.job_environment(recipe, recipe.sagemaker) == {
        "GRPO_RECIPE": "recipe.yaml",
        "GRPO_LAUNCHER": "zero3",
        "GRPO_MAX_RUNTIME_S": "3240",
        "GRPO_TRAIN_GROUP": "gpus",
        "GRPO_JUDGE_GROUP": "cpus",
        "PIP_CONSTRAINT": "/opt/ml/input/data/code/job-constraints.txt",
    }


def test_the_run_stops_before_the_job_is_stopped() -> None:
    for seconds in (60, 3600, 14400, 400000):
        settings = SageMakerSettings(**GOOD, max_runtime_s=seconds)
        limit = int(request.job_environment(load_recipe(QLORA), settings)["GRPO_MAX_RUNTIME_S"])
        assert 0.85 * seconds <= limit < seconds and seconds - limit <= 600


@pytest.mark.parametrize(
    ("hosts", "launcher", "processes", "why"),
    [
        ({"instance_type": "ml.m5.xlarge"}, "cpu", 1, "no GPU"),
        ({"instance_type": "ml.m5.xlarge", "processes_per_host": 3, "instance_count": 2}, "cpu", 6, "as many as asked"),
        ({"instance_type": "ml.g6e.xlarge"}, "python", 1, "one GPU has nothing to share"),
        ({"instance_type": "ml.g6e.xlarge", "instance_count": 2}, "zero3", 2, "a GPU on each host"),
        ({"instance_type": "ml.g6e.12xlarge"}, "zero3", 4, "several GPUs"),
        ({"instance_type": "ml.g4dn.xlarge"}, "zero3", None, "the table lacks its GPUs"),
    ],
)
def test_the_hosts_decide_launcher_and_processes(
    hosts: dict[str, Any], launcher: str, processes: int | None, why: str
) -> None:
    settings = SageMakerSettings(**{**GOOD, **hosts})
    environment = request.job_environment(load_recipe(DEMO), settings)
    assert (environment["GRPO_LAUNCHER"], request.count_processes(settings)) == (launcher, processes), why
    assert environment.get("GRPO_PROCESSES_PER_HOST") == ("3" if processes == 6 else None), why


def test_a_job_name_is_made_of_the_recipes_name_and_is_valid() -> None:
    recipe = load_recipe(QLORA)
    name = request.job_name(request.base_name(recipe, SageMakerSettings()), 0.0)
    assert name == "gsm8k-qwen2-5-1-5b-instruct-qlora-19700101-000000"
    assert request.request_problems({**VALID, "TrainingJobName": name}) == []


def test_a_digest_depends_on_material_keys_only() -> None:
    base = load_recipe(DEMO)
    for key, same in (("--seed", False), ("--max_steps", False), ("--save_steps", True), ("--max_runtime_s", True)):
        other = load_recipe(DEMO, [key, "7"])
        assert (request.recipe_digest(base.as_dict()) == request.recipe_digest(other.as_dict())) == same, key


def test_quotas_differ_for_on_demand_spot_and_warm_pools() -> None:
    one = {"instance_type": "ml.g5.xlarge", "instance_count": 2}
    assert required_quotas(SageMakerSettings(**one)) == {"ml.g5.xlarge for training job usage": 2}
    assert required_quotas(SageMakerSettings(**one, spot=True)) == {"ml.g5.xlarge for spot training job usage": 2}
    assert required_quotas(SageMakerSettings(**one, keep_alive_s=60)) == {
        "ml.g5.xlarge for training job usage": 2,
        "ml.g5.xlarge for training warm pool usage": 2,
    }


def test_without_boto3_the_error_names_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['botocore'] = None\n"
        "from rlvr.errors import InputError; from rlvr.sagemaker import request\n"
        "try: request.instance_types()\n"
        "except InputError as error: print(error.kind, error)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("missing-package") and "pip install -e '.[sagemaker]'" in run.stdout
