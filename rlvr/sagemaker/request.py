"""From a recipe and its `sagemaker:` section to what is asked of the service, and what the service would refuse.

botocore checks names and types of a request before it is sent, but neither lengths nor patterns: those the service
answers, after everything was uploaded. Both stand in the service model that botocore ships, so both are checked here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr.artifacts.identity import RESUME_MAY_CHANGE
from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import InputError
from rlvr.sagemaker import cloudwatch_metrics, images, reward_hosts

if TYPE_CHECKING:
    from botocore.model import Shape, StructureShape

    from rlvr.sagemaker.sdk import Order

NOT_INSTALLED = "The SageMaker Python SDK is not installed here: pip install -e '.[sagemaker]' -c constraints.txt"
TAG = "grpo-recipes"
RECIPE_TAG = "grpo-recipes:recipe"
# A job's name may have 63 characters, of which the time takes 16.
MOST_BASE = 47
_CODE = "/opt/ml/input/data/code"
# How long before the job's end the run saves and stops: for the rest of a step, a checkpoint, and its way to S3.
_MARGIN, _MOST_MARGIN_S = 0.1, 600


def base_name(recipe: Recipe, settings: SageMakerSettings) -> str:
    """What a job's name begins with: as given, or made of the recipe's name."""
    if settings.job_name is not None:
        return settings.job_name
    return re.sub(r"[^A-Za-z0-9]+", "-", recipe.path.stem).strip("-")[:MOST_BASE].strip("-") or "grpo"


def job_name(base: str, now: float | None = None) -> str:
    """A name that no other job of the account has, unless two were begun within a second."""
    return f"{base}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"


def launcher_of(settings: SageMakerSettings) -> str:
    train = settings.train_group
    on_gpus = train is not None and images.has_gpus(train.instance_type)
    return settings.launcher or ("zero3" if on_gpus else "cpu")


def environment(recipe: Recipe, settings: SageMakerSettings) -> dict[str, str]:
    """The variables that scripts/run_finetuning.sh reads. None of them is secret."""
    margin = min(_MOST_MARGIN_S, _MARGIN * settings.max_runtime_s)
    found = {
        "GRPO_RECIPE": "recipe.yaml",
        "GRPO_LAUNCHER": launcher_of(settings),
        "GRPO_MAX_RUNTIME_S": str(int(settings.max_runtime_s - margin)),
        "PIP_CONSTRAINT": f"{_CODE}/job-constraints.txt",
    }
    if settings.instance_groups:
        found |= {f"GRPO_{group.role.upper()}_GROUP": group.name for group in settings.instance_groups}
    optional = {
        "HF_TOKEN_SECRET_ARN": settings.hf_token_secret_arn,
        "MLFLOW_TRACKING_URI": settings.mlflow_tracking_uri,
        "MLFLOW_EXPERIMENT_NAME": settings.mlflow_experiment,
        "GRPO_RAY": "1" if reward_hosts.makes_ray_cluster(recipe) else None,
        "TENSORBOARD_LOGGING_DIR": "/opt/ml/output/tensorboard" if reports_to(recipe, "tensorboard") else None,
    }
    return found | {name: value for name, value in optional.items() if value}


def reports_to(recipe: Recipe, tracker: str) -> bool:
    wanted = recipe.settings.get("report_to")
    return tracker in ([wanted] if isinstance(wanted, str) else list(wanted or []))


def digest_of(recipe: Mapping[str, Any]) -> str:
    """What two runs share that train the same: a digest of the resolved recipe without what changes no number."""
    material = {key: value for key, value in recipe.items() if key not in RESUME_MAY_CHANGE}
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def bucket_of(settings: SageMakerSettings) -> str | None:
    """The bucket: as given, or the one that the SDK makes for an account and region; None if neither is known."""
    if settings.bucket:
        return settings.bucket
    account = account_of(settings.role)
    return f"sagemaker-{settings.region}-{account}" if account and settings.region else None


def account_of(role: str | None) -> str | None:
    found = re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}):role/.+", role or "")
    return found[1] if found else None


def order_of(
    recipe: Recipe,
    settings: SageMakerSettings,
    name: str,
    folders: Mapping[str, str],
    channels: Iterable[str],
    digest: str,
) -> Order:
    """What the SDK is told (rlvr/sagemaker/sdk.py).

    Args:
        folders: `code`, and `drivers`, which is empty.
        channels: the other channels that there is something for.
        digest: of the recipe as it travels.
    """
    bucket, prefix = bucket_of(settings), settings.prefix.strip("/")
    root = f"s3://{bucket}/{prefix}"
    image = images.key_and_version(settings.image)
    train = settings.train_group
    assert train is not None  # plan asks for it first
    hosts: dict[str, Any] = {
        "instance_groups": [
            {"name": group.name, "instance_type": group.instance_type, "instance_count": group.instance_count}
            for group in settings.instance_groups
        ]
    }
    if not settings.instance_groups:
        hosts = {"instance_type": train.instance_type, "instance_count": train.instance_count}
    return {
        **hosts,
        **folders,
        "job_name": name,
        "region": settings.region,
        "bucket": bucket,
        "prefix": prefix,
        "role": settings.role,
        "entry_script": "scripts/run_finetuning.sh",
        "requirements": "requirements.txt",
        "image": settings.image if image is None else None,
        "image_key": image and image[0],
        "image_version": image and image[1],
        "image_for": train.instance_type,
        "volume_gb": settings.volume_gb,
        "spot": settings.spot,
        "max_runtime_s": settings.max_runtime_s,
        "max_wait_s": settings.wait_s,
        "keep_alive_s": settings.keep_alive_s,
        "retries": settings.retries,
        "environment": environment(recipe, settings),
        "channels": {channel: f"{root}/{name}/input/{channel}" for channel in channels},
        "output": output_of(settings),
        "checkpoints": checkpoints_of(settings, name),
        "tags": {TAG: prefix, RECIPE_TAG: digest, **settings.tags},
        "subnets": list(settings.subnets),
        "security_groups": list(settings.security_groups),
        "metrics": cloudwatch_metrics.definitions(),
        "tensorboard": f"{root}/{name}/tensorboard" if reports_to(recipe, "tensorboard") else None,
    }


def output_of(settings: SageMakerSettings) -> str:
    """The folder in S3 that results go to, in a folder of the job's name."""
    return (settings.output or f"s3://{bucket_of(settings)}/{settings.prefix.strip('/')}").rstrip("/")


