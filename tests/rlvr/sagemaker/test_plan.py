"""A plan: offline, whole, honest about what it could not check, and all faults at once."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.errors import InputError
from rlvr.sagemaker import plan as planning
from rlvr.sagemaker import request
from rlvr.sagemaker.plan import make_plan
from rlvr.sagemaker.preflight import cost_lines
from tests.conftest import REPOSITORY, Run

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
GSM8K = REPOSITORY / "recipes" / "gsm8k-qwen2.5-1.5b-instruct-qlora.yaml"
SCRIPT = "scripts/sagemaker.py"
WHERE = ["--role", "arn:aws:iam::111122223333:role/x", "--bucket", "b", "--region", "us-east-1"]
SETTINGS = [
    "--sagemaker.role", "arn:aws:iam::111122223333:role/x", "--sagemaker.bucket", "bucket",
    "--sagemaker.region", "us-east-1",
]  # fmt: skip


@pytest.fixture
def nothing_of_aws(tmp_path: Path) -> dict[str, str]:
    """An environment without credentials or configuration, in which nothing of AWS can be reached."""
    emptied = {name: "" for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"}
    return {
        **emptied,
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }


def test_help_is_quick(run_script: Run) -> None:
    began = time.monotonic()
    run = run_script(SCRIPT, "--help")
    assert run.returncode == 0 and "plan" in run.stdout
    assert time.monotonic() - began < 2


def test_a_plan_is_whole_without_aws(nothing_of_aws: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nothing_of_aws.items():
        monkeypatch.setenv(name, value)
    with make_plan(DEMO, [*SETTINGS, "--sagemaker.instance_type", "ml.m5.xlarge"]) as plan:
        assert plan.faults == []
        printed = "\n".join(plan.lines())
        everything = "\n".join(plan.lines(all_files=True))
    for words in (
        "1 x ml.m5.xlarge (train), on demand; 1 process under cpu",
        "/pytorch:2.13-cpu-amzn2023-sagemaker",
        "at most 4 h 00 min, training saves and stops at 3 h 50 min",
        "s3://bucket/grpo-recipes/demo-arithmetic-",
        "ml.m5.xlarge for training job usage: 1 or more",
        "code/rlvr/",
        "60 optimizer steps over 1500 training rows",
        "0.23 dollars an hour, at most 1 in 4 h",
        "aws service-quotas list-service-quotas",
    ):
        assert words in printed, words
    assert "code/rewards/math_correctness.py" in everything and "code/rewards/math_correctness.py" not in printed


def test_a_plan_of_a_model_that_is_not_here_says_what_it_could_not_check(
    run_script: Run, nothing_of_aws: dict[str, str]
) -> None:
    run = run_script(
        SCRIPT, "plan", "--config", GSM8K, *WHERE, "--instance_type", "ml.g6e.12xlarge", "--sagemaker.spot", "true",
        "--json", env=nothing_of_aws,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    found = json.loads(run.stdout)
    assert found["faults"] == []
    asked = found["request"]
    assert asked["EnableManagedSpotTraining"] is True
    assert asked["Environment"]["GRPO_LAUNCHER"] == "zero3"
    assert not any("TOKEN" in name for name in asked["Environment"])
    assert request.request_faults(asked) == []
    places = {one["to"] for one in found["files"]}
    for channel in asked["InputDataConfig"]:
        prefix = channel["DataSource"]["S3DataSource"]["S3Uri"]
        assert any(place.startswith(f"{prefix}/") for place in places), channel["ChannelName"]
        assert re.fullmatch(r"[a-z_]+", channel["ChannelName"]), "the SDK makes a shell variable of it: no dash"


def test_every_fault_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    words = [
        "--sagemaker.instance_type", "ml.g5.xlarge", "--sagemaker.spot", "true", "--task.name", "arithmetics",
        "--rewards.answer_format.options", "{nothing: 1}", "--model_name_or_path", "models/gone",
    ]  # fmt: skip
    with make_plan(DEMO, words) as plan:
        said = "\n".join(plan.faults)
        for fault in (
            "No region", "No role", "would be paid for and stand idle", "all is lost", "There is no task 'arithmetics'",
            "has no option 'nothing'", "there is no folder models/gone",
        ):  # fmt: skip
            assert fault in said, fault
        assert plan.request is None
        assert "None" not in "\n".join(plan.lines()), "what is not known is said in words"
        with pytest.raises(InputError, match="No region"):
            plan.check()


def test_an_apostrophe_on_the_command_line_is_part_of_what_was_said(
    run_script: Run, nothing_of_aws: dict[str, str]
) -> None:
    words = ["--role", "it's", "--bucket", "it's", "--region", "it's", "--instance_type", "ml.it's"]
    run = run_script(SCRIPT, "plan", "--config", GSM8K, *words, env=nothing_of_aws)
    assert run.returncode == 2 and "Traceback" not in run.stderr
    for fault in ('role is "it\'s"', 'bucket is "it\'s"', 'region is "it\'s"', "ml.it's"):
        assert fault in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("groups", "said", "why"),
    [
        (["ml.g6e.12xlarge", "ml.m5.xlarge"], ["13.58 dollars an hour, at most 14 in 1 h"], "both are known"),
        (
            ["ml.g6e.12xlarge", "ml.c7i.4xlarge"],
            ["no price known for ml.c7i.4xlarge", "the other hosts: 13.12 dollars an hour"],
            "one is not",
        ),
        (["ml.c7i.4xlarge"], ["no price known for ml.c7i.4xlarge"], "none is"),
    ],
)
def test_what_is_known_of_the_cost_is_said_and_what_is_not_as_well(
    groups: list[str], said: list[str], why: str
) -> None:
    hosts = tuple(InstanceGroup(f"g{number}", name, 1 + number) for number, name in enumerate(groups))
    lines = cost_lines(SageMakerSettings(instance_groups=hosts, max_runtime_s=3600), None)
    assert len(lines) == len(said) and all(one in line for one, line in zip(said, lines, strict=True)), (why, lines)


def test_studios_own_role_is_taken_where_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "STUDIO", tmp_path / "metadata.json")
    assert make_plan(DEMO).settings.role is None
    (tmp_path / "metadata.json").write_text(json.dumps({"ExecutionRoleArn": "arn:aws:iam::1:role/s"}), encoding="utf-8")
    assert make_plan(DEMO).settings.role == "arn:aws:iam::1:role/s"
    assert make_plan(DEMO, ["--sagemaker.role", "mine"]).settings.role == "mine"


def test_a_recipe_that_can_not_be_read_ends_with_2(run_script: Run) -> None:
    run = run_script(SCRIPT, "plan", "--config", "recipes/gone.yaml", *WHERE)
    assert run.returncode == 2 and "There is no recipe recipes/gone.yaml" in run.stderr


def test_the_preflight_is_for_the_hosts_and_not_for_this_machine() -> None:
    """What fits one process need not fit four: the batch must be divided among them."""
    words = [*SETTINGS, "--use_cpu", "false", "--sagemaker.instance_type", "ml.g6e.12xlarge"]
    with make_plan(DEMO, [*words, "--num_generations", "7"]) as plan:
        assert plan.processes == 4
        assert any("num_generations" in fault for fault in plan.faults), plan.faults
    with make_plan(DEMO, words) as plan:
        assert plan.faults == []
        lines = "\n".join(plan.lines())
        assert "fits on ml.g6e.12xlarge" in lines
        assert "13.12 dollars an hour, at most 52 in 4 h" in lines


def test_what_was_packed_is_gone_when_the_plan_is_closed() -> None:
    with make_plan(DEMO, ["--sagemaker.instance_type", "ml.m5.xlarge"]) as plan:
        folder = plan.parcel.code
        assert folder.is_dir()
    assert not folder.exists()
