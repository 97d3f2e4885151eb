"""The `sagemaker:` section of a recipe: where a job runs and for how long. What it trains is the rest of the recipe.

    sagemaker:
      instance_type: ml.g6e.12xlarge
      spot: true
      max_runtime_s: 14400

Every key can be given on the command line: `--sagemaker.instance_type ml.g6e.12xlarge`. This module checks the section
alone; rlvr/sagemaker/validation.py checks it against the recipe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rlvr.config.key_location import KeyLocation
from rlvr.config.sections import Reader, read_fields
from rlvr.errors import Problem

DAY_S = 24 * 3600


@dataclass(frozen=True)
class InstanceGroup:
    """Hosts of one kind in a heterogeneous cluster.

    Attributes:
        name: Name of the group.
        instance_type: Instance type of its hosts.
        instance_count: Number of its hosts.
        role: train, or judge for hosts that score completions on CPUs.
    """

    name: str
    instance_type: str
    instance_count: int = 1
    role: Literal["train", "judge"] = "train"


@dataclass(frozen=True)
class SageMakerSettings:
    """The section, defaults included.

    Attributes:
        instance_type: Instance type of all hosts, such as ml.g6e.12xlarge.
        instance_count: Number of hosts.
        instance_groups: Hosts of several kinds, in place of `instance_type`.
        volume_gb: Disk of a host that has no local storage.
        launcher: A file of accelerate_configs/ without its suffix, or python. Default: python on one GPU, zero3 on
            several, cpu without GPUs.
        processes_per_host: Training processes per host without GPUs. Default: 1.
        image: URI of the image, or another version of the image in rlvr/sagemaker/images.py.
        spot: Use spot capacity, which costs less and may be reclaimed.
        max_runtime_s: Seconds after which the service ends the job.
        max_wait_s: With spot, seconds including the wait for capacity. Default: max_runtime_s and a day.
        max_pending_s: Seconds after which a job that waits for capacity is given up.
        training_plan: ARN of a SageMaker training plan with reserved capacity.
        keep_alive_s: Seconds that the hosts stay warm for the next job. They are billed.
        role: ARN of the role that the job runs as.
        region: Region of the job.
        bucket: Bucket of the job. Default: sagemaker-REGION-ACCOUNT.
        prefix: Folder in the bucket.
        output: S3 URI of the results. Default: the folder of the job.
        checkpoints: S3 URI of checkpoints to continue from and to write. Default: the folder of the job.
        channels: S3 folders of data by channel. train, validation and test replace the `path` of the task.
        environment: Environment variables of all hosts.
        tags: Tags of the job.
        subnets: Subnets of a VPC.
        security_groups: Security groups of a VPC.
        network_isolation: Hosts reach only each other.
        encrypt_traffic: Encrypt the traffic between hosts.
        volume_kms_key: KMS key of the disks.
        output_kms_key: KMS key of the results.
        retries: How often the service restarts the job after an internal error.
        hf_token_secret_arn: Secret in AWS Secrets Manager with a token of the Hugging Face hub.
        rewards_key_secret_arn: Secret in AWS Secrets Manager with the key of reward servers.
        mlflow_tracking_uri: ARN of a SageMaker MLflow server, or a URL.
        mlflow_experiment: Experiment of MLflow.
        job_name: Name of the job, to which the time is added. Default: the name of the recipe.
        ignore_estimate: Start the job even if the memory estimate says that it does not fit.
    """

    instance_type: str | None = None
    instance_count: int = 1
    instance_groups: tuple[InstanceGroup, ...] = ()
    volume_gb: int = 30
    launcher: str | None = None
    processes_per_host: int | None = None
    image: str | None = None
    spot: bool = False
    max_runtime_s: int = 4 * 3600
    max_wait_s: int | None = None
    max_pending_s: int | None = None
    training_plan: str | None = None
    keep_alive_s: int = 0
    role: str | None = None
    region: str | None = None
    bucket: str | None = None
    prefix: str = "grpo-recipes"
    output: str | None = None
    checkpoints: str | None = None
    channels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    network_isolation: bool = False
    encrypt_traffic: bool = False
    volume_kms_key: str | None = None
    output_kms_key: str | None = None
    retries: int = 0
    hf_token_secret_arn: str | None = None
    rewards_key_secret_arn: str | None = None
    mlflow_tracking_uri: str | None = None
    mlflow_experiment: str | None = None
    job_name: str | None = None
    ignore_estimate: bool = False

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """All hosts as groups: a homogeneous cluster is one group that trains. Empty without an instance type."""
        if self.instance_groups:
            return self.instance_groups
        if self.instance_type is None:
            return ()
        return (InstanceGroup("train", self.instance_type, self.instance_count),)

    @property
    def train_group(self) -> InstanceGroup | None:
        return next((group for group in self.groups if group.role == "train"), None)

    @property
    def wait_s(self) -> int | None:
        """`max_wait_s` as sent: as given, or a day more than the job may run; None without spot."""
        return None if not self.spot else self.max_wait_s or self.max_runtime_s + DAY_S


def read_settings(value: Any, at: KeyLocation, problems: list[Problem]) -> SageMakerSettings | None:
    """Read the section, which is written at `at`; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        example = "sagemaker: {instance_type: ml.g6e.12xlarge}"
        problems.append(at.problem(f"must be a mapping, like {example}.", "wrong-type"))
        return None
    readers: dict[str, Reader] = {
        "instance_groups": _read_groups,
        "channels": _read_texts,
        "environment": _read_texts,
        "tags": _read_texts,
        "subnets": _read_ids,
        "security_groups": _read_ids,
    }
    values = read_fields(value, SageMakerSettings, at, problems, readers, may_be_zero=("keep_alive_s", "retries"))
    both = [key for key in ("instance_type", "instance_count") if key in values]
    if values.get("instance_groups") and both:
        null = " ".join(f"--sagemaker.{key} null" for key in both)
        text = (
            f"can't be combined with {' and '.join(both)}: each group has its own. Remove "
            f"{'them' if len(both) > 1 else 'it'} (on the command line: {null}), or remove the groups "
            "(--sagemaker.instance_groups null)."
        )
        problems.append(at.child("instance_groups").problem(text, "conflicting-keys"))
    return SageMakerSettings(**values)


