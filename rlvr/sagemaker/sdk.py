"""The one place that knows the SageMaker SDK: an order becomes the CreateTrainingJob request of its ModelTrainer.

    request = build(order)["request"]           # starts a process of its own

Nothing is uploaded and no service is asked. The SDK would do both while it makes a request, so this module uses names
of it that are not public; each says below when it can go. tests/rlvr/sagemaker/test_sdk.py holds them against the
installed version, which pyproject.toml bounds to one minor release.

It runs as a process (`python -m rlvr.sagemaker.sdk`, JSON in and out), because importing the SDK takes seconds, which
the recipe's own checks use meanwhile, and because what it sets in its process is not to reach ours. Most of these
seconds go into what no request needs, so there the SDK is imported without that: see `hurry`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
DRIVERS = "/opt/ml/input/data/sm_drivers/sm_train.sh"
PROCESS_ONE = "/opt/ml/input/data/code/rlvr/sagemaker/container/pid1.py"
# The SDK starts its driver as a child of bash, which as process 1 drops SIGTERM, so that a job that is stopped could
# save nothing. Goes when the SDK's own command hands signals on.
ARGUMENTS = ["-c", f"chmod +x {DRIVERS}; exec python3 {PROCESS_ONE} /bin/bash {DRIVERS}"]

# The word that makes this process import all of the SDK.
WHOLE = "--whole"

Order = dict[str, Any]


class SdkError(RuntimeError):
    """The SDK refused the order, or isn't there; the message is what it said."""


class Building:
    """A request that is being made in a process of its own, which imports the SDK before it is told what to make.

    Args:
        order: see `make`; None to `send` it later.
    """

    def __init__(self, order: Order | None = None) -> None:
        # Of the caller's environment nothing that belongs to a job may reach the SDK but what the order says.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlvr.sagemaker.sdk"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=PROJECT,
            env={**kept, "SAGEMAKER_VALIDATE_ROLE": "false", "PYTHONPATH": str(PROJECT)},
        )
        if order is not None:
            self.send(order)

    def send(self, order: Order) -> None:
        """Says what to make."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, and `result` says of what
            self._process.stdin.write(json.dumps(order).encode())
            self._process.stdin.close()
        self._process.stdin = None  # or communicate() would write to it

    def result(self) -> dict[str, Any]:
        """The request and what it wants uploaded; waits for it.

        Raises:
            SdkError: the SDK is not installed, or refuses the order.
        """
        out, log = self._process.communicate()
        try:
            answer = dict(json.loads(out))
        except ValueError:
            raise SdkError((log or b"").decode(errors="replace").strip()[-2000:] or "it ended without a word") from None
        if "error" in answer:
            raise SdkError(answer["error"])
        return answer

    def cancel(self) -> None:
        """Ends the process, whatever it has come to."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def build(order: Order) -> dict[str, Any]:
    """The request of an order, and what it wants uploaded; see `Building`."""
    return Building(order).result()


def make(order: Order) -> dict[str, Any]:
    """Makes the request in this process.

    Args:
        order: `job_name`, `region`, `bucket`, `prefix`, `role`; `code` (the folder that is uploaded), `drivers` (an
            empty folder that the SDK's own files are put into), `entry_script`, `requirements`; `image` or
            `image_key`, `image_version` and `image_for` (an instance type); `instance_groups` (each with name,
            instance_type, instance_count) or `instance_type` and `instance_count`; `volume_gb`, `spot`,
            `max_runtime_s`, `max_wait_s`, `keep_alive_s`, `retries`, `environment`, `channels` (name: S3 URI),
            `output`, `checkpoints`, `tags`, `subnets`, `security_groups`, `metrics`, `tensorboard` (an S3 URI or None).

    Returns:
        `request`, and `uploads`: the S3 prefix of each folder that it names.
    """
    import boto3
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.core.training.configs import (
        CheckpointConfig,
        Compute,
        InputData,
        InstanceGroup,
        MetricDefinition,
        Networking,
        OutputDataConfig,
        RetryStrategy,
        SourceCode,
        StoppingCondition,
        Tag,
        TensorBoardOutputConfig,
    )
    from sagemaker.train import ModelTrainer

    uploads: list[dict[str, str]] = []

    class OfflineClients(boto3.Session):
        """Makes no client, which takes time, and none that could ask a service."""

        def client(self, service_name: str, *_: Any, **__: Any) -> Any:
            return Unasked(service_name)

        resource = client

    class OfflineSession(Session):
        """Notes what would be uploaded. Goes when `dry_run=True` of ModelTrainer.train uploads nothing."""

        def upload_data(
            self, path: str, bucket: str | None = None, key_prefix: str = "data", *rest: Any, **more: Any
        ) -> str:
            source = path
            if Path(path).resolve() != Path(order["code"]).resolve():
                source = order["drivers"]
                _copy_drivers(Path(path), Path(source))
            uri = f"s3://{bucket}/{key_prefix}"
            uploads.append({"folder": source, "uri": uri})
            return uri

    class OfflineTrainer(ModelTrainer):
        """A trainer that doesn't ask IAM where the role may write. Goes when the staging bucket can be given."""

        def _resolve_staging_bucket(self) -> tuple[str, None]:
            return order["bucket"], None

    session = OfflineSession(boto_session=OfflineClients(region_name=order["region"]), default_bucket=order["bucket"])
    session._default_bucket = order["bucket"]  # else it asks STS for the account; goes with `dry_run` as above
    session.sagemaker_config = {}  # else a file of the user's changes the request behind the recipe's back

    groups = order.get("instance_groups")
    hosts: dict[str, Any]
    if groups:
        hosts = {
            "instance_groups": [
                InstanceGroup(
                    instance_group_name=group["name"],
                    instance_type=group["instance_type"],
                    instance_count=group["instance_count"],
                )
                for group in groups
            ]
        }
    else:
        hosts = {"instance_type": order["instance_type"], "instance_count": order["instance_count"]}
    if order["keep_alive_s"]:
        hosts["keep_alive_period_in_seconds"] = order["keep_alive_s"]
    wait = {"max_wait_time_in_seconds": order["max_wait_s"]} if order["spot"] else {}
    network = {"subnets": order["subnets"], "security_group_ids": order["security_groups"]}
    trainer = OfflineTrainer(
        sagemaker_session=session,
        role=order["role"],
        base_job_name="unnamed",
        input_s3_key_prefix=order["prefix"],
        training_image=image_of(order),
        source_code=SourceCode(
            source_dir=order["code"],
            entry_script=order["entry_script"],
            requirements=order["requirements"],
            ignore_patterns=[],  # what travels was chosen before; the SDK would copy it all once more
        ),
        compute=Compute(
            **hosts, volume_size_in_gb=order["volume_gb"], enable_managed_spot_training=order["spot"] or None
        ),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=order["max_runtime_s"], **wait),
        networking=Networking(**network) if order["subnets"] else None,
        output_data_config=OutputDataConfig(s3_output_path=order["output"]),
        checkpoint_config=CheckpointConfig(s3_uri=order["checkpoints"], local_path="/opt/ml/checkpoints"),
        environment=order["environment"],
        tags=[Tag(key=key, value=value) for key, value in order["tags"].items()],
    )
    trainer.with_metric_definitions(
        [MetricDefinition(name=one["Name"], regex=one["Regex"]) for one in order["metrics"]]
    )
    if order["retries"]:
        trainer.with_retry_strategy(RetryStrategy(maximum_retry_attempts=order["retries"]))
    if order["tensorboard"]:
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=order["tensorboard"], local_path="/opt/ml/output/tensorboard")
        )
    inputs = [InputData(channel_name=name, data_source=uri) for name, uri in order["channels"].items()]
    # Goes when `dry_run=True` of ModelTrainer.train returns the request.
    request = trainer._create_training_job_args(input_data_config=inputs, boto3=True)
    request["AlgorithmSpecification"]["ContainerArguments"] = ARGUMENTS
    # The SDK makes a name of its own from `base_job_name` and the time, and cuts off what makes it unique.
    given = request["TrainingJobName"]
    return dict(_renamed({"request": request, "uploads": uploads}, given, order["job_name"]))


