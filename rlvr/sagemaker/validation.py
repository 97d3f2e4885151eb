"""Check a `sagemaker:` section against its recipe, without asking AWS."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import DAY_S, InstanceGroup, SageMakerSettings
from rlvr.errors import InputError, Problem
from rlvr.modeling.loading import find_model
from rlvr.sagemaker import images, request
from rlvr.sagemaker.container.topology import Topology
from rlvr.sagemaker.reward_hosts import is_loopback, reward_host_problems
from rlvr.sagemaker.upload import PROJECT

_MAX_RUNTIME_S = 28 * DAY_S  # the service's limit, which its model lacks
_SECRETS = ("hf_token_secret_arn", "rewards_key_secret_arn")
# What the launcher and the entry point set for each host or process.
_HOST_VARIABLES = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    *(f"GRPO_{field.name.upper()}" for field in fields(Topology)),
}
_NO_PARENT = r"(?!(?:.*/)?\.\.(?:/|$))"
# Pattern and description of keys with a fixed form.
_FORMS = {
    "region": (r"[a-z]{2}(-[a-z]+)+-\d", "an AWS region, such as us-east-1"),
    "role": (r"arn:aws[a-z-]*:iam::\d{12}:role/.+", "an ARN, such as arn:aws:iam::111122223333:role/NAME"),
    "bucket": (
        r"[a-z0-9][a-z0-9.-]{0,62}",
        "a bucket's name alone: lower-case letters, digits, dots and dashes; a folder goes into prefix",
    ),
    "output": (rf"{_NO_PARENT}s3://[^/]+/.+", "a folder in S3 without .., such as s3://BUCKET/output"),
    "checkpoints": (rf"{_NO_PARENT}s3://[^/]+/.+", "a folder in S3 without .., such as s3://BUCKET/checkpoints"),
    "mlflow_tracking_uri": (
        r"arn:.+|(?!sqlite|file)[a-z][a-z0-9+]*://.+",
        "the ARN or the URL of a server, because a store on a host of the job is deleted with the host",
    ),
    "prefix": (
        rf"{_NO_PARENT}.*[^/].*",
        "a folder without .., without which `cleanup` could delete anything else in the bucket",
    ),
    "job_name": (
        rf"(?=.{{1,{request.MAX_BASE_NAME}}}$)[A-Za-z0-9](-*[A-Za-z0-9])*",
        f"at most {request.MAX_BASE_NAME} letters, digits and single dashes, such as qwen2-5-gsm8k",
    ),
    "image": (r"[^:].*", f"a URI or key:version, such as {images.KEY}:{images.VERSION}"),
} | dict.fromkeys(
    _SECRETS,
    (
        r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:.+",
        "the ARN of a secret in AWS Secrets Manager, such as "
        "arn:aws:secretsmanager:us-east-1:111122223333:secret:hf-token-AbCdEf",
    ),
)


def settings_problems(recipe: Recipe, settings: SageMakerSettings) -> list[Problem]:
    """All problems of the section."""
    return [
        *_value_problems(recipe, settings),
        *_host_problems(recipe, settings),
        *reward_host_problems(recipe, settings),
        *_checkpoint_problems(recipe, settings),
        *_isolation_problems(recipe, settings),
    ]


def _value_problems(recipe: Recipe, settings: SageMakerSettings) -> Iterator[Problem]:
    if settings.region is None:
        text = "No region: add --region us-east-1, or set AWS_DEFAULT_REGION or sagemaker.region in the recipe."
        yield Problem(text, kind="no-region", key="region")
    if settings.role is None:
        text = (
            "No role: add --role arn:aws:iam::ACCOUNT:role/NAME, the role that the job runs as. On a SageMaker "
            "notebook, `aws sts get-caller-identity` shows its name. docs/sagemaker.md has its policies."
        )
        yield Problem(text, kind="no-role", key="role")
    for key, (pattern, form) in _FORMS.items():
        value = getattr(settings, key)
        if value is not None and not re.fullmatch(pattern, value):
            # The value in place of the ARN may be the secret itself, and a URI may hold a password.
            shown = "" if key in (*_SECRETS, "mlflow_tracking_uri") else f"is {value!r}, but "
            yield Problem(f"sagemaker.{key} {shown}must be {form}.", kind="invalid-value", key=key)
    if settings.max_runtime_s > _MAX_RUNTIME_S:
        text = (
            f"max_runtime_s is {settings.max_runtime_s}, but a job may run for 28 days at most, {_MAX_RUNTIME_S}. "
            "Lower it. `resume` continues the job from its checkpoint."
        )
        yield Problem(text, kind="out-of-range", key="max_runtime_s")
    for name, uri in settings.channels.items():
        if name in ("code", "data", "model") or not re.fullmatch(r"[A-Za-z0-9_]{1,64}", name):
            text = (
                f"channels: {name} can't be a channel: code, data and model are the job's own. Use letters and digits."
            )
            yield Problem(text, kind="invalid-value", key="channels")
        if not re.fullmatch(r"s3://[^/]+/.+", uri):
            text = f"channels: {name} is {uri.partition('?')[0]!r}, but must be a folder in S3, such as s3://BUCKET/data/train."
            yield Problem(text, kind="invalid-value", key="channels")
    if {"validation", "test"} & settings.channels.keys() and "train" not in settings.channels:
        text = "channels: validation and test need train, because all three replace the task's path. Add train."
        yield Problem(text, kind="missing-key", key="channels")
    if "train" in settings.channels and recipe.is_mixture:
        text = "channels: train replaces the path of one task, and the recipe has several. Remove the channels."
        yield Problem(text, kind="several-tasks", key="channels")
    elif "train" in settings.channels and "path" not in recipe.tasks[0].options:
        text = (
            f"channels: train replaces the task's path, but the recipe gives {recipe.task_name} none. Add the path of "
            "a local copy, as `prepare_data.py --s3` prints it."
        )
        yield Problem(text, kind="missing-key", key="channels")
    if settings.mlflow_tracking_uri is not None and is_loopback(settings.mlflow_tracking_uri):
        text = "mlflow_tracking_uri is an address of the job's own host, which serves no MLflow. Name a server's URL."
        yield Problem(text, kind="unreachable-address", key="mlflow_tracking_uri")
    trackers = recipe.settings.get("report_to") or []
    for tracker in {trackers} if isinstance(trackers, str) else set(trackers):
        if tracker not in ("mlflow", "none", "all") and settings.image is None:
            text = (
                f"report_to: {tracker} is not installed in the job's image. Use mlflow with mlflow_tracking_uri, or an "
                "image of your own that has it."
            )
            yield Problem(text, kind="tracker-not-installed", key="report_to")
    if recipe.settings.get("push_to_hub") and settings.hf_token_secret_arn is None:
        text = "push_to_hub needs a token, and the job has none. Set hf_token_secret_arn (docs/sagemaker.md)."
        yield Problem(text, kind="hub-token-missing", key="hf_token_secret_arn")
    for name in settings.environment.keys() & (request.own_environment(recipe, settings).keys() | _HOST_VARIABLES):
        text = f"environment: {name} is set by this project. Remove it, or use the key of the section that sets it."
        yield Problem(text, kind="reserved-variable", key="environment")
    for tag in settings.tags:
        owner = "AWS" if tag.lower().startswith("aws:") else "this project"
        if owner == "AWS" or tag in (request.TAG, request.RECIPE_TAG):
            yield Problem(f"tags: {tag} is reserved for {owner}. Rename it.", kind="reserved-tag", key="tags")


def _host_problems(recipe: Recipe, settings: SageMakerSettings) -> Iterator[Problem]:
    if not settings.groups:
        yield Problem(
            "No instance type: add --instance_type ml.g6e.12xlarge (or sagemaker: {instance_type: …} in the recipe). "
            "docs/training.md says which GPUs a recipe fits on.",
            kind="no-instance-type",
            key="instance_type",
        )
        return
    type_problems = [*_instance_type_problems(settings)]
    yield from type_problems
    if type_problems or settings.train_group is None:
        return
    yield from _launcher_problems(recipe, settings, settings.train_group)
    theirs = recipe.settings.get("vllm_server_base_url") or recipe.settings.get("vllm_server_host")
    if recipe.settings.get("use_vllm") and recipe.settings.get("vllm_mode") == "server" and not theirs:
        text = "vllm_mode: server: no host of the job is a vLLM server. Set colocate, or name yours: vllm_server_host."
        yield Problem(text, kind="conflicting-keys", key="vllm_mode")


def _instance_type_problems(settings: SageMakerSettings) -> Iterator[Problem]:
    known = request.instance_types()
    for group in settings.groups:
        given, prefixed = group.instance_type, f"ml.{group.instance_type}"
        if given not in known:
            label = f"group {group.name}: instance_type" if settings.instance_groups else "instance_type"
            close = [prefixed] if prefixed in known else schema.nearest(given, known)
            hint = f"Did you mean {close[0]}?" if close else "Example: ml.g6e.12xlarge."
            text = f"{label} {given!r} is not an instance type of training jobs. {hint}"
            yield Problem(text, kind="unknown-instance-type", key="instance_type")


def _launcher_problems(recipe: Recipe, settings: SageMakerSettings, train: InstanceGroup) -> Iterator[Problem]:
    on_gpus, use_cpu = images.has_gpus(train.instance_type), bool(recipe.settings.get("use_cpu"))
    if not on_gpus and not use_cpu:
        reason = "4-bit weights need one" if recipe.settings.get("load_in_4bit") else "training needs one"
        yield Problem(
            f"{train.instance_type} has no GPU, and {reason}. Use a type with GPUs, such as ml.g6e.12xlarge, or set "
            "use_cpu: true for a small test.",
            kind="no-gpu",
            key="instance_type",
        )
    if on_gpus and use_cpu:
        yield Problem(
            f"use_cpu: true on {train.instance_type}: its GPUs would be idle and billed. Use a type without GPUs, such "
            "as ml.m5.2xlarge, or set use_cpu: false.",
            kind="idle-hosts",
            key="use_cpu",
        )
    launcher = request.launcher_of(settings)
    processes = request.count_processes(settings)
    if launcher == "python" and processes is not None and processes > 1:
        text = f"launcher: python starts one process, but the job has {processes}. Use ddp, zero2 or zero3."
        yield Problem(text, kind="launcher-mismatch", key="launcher")
    launchers = ["python", *sorted(path.stem for path in (PROJECT / "accelerate_configs").glob("*.yaml"))]
    if launcher not in launchers:
        yield Problem(
            f"launcher {launcher!r} is not a file of accelerate_configs/. Choose one of: {', '.join(launchers)}.",
            kind="unknown-launcher",
            key="launcher",
        )
    elif launcher != "python" and (launcher == "cpu") == on_gpus:
        yield Problem(
            f"launcher: {launcher} on {train.instance_type}, which has {'GPUs' if on_gpus else 'no GPUs'}. Remove "
            "launcher to get the right default.",
            kind="launcher-mismatch",
            key="launcher",
        )


def _checkpoint_problems(recipe: Recipe, settings: SageMakerSettings) -> Iterator[Problem]:
    if settings.spot and recipe.settings.get("save_strategy") == "no":
        text = (
            'spot with save_strategy: "no": a spot interruption would lose all work, and the next attempt starts at '
            "step 0. Set save_strategy: steps with a save_steps that you can afford to lose, or spot: false."
        )
        yield Problem(text, kind="spot-without-checkpoints", key="save_strategy")
    resume = recipe.settings.get("resume_from_checkpoint")
    if resume not in ("auto", None):
        restart = " Each attempt after an interruption would restart." if settings.spot or settings.retries else ""
        text = (
            f"resume_from_checkpoint: {resume} in a job: its checkpoints are in its own S3 folder.{restart} Remove the "
            "key (auto). `scripts/sagemaker.py resume JOB` continues an earlier job."
        )
        yield Problem(text, kind="resume-in-job", key="resume_from_checkpoint")


def _isolation_problems(recipe: Recipe, settings: SageMakerSettings) -> Iterator[Problem]:
    """What an isolated job can't start without. Its hosts would be paid before they fail."""
    if not settings.network_isolation:
        return
    if settings.image is None or "/" not in settings.image:
        fix = "pip can't install the requirements. Name an image that has them (docker/README.md)"
        yield Problem(f"network_isolation: {fix}.", kind="network-isolation", key="image")
    model = str(recipe.settings["model_name_or_path"])
    with contextlib.suppress(InputError):  # the preflight reports it
        if not Path(find_model(model)).is_dir():
            fix = "the hub can't be reached. Name a model folder, which is uploaded"
            yield Problem(f"network_isolation: {fix}.", kind="network-isolation", key="model_name_or_path")
