"""A job against moto's AWS: submit, find, follow, resume, fetch and clean up.

moto runs no containers: tests/rlvr/sagemaker/test_training_jobs.py does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr.errors import InputError, Problem
from rlvr.sagemaker import aws, cleanup, fetch, follow, job, plan, request, submission
from tests.conftest import REPOSITORY
from tests.rlvr.sagemaker.test_fetch import member, pack
from tests.support.input_errors import input_error

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "grpo-test"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Trainer"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plan.JobPlan]:
    """One plan for all tests."""
    words = [
        *("--sagemaker.instance_type", "ml.m5.xlarge", "--sagemaker.role", ROLE, "--sagemaker.bucket", BUCKET),
        *("--sagemaker.region", REGION, "--save_strategy", "steps"),
    ]
    with plan.make_plan(DEMO, words) as made:
        assert made.problems == []
        yield made


@pytest.fixture
def planned(made: plan.JobPlan, account: str, tmp_path: Path) -> plan.JobPlan:
    return as_of(made, tmp_path / "runs" / "demo")


# Uploading all files to moto takes seconds.
FEW = ("code/run_grpo.py", "code/recipe.yaml")


def replace_text(content: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(content).replace(old, new))


def as_of(made: plan.JobPlan, output_dir: Path, name: str = "", **settings: Any) -> plan.JobPlan:
    """The plan with another folder, name and settings."""
    name = name or made.name
    assert made.request is not None
    recipe = dataclasses.replace(made.recipe, settings={**made.recipe.settings, "output_dir": str(output_dir)})
    return dataclasses.replace(
        made,
        recipe=recipe,
        settings=dataclasses.replace(made.settings, **settings),
        name=name,
        request=replace_text(made.request, made.name, name),
        uploads=[
            (file, uri.replace(made.name, name)) for file, uri in made.uploads if f"{file.channel}/{file.name}" in FEW
        ],
        problems=[],
    )


def set_status(name: str, status: str, **more: Any) -> None:
    """Change a job's status. moto completes jobs at once."""
    from moto.sagemaker.models import sagemaker_backends

    model = sagemaker_backends[ACCOUNT][REGION].training_jobs[name]
    model.training_job_status = status
    for key, value in more.items():
        setattr(model, key, value)


def put_object(uri: str, content: bytes) -> None:
    bucket, key = aws.split_uri(uri)
    aws.client("s3", REGION).put_object(Bucket=bucket, Key=key, Body=content)


def names_in(uri: str) -> list[str]:
    return [one["Key"] for one in aws.list_folder(aws.client("s3", REGION), uri)]


# ----------------------------------------------------------------------------------------------------------------------
# Submitting


@pytest.mark.slow
def test_submit_sends_the_plans_request_and_uploads_all_that_it_names(
    planned: plan.JobPlan, made: plan.JobPlan
) -> None:
    planned.uploads = [(file, uri) for file, uri in made.uploads if not file.name.startswith("rlvr/")]
    submitted = submission.submit(planned)
    assert planned.request is not None
    sent = submitted.describe()
    for key in ("InputDataConfig", "ResourceConfig", "RoleArn", "StoppingCondition", "OutputDataConfig"):
        for name, value in planned.request[key].items() if isinstance(planned.request[key], dict) else ():
            assert sent[key][name] == value
    keys = set(names_in(submitted.root))
    assert {aws.split_uri(uri)[1] for _, uri in planned.uploads} <= keys
    for channel in planned.request["InputDataConfig"]:
        assert names_in(channel["DataSource"]["S3DataSource"]["S3Uri"]), channel["ChannelName"]
    uploaded = aws.client("s3", REGION).get_object(
        Bucket=BUCKET, Key=aws.split_uri(submitted.root)[1] + "/input/code/run_grpo.py"
    )
    (packed_file,) = [file for file, _ in planned.uploads if file.name == "run_grpo.py"]
    assert uploaded["Body"].read() == packed_file.source.read_bytes()


