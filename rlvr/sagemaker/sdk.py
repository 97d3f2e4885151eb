"""A plan's job as a ModelTrainer of the SageMaker Python SDK, of which only public names are used."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError
from rlvr.sagemaker import request, submission
from rlvr.sagemaker.job import TrainingJob, write_record
from rlvr.sagemaker.plan import JobPlan

if TYPE_CHECKING:
    from sagemaker.train import ModelTrainer

_NO_TELEMETRY = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


def model_trainer(plan: JobPlan) -> ModelTrainer:
    """A ModelTrainer of the SageMaker Python SDK whose `train()` submits the plan's request.

    `train()` uploads the plan's files first, so the plan must still be open. The job's name is the plan's with another
    time, and all other commands of this project find the job by it.

    Raises:
        InputError: the plan has problems, or the SDK is not installed. `train()` raises it for problems of the account.
    """
    try:
        from sagemaker.core.helper.session_helper import Session
        from sagemaker.core.training import configs
        from sagemaker.train import ModelTrainer
    except ImportError as error:
        message = "The SageMaker Python SDK is not installed: pip install -e '.[sagemaker-sdk]' -c constraints.txt"
        raise InputError(message, kind="missing-package") from error
    import boto3

    plan.check()
    assert plan.request is not None  # a plan without problems has one
    fields = _snake_case(plan.request)
    boto_session = boto3.Session(region_name=plan.settings.region)
    _handle_events(plan, boto_session.events)
    network = {
        **fields.get("vpc_config", {}),
        "enable_network_isolation": fields.get("enable_network_isolation"),
        "enable_inter_container_traffic_encryption": fields.get("enable_inter_container_traffic_encryption"),
    }
    trainer = ModelTrainer(
        sagemaker_session=Session(boto_session, sagemaker_config=_NO_TELEMETRY),
        role=fields["role_arn"],
        base_job_name=request.base_name(plan.recipe, plan.settings),
        training_image=fields["algorithm_specification"]["training_image"],
        compute=configs.Compute(
            **fields["resource_config"], enable_managed_spot_training=fields.get("enable_managed_spot_training")
        ),
        stopping_condition=configs.StoppingCondition(**fields["stopping_condition"]),
        networking=configs.Networking(**network) if any(network.values()) else None,
        input_data_config=[configs.Channel(**channel) for channel in fields["input_data_config"]],
        output_data_config=configs.OutputDataConfig(**fields["output_data_config"]),
        checkpoint_config=configs.CheckpointConfig(**fields["checkpoint_config"]),
        environment=plan.request["Environment"],
        tags=[configs.Tag(**tag) for tag in fields["tags"]],
    ).with_metric_definitions(
        [configs.MetricDefinition(**one) for one in fields["algorithm_specification"]["metric_definitions"]]
    )
    if "retry_strategy" in fields:
        trainer.with_retry_strategy(configs.RetryStrategy(**fields["retry_strategy"]))
    return trainer


def _handle_events(plan: JobPlan, events: Any) -> None:
    """Upload the plan's files before the trainer's CreateTrainingJob, and keep or delete them after it.

    ModelTrainer has no argument for the container's entry point, and adds a time of its own to the job's name.
    """
    jobs: list[TrainingJob] = []

    def before(params: dict[str, Any], **_: Any) -> dict[str, Any]:
        name = params["TrainingJobName"]
        sent = dict(json.loads(json.dumps(params).replace(plan.name, name)))
        sent["AlgorithmSpecification"] |= {
            "ContainerEntrypoint": request.ENTRYPOINT,
            "ContainerArguments": request.ARGUMENTS,
        }
        uploads = [(file, uri.replace(plan.name, name)) for file, uri in plan.uploads]
        jobs.append(submission.upload_job(dataclasses.replace(plan, name=name, request=sent, uploads=uploads)))
        return sent

    def after(http_response: Any, **_: Any) -> None:
        job = jobs.pop()
        if http_response.status_code < 300:
            write_record(job, plan.recipe.output_dir)
        else:
            submission.delete_upload(job)

    events.register("provide-client-params.sagemaker.CreateTrainingJob", before)
    events.register("after-call.sagemaker.CreateTrainingJob", after)


def _snake_case(value: Any) -> Any:
    """A part of a request with the SDK's names: {"S3Uri": …} becomes {"s3_uri": …}."""
    if isinstance(value, list):
        return [_snake_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    words = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
    return {words.sub("_", key).lower(): _snake_case(item) for key, item in value.items()}
