"""The CreateTrainingJob request of a recipe: its values, and the service's limits on them.

botocore checks names and types of a request before it is sent. Lengths, patterns and choices are checked only by the
service, after everything was uploaded. The service model that botocore ships contains them, so they are checked here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr.artifacts.identity import RESUME_MAY_CHANGE
from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import Problem
from rlvr.estimates.machines import INSTANCES
from rlvr.sagemaker import aws, images, reward_hosts

if TYPE_CHECKING:
    from botocore.model import Shape, StructureShape

TAG = "grpo-recipes"
RECIPE_TAG = "grpo-recipes:recipe"
MAX_BASE_NAME = 47  # a job name has at most 63 characters, and the timestamp takes 16
_CODE = "/opt/ml/input/data/code"
# Process 1 of the container must not be bash, which would drop SIGTERM: see pid1.py.
ENTRYPOINT = ["python3", f"{_CODE}/rlvr/sagemaker/container/pid1.py"]
ARGUMENTS = ["bash", f"{_CODE}/scripts/run_finetuning.sh"]
# Keys of the section and their fields of the request. A key without a value leaves its field out.
_FIELDS = {
    "role": "RoleArn",
    "volume_gb": "ResourceConfig.VolumeSizeInGB",
    "volume_kms_key": "ResourceConfig.VolumeKmsKeyId",
    "keep_alive_s": "ResourceConfig.KeepAlivePeriodInSeconds",
    "training_plan": "ResourceConfig.TrainingPlanArn",
    "max_runtime_s": "StoppingCondition.MaxRuntimeInSeconds",
    "max_pending_s": "StoppingCondition.MaxPendingTimeInSeconds",
    "wait_s": "StoppingCondition.MaxWaitTimeInSeconds",
    "spot": "EnableManagedSpotTraining",
    "retries": "RetryStrategy.MaximumRetryAttempts",
    "output_kms_key": "OutputDataConfig.KmsKeyId",
    "subnets": "VpcConfig.Subnets",
    "security_groups": "VpcConfig.SecurityGroupIds",
    "network_isolation": "EnableNetworkIsolation",
    "encrypt_traffic": "EnableInterContainerTrafficEncryption",
}
# How CloudWatch reads metrics from a job's log: the first group is the value. A step's line is
# `  step  12/60   reward  0.531   length   23.1   cut off   0 %`.
METRIC_PATTERNS = {
    "reward": r"step +[0-9]+/[0-9]+ +reward +(-?[0-9.]+)",
    "completion_length": r"step +[0-9]+/[0-9]+ .* length +([0-9.]+)",
    "clipped_percent": r"step +[0-9]+/[0-9]+ .* cut off +([0-9.]+)",
    "accuracy_percent": r"(?:before|after) training: +([0-9.]+) % right",
}
# The run saves and stops this long before the job's end: for the current step, the checkpoint and its upload.
_MARGIN, _MAX_MARGIN_S = 0.1, 600


def base_name(recipe: Recipe, settings: SageMakerSettings) -> str:
    """The job's name without its timestamp: `job_name`, or the recipe's name."""
    if settings.job_name is not None:
        return settings.job_name
    return re.sub(r"[^A-Za-z0-9]+", "-", recipe.path.stem).strip("-")[:MAX_BASE_NAME].strip("-") or "grpo"


def job_name(base: str, now: float | None = None) -> str:
    """A job name that is unique unless two jobs start within a second."""
    return f"{base}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"


def count_processes(settings: SageMakerSettings) -> int | None:
    """Number of training processes: one per GPU, or `processes_per_host`; None if the type's GPUs are unknown."""
    train = settings.train_group
    if train is None:
        return None
    if not images.has_gpus(train.instance_type):
        return train.instance_count * (settings.processes_per_host or 1)
    machine = INSTANCES.get(train.instance_type)
    return machine.gpus * train.instance_count if machine is not None else None


def launcher_of(settings: SageMakerSettings) -> str:
    if settings.launcher or settings.train_group is None:
        return settings.launcher or "cpu"
    if not images.has_gpus(settings.train_group.instance_type):
        return "cpu"
    return "python" if count_processes(settings) == 1 else "zero3"


def job_environment(recipe: Recipe, settings: SageMakerSettings) -> dict[str, str]:
    """The job's environment variables, the section's included. None of them is secret."""
    return {**settings.environment, **own_environment(recipe, settings)}


