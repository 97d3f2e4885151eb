"""rlvr.sagemaker.sdk.model_trainer: the SDK's `train()` sends the request that `submit` would send."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.errors import InputError
from rlvr.sagemaker import aws, job
from rlvr.sagemaker.plan import JobPlan, make_plan
from rlvr.sagemaker.sdk import model_trainer
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
REGION, BUCKET = "us-east-1", "grpo-test"
ROLE = "arn:aws:iam::123456789012:role/Trainer"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
ALONE = {"instance_type": "ml.m5.xlarge"}
GROUPS = [
    {"name": "cpus", "instance_type": "ml.m5.xlarge", "instance_count": 2},
    {"name": "judges", "instance_type": "ml.c5.xlarge", "role": "judge"},
]


@pytest.fixture
def requests(account: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All CreateTrainingJob requests as they arrive; a job with the tag `refuse` is refused."""
    from moto.core.exceptions import JsonRESTError
    from moto.sagemaker.responses import SageMakerResponse

    monkeypatch.setenv("SAGEMAKER_VALIDATE_ROLE", "false")  # moto has no SimulatePrincipalPolicy
    arrived: list[dict[str, Any]] = []
    create = SageMakerResponse.create_training_job

    def capture(self: SageMakerResponse) -> Any:
        arrived.append(json.loads(self.body))
        if {"Key": "refuse", "Value": "yes"} in arrived[-1]["Tags"]:
            raise JsonRESTError("ResourceLimitExceeded", "No host is left.")
        return create(self)

    monkeypatch.setattr(SageMakerResponse, "create_training_job", capture)
    return arrived


def planned(**settings: Any) -> JobPlan:
    where = {"role": ROLE, "bucket": BUCKET, "region": REGION, **settings}
    words = [word for key, value in where.items() for word in (f"--sagemaker.{key}", json.dumps(value))]
    where_rewards = ["--rewards.math_correctness.where", "ray"] if "instance_groups" in settings else []
    return make_plan(DEMO, ["--output_dir", "runs/demo", "--save_strategy", "steps", *where_rewards, *words])


@pytest.fixture
def plan(request: pytest.FixtureRequest, empty_account: str) -> Iterator[JobPlan]:
    with planned(**request.param) as plan:
        assert plan.problems == []
        # To upload the package to moto takes seconds.
        plan.uploads = [(file, uri) for file, uri in plan.uploads if "/" not in file.name]
        yield plan


def names_in(uri: str) -> set[str]:
    return {entry["Key"] for entry in aws.list_folder(aws.client("s3", REGION), uri)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        ALONE | {"keep_alive_s": 600, "training_plan": f"arn:aws:sagemaker:{REGION}:123456789012:training-plan/mine"},
        {"instance_groups": GROUPS},
        ALONE
        | {
            "network_isolation": True,
            "image": f"{REGISTRY}/mine:1",
            "encrypt_traffic": True,
            "max_pending_s": 7200,
            "volume_kms_key": "alias/v",
            "output_kms_key": "alias/o",
            "environment": {"NCCL_DEBUG": "INFO"},
            "channels": {"extra": "s3://theirs/extra"},
            "spot": True,
            "retries": 2,
            "subnets": ["subnet-0123456789"],
            "security_groups": ["sg-0123456789"],
            "tags": {"team": "nlp"},
            "checkpoints": f"s3://{BUCKET}/theirs/checkpoints",
        },
    ],
    ids=["one host", "groups", "every option"],
    indirect=True,
)
def test_train_sends_the_plans_request_and_the_commands_find_the_job(
    plan: JobPlan, requests: list[dict[str, Any]]
) -> None:
    model_trainer(plan).train(wait=False)
    submitted = job.find_job("runs/demo")
    (sent,) = requests
    expected = json.loads(json.dumps(plan.request).replace(plan.name, submitted.name))
    assert {key: value for key, value in sent.items() if value} == expected
    assert {aws.split_uri(uri.replace(plan.name, submitted.name))[1] for _, uri in plan.uploads} <= names_in(
        submitted.root
    )


@pytest.mark.slow
@pytest.mark.parametrize("plan", [ALONE | {"tags": {"refuse": "yes"}}], indirect=True)
def test_a_refused_request_leaves_nothing_in_the_bucket(plan: JobPlan, requests: list[dict[str, Any]]) -> None:
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError, match="No host is left"):
        model_trainer(plan).train(wait=False)
    assert requests and names_in(f"s3://{BUCKET}/grpo-recipes/{requests[0]['TrainingJobName']}") == set()
    assert not Path("runs/demo/job.json").exists()


@pytest.mark.slow
def test_a_plan_with_problems_has_no_trainer(empty_account: str) -> None:
    with planned(instance_type="ml.g6e.12xlarge") as plan, pytest.raises(InputError) as caught:
        model_trainer(plan)
    assert caught.value.kind == "idle-hosts"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [ALONE], indirect=True)
def test_without_the_sdk_the_error_names_the_extra(plan: JobPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sagemaker.train", None)
    with pytest.raises(InputError) as caught:
        model_trainer(plan)
    assert caught.value.kind == "missing-package" and ".[sagemaker-sdk]" in str(caught.value)
