"""A plan: offline, complete, with all problems at once and a note on everything that was not checked."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import pytest

from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.errors import InputError
from rlvr.sagemaker import plan as planning
from rlvr.sagemaker.cost import cost_lines
from rlvr.sagemaker.plan import make_plan
from scripts import sagemaker
from tests.conftest import REPOSITORY, Run

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
GSM8K = REPOSITORY / "recipes" / "gsm8k-qwen2.5-1.5b-instruct-qlora.yaml"
SETTINGS = [
    *("--sagemaker.role", "arn:aws:iam::111122223333:role/x", "--sagemaker.bucket", "bucket"),
    *("--sagemaker.region", "us-east-1"),
]
KEY_SECRET = "arn:aws:secretsmanager:us-east-1:111122223333:secret:k-AbCdEf"
SMALL = ["--sagemaker.instance_type", "ml.m5.xlarge"]


@pytest.fixture
def no_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without credentials or configuration, in which AWS is unreachable."""
    emptied = {name: "" for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"}
    nowhere = {
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    for name, value in (emptied | nowhere).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def call_plan(call_main: Run, no_aws: None) -> Run:
    return functools.partial(call_main, sagemaker.main, "plan", cwd=REPOSITORY)


@pytest.mark.slow
@pytest.mark.usefixtures("no_aws")
def test_a_plan_is_complete_without_aws() -> None:
    with make_plan(DEMO, [*SETTINGS, "--sagemaker.instance_type", "ml.m5.xlarge"]) as plan:
        assert plan.problems == []
        printed = "\n".join(plan.lines())
        all_files = "\n".join(plan.lines(all_files=True))
    for words in (
        "1 x ml.m5.xlarge (train), on demand; 1 process under cpu",
        "/pytorch:2.13-cpu-amzn2023-sagemaker",
        "at most 4 h 00 min; training saves and stops at 3 h 50 min",
        "s3://bucket/grpo-recipes/demo-arithmetic-",
        "ml.m5.xlarge for training job usage: 1 or more",
        "nothing else is uploaded (--files lists them)",
        "20 optimizer steps over 1,500 rows",
        "0.23 dollars an hour, at most 1 in 4 h",
    ):
        assert words in printed, words
    assert "code/rewards/math_correctness.py" in all_files and "code/rewards/math_correctness.py" not in printed


def test_all_problems_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    words = [
        *("--sagemaker.instance_type", "ml.g5.xlarge", "--sagemaker.spot", "true"),
        *("--task.name", "arithmetics", "--rewards.answer_format.options", "{nothing: 1}"),
        *("--rewards.math_correctness.options", "{zilch: 1}", "--model_name_or_path", "models/gone"),
    ]
    with make_plan(DEMO, words) as plan:
        assert {problem.kind for problem in plan.problems} >= {
            "no-region",
            "no-role",
            "idle-hosts",
            "spot-without-checkpoints",
        }
        messages = "\n".join(map(str, plan.problems))
        for name in ("arithmetics", "'nothing'", "'zilch'", "models/gone"):
            assert name in messages, name
        assert plan.request is None
        assert "None" not in "\n".join(plan.lines()), "unknown values have words"
        with pytest.raises(InputError) as caught:
            plan.check()
        assert caught.value.problems == tuple(plan.problems)


@pytest.mark.slow
def test_a_job_that_is_far_from_fitting_is_refused_unless_the_estimate_is_ignored() -> None:
    on_a_gpu = ["--sagemaker.instance_type", "ml.g5.xlarge", "--use_cpu", "false", "--max_completion_length", "4000"]
    words = [*SETTINGS, *on_a_gpu, "--per_device_train_batch_size", "2048"]
    with make_plan(DEMO, words) as plan:
        assert [problem.kind for problem in plan.problems] == ["does-not-fit"]
        assert any("does NOT fit" in line for line in plan.preflight)
    with make_plan(DEMO, [*words, "--sagemaker.ignore_estimate", "true"]) as plan:
        assert plan.problems == []


@pytest.mark.slow
def test_a_profile_is_a_short_job_of_its_own() -> None:
    words = [*SETTINGS, *SMALL, "--sagemaker.checkpoints", "s3://bucket/mine", "--save_strategy", "steps"]
    words += ["--sagemaker.spot", "true", "--sagemaker.max_wait_s", "90000"]
    with make_plan(DEMO, words) as training, make_plan(DEMO, words, profile_minutes=5) as profile:
        assert profile.problems == [] and profile.request is not None
        request = profile.request
        assert request["Environment"]["GRPO_PROFILE"] == "--profile 5", "the price is unknown"
        assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 5 * 60 + 1800
        assert "EnableManagedSpotTraining" not in request, "it can't continue"
        assert profile.name.startswith("demo-arithmetic-profile-")
        assert "mine" not in request["CheckpointConfig"]["S3Uri"], "the checkpoints of a run"
        assert profile.digest != training.digest, "a run in progress is no duplicate of it"
        assert training.request is not None and "GRPO_PROFILE" not in training.request["Environment"]


@pytest.mark.parametrize(
    ("groups", "expected", "why"),
    [
        (["ml.g6e.12xlarge", "ml.m5.xlarge"], ["13.58 dollars an hour, at most 14 in 1 h"], "both are known"),
        (
            ["ml.g6e.12xlarge", "ml.c7i.4xlarge"],
            ["no price known for ml.c7i.4xlarge", "other hosts: 13.12 dollars an hour"],
            "one is not",
        ),
        (["ml.c7i.4xlarge"], ["no price known for ml.c7i.4xlarge"], "none is"),
    ],
)
def test_known_prices_are_added_and_unknown_ones_named(groups: list[str], expected: list[str], why: str) -> None:
    hosts = tuple(InstanceGroup(f"g{number}", name, 1 + number) for number, name in enumerate(groups))
    lines = cost_lines(SageMakerSettings(instance_groups=hosts, max_runtime_s=3600), None)
    assert len(lines) == len(expected), (why, lines)
    assert all(words in line for words, line in zip(expected, lines, strict=True)), (why, lines)


SECRETS = {
    "MLFLOW_TRACKING_URI": "https://me:hunter22@mlflow.example.com",
    "WANDB_API_KEY": "hunter22",
    "GRPO_REWARDS_KEY": "hunter22hunter22",
    "RAY_GRAFANA_HOST": "http://:hunter/22@grafana:3000",
    "INDEX": "https://hunter22hunter22hunter22@host/simple",
    "DATA": "https://b.s3.amazonaws.com/x?X-Amz-Signature=hunter22",
}
NO_SECRETS = {"TOKENIZERS_PARALLELISM": "false", "PROXY": "http://proxy:8080/@x", "MAX_TOKENS": "8"}


@pytest.mark.slow
def test_each_secret_in_the_request_is_a_problem_that_does_not_repeat_it() -> None:
    words = [*SETTINGS, *SMALL, "--sagemaker.tags", f"{{note: hf_{'aB3' * 12}, deploy-token: hunter22}}"]
    words += ["--sagemaker.environment", json.dumps({**SECRETS, **NO_SECRETS})]
    with make_plan(DEMO, words) as plan:
        problems = [one for one in plan.problems if one.kind == "secret-in-request"]
        assert not re.search("hunter|hf_aB3", json.dumps(plan.as_dict())), "what is printed stays in logs"
    expected = {"Tags[2].note", "Tags[3].deploy-token", *(f"Environment.{name}" for name in SECRETS)}
    assert {problem.key for problem in problems} == expected and len(problems) == len(expected)
    assert not re.search("hunter|hf_aB3", "".join(problem.message for problem in problems))


def test_a_job_reads_the_key_of_reward_servers_outside_of_it_from_a_secret() -> None:
    words = ["--rewards.math_correctness.where", "http://judge.internal:8000"]
    words += ["--sagemaker.rewards_key_secret_arn", KEY_SECRET]
    with make_plan(DEMO, [*SETTINGS, *SMALL, *words]) as plan:
        assert plan.problems == [] and plan.request is not None
        assert plan.request["Environment"]["GRPO_REWARDS_KEY_SECRET_ARN"] == KEY_SECRET


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instance", "words", "warns"),
    [
        ("ml.g4dn.xlarge", [], True),
        ("ml.p3.2xlarge", [], True),
        ("ml.g4dn.xlarge", ["--fp16", "true", "--bf16", "false", "--dtype", "float16"], False),
        ("ml.g5.xlarge", [], False),
        ("ml.p4d.24xlarge", [], False),
    ],
)
def test_an_instance_whose_gpus_emulate_bfloat16_is_a_warning(instance: str, words: list[str], warns: bool) -> None:
    gpus = ["--use_cpu", "false", "--bf16", "true", "--dtype", "bfloat16", "--sagemaker.instance_type", instance]
    with make_plan(DEMO, [*SETTINGS, *gpus, *words]) as plan:
        assert any("warning" in line and "bfloat16" in line for line in plan.lines()) == warns


@pytest.mark.slow
def test_studios_role_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "STUDIO_METADATA", tmp_path / "metadata.json")
    (tmp_path / "metadata.json").write_text(json.dumps({"ExecutionRoleArn": "arn:aws:iam::1:role/s"}), encoding="utf-8")
    assert make_plan(DEMO).settings.role == "arn:aws:iam::1:role/s"
    assert make_plan(DEMO, ["--sagemaker.role", "mine"]).settings.role == "mine"


@pytest.mark.slow
def test_the_preflight_checks_for_the_jobs_hosts() -> None:
    """A batch that suits one process may not suit four."""
    words = [*SETTINGS, "--use_cpu", "false", "--sagemaker.instance_type", "ml.g6e.12xlarge"]
    with make_plan(DEMO, [*words, "--num_generations", "7"]) as plan:
        assert plan.processes == 4
        assert any("num_generations" in str(problem) for problem in plan.problems), plan.problems
    with make_plan(DEMO, words) as plan:
        assert plan.problems == []
        lines = "\n".join(plan.lines())
        assert "fits on ml.g6e.12xlarge" in lines
        assert "13.12 dollars an hour, at most 52 in 4 h" in lines
