"""Build the CreateTrainingJob request with the SageMaker SDK's ModelTrainer, in a process of its own.

    request = build_request(spec)["request"]

Nothing is uploaded and no service is asked. The SDK would do both, so this module uses private names of it; a comment
at each says when it can go. tests/rlvr/sagemaker/test_sdk.py checks them against the installed version, which
pyproject.toml limits to one minor release.

It runs as a process (`python -m rlvr.sagemaker.sdk`, JSON in and out). Importing the SDK takes seconds, in which the
caller checks the recipe, and the SDK's settings must not reach the caller's process.
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
PID1 = "/opt/ml/input/data/code/rlvr/sagemaker/container/pid1.py"
# The SDK starts its driver as a child of bash, which as process 1 drops SIGTERM, so that a job that is stopped could
# save nothing. Goes when the SDK's own command hands signals on.
ARGUMENTS = ["-c", f"chmod +x {DRIVERS}; exec python3 {PID1} /bin/bash {DRIVERS}"]

# The word that makes this process import all of the SDK.
FULL_SDK = "--whole"

RequestSpec = dict[str, Any]


class SdkError(RuntimeError):
    """The SDK refused the spec, or is not installed. The message is the SDK's."""


class RequestBuilder:
    """Build a request in a process that imports the SDK while the caller still prepares the spec.

    Args:
        spec: see `make_request`; None to `send` it later.
    """

    def __init__(self, spec: RequestSpec | None = None) -> None:
        # Of the caller's environment nothing that belongs to a job may reach the SDK but what the spec says.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlvr.sagemaker.sdk"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=PROJECT,
            env={**kept, "SAGEMAKER_VALIDATE_ROLE": "false", "PYTHONPATH": str(PROJECT)},
        )
        if spec is not None:
            self.send(spec)

    def send(self, spec: RequestSpec) -> None:
        """Send the spec to the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, and `result` says of what
            self._process.stdin.write(json.dumps(spec).encode())
            self._process.stdin.close()
        self._process.stdin = None  # or communicate() would write to it

    def result(self) -> dict[str, Any]:
        """Wait for the request and its uploads.

        Raises:
            SdkError: the SDK is not installed, or refuses the spec.
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
        """Ends the process, ."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def build_request(spec: RequestSpec) -> dict[str, Any]:
    """Build the request of a spec, with its uploads."""
    return RequestBuilder(spec).result()


def make_request(spec: RequestSpec) -> dict[str, Any]:
    """Build the request in this process.

    Args:
        spec: `job_name`, `region`, `bucket`, `prefix`, `role`; `code` (the folder that is uploaded), `drivers` (an
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
        """A session whose clients refuse every call."""

        def client(self, service_name: str, *_: Any, **__: Any) -> Any:
            return ForbiddenClient(service_name)

        resource = client

    class OfflineSession(Session):
        """Record uploads instead of making them. Goes when `dry_run=True` of ModelTrainer.train uploads nothing."""

        def upload_data(
            self, path: str, bucket: str | None = None, key_prefix: str = "data", *rest: Any, **more: Any
        ) -> str:
            source = path
            if Path(path).resolve() != Path(spec["code"]).resolve():
                source = spec["drivers"]
                _copy_drivers(Path(path), Path(source))
            uri = f"s3://{bucket}/{key_prefix}"
            uploads.append({"folder": source, "uri": uri})
            return uri

    class OfflineTrainer(ModelTrainer):
        """A trainer that doesn't ask IAM where the role may write. Goes when the staging bucket can be given."""

        def _resolve_staging_bucket(self) -> tuple[str, None]:
            return spec["bucket"], None

    session = OfflineSession(boto_session=OfflineClients(region_name=spec["region"]), default_bucket=spec["bucket"])
    session._default_bucket = spec["bucket"]  # else it asks STS for the account; goes with `dry_run` as above
    session.sagemaker_config = {}  # else a file of the user's changes the request behind the recipe's back

    groups = spec.get("instance_groups")
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
        hosts = {"instance_type": spec["instance_type"], "instance_count": spec["instance_count"]}
    if spec["keep_alive_s"]:
        hosts["keep_alive_period_in_seconds"] = spec["keep_alive_s"]
    wait = {"max_wait_time_in_seconds": spec["max_wait_s"]} if spec["spot"] else {}
    network = {"subnets": spec["subnets"], "security_group_ids": spec["security_groups"]}
    trainer = OfflineTrainer(
        sagemaker_session=session,
        role=spec["role"],
        base_job_name="unnamed",
        input_s3_key_prefix=spec["prefix"],
        training_image=image_of(spec),
        source_code=SourceCode(
            source_dir=spec["code"],
            entry_script=spec["entry_script"],
            requirements=spec["requirements"],
            ignore_patterns=[],  # what travels was chosen before; the SDK would copy it all once more
        ),
        compute=Compute(
            **hosts, volume_size_in_gb=spec["volume_gb"], enable_managed_spot_training=spec["spot"] or None
        ),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=spec["max_runtime_s"], **wait),
        networking=Networking(**network) if spec["subnets"] else None,
        output_data_config=OutputDataConfig(s3_output_path=spec["output"]),
        checkpoint_config=CheckpointConfig(s3_uri=spec["checkpoints"], local_path="/opt/ml/checkpoints"),
        environment=spec["environment"],
        tags=[Tag(key=key, value=value) for key, value in spec["tags"].items()],
    )
    trainer.with_metric_definitions([MetricDefinition(name=one["Name"], regex=one["Regex"]) for one in spec["metrics"]])
    if spec["retries"]:
        trainer.with_retry_strategy(RetryStrategy(maximum_retry_attempts=spec["retries"]))
    if spec["tensorboard"]:
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=spec["tensorboard"], local_path="/opt/ml/output/tensorboard")
        )
    inputs = [InputData(channel_name=name, data_source=uri) for name, uri in spec["channels"].items()]
    # Goes when `dry_run=True` of ModelTrainer.train returns the request.
    request = trainer._create_training_job_args(input_data_config=inputs, boto3=True)
    request["AlgorithmSpecification"]["ContainerArguments"] = ARGUMENTS
    # The SDK makes a name of its own from `base_job_name` and the time, and cuts off what makes it unique.
    given = request["TrainingJobName"]
    return dict(replace_text({"request": request, "uploads": uploads}, given, spec["job_name"]))


