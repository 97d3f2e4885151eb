"""What the service would refuse is found here, by the service's own model: lengths and patterns as well."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.sagemaker import request
from rlvr.sagemaker.quotas import Quota, quota_faults, quotas_of
from rlvr.sagemaker.validation import settings_faults

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


def test_a_request_within_all_limits_is_taken() -> None:
    assert request.request_faults(VALID) == []


@pytest.mark.parametrize(
    ("apply", "said", "why"),
    [
        (change("TrainingJobName", "x" * 64), "has 64 characters, but at most 63", "a name too long"),
        (change("TrainingJobName", "qwen2.5"), "'qwen2.5', which the service doesn't take", "a dot in a name"),
        (change("Environment.A", "x" * 513), "Environment.A has 513 characters", "a long value of a variable"),
        (
            change("AlgorithmSpecification.ContainerArguments.1", "x" * 257),
            "ContainerArguments[1] has 257 characters",
            "a long argument",
        ),
        (
            change("AlgorithmSpecification.MetricDefinitions.0.Regex", "x" * 501),
            "MetricDefinitions[0].Regex has 501 characters",
            "a long expression",
        ),
        (change("RoleArn", "arn:aws:iam::1:role/x"), "RoleArn", "a role without an account"),
        (change("ResourceConfig.InstanceType", "ml.g6e.12xlrge"), "did you mean ml.g6e.12xlarge?", "a mistyped type"),
        (change("ResourceConfig.KeepAlivePeriodInSeconds", 10**6), "at most", "kept warm too long"),
        (change("StoppingCondition.MaxRuntimeInSeconds", 0), "valid min value: 1", "no time at all"),
        (change("InputDataConfig.0.ChannelName", "my channel"), "ChannelName", "a space in a channel"),
        (change("Tags.0.Key", "x" * 129), "Tags[0].Key has 129 characters", "a tag's name too long"),
        (change("Tags.0.Key", "a;b"), "Tags[0].Key is 'a;b'", "a sign that tags don't take"),
        (change("Unknown", 1), "Unknown", "a name that the service doesn't know"),
        (change("StoppingCondition.MaxRuntimeInSeconds", "1h"), "MaxRuntimeInSeconds", "a type"),
        (lambda content: content.pop("RoleArn"), "RoleArn", "something is missing"),
    ],
)
def test_what_the_service_would_refuse_is_said(apply: Callable[[dict[str, Any]], None], said: str, why: str) -> None:
    content = copy.deepcopy(VALID)
    apply(content)
    faults = request.request_faults(content)
    assert len(faults) >= 1 and said in " ".join(faults), why


GOOD: dict[str, Any] = {"instance_type": "ml.g6e.12xlarge", "region": "us-east-1", "role": ROLE, "bucket": "b"}


@pytest.mark.parametrize(
    ("changed", "words", "said", "why"),
    [
        ({"region": None}, [], "No region", "nobody said where"),
        ({"region": "us_east_1"}, [], "region is 'us_east_1'", "a mistyped region"),
        ({"role": None}, [], "No role", "nobody said as whom"),
        ({"role": "SageMakerRole"}, [], "should be an ARN", "a role's name alone"),
        ({"bucket": "s3://b/p"}, [], "should be the bucket's name alone", "a URI"),
        ({"bucket": "My_Bucket"}, [], "no bucket can be called", "capitals and underscores"),
        ({"output": "b/p"}, [], "output is 'b/p', but should be a folder in S3", "no URI"),
        ({"prefix": "/"}, [], "prefix is only slashes", "cleaning up would have the whole bucket"),
        ({"subnets": ("s",)}, [], "subnets and security_groups go together", "half a VPC"),
        ({"instance_type": None}, [], "No instance type", "nobody said on what"),
        ({"instance_type": "g6e.12xlarge"}, [], "did you mean ml.g6e.12xlarge?", "EC2's name"),
        ({"instance_type": "ml.m5.xlarge"}, [], "has no GPU, and 4-bit weights are trained on one", "QLoRA on a CPU"),
        ({"instance_type": "ml.trn1.32xlarge"}, [], "runs on NVIDIA GPUs", "Trainium"),
        ({"instance_type": "ml.g5.xlarge"}, ["--use_cpu", "true"], "would be paid for and stand idle", "idle GPUs"),
        (
            {"launcher": "zero9"},
            [],
            "no file of accelerate_configs/. There are: python, cpu, ddp",
            "a mistyped launcher",
        ),
        ({"launcher": "cpu"}, [], "leave launcher out", "the CPU launcher on GPUs"),
        ({"spot": True}, ["--save_strategy", '"no"'], "when AWS takes the hosts back all is lost", "paid for nothing"),
        (
            {"spot": True},
            ["--resume_from_checkpoint", "never"],
            "Each attempt after an interruption would begin anew",
            "the same",
        ),
        (
            {},
            ["--resume_from_checkpoint", "runs/x/checkpoint-5"],
            "its checkpoints are its own folder in S3",
            "a folder of this machine",
        ),
        ({"max_wait_s": 10}, [], "max_wait_s without spot", "nothing to wait for"),
        ({"spot": True, "max_wait_s": 60}, [], "less than max_runtime_s", "the service refuses it"),
        ({"spot": True, "keep_alive_s": 60}, [], "keep_alive_s with spot", "the service refuses it"),
        ({"job_name": "x" * 48}, [], "job_name has 48 characters, but at most 47", "the time would be cut off"),
        ({"job_name": "qwen2.5"}, [], "letters, digits and single dashes", "a dot"),
        ({"job_name": "it's"}, [], "letters, digits and single dashes", "an apostrophe"),
        ({"hf_token_secret_arn": "hf_abc"}, [], "a token itself", "a secret in clear"),
        ({"tags": {"aws:x": "y"}}, [], "kept for AWS", "AWS's own tags"),
        ({"tags": {"grpo-recipes": "y"}}, [], "kept for this project", "what cleaning up goes by"),
    ],
)
def test_a_section_that_can_not_work_is_said_with_the_way_out(
    changed: dict[str, Any], words: list[str], said: str, why: str
) -> None:
    faults = settings_faults(load_recipe(QLORA, words), SageMakerSettings(**{**GOOD, **changed}))
    assert any(said in fault for fault in faults), (why, faults)
    assert len(faults) == 1, why


def test_a_good_section_has_no_fault() -> None:
    assert settings_faults(load_recipe(QLORA), SageMakerSettings(**GOOD)) == []
    assert settings_faults(load_recipe(DEMO), SageMakerSettings(**{**GOOD, "instance_type": "ml.m5.xlarge"})) == []


def test_an_apostrophe_in_a_value_is_no_fault() -> None:
    """It ends a job that carries it in a hyperparameter; nothing here does."""
    settings = SageMakerSettings(**GOOD, tags={"team": "it's"}, mlflow_experiment="it's")
    assert settings_faults(load_recipe(QLORA), settings) == []


def test_the_environment_is_what_the_container_reads() -> None:
    groups = "[{name: gpus, instance_type: ml.g6e.12xlarge}, {name: cpus, instance_type: ml.c5.xlarge, role: judge}]"
    words = ["--sagemaker.instance_type", "null", "--sagemaker.instance_groups", groups]
    recipe = load_recipe(QLORA, [*words, "--sagemaker.max_runtime_s", "3600"])
    assert recipe.sagemaker is not None
    assert request.environment(recipe, recipe.sagemaker) == {
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
        limit = int(request.environment(load_recipe(QLORA), settings)["GRPO_MAX_RUNTIME_S"])
        assert 0.85 * seconds <= limit < seconds and seconds - limit <= 600


def test_hosts_without_gpus_are_launched_as_such() -> None:
    settings = SageMakerSettings(**{**GOOD, "instance_type": "ml.m5.xlarge"})
    assert request.environment(load_recipe(DEMO), settings)["GRPO_LAUNCHER"] == "cpu"


def test_a_name_is_made_of_the_recipes_and_is_one_that_the_service_takes() -> None:
    recipe = load_recipe(QLORA)
    name = request.job_name(request.base_name(recipe, SageMakerSettings()), 0.0)
    assert name == "gsm8k-qwen2-5-1-5b-instruct-qlora-19700101-000000"
    assert request.request_faults({**VALID, "TrainingJobName": name}) == []


def test_a_digest_changes_with_what_is_trained_and_not_with_where_it_is_written() -> None:
    base = load_recipe(DEMO)
    for key, same in (("--seed", False), ("--max_steps", False), ("--save_steps", True), ("--max_runtime_s", True)):
        other = load_recipe(DEMO, [key, "7"])
        assert (request.digest_of(base.as_dict()) == request.digest_of(other.as_dict())) == same, key


def test_quotas_differ_for_on_demand_spot_and_warm_pools() -> None:
    one = {"instance_type": "ml.g5.xlarge", "instance_count": 2}
    assert quotas_of(SageMakerSettings(**one)) == [Quota("ml.g5.xlarge for training job usage", 2)]
    assert quotas_of(SageMakerSettings(**one, spot=True)) == [Quota("ml.g5.xlarge for spot training job usage", 2)]
    assert quotas_of(SageMakerSettings(**one, keep_alive_s=60)) == [
        Quota("ml.g5.xlarge for training job usage", 2),
        Quota("ml.g5.xlarge for training warm pool usage", 2),
    ]


def test_a_quota_that_is_too_small_is_said_and_one_that_is_not_listed_is_not() -> None:
    listed = [{"QuotaName": "a", "Value": 0.0}, {"QuotaName": "b", "Value": 2.0}]
    (fault,) = quota_faults([Quota("a", 1), Quota("b", 2), Quota("c", 9)], listed, "eu-west-1")
    assert fault.startswith("The quota a is 0 in eu-west-1, but the job takes 1.") and "https://eu-west-1" in fault


def test_without_the_sdk_it_is_said_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['botocore'] = None\n"
        "from rlvr.errors import InputError; from rlvr.sagemaker import request\n"
        "try: request.instance_types()\n"
        "except InputError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("The SageMaker Python SDK is not installed here: pip install -e '.[sagemaker]'")