def image_of(order: Mapping[str, Any]) -> str:
    """The image's URI: as given, or looked up in the SDK's table by key and version."""
    from sagemaker.core import image_uris

    if order.get("image"):
        return str(order["image"])
    return str(
        image_uris.retrieve(
            framework=order["image_key"],
            region=order["region"],
            version=order["image_version"],
            instance_type=order["image_for"],
            image_scope="training",
        )
    )


class Unasked:
    """Stands for a client of a service that is not to be asked anything."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        raise SdkError(f"it would ask {self._service} for {name} while the request is made")


class StandIn(ModuleType):
    """Stands for a library that is imported but not used: whatever is taken from it is an empty class."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {"__module__": self.__name__}))
        return self.__dict__[name]


def hurry() -> None:
    """Makes the import of the SDK, which is to come, half as long, for a process that only makes a request.

    The SDK imports data frames and readers of other formats for what it does besides, an own query language for one
    function that changes the case of a name, and prepares a thousand pydantic models of which a request takes twenty.
    tests/rlvr/sagemaker/test_sdk.py holds the request made so against that of the whole SDK; and where something was
    missing after all, it is made once more with the whole (`main`).
    """
    gc.disable()  # it would walk through all that is imported, again and again
    for name in ("numpy", "pandas", "scipy", "scipy.sparse", "omegaconf", "omegaconf.dictconfig"):
        sys.modules[name] = StandIn(name)
        package, _, part = name.rpartition(".")
        if package:
            setattr(sys.modules[package], part, sys.modules[name])
    graphene = importlib.util.find_spec("graphene")
    if graphene is not None and graphene.submodule_search_locations:
        # Its parts can be imported without what it imports itself.
        sys.modules["graphene"] = ModuleType("graphene")
        sys.modules["graphene"].__path__ = list(graphene.submodule_search_locations)
    with contextlib.suppress(ImportError):
        import pydantic

        pydantic.BaseModel.model_config["defer_build"] = True  # a model is built when it is first used


def _copy_drivers(source: Path, target: Path) -> None:
    """The SDK's scripts, which it deletes as soon as the request is made; without compiled Python."""
    import shutil

    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, old, new) for item in value]
    return value


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the SDK prints is no part of the answer
    whole = WHOLE in sys.argv
    if not whole:
        hurry()
    with contextlib.suppress(Exception):  # `make` says it
        import sagemaker.train.model_trainer  # noqa: F401  # while the order is still being made up
    order = json.load(sys.stdin)
    try:
        answer = make(order)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
        if not whole and isinstance(error, AttributeError | ImportError | TypeError):  # what a stand-in would raise
            answer = _made_whole(order, answer)
    json.dump(answer, out)
    out.close()
    return 0


def _made_whole(order: Order, instead: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process that imports all of the SDK; `instead` where that has none."""
    command = [sys.executable, "-m", "rlvr.sagemaker.sdk", WHOLE]
    run = subprocess.run(command, input=json.dumps(order).encode(), stdout=subprocess.PIPE, check=False)
    try:
        return dict(json.loads(run.stdout))
    except ValueError:
        return instead


if __name__ == "__main__":
    sys.exit(main())