def image_of(spec: Mapping[str, Any]) -> str:
    """The image's URI: the given one, or the one in the SDK's table by key and version."""
    from sagemaker.core import image_uris

    if spec.get("image"):
        return str(spec["image"])
    return str(
        image_uris.retrieve(
            framework=spec["image_key"],
            region=spec["region"],
            version=spec["image_version"],
            instance_type=spec["image_for"],
            image_scope="training",
        )
    )


class ForbiddenClient:
    """A boto3 client that raises on every call, because building a request must not ask AWS."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        raise SdkError(f"it would ask {self._service} for {name} while the request is made")


class StubModule(ModuleType):
    """A stub of a library that the SDK imports but does not use: every attribute is an empty class."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {"__module__": self.__name__}))
        return self.__dict__[name]


def stub_unused_imports() -> None:
    """Halve the import time of the SDK by stubbing libraries that building a request does not use.

    The SDK imports data frames and readers of other formats for what it does besides, an own query language for one
    function that changes the case of a name, and prepares a thousand pydantic models of which a request takes twenty.
    tests/rlvr/sagemaker/test_sdk.py holds the request made so against that of the whole SDK; and where something was
    missing after all, it is made once more with the whole (`main`).
    """
    gc.disable()  # it would walk through all that is imported, again and again
    for name in ("numpy", "pandas", "scipy", "scipy.sparse", "omegaconf", "omegaconf.dictconfig"):
        sys.modules[name] = StubModule(name)
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
    """Copy the SDK's scripts, which it deletes as soon as the request is built."""
    import shutil

    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def replace_text(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: replace_text(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_text(item, old, new) for item in value]
    return value


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the SDK prints is no part of the answer
    full = FULL_SDK in sys.argv
    if not full:
        stub_unused_imports()
    with contextlib.suppress(Exception):  # `make_request` says it
        import sagemaker.train.model_trainer  # noqa: F401  # while the spec is still being made up
    spec = json.load(sys.stdin)
    try:
        answer = make_request(spec)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
        if not full and isinstance(error, AttributeError | ImportError | TypeError):  # what a stand-in would raise
            answer = _build_with_full_sdk(spec, answer)
    json.dump(answer, out)
    out.close()
    return 0


def _build_with_full_sdk(spec: RequestSpec, instead: dict[str, Any]) -> dict[str, Any]:
    """Build with the whole SDK in a new process; return `instead` if that fails."""
    command = [sys.executable, "-m", "rlvr.sagemaker.sdk", FULL_SDK]
    run = subprocess.run(command, input=json.dumps(spec).encode(), stdout=subprocess.PIPE, check=False)
    try:
        return dict(json.loads(run.stdout))
    except ValueError:
        return instead


if __name__ == "__main__":
    sys.exit(main())
