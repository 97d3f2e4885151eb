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
        name: name in the job, by which the hosts find their role.
        role: "train" or "judge" (scores completions, on CPUs).
    """

    name: str
    instance_type: str
    instance_count: int = 1
    role: Literal["train", "judge"] = "train"


@dataclass(frozen=True)
class SageMakerSettings:
    """The section, defaults included.

    Attributes:
        instance_type, instance_count: the hosts; `instance_groups` instead for hosts of several kinds.
        volume_gb: disk of a host without local storage.
        launcher: a file of accelerate_configs/ without its suffix, or python; None for python on one GPU, zero3 on
            several, and cpu without GPUs.
        processes_per_host: training processes of each host without GPUs; None for one. GPUs have one each.
        image: a whole image URI, or another version of the one in rlvr/sagemaker/images.py; None for that one.
        spot: whether to use spot capacity, which is cheaper and may be reclaimed.
        max_runtime_s: seconds after which the service ends the job.
        max_wait_s: with spot, the same including the wait for capacity; None for max_runtime_s and a day.
        max_pending_s: seconds after which the service gives up a job that waits for capacity; None for its default.
        training_plan: ARN of a SageMaker training plan, whose reserved capacity the job uses.
        keep_alive_s: seconds that the hosts stay warm for a next job, and are paid for.
        role: ARN of the role that the job runs as.
        region, bucket, prefix: where the job runs, and its place in S3. The default bucket is the SDK's,
            sagemaker-REGION-ACCOUNT.
        output: S3 URI of the results; None for the job's folder under the prefix.
        checkpoints: S3 URI of checkpoints to continue from or to write; None for the job's folder.
        channels: S3 folders of data by the name of their channel. `train`, `validation` and `test` replace the task's
            `path` in the job.
        environment: variables of all hosts, in addition to the project's.
        tags: of the job, in addition to the project's.
        subnets, security_groups: of a VPC.
        network_isolation: whether hosts reach nothing but each other.
        encrypt_traffic: whether traffic between hosts is encrypted.
        volume_kms_key, output_kms_key: KMS keys of the hosts' disks and of the results.
        retries: how often the service restarts the job after an internal error.
        hf_token_secret_arn: secret of AWS Secrets Manager that holds a token of the Hugging Face hub.
        rewards_key_secret_arn: the same with the key of reward servers outside the job.
        mlflow_tracking_uri, mlflow_experiment: where metrics go: the ARN of a SageMaker MLflow server, or a URL.
        job_name: name of the job, to which the time is added; None for the recipe's name.
        ignore_estimate: whether a job starts that needs, by estimate, clearly more memory than its hosts have.
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