@pytest.mark.slow
def test_a_job_is_found_by_its_name_or_folder_and_from_another_folder(
    planned: plan.JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = submission.submit(planned, ("--seed", "3"))
    assert job.find_job("runs/demo") == job.find_job("runs/demo/job.json") == job.find_job(submitted.name) == submitted
    assert submitted.overrides == ("--seed", "3")
    assert submitted.link.endswith(f"region={REGION}#/jobs/{submitted.name}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert job.find_job(submitted.name, REGION) == submitted


def test_a_missing_job_is_an_input_error(account: str) -> None:
    for reference in ("gone-1", "runs/gone"):
        with pytest.raises(InputError) as caught:
            job.find_job(reference)
        assert caught.value.kind == "job-not-found" and reference in str(caught.value)


def test_a_job_without_a_record_in_s3_is_not_of_this_project(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    bucket, key = aws.split_uri(f"{submitted.root}/{job.RECORD}")
    aws.client("s3", REGION).delete_object(Bucket=bucket, Key=key)
    with input_error("job-not-found"):
        job.find_in_account(submitted.name, REGION)


def test_a_second_job_of_the_same_recipe_is_refused_while_the_first_runs(
    planned: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    first = submission.submit(planned)
    set_status(first.name, "InProgress")
    with pytest.raises(submission.AlreadyRunning) as caught:
        submission.submit(as_of(made, tmp_path / "runs" / "demo", "second"))
    assert caught.value.job == first and "--allow_duplicate" in str(caught.value)
    with pytest.raises(submission.AlreadyRunning):  # from another machine, which has no job.json
        submission.submit(as_of(made, tmp_path / "other", "second"))
    second = submission.submit(as_of(made, tmp_path / "other", "second"), allow_duplicate=True)
    assert second.name == "second"


def test_the_same_recipe_may_start_again_after_the_first_job_has_ended(
    planned: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    first = submission.submit(planned)
    second = submission.submit(as_of(made, tmp_path / "runs" / "demo", "second"))
    assert job.find_job("runs/demo") == second
    assert job.find_job(first.name) == first, "the earlier job's record is kept"


def test_a_plan_with_problems_is_not_submitted(planned: plan.JobPlan) -> None:
    planned.problems.append(Problem("Any problem.", kind="any"))
    with input_error("any"):
        submission.submit(planned)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == []


def test_a_missing_bucket_is_reported_before_anything_is_uploaded(
    made: plan.JobPlan, account: str, tmp_path: Path
) -> None:
    missing = as_of(made, tmp_path / "runs" / "demo", bucket="gone-bucket")
    with input_error("bucket-not-found", match="gone-bucket"):
        submission.submit(missing)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == []


def test_a_bucket_in_another_region_is_refused(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    place = {"LocationConstraint": "eu-west-1"}
    aws.client("s3", "eu-west-1").create_bucket(Bucket="far-away", CreateBucketConfiguration=place)
    with input_error("bucket-in-another-region", match="--region eu-west-1"):
        submission.submit(as_of(made, tmp_path / "runs" / "demo", bucket="far-away"))


def test_without_a_bucket_the_accounts_default_one_is_created(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    assert made.request is not None
    bucket = f"sagemaker-{REGION}-{ACCOUNT}"
    theirs = as_of(made, tmp_path / "runs" / "demo", bucket=None)
    theirs.request = replace_text(theirs.request, f"s3://{BUCKET}/", f"s3://{bucket}/")
    theirs.uploads = [(file, uri.replace(f"s3://{BUCKET}/", f"s3://{bucket}/")) for file, uri in theirs.uploads]
    submitted = submission.submit(theirs)
    assert submitted.root.startswith(f"s3://{bucket}/grpo-recipes/") and names_in(submitted.root)


def test_without_credentials_the_error_names_the_fix(planned: plan.JobPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with input_error("aws-credentials", match="`aws configure`"):
        submission.submit(planned)


def test_a_refused_request_leaves_nothing_in_the_bucket(
    planned: plan.JobPlan, tmp_path: Path, made: plan.JobPlan
) -> None:
    submission.submit(planned)
    before = names_in(f"s3://{BUCKET}/grpo-recipes")
    refused = as_of(made, tmp_path / "other", "second")
    assert refused.request is not None
    refused.request["StoppingCondition"] = {"MaxRuntimeInSeconds": 0}
    with pytest.raises(InputError) as caught:
        submission.submit(refused)
    assert "second" in str(caught.value)
    assert names_in(f"s3://{BUCKET}/grpo-recipes") == before


# ----------------------------------------------------------------------------------------------------------------------
# Resuming


def test_a_job_continues_from_checkpoints_of_its_own_recipe(
    planned: plan.JobPlan, made: plan.JobPlan, tmp_path: Path
) -> None:
    first = submission.submit(planned)
    set_status(first.name, "Stopped")
    submission.check_resumable(first)
    put_object(f"{first.checkpoints}/run/checkpoint-5/complete.json", b"{}")
    settings = {"checkpoints": first.checkpoints, "instance_type": "ml.m5.2xlarge"}
    second = submission.submit(as_of(made, tmp_path / "runs" / "demo", "second", **settings))
    assert second.checkpoints == first.checkpoints


def test_checkpoints_of_another_recipe_are_refused_with_the_differences(
    planned: plan.JobPlan, made: plan.JobPlan, tmp_path: Path
) -> None:
    first = submission.submit(planned)
    other = as_of(made, tmp_path / "other", "second", checkpoints=first.checkpoints)
    settings = {**made.files.recipe.settings, "seed": 99}
    changed = dataclasses.replace(made.files.recipe, settings=settings)
    other = dataclasses.replace(other, files=dataclasses.replace(made.files, recipe=changed), processes=4)
    with pytest.raises(InputError) as caught:
        submission.submit(other)
    assert "seed was 0, now 99" in str(caught.value)
    assert "1 processes trained it, now there are 4" in str(caught.value)


def test_checkpoints_of_an_unknown_run_are_refused(made: plan.JobPlan, account: str, tmp_path: Path) -> None:
    put_object(f"s3://{BUCKET}/theirs/ckpt/x", b"x")
    with input_error("unknown-checkpoints", "checkpoints"):
        submission.submit(as_of(made, tmp_path / "runs" / "demo", checkpoints=f"s3://{BUCKET}/theirs/ckpt"))


@pytest.mark.parametrize(("status", "kind"), [("InProgress", "job-in-progress"), ("Completed", "job-completed")])
def test_a_running_or_completed_job_is_not_resumed(planned: plan.JobPlan, status: str, kind: str) -> None:
    submitted = submission.submit(planned)
    set_status(submitted.name, status)
    with input_error(kind):
        submission.check_resumable(submitted)


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


@pytest.mark.slow
def test_each_line_of_each_host_is_shown_once_also_after_the_end(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    set_status(submitted.name, "InProgress")
    step = "  step  1/2   reward  0.500   length   30.5   cut off  12 %   57 s left"
    log(submitted.name, "algo-1-1700000000", "hello from 1", step)
    events = []
    for event in follow.watch(submitted, poll_s=0.05, settle_s=1.0):
        events.append(event)
        if event == follow.StepMetrics(1, 2, 0.5):
            log(submitted.name, "algo-2-1700000001", "hello from 2")
        if isinstance(event, follow.LogLine) and event.text == "hello from 2":
            reason = "AlgorithmError: it's no good, exit code: 2"
            set_status(submitted.name, "Failed", failure_reason=reason)
            log(submitted.name, "algo-1-1700000000", "Traceback:", "\r10%\r20% the last line")
    lines = [(event.host, event.text) for event in events if isinstance(event, follow.LogLine)]
    assert lines == [
        ("algo-1", "hello from 1"),
        ("algo-1", step),
        ("algo-2", "hello from 2"),
        ("algo-1", "Traceback:"),
        ("algo-1", "20% the last line"),
    ]
    end = events[-1]
    assert isinstance(end, follow.JobEnd) and end.status == "Failed"
    assert [event for event in events if isinstance(event, follow.StatusChange)]


def test_the_summary_of_a_failure_has_the_full_reason_and_the_next_command() -> None:
    one = job.TrainingJob("mine-1", REGION, "s3://b/r", "s3://b/o", "s3://b/c", "r.yaml")
    reason = "AlgorithmError: a process was killed\nsecond line, exit code: 1"
    lines = follow.summary_lines(one, follow.JobEnd("Failed", reason, 120, 60, True))
    assert lines[0] == "mine-1: Failed after 2 min"
    assert lines[1] == "  billed: 60 s of each host, 50% less than on demand"
    assert lines[2:4] == ["  AlgorithmError: a process was killed", "  second line, exit code: 1"]
    assert "resume mine-1" in lines[-1]


@pytest.mark.parametrize(
    ("reason", "resumed", "why"),
    [
        ("AlgorithmError: task: there is no file rows.jsonl, exit code: 2", False, "nothing was trained"),
        ("AlgorithmError: a checkpoint of the metric, exit code: 2", True, "an earlier attempt saved a checkpoint"),
        ("AlgorithmError: it failed, exit code: 1", True, "it failed while it trained"),
        ("AlgorithmError: stopped early, exit code: 75", True, "it has saved a checkpoint"),
        ("AlgorithmError: killed, exit code: 137", True, "an older checkpoint is there"),
        ("AlgorithmError: it ended with exit code: 2 elsewhere, exit code: 1", True, "only the last one is the job's"),
        ("CapacityError: no such hosts are free", True, "the service's own"),
    ],
)
def test_a_failed_job_can_be_resumed_unless_its_recipe_was_wrong(
    account: str, reason: str, resumed: bool, why: str
) -> None:
    checkpoints = f"s3://{BUCKET}/mine-1/checkpoints"
    one = job.TrainingJob("mine-1", REGION, f"s3://{BUCKET}/mine-1", "s3://b/o", checkpoints, "r.yaml")
    if "checkpoint" in reason:
        put_object(f"{checkpoints}/run/checkpoint-5/complete.json", b"{}")
    last = follow.summary_lines(one, follow.JobEnd("Failed", reason))[-1]
    assert (" resume " in last, "`submit`" in last) == (resumed, not resumed), why


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("Completed", "", 0),
        ("Stopped", "", 75),
        ("Failed", "AlgorithmError: Stopped: max_runtime_s is near. checkpoint-20 is complete, exit code: 75", 75),
        ("Failed", "AlgorithmError: it printed exit code: 75 once, exit code: 1", 1),
        ("Failed", "CapacityError: no such hosts are free", 1),
    ],
)
def test_a_job_that_can_be_resumed_is_told_by_the_exit_code(status: str, reason: str, code: int) -> None:
    assert follow.exit_code(follow.JobEnd(status, reason)) == code


def test_a_job_without_a_log_can_be_followed(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    events = list(follow.watch(submitted, poll_s=0.05, settle_s=0.2))
    assert isinstance(events[-1], follow.JobEnd) and events[-1].status == "Completed"


@pytest.mark.parametrize(("outage_s", "survived"), [(600.0, True), (7200.0, False)])
def test_following_survives_an_outage_of_ten_minutes(
    planned: plan.JobPlan, monkeypatch: pytest.MonkeyPatch, outage_s: float, survived: bool
) -> None:
    from botocore.exceptions import EndpointConnectionError

    submitted = submission.submit(planned)
    log(submitted.name, "algo-1-1700000000", "before", "after")
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    describe = job.TrainingJob.describe

    def describe_or_fail(one: job.TrainingJob) -> dict[str, Any]:
        if clock.now < outage_s:
            with aws.translate_errors("Describing the job"):
                raise EndpointConnectionError(endpoint_url="https://sagemaker")
        return describe(one)

    monkeypatch.setattr(follow, "time", clock)
    monkeypatch.setattr(job.TrainingJob, "describe", describe_or_fail)
    events = follow.watch(submitted)
    first = next(events)
    assert isinstance(first, follow.StatusChange) and first.name == "Unreachable"
    if not survived:
        with pytest.raises(InputError) as caught:
            list(events)
        assert caught.value.kind == "aws-unreachable" and clock.now < outage_s
        return
    rest = list(events)
    assert [event.text for event in rest if isinstance(event, follow.LogLine)] == ["before", "after"]
    assert isinstance(rest[-1], follow.JobEnd) and clock.now >= outage_s
    assert [event for event in rest if isinstance(event, follow.StatusChange) and event.name == "Unreachable"] == []


def test_lines_that_arrive_while_another_stream_fails_are_shown_once(
    planned: plan.JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = submission.submit(planned)
    log(submitted.name, "algo-1-1700000000", "from 1")
    log(submitted.name, "algo-2-1700000000", "from 2")
    streams = follow._LogStreams(submitted, aws.client("logs", REGION))
    names = streams._names()
    monkeypatch.setattr(streams, "_names", lambda: [names[0], "gone"])
    with pytest.raises(Exception, match="ResourceNotFound"):
        streams.read()
    monkeypatch.setattr(streams, "_names", lambda: names)
    assert [line.text for line in streams.read()] == ["from 1", "from 2"]


def test_the_log_of_a_job_that_ended_long_ago_is_shown_without_waiting(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    log(submitted.name, "algo-1-1700000000", "the last line")
    set_status(submitted.name, "Completed", last_modified_time="2026-01-01 00:00:00")
    started_at = time.monotonic()
    events = list(follow.watch(submitted, poll_s=0.05, settle_s=60.0))
    assert time.monotonic() - started_at < 30
    assert [event.text for event in events if isinstance(event, follow.LogLine)] == ["the last line"]
    assert isinstance(events[-1], follow.JobEnd)


# ----------------------------------------------------------------------------------------------------------------------
# Fetching and cleaning up


def test_results_replace_existing_files_only_with_force(planned: plan.JobPlan, tmp_path: Path) -> None:
    submitted = submission.submit(planned)
    uri = submitted.describe()["ModelArtifacts"]["S3ModelArtifacts"]
    archive = pack(tmp_path / "model.tar.gz", (member("adapter/weights"), b"new"), (member("recipe"), b"r"))
    put_object(uri, archive.read_bytes())
    folder = tmp_path / "runs" / "demo"
    assert fetch.fetch_results(submitted, folder) == ["adapter", "recipe"]
    (folder / "adapter" / "weights").write_bytes(b"mine")
    with input_error("file-exists", match="adapter, recipe"):
        fetch.fetch_results(submitted, folder)
    assert (folder / "adapter" / "weights").read_bytes() == b"mine"
    fetch.fetch_results(submitted, folder, force=True)
    assert (folder / "adapter" / "weights").read_bytes() == b"new"
    assert not list(folder.glob(".fetched-*")), "nothing is left of the download"


def test_a_job_without_results_names_the_alternative(planned: plan.JobPlan, tmp_path: Path) -> None:
    submitted = submission.submit(planned)
    for status, kind in (("Failed", "no-results"), ("InProgress", "job-in-progress")):
        set_status(submitted.name, status)
        with pytest.raises(InputError) as caught:
            fetch.fetch_results(submitted, tmp_path / "out")
        assert caught.value.kind == kind and ("--checkpoints" in str(caught.value)) == (status == "Failed")


def test_checkpoints_are_written_only_inside_the_folder(planned: plan.JobPlan, tmp_path: Path) -> None:
    submitted = submission.submit(planned)
    put_object(f"{submitted.checkpoints}/run/checkpoint-5/complete.json", b"{}")
    put_object(f"{submitted.checkpoints}/run/../../../escaped", b"x")
    put_object(f"{submitted.checkpoints}/runaway/x", b"x")
    assert fetch.fetch_results(submitted, tmp_path / "out", checkpoints=True) == ["checkpoint-5"]
    assert not list(tmp_path.rglob("escaped")) and not (tmp_path / "out" / "runaway").exists()


def test_cleanup_deletes_only_the_jobs_folder(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    for uri in (f"{submitted.root}-of-another/x", f"s3://{BUCKET}/grpo-recipes/y", f"s3://{BUCKET}/data/z"):
        put_object(uri, b"kept")
    (resources,) = cleanup.find_resources([submitted])
    assert "deletes" in resources.lines()[0] and str(len(names_in(submitted.root))) in resources.lines()[0]
    assert names_in(submitted.root), "listing deletes nothing"
    cleanup.delete_resources(resources)
    assert names_in(submitted.root) == []
    assert sorted(names_in(f"s3://{BUCKET}/grpo-recipes") + names_in(f"s3://{BUCKET}/data")) == [
        "data/z",
        f"{aws.split_uri(submitted.root)[1]}-of-another/x",
        "grpo-recipes/y",
    ]
    assert cleanup.find_resources([submitted]) == []


def test_a_folder_without_a_job_record_is_not_deleted(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    put_object(f"s3://{BUCKET}/theirs/x", b"kept")
    assert cleanup.find_resources([dataclasses.replace(submitted, root=f"s3://{BUCKET}/theirs")]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "both", "deleted", "why"),
    [
        ("InProgress", True, False, "it writes them"),
        (None, True, False, "it is about to start: its files are being uploaded"),
        ("Stopped", False, False, "`resume` would need them"),
        ("Stopped", True, True, "it is to be deleted, too"),
        ("Completed", False, True, "nothing needs them any more"),
    ],
)
def test_checkpoints_that_another_job_continues_are_not_deleted(
    planned: plan.JobPlan, made: plan.JobPlan, tmp_path: Path, status: str | None, both: bool, deleted: bool, why: str
) -> None:
    first = submission.submit(planned)
    continued = as_of(made, tmp_path / "o", "second", checkpoints=first.checkpoints)
    second = submission.upload_job(continued, allow_duplicate=True) if status is None else submission.submit(continued)
    if status is not None:
        set_status(second.name, status)
    resources = next(one for one in cleanup.find_resources([first, second] if both else [first]) if one.job == first)
    assert bool(resources.in_use) == (not deleted), (why, resources.in_use)
    cleanup.delete_resources(resources)
    assert (names_in(first.root) == []) == deleted, why


@pytest.mark.parametrize("resumed_first", [True, False])
def test_of_resume_and_cleanup_at_the_same_time_only_the_first_succeeds(
    planned: plan.JobPlan, made: plan.JobPlan, tmp_path: Path, resumed_first: bool
) -> None:
    first = submission.submit(planned)
    set_status(first.name, "Stopped")
    put_object(f"{first.checkpoints}/run/checkpoint-5/complete.json", b"{}")
    continued = as_of(made, tmp_path / "o", "second", checkpoints=first.checkpoints)
    continued.resumes = True
    submission.check_resumable(first)
    (resources,) = cleanup.find_resources([first])
    if resumed_first:
        submission.submit(continued)
        set_status("second", "InProgress")
        assert "skipped" in cleanup.delete_resources(resources)[0]
        assert any("checkpoint-5" in name for name in names_in(first.root))
        return
    cleanup.delete_resources(resources)
    for attempt in (lambda: submission.check_resumable(first), lambda: submission.submit(continued)):
        with pytest.raises(InputError) as caught:
            attempt()
        assert caught.value.kind == "no-checkpoints", "it would start at step 0"


def test_a_version_that_changed_meanwhile_is_not_replaced(account: str) -> None:
    s3, uri = aws.client("s3", REGION), f"s3://{BUCKET}/experiment.json"
    _, absent = aws.read_json_version(s3, uri)
    aws.write_json(s3, uri, {"job": "first"}, **absent)
    _, version = aws.read_json_version(s3, uri)
    aws.write_json(s3, uri, {"job": "second"}, **version)
    for outdated in (absent, version):
        with input_error("changed-meanwhile"):
            aws.write_json(s3, uri, {"job": "third"}, **outdated)
    assert aws.read_json(s3, uri) == {"job": "second"}


def test_a_job_record_has_no_secret_and_the_job_has_the_projects_tag(planned: plan.JobPlan) -> None:
    submitted = submission.submit(planned)
    tags = aws.client("sagemaker", REGION).list_tags(ResourceArn=submitted.describe()["TrainingJobArn"])["Tags"]
    assert {"Key": request.TAG, "Value": "grpo-recipes"} in tags
    record = json.loads((Path("runs/demo") / job.RECORD).read_text())
    assert not [key for key in json.dumps(record).lower().split('"') if key in ("token", "password", "secret")]