def own_environment(recipe: Recipe, settings: SageMakerSettings) -> dict[str, str]:
    """The variables that scripts/run_finetuning.sh and the programs that it starts read."""
    margin = min(_MAX_MARGIN_S, _MARGIN * settings.max_runtime_s)
    variables = {
        "GRPO_RECIPE": "recipe.yaml",
        "GRPO_LAUNCHER": launcher_of(settings),
        "GRPO_MAX_RUNTIME_S": str(int(settings.max_runtime_s - margin)),
        "PIP_CONSTRAINT": f"{_CODE}/job-constraints.txt",
    }
    if settings.network_isolation:  # so that they fail at once
        variables |= {"PIP_NO_INDEX": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    if settings.instance_groups:
        variables |= {f"GRPO_{group.role.upper()}_GROUP": group.name for group in settings.instance_groups}
    optional = {
        "GRPO_PROCESSES_PER_HOST": str(settings.processes_per_host or ""),
        "HF_TOKEN_SECRET_ARN": settings.hf_token_secret_arn,
        "GRPO_REWARDS_KEY_SECRET_ARN": settings.rewards_key_secret_arn,
        "MLFLOW_TRACKING_URI": settings.mlflow_tracking_uri,
        "MLFLOW_EXPERIMENT_NAME": settings.mlflow_experiment,
        "GRPO_RAY": "1" if reward_hosts.uses_job_ray_cluster(recipe) else None,
    }
    return variables | {name: value for name, value in optional.items() if value}


def recipe_digest(recipe: Mapping[str, Any]) -> str:
    """A digest of a resolved recipe, equal for two jobs that train the same."""
    material = {key: value for key, value in recipe.items() if key not in RESUME_MAY_CHANGE}
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def bucket_of(settings: SageMakerSettings) -> str | None:
    """The recipe's bucket, or the default SageMaker bucket of the account and region; None if neither is known."""
    if settings.bucket:
        return settings.bucket
    account = account_of(settings.role)
    return f"sagemaker-{settings.region}-{account}" if account and settings.region else None


def account_of(role: str | None) -> str | None:
    """The account number of a role's ARN; None if it is not an ARN."""
    match = re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}):role/.+", role or "")
    return match[1] if match else None


def root_uri(settings: SageMakerSettings) -> str:
    """The S3 folder that holds all jobs' folders."""
    return f"s3://{bucket_of(settings)}/{settings.prefix.strip('/')}"


def output_uri(settings: SageMakerSettings) -> str:
    """The S3 folder of results; the service adds the job's name."""
    return (settings.output or root_uri(settings)).rstrip("/")


def checkpoints_uri(settings: SageMakerSettings, name: str) -> str:
    """The S3 folder of checkpoints: the recipe's, or the job's own. Two runs never share one."""
    return (settings.checkpoints or f"{root_uri(settings)}/{name}/checkpoints").rstrip("/")


def channel_uri(settings: SageMakerSettings, name: str, channel: str) -> str:
    """The S3 folder of a channel: the recipe's, or the job's own."""
    return settings.channels.get(channel, "").rstrip("/") or f"{root_uri(settings)}/{name}/input/{channel}"


def build_request(
    recipe: Recipe, settings: SageMakerSettings, name: str, channels: Iterable[str], digest: str
) -> dict[str, Any]:
    """The request of a recipe whose section has no problem.

    Args:
        channels: names of the job's own channels, in addition to those of the section.
        digest: of the uploaded recipe.

    Raises:
        InputError: there is no such image.
    """
    train, region = settings.train_group, settings.region
    assert train is not None and region is not None  # validation requires both
    hosts: dict[str, Any] = {"InstanceType": train.instance_type, "InstanceCount": train.instance_count}
    if settings.instance_groups:
        groups = [
            {"InstanceGroupName": one.name, "InstanceType": one.instance_type, "InstanceCount": one.instance_count}
            for one in settings.instance_groups
        ]
        hosts = {"InstanceGroups": groups}
    all_channels = dict.fromkeys([*channels, *settings.channels])
    tags = {TAG: settings.prefix.strip("/"), RECIPE_TAG: digest, **settings.tags}
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": images.image_uri(settings.image, region, train.instance_type),
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ENTRYPOINT,
            "ContainerArguments": ARGUMENTS,
            "MetricDefinitions": [{"Name": name, "Regex": pattern} for name, pattern in METRIC_PATTERNS.items()],
        },
        "Environment": job_environment(recipe, settings),
        "InputDataConfig": [_channel(channel, channel_uri(settings, name, channel)) for channel in all_channels],
        "ResourceConfig": hosts,
        "CheckpointConfig": {"S3Uri": checkpoints_uri(settings, name), "LocalPath": "/opt/ml/checkpoints"},
        "OutputDataConfig": {"S3OutputPath": output_uri(settings), "CompressionType": "GZIP"},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    for key, field in _FIELDS.items():
        value = getattr(settings, key)
        if value:
            section, _, leaf = field.rpartition(".")
            place = request.setdefault(section, {}) if section else request
            place[leaf] = list(value) if isinstance(value, tuple) else value
    return request


