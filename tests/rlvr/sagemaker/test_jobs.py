"""A job's life against an imitation of AWS (moto): submitted once, found again, followed to its end, fetched, cleared.

What runs inside a job is not imitated by moto: tests/rlvr/sagemaker/test_training_jobs.py executes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.errors import InputError
from rlvr.sagemaker import aws, cleanup, fetch, follow, job, plan, request, sdk
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "grpo-test"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Trainer"


@pytest.fixture
def account(empty_account: str) -> str:
    """An account with a role and a bucket."""
    import boto3

    boto3.client("iam").create_role(RoleName="Trainer", AssumeRolePolicyDocument="{}")
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    return empty_account


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plan.JobPlan]:
    """One plan for all tests, because the SDK takes seconds for each."""
    words = [
        "--sagemaker.instance_type", "ml.m5.xlarge", "--sagemaker.role", ROLE, "--sagemaker.bucket", BUCKET,
        "--sagemaker.region", REGION, "--save_strategy", "steps",
    ]  # fmt: skip
    with plan.make_plan(DEMO, words) as found:
        assert found.faults == []
        yield found


@pytest.fixture
def wanted(made: plan.JobPlan, account: str, tmp_path: Path) -> plan.JobPlan:
    return as_of(made, tmp_path / "runs" / "demo")


# The folders that a request names, with a file each: to upload all two hundred to moto takes seconds.
FEW = ("code/run_grpo.py", "code/recipe.yaml", "sm_drivers/sm_train.sh")


def as_of(made: plan.JobPlan, output_dir: Path, name: str = "", **settings: Any) -> plan.JobPlan:
    """The plan as if it were of another folder, under another name, with other settings."""
    name = name or made.name
    assert made.request is not None
    recipe = dataclasses.replace(made.recipe, settings={**made.recipe.settings, "output_dir": str(output_dir)})
    return dataclasses.replace(
        made,
        recipe=recipe,
        settings=dataclasses.replace(made.settings, **settings),
        name=name,
        request=sdk._renamed(made.request, made.name, name),
        uploads=[
            (file, uri.replace(made.name, name)) for file, uri in made.uploads if f"{file.channel}/{file.name}" in FEW
        ],
        faults=[],
    )


def set_status(name: str, status: str, **more: Any) -> None:
    """What moto says of a job, which it calls completed as soon as it is made."""
    from moto.sagemaker.models import sagemaker_backends

    model = sagemaker_backends[ACCOUNT][REGION].training_jobs[name]
    model.training_job_status = status
    for key, value in more.items():
        setattr(model, key, value)


def put_object(uri: str, content: bytes) -> None:
    bucket, key = aws.split_uri(uri)
    aws.client("s3", REGION).put_object(Bucket=bucket, Key=key, Body=content)


def names_in(uri: str) -> list[str]:
    return [one["Key"] for one in aws.objects(aws.client("s3", REGION), uri)]


# ----------------------------------------------------------------------------------------------------------------------
# Submitting


def test_what_was_planned_is_what_is_sent_and_what_it_names_is_there(wanted: plan.JobPlan, made: plan.JobPlan) -> None:
    wanted.uploads = made.uploads
    found = job.submit(wanted)
    assert wanted.request is not None
    sent = found.describe()
    for key in ("InputDataConfig", "ResourceConfig", "RoleArn", "StoppingCondition", "OutputDataConfig"):
        for name, value in wanted.request[key].items() if isinstance(wanted.request[key], dict) else ():
            assert sent[key][name] == value
    keys = set(names_in(found.root))
    assert {aws.split_uri(uri)[1] for _, uri in wanted.uploads} <= keys
    for channel in wanted.request["InputDataConfig"]:
        assert names_in(channel["DataSource"]["S3DataSource"]["S3Uri"]), channel["ChannelName"]
    uploaded = aws.client("s3", REGION).get_object(
        Bucket=BUCKET, Key=aws.split_uri(found.root)[1] + "/input/code/run_grpo.py"
    )
    (packed_file,) = [file for file, _ in wanted.uploads if file.name == "run_grpo.py"]
    assert uploaded["Body"].read() == packed_file.source.read_bytes()


def test_a_job_is_written_down_and_found_by_name_by_folder_and_from_anywhere(
    wanted: plan.JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = job.submit(wanted, ("--seed", "3"))
    assert job.find("runs/demo") == job.find("runs/demo/job.json") == job.find(found.name) == found
    assert found.overrides == ("--seed", "3")
    assert found.link.endswith(f"region={REGION}#/jobs/{found.name}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert job.find(found.name, REGION) == found


def test_a_job_that_is_not_there_is_said(account: str) -> None:
    with pytest.raises(InputError, match="There is no job gone-1 in us-east-1"):
        job.find("gone-1")
    with pytest.raises(InputError, match="There is no runs/gone"):
        job.find("runs/gone")


def test_the_same_recipe_is_not_started_twice_while_it_runs(
    wanted: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    first = job.submit(wanted)
    set_status(first.name, "InProgress")
    with pytest.raises(job.AlreadyRunning, match="no second job was started") as caught:
        job.submit(as_of(made, tmp_path / "runs" / "demo", "second"))
    assert caught.value.job == first
    with pytest.raises(job.AlreadyRunning):  # from another machine, which has no job.json
        job.submit(as_of(made, tmp_path / "other", "second"))
    second = job.submit(as_of(made, tmp_path / "other", "second"), another=True)
    assert second.name == "second"


def test_the_same_recipe_is_started_again_when_the_first_job_is_over(
    wanted: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    first = job.submit(wanted)
    second = job.submit(as_of(made, tmp_path / "runs" / "demo", "second"))
    assert job.find("runs/demo") == second
    assert job.find(first.name) == first, "the earlier job's record is kept"


def test_a_plan_with_faults_is_not_submitted(wanted: plan.JobPlan) -> None:
    wanted.faults.append("Something is wrong.")
    with pytest.raises(InputError, match="Something is wrong."):
        job.submit(wanted)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == []


def test_what_the_account_lacks_is_said_at_once_and_nothing_is_uploaded(
    made: plan.JobPlan, account: str, tmp_path: Path
) -> None:
    missing = as_of(made, tmp_path / "runs" / "demo", role=f"arn:aws:iam::{ACCOUNT}:role/Gone", bucket="gone-bucket")
    with pytest.raises(InputError) as caught:
        job.submit(missing)
    assert "There is no role" in str(caught.value) and "aws s3 mb s3://gone-bucket" in str(caught.value)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == []


def test_a_quota_of_0_is_said_before_anything_is_uploaded(
    wanted: plan.JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.servicequotas.responses import ServiceQuotasResponse

    quotas = [{"QuotaName": "ml.m5.xlarge for training job usage", "QuotaCode": "L-1", "Value": 0.0}]
    # moto knows the quotas of other services only.
    monkeypatch.setattr(
        ServiceQuotasResponse, "list_service_quotas", lambda self: json.dumps({"Quotas": quotas}), raising=False
    )
    with pytest.raises(
        InputError, match="The quota ml.m5.xlarge for training job usage is 0 in us-east-1, but the job"
    ):
        job.submit(wanted)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == []


def test_a_bucket_of_another_region_is_refused(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    place = {"LocationConstraint": "eu-west-1"}
    aws.client("s3", "eu-west-1").create_bucket(Bucket="far-away", CreateBucketConfiguration=place)
    with pytest.raises(InputError, match="The bucket far-away is in eu-west-1, but the job would run in us-east-1"):
        job.submit(as_of(made, tmp_path / "runs" / "demo", bucket="far-away"))


def test_without_a_bucket_the_accounts_own_is_made(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    assert made.request is not None
    bucket = f"sagemaker-{REGION}-{ACCOUNT}"
    theirs = as_of(made, tmp_path / "runs" / "demo", bucket=None)
    theirs.request = sdk._renamed(theirs.request, f"s3://{BUCKET}/", f"s3://{bucket}/")
    theirs.uploads = [(file, uri.replace(f"s3://{BUCKET}/", f"s3://{bucket}/")) for file, uri in theirs.uploads]
    found = job.submit(theirs)
    assert found.root.startswith(f"s3://{bucket}/grpo-recipes/") and names_in(found.root)


def test_without_credentials_it_ends_with_what_to_do(wanted: plan.JobPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InputError, match="No AWS credentials were found: run `aws configure`"):
        job.submit(wanted)


def test_a_refused_request_leaves_nothing_in_the_bucket(
    wanted: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    job.submit(wanted)
    before = names_in(f"s3://{BUCKET}/grpo-recipes")
    refused = as_of(made, tmp_path / "other", "second")
    assert refused.request is not None
    refused.request["StoppingCondition"] = {"MaxRuntimeInSeconds": 0}
    with pytest.raises(InputError, match="Submitting second failed"):
        job.submit(refused)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == before


# ----------------------------------------------------------------------------------------------------------------------
# Going on


def test_a_job_goes_on_from_the_checkpoints_of_its_own_recipe(
    wanted: plan.JobPlan, made: plan.JobPlan, tmp_path: Path
) -> None:
    first = job.submit(wanted)
    set_status(first.name, "Stopped")
    job.check_resumable(first)
    put_object(f"{first.checkpoints}/run/checkpoint-5/complete.json", b"{}")
    settings = {"checkpoints": first.checkpoints, "instance_type": "ml.m5.2xlarge"}
    second = job.submit(as_of(made, tmp_path / "runs" / "demo", "second", **settings))
    assert second.checkpoints == first.checkpoints


def test_checkpoints_of_another_recipe_are_refused_with_what_differs(
    wanted: plan.JobPlan, made: plan.JobPlan, tmp_path: Path
) -> None:
    first = job.submit(wanted)
    other = as_of(made, tmp_path / "other", "second", checkpoints=first.checkpoints)
    settings = {**made.parcel.recipe.settings, "seed": 99}
    changed = dataclasses.replace(made.parcel.recipe, settings=settings)
    other = dataclasses.replace(other, parcel=dataclasses.replace(made.parcel, recipe=changed), processes=4)
    with pytest.raises(InputError) as caught:
        job.submit(other)
    assert "seed was 0, now 99" in str(caught.value)
    assert "1 processes trained it, now there are 4" in str(caught.value)


def test_checkpoints_of_nobody_knows_what_are_refused(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    put_object(f"s3://{BUCKET}/theirs/ckpt/x", b"x")
    with pytest.raises(InputError, match="no experiment.json beside it"):
        job.submit(as_of(made, tmp_path / "runs" / "demo", checkpoints=f"s3://{BUCKET}/theirs/ckpt"))


@pytest.mark.parametrize(("status", "said"), [("InProgress", "still in progress"), ("Completed", "is completed")])
def test_a_job_that_runs_or_is_done_is_not_gone_on_with(wanted: plan.JobPlan, status: str, said: str) -> None:
    found = job.submit(wanted)
    set_status(found.name, status)
    with pytest.raises(InputError, match=said):
        job.check_resumable(found)


# ----------------------------------------------------------------------------------------------------------------------
# Following


def log(name: str, stream: str, *lines: str) -> None:
    client = aws.client("logs", REGION)
    with contextlib.suppress(client.exceptions.ResourceAlreadyExistsException):
        client.create_log_group(logGroupName=follow.LOG_GROUP)
    with contextlib.suppress(client.exceptions.ResourceAlreadyExistsException):
        client.create_log_stream(logGroupName=follow.LOG_GROUP, logStreamName=f"{name}/{stream}")
    now = int(time.time() * 1000)
    client.put_log_events(
        logGroupName=follow.LOG_GROUP,
        logStreamName=f"{name}/{stream}",
        logEvents=[{"timestamp": now, "message": line} for line in lines],
    )


def test_every_line_of_every_host_is_shown_once_and_the_last_ones_after_the_end(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    set_status(found.name, "InProgress")
    step = "  step  1/2   reward  0.500   length   30.5   cut off  12 %   57 s left"
    log(found.name, "algo-1-1700000000", "hello from 1", step)
    events = []
    for event in follow.watch(found, poll_s=0.05, settle_s=1.0):
        events.append(event)
        if event == follow.Figures(1, 2, 0.5, 30.5, 12.0, "57 s"):
            log(found.name, "algo-2-1700000001", "hello from 2")
        if isinstance(event, follow.Line) and event.text == "hello from 2":
            reason = "AlgorithmError: it's no good, exit code: 2"
            set_status(found.name, "Failed", failure_reason=reason)
            log(found.name, "algo-1-1700000000", "Traceback:", "\r10%\r20% the last line")
    lines = [(event.host, event.text) for event in events if isinstance(event, follow.Line)]
    assert lines == [
        ("algo-1", "hello from 1"), ("algo-1", step), ("algo-2", "hello from 2"), ("algo-1", "Traceback:"),
        ("algo-1", "20% the last line"),
    ]  # fmt: skip
    end = events[-1]
    assert isinstance(end, follow.End) and end.status == "Failed"
    assert [event for event in events if isinstance(event, follow.Status)]


def test_a_failure_is_told_in_full_and_with_what_to_do_next() -> None:
    one = job.Job("mine-1", REGION, "s3://b/r", "s3://b/o", "s3://b/c", "r.yaml")
    reason = "AlgorithmError: a process was killed\nsecond line, exit code: 1"
    lines = follow.end_lines(one, follow.End("Failed", reason, 120, 60, True))
    assert lines[0] == "mine-1: Failed after 2 min"
    assert lines[1] == "  paid for 60 s of each host, 50% less than on demand"
    assert lines[2:4] == ["  AlgorithmError: a process was killed", "  second line, exit code: 1"]
    assert "resume mine-1" in lines[-1]


@pytest.mark.parametrize(
    ("reason", "resumed", "why"),
    [
        ("AlgorithmError: task: there is no file rows.jsonl, exit code: 2", False, "nothing was trained"),
        ("AlgorithmError: it failed, exit code: 1", True, "it failed while it trained"),
        ("AlgorithmError: stopped early, exit code: 75", True, "it has saved a checkpoint"),
        ("AlgorithmError: killed, exit code: 137", True, "an older checkpoint is there"),
        ("AlgorithmError: it ended with exit code: 2 elsewhere, exit code: 1", True, "only the last one is the job's"),
        ("CapacityError: no such hosts are free", True, "the service's own"),
    ],
)
def test_a_job_is_gone_on_with_unless_its_recipe_was_wrong(reason: str, resumed: bool, why: str) -> None:
    one = job.Job("mine-1", REGION, "s3://b/r", "s3://b/o", "s3://b/c", "r.yaml")
    last = follow.end_lines(one, follow.End("Failed", reason))[-1]
    assert ("resume" in last, "`submit`" in last) == (resumed, not resumed), why


def test_a_job_without_a_line_yet_can_be_followed(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    events = list(follow.watch(found, poll_s=0.05, settle_s=0.2))
    assert isinstance(events[-1], follow.End) and events[-1].status == "Completed"


def test_the_log_of_a_job_that_was_over_long_ago_is_shown_without_waiting_for_more(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    log(found.name, "algo-1-1700000000", "the last line")
    set_status(found.name, "Completed", last_modified_time="2026-01-01 00:00:00")
    begun = time.monotonic()
    events = list(follow.watch(found, poll_s=0.05, settle_s=60.0))
    assert time.monotonic() - begun < 30
    assert [event.text for event in events if isinstance(event, follow.Line)] == ["the last line"]
    assert isinstance(events[-1], follow.End)


# ----------------------------------------------------------------------------------------------------------------------
# Fetching and clearing up


def packed(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_results_are_fetched_and_replace_nothing_unasked(wanted: plan.JobPlan, tmp_path: Path) -> None:
    found = job.submit(wanted)
    uri = found.describe()["ModelArtifacts"]["S3ModelArtifacts"]
    put_object(uri, packed(adapter__weights=b"new", recipe=b"r"))
    folder = tmp_path / "runs" / "demo"
    assert fetch.fetch(found, folder) == ["adapter", "recipe"]
    (folder / "adapter" / "weights").write_bytes(b"mine")
    with pytest.raises(InputError, match="has adapter, recipe already"):
        fetch.fetch(found, folder)
    assert (folder / "adapter" / "weights").read_bytes() == b"mine"
    fetch.fetch(found, folder, force=True)
    assert (folder / "adapter" / "weights").read_bytes() == b"new"
    assert not list(folder.glob(".fetched-*")), "nothing is left of the download"


def test_a_job_without_results_says_what_there_may_be(wanted: plan.JobPlan, tmp_path: Path) -> None:
    found = job.submit(wanted)
    for status, said in (("Failed", "--checkpoints"), ("InProgress", "still in progress")):
        set_status(found.name, status)
        with pytest.raises(InputError, match=said):
            fetch.fetch(found, tmp_path / "out")


def test_checkpoints_are_fetched_into_the_folder_and_nowhere_else(wanted: plan.JobPlan, tmp_path: Path) -> None:
    found = job.submit(wanted)
    put_object(f"{found.checkpoints}/run/checkpoint-5/complete.json", b"{}")
    put_object(f"{found.checkpoints}/run/../../../escaped", b"x")
    put_object(f"{found.checkpoints}/runaway/x", b"x")
    assert fetch.fetch(found, tmp_path / "out", checkpoints=True) == ["checkpoint-5"]
    assert not list(tmp_path.rglob("escaped")) and not (tmp_path / "out" / "runaway").exists()


def test_clearing_up_deletes_what_is_the_jobs_and_nothing_beside_it(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    for uri in (f"{found.root}-of-another/x", f"s3://{BUCKET}/grpo-recipes/y", f"s3://{BUCKET}/data/z"):
        put_object(uri, b"kept")
    (leftover,) = cleanup.leftovers([found])
    assert "deletes" in leftover.lines()[0] and str(len(names_in(found.root))) in leftover.lines()[0]
    assert names_in(found.root), "listing deletes nothing"
    cleanup.clean(leftover)
    assert names_in(found.root) == []
    assert sorted(names_in(f"s3://{BUCKET}/grpo-recipes") + names_in(f"s3://{BUCKET}/data")) == [
        "data/z", f"{aws.split_uri(found.root)[1]}-of-another/x", "grpo-recipes/y",
    ]  # fmt: skip
    assert cleanup.leftovers([found]) == []


def test_a_folder_without_the_projects_mark_is_not_deleted(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    put_object(f"s3://{BUCKET}/theirs/x", b"kept")
    assert cleanup.leftovers([dataclasses.replace(found, root=f"s3://{BUCKET}/theirs")]) == []


def test_a_job_in_progress_is_left_alone(wanted: plan.JobPlan, made: plan.JobPlan, tmp_path: Path) -> None:
    first = job.submit(wanted)
    second = job.submit(as_of(made, tmp_path / "o", "second", checkpoints=first.checkpoints))
    set_status(second.name, "InProgress")
    for leftover in cleanup.leftovers([first, second]):
        assert leftover.running and "left alone" in leftover.lines()[0], "the second writes the first's checkpoints"
        assert cleanup.clean(leftover) == []
    assert names_in(first.root) and names_in(second.root)


def test_a_job_says_nothing_secret_and_its_tags_say_whose_it_is(wanted: plan.JobPlan) -> None:
    found = job.submit(wanted)
    tags = aws.client("sagemaker", REGION).list_tags(ResourceArn=found.describe()["TrainingJobArn"])["Tags"]
    assert {"Key": request.TAG, "Value": "grpo-recipes"} in tags
    record = json.loads((Path("runs/demo") / job.RECORD).read_text())
    assert not [key for key in json.dumps(record).lower().split('"') if key in ("token", "password", "secret")]
