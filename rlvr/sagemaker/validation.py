"""What of a `sagemaker:` section can't work with a recipe, or can't work at all: known before anything is uploaded."""

from __future__ import annotations

import re

from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.console import duration
from rlvr.sagemaker import images, request
from rlvr.sagemaker.reward_hosts import place_faults
from rlvr.sagemaker.upload import PROJECT

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_JOB_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*")
_WARM_POOL = "Leave out keep_alive_s."


def settings_faults(recipe: Recipe, settings: SageMakerSettings) -> list[str]:
    """A sentence for each, with the way out."""
    return [
        *_where_faults(settings),
        *_host_faults(recipe, settings),
        *place_faults(recipe, settings),
        *_time_faults(recipe, settings),
        *_name_faults(settings),
    ]


def _where_faults(settings: SageMakerSettings) -> list[str]:
    faults = []
    if settings.region is None:
        faults.append(
            "No region: add --region us-east-1 (or sagemaker: {region: …} in the recipe), or set AWS_DEFAULT_REGION."
        )
    elif not _REGION.fullmatch(settings.region):
        faults.append(f"region is {settings.region!r}, but should be one of AWS's, like us-east-1.")
    if settings.role is None:
        faults.append(
            "No role: add --role arn:aws:iam::ACCOUNT:role/NAME, the role that the job is to run as. On a SageMaker "
            "notebook it is what sagemaker.core.helper.session_helper.get_execution_role() returns; docs/sagemaker.md "
            "says what it must be allowed to do."
        )
    elif request.account_of(settings.role) is None:
        faults.append(f"role is {settings.role!r}, but should be an ARN, like arn:aws:iam::111122223333:role/NAME.")
    if settings.bucket is not None:
        if settings.bucket.startswith("s3://") or "/" in settings.bucket:
            faults.append(
                f"bucket is {settings.bucket!r}, but should be the bucket's name alone; a folder within it is prefix."
            )
        elif not _BUCKET.fullmatch(settings.bucket):
            faults.append(
                f"bucket is {settings.bucket!r}, which no bucket can be called: lower-case letters, digits, "
                "dots and dashes."
            )
    for key, uri in (("output", settings.output), ("checkpoints", settings.checkpoints)):
        if uri is not None and not re.fullmatch(r"s3://[^/]+/.+", uri):
            faults.append(f"{key} is {uri!r}, but should be a folder in S3, like s3://BUCKET/{key}.")
    if not settings.prefix.strip("/"):
        faults.append("prefix is only slashes: name a folder, so that clearing up can't touch anything else.")
    if bool(settings.subnets) != bool(settings.security_groups):
        faults.append("subnets and security_groups go together: a VPC takes both or none.")
    return faults


def _host_faults(recipe: Recipe, settings: SageMakerSettings) -> list[str]:
    if not settings.groups:
        return [
            "No instance type: add --instance_type ml.g6e.12xlarge (or sagemaker: {instance_type: …} in the recipe). "
            "docs/estimates.md says which GPUs a recipe fits on."
        ]
    faults = []
    for group in settings.groups:
        where = f"group {group.name}: instance_type" if settings.instance_groups else "instance_type"
        fault = request.instance_fault(group.instance_type, where)
        if fault is not None:
            faults.append(fault)
        elif images.has_other_accelerators(group.instance_type):
            faults.append(
                f"{where} is {group.instance_type}: TRL's trainer runs on NVIDIA GPUs. Take an ml.g or ml.p type."
            )
    train = settings.train_group
    if faults or train is None:
        return faults
    on_gpus, use_cpu = images.has_gpus(train.instance_type), bool(recipe.settings.get("use_cpu"))
    if not on_gpus and not use_cpu:
        what = "4-bit weights are" if recipe.settings.get("load_in_4bit") else "a language model is"
        faults.append(
            f"{train.instance_type} has no GPU, and {what} trained on one: take a type with GPUs, like "
            f"ml.g6e.12xlarge, "
            "or set use_cpu: true to try something small."
        )
    if on_gpus and use_cpu:
        faults.append(
            f"use_cpu: true on {train.instance_type}: its GPUs would be paid for and stand idle. Take a type without, "
            "like ml.m5.2xlarge, or set use_cpu: false."
        )
    launcher = request.launcher_of(settings)
    there = ["python", *sorted(path.stem for path in (PROJECT / "accelerate_configs").glob("*.yaml"))]
    if launcher not in there:
        faults.append(
            f"launcher is {launcher!r}, which is no file of accelerate_configs/. There are: {', '.join(there)}."
        )
    elif launcher != "python" and (launcher == "cpu") == on_gpus:
        faults.append(
            f"launcher: {launcher} on {train.instance_type}, which has {'GPUs' if on_gpus else 'none'}: leave "
            f"launcher out, "
            "and the right one is taken."
        )
    for group in settings.groups:
        if group.role == "rollout":
            faults.append(
                f"The group {group.name} has the role rollout, for which there is no program: vLLM wants another "
                "torch than the image has. Remove the group; with use_vllm: true and vllm_mode: colocate the GPUs that "
                "train generate as well, in an image of your own that has vLLM."
            )
    if settings.keep_alive_s and settings.instance_groups:
        faults.append(f"keep_alive_s with instance_groups: AWS keeps no heterogeneous cluster warm. {_WARM_POOL}")
    return faults