def required_quotas(settings: SageMakerSettings) -> dict[str, int]:
    """The quotas of a job by their names in Service Quotas, with the number of hosts that it needs of each.

    On-demand, spot and warm-pool hosts have one each per instance type.
    """
    needed: Counter[str] = Counter()
    for group in settings.groups:
        usage = "spot training job usage" if settings.spot else "training job usage"
        needed[f"{group.instance_type} for {usage}"] += group.instance_count
        if settings.keep_alive_s:
            needed[f"{group.instance_type} for training warm pool usage"] += group.instance_count
    return dict(needed)


def _channel(name: str, uri: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


# ----------------------------------------------------------------------------------------------------------------------
# The service's limits


@functools.cache
def _request_shape() -> StructureShape:
    """The shape of CreateTrainingJob in botocore's service model, which needs no client, region or credentials.

    Raises:
        InputError: botocore is not installed.
    """
    with aws.translate_errors("Reading the limits of SageMaker"):
        import botocore.session
        from botocore.model import ServiceModel

    loader = botocore.session.get_session().get_component("data_loader")
    model = ServiceModel(loader.load_service_model("sagemaker", "service-2"), "sagemaker")
    shape: StructureShape = model.operation_model("CreateTrainingJob").input_shape
    return shape


def instance_types() -> list[str]:
    """All instance types of training jobs."""
    return list(_request_shape().members["ResourceConfig"].members["InstanceType"].enum)


def request_problems(request: Mapping[str, Any]) -> list[Problem]:
    """What the service would refuse: names, types, lengths, numbers, patterns and choices."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(request, _request_shape())
    messages = report.generate_report().splitlines() or list(_limit_violations(request, _request_shape(), ""))
    return [Problem(f"CreateTrainingJob: {message}", kind="invalid-request") for message in dict.fromkeys(messages)]


def _limit_violations(value: Any, shape: Shape, path: str) -> Iterable[str]:
    """Violations of the limits that botocore does not check."""
    label = path or "the request"
    if shape.type_name == "structure":
        for key, item in value.items():
            yield from _limit_violations(item, shape.members[key], f"{path}.{key}".lstrip("."))
        return
    limits = shape.metadata
    size = value if isinstance(value, int | float) else len(value)
    unit = {"string": " characters", "list": " entries", "map": " entries"}.get(shape.type_name, "")
    if shape.type_name != "boolean":
        if "min" in limits and size < limits["min"]:
            yield f"{label} has {size}{unit}; the minimum is {limits['min']}."
        if "max" in limits and size > limits["max"]:
            yield f"{label} has {size}{unit}; the maximum is {limits['max']}."
    if shape.type_name == "list":
        for number, item in enumerate(value):
            yield from _limit_violations(item, shape.member, f"{path}[{number}]")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _limit_violations(key, shape.key, f"{path}: the name {key!r}")
            yield from _limit_violations(item, shape.value, f"{path}.{key}")
    elif shape.type_name == "string":
        if shape.enum and value not in shape.enum:
            close = schema.nearest(value, shape.enum)
            yield f"{label} {value!r} is not an allowed choice.{f' Did you mean {close[0]}?' if close else ''}"
        pattern = _compile_pattern(limits.get("pattern"))
        if pattern is not None and not pattern.fullmatch(value):
            shown = label if label.endswith(repr(value)) else f"{label} {value!r}"  # a name is its own label
            yield f"{shown} does not match the service's pattern {limits['pattern']}"


@functools.cache
def _compile_pattern(text: str | None) -> re.Pattern[str] | None:
    """A pattern of the service model in Python's syntax; None if there is none or Python can't read it."""
    if text is None:
        return None
    for java, python in ((r"\p{L}", r"\w"), (r"\p{Z}", r"\s"), (r"\p{N}", r"\d")):
        text = text.replace(java, python)
    try:
        return re.compile(text)
    except re.error:
        return None