def _read_ids(value: Any, at: KeyLocation, problems: list[Problem]) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    problems.append(at.problem(f"is {value!r}, but should be a list, like [sg-0123].", "wrong-type"))
    return ()


def _read_texts(value: Any, at: KeyLocation, problems: list[Problem]) -> dict[str, str]:
    """Read names with texts. Other values become JSON: YAML reads `{"team": "nlp"}`, a value of MLFLOW_TAGS."""
    if isinstance(value, dict) and None not in value.values():
        return {str(name): one if isinstance(one, str) else json.dumps(one) for name, one in value.items()}
    # No value is shown: those of `environment` may be secrets.
    empty = [str(name) for name, one in value.items() if one is None] if isinstance(value, dict) else []
    what = f"has no value for {', '.join(empty)}, and" if empty else f"is a {type(value).__name__}, but"
    text = f"{what} should be a mapping of names to values, like {{team: nlp}}."
    problems.append(at.problem(text, "wrong-type"))
    return {}


def _read_groups(value: Any, at: KeyLocation, problems: list[Problem]) -> tuple[InstanceGroup, ...]:
    example = "{name: train, instance_type: ml.g6e.12xlarge, instance_count: 1, role: train}"
    if not isinstance(value, list) or not value:
        problems.append(at.problem(f"should be a list with one entry per group, like - {example}.", "wrong-type"))
        return ()
    before, groups = len(problems), []
    for number, entry in enumerate(value, start=1):
        inside = at.child(str(number), f", entry {number}")
        if not isinstance(entry, dict) or not {"name", "instance_type"} <= set(entry):
            text = f"should have a name and an instance_type, like {example}."
            problems.append(inside.problem(text, "missing-key"))
            continue
        values = read_fields(entry, InstanceGroup, inside, problems, {})
        if len(problems) == before:
            groups.append(InstanceGroup(**values))
    names = [group.name for group in groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        text = f": two groups have the name {name}. Give each a name of its own."
        problems.append(at.problem(text, "duplicate-name"))
    trainers = [group.role for group in groups].count("train")
    if len(groups) == len(value) and trainers != 1:
        problems.append(at.problem(f": {trainers} groups have the role train, but exactly one must.", "train-group"))
    return tuple(groups)