def _time_faults(recipe: Recipe, settings: SageMakerSettings) -> list[str]:
    faults = []
    if settings.spot and recipe.settings.get("save_strategy") == "no":
        faults.append(
            'spot with save_strategy: "no": when AWS takes the hosts back all is lost, and the next attempt is paid '
            "for from step 0. Set save_strategy: steps and save_steps by the work that you can afford to lose, or "
            "spot: false."
        )
    if recipe.settings.get("resume_from_checkpoint") not in ("auto", None):
        again = " Each attempt after an interruption would begin anew." if settings.spot or settings.retries else ""
        faults.append(
            f"resume_from_checkpoint: {recipe.settings['resume_from_checkpoint']} in a job: its checkpoints are its "
            f"own folder in S3.{again} Leave it out (auto); `scripts/sagemaker.py resume JOB` "
            "goes on from an earlier job's."
        )
    if settings.max_wait_s is not None and not settings.spot:
        faults.append("max_wait_s without spot: only spot capacity is waited for. Set spot: true, or leave it out.")
    elif settings.spot and settings.max_wait_s is not None and settings.max_wait_s < settings.max_runtime_s:
        faults.append(
            f"max_wait_s is {settings.max_wait_s} ({duration(settings.max_wait_s)}), less than max_runtime_s "
            f"({duration(settings.max_runtime_s)}), which is part of it: raise it, or leave it out for a day more."
        )
    if settings.spot and settings.keep_alive_s:
        faults.append(f"keep_alive_s with spot: AWS keeps no spot hosts warm. {_WARM_POOL}")
    return faults


def _name_faults(settings: SageMakerSettings) -> list[str]:
    faults = []
    name = settings.job_name
    if name is not None and len(name) > request.MOST_BASE:
        faults.append(
            f"job_name has {len(name)} characters, but at most {request.MOST_BASE} are possible: a job's name has 63, "
            f"and "
            "the time that makes it unique takes 16."
        )
    if name is not None and not _JOB_NAME.fullmatch(name):
        faults.append(
            f"job_name is {name!r}, but AWS takes letters, digits and single dashes only, like qwen2-5-gsm8k."
        )
    image = images.key_and_version(settings.image)
    if image is not None and not image[0]:
        faults.append(
            f"image is {settings.image!r}, but should be a URI, or key:version like {images.KEY}:{images.VERSION}."
        )
    secret = settings.hf_token_secret_arn
    if secret is not None and not re.fullmatch(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:.+", secret):
        told = (
            "a token itself, which would be readable to all who may see the job" if secret.startswith("hf_") else secret
        )
        faults.append(
            f"hf_token_secret_arn is {told}; it should be the ARN of a secret in AWS Secrets Manager, like "
            "arn:aws:secretsmanager:us-east-1:111122223333:secret:hf-token-AbCdEf."
        )
    for key in settings.tags:
        if key.lower().startswith("aws:") or key in (request.TAG, request.RECIPE_TAG):
            faults.append(f"tags: {key} is kept for {'AWS' if key.lower().startswith('aws:') else 'this project'}.")
    return faults