def checkpoints_of(settings: SageMakerSettings, name: str) -> str:
    """Where checkpoints go: as given, or the job's own folder; one for each experiment, and never shared by two."""
    if settings.checkpoints:
        return settings.checkpoints.rstrip("/")
    return f"s3://{bucket_of(settings)}/{settings.prefix.strip('/')}/{name}/checkpoints"


# ----------------------------------------------------------------------------------------------------------------------
# What the service would refuse


@functools.cache
def _input_shape() -> StructureShape:
    """CreateTrainingJob as the service describes it, without a client, a region or credentials.

    Raises:
        InputError: the SDK is not installed.
    """
    try:
        import botocore.session
        from botocore.model import ServiceModel
    except ImportError as error:
        raise InputError(NOT_INSTALLED) from error

    loader = botocore.session.get_session().get_component("data_loader")
    model = ServiceModel(loader.load_service_model("sagemaker", "service-2"), "sagemaker")
    shape: StructureShape = model.operation_model("CreateTrainingJob").input_shape
    return shape


def instance_types() -> list[str]:
    """All instance types that training jobs run on."""
    config = _input_shape().members["ResourceConfig"].members["InstanceType"]
    return list(config.enum)


def instance_fault(instance_type: str, where: str) -> str | None:
    known = instance_types()
    if instance_type in known:
        return None
    prefixed = f"ml.{instance_type}"
    close = [prefixed] if prefixed in known else schema.nearest(instance_type, known)
    hint = f"; did you mean {close[0]}?" if close else ", like ml.g6e.12xlarge."
    return f"{where} is {instance_type!r}, which is no instance type of training jobs{hint}"


def request_faults(request: Mapping[str, Any]) -> list[str]:
    """What the service would refuse: names, types, lengths, numbers, patterns and choices, a sentence each."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(request, _input_shape())
    faults = [f"CreateTrainingJob: {line}" for line in report.generate_report().splitlines()]
    if not faults:
        faults = [f"CreateTrainingJob: {fault}" for fault in _beyond(request, _input_shape(), "")]
    return list(dict.fromkeys(faults))


def _beyond(value: Any, shape: Shape, at: str) -> Iterable[str]:
    """Limits that stand in the service model, and that botocore leaves to the service."""
    where = at or "the request"
    if shape.type_name == "structure":
        for key, item in value.items():
            yield from _beyond(item, shape.members[key], f"{at}.{key}".lstrip("."))
        return
    limits = shape.metadata
    size = value if isinstance(value, int | float) else len(value)
    unit = {"string": " characters", "list": " entries", "map": " entries"}.get(shape.type_name, "")
    if shape.type_name != "boolean":
        if "min" in limits and size < limits["min"]:
            yield f"{where} has {size}{unit}, but at least {limits['min']} are wanted."
        if "max" in limits and size > limits["max"]:
            yield f"{where} has {size}{unit}, but at most {limits['max']} are taken."
    if shape.type_name == "list":
        for number, item in enumerate(value):
            yield from _beyond(item, shape.member, f"{at}[{number}]")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _beyond(key, shape.key, f"{at}: the name {key!r}")
            yield from _beyond(item, shape.value, f"{at}.{key}")
    elif shape.type_name == "string":
        if shape.enum and value not in shape.enum:
            close = schema.nearest(value, shape.enum)
            yield f"{where} is {value!r}, which is none of its choices{f'; did you mean {close[0]}?' if close else '.'}"
        pattern = _pattern(limits.get("pattern"))
        if pattern is not None and not pattern.fullmatch(value):
            yield f"{where} is {value!r}, which the service doesn't take: it wants {limits['pattern']}"


@functools.cache
def _pattern(text: str | None) -> re.Pattern[str] | None:
    """A pattern of the service model in Python's form; None for none, or for one that Python can't read."""
    if text is None:
        return None
    for theirs, ours in ((r"\p{L}", r"\w"), (r"\p{Z}", r"\s"), (r"\p{N}", r"\d")):
        text = text.replace(theirs, ours)
    try:
        return re.compile(text)
    except re.error:
        return None
