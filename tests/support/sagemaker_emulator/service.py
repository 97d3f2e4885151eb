"""Emulate the training service on a local port. moto answers all other services (S3, logs, IAM …).

    with TrainingService() as service:
        os.environ.update(service.environment)      # boto3 and the SDK find it by these
        …
        service.job(name).wait()

Requests are read from HTTP, because moto drops parts of them, and checked against the service model's limits.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from tests.support.sagemaker_emulator.job import FOLDERS, REGION, EmulatedJob, sweep

Answer = tuple[int, Mapping[str, Any]]
SDK_CONFIG = """SchemaVersion: '1.0'
SageMaker:
  PythonSDK: {{Modules: {{TelemetryOptOut: true, Session: {{DefaultS3Bucket: {bucket}}}}}}}
"""


class TrainingService:
    """The service, while the context is open.

    Args:
        prefork: the socket of tests/support/prefork.py, see containers.py.

    Attributes:
        role: a role that exists.
        requests: the CreateTrainingJob requests that were accepted, in their order.
        jobs: by name.
    """

    def __init__(self, *, prefork: Path | None = None) -> None:
        # moto's services are shared by all emulators of a process, so names must be unique.
        self.bucket = f"training-{token_hex(4)}"
        # pip only checks the requirements, because the container's libraries are read-only.
        self.variables = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_QUIET": "1"}
        # Such small tensors make two threads spin while they wait for each other.
        self.variables["OMP_NUM_THREADS"] = "1"
        self.prefork = prefork
        self.requests: list[dict[str, Any]] = []
        self.jobs: dict[str, EmulatedJob] = {}
        self.tags: dict[str, list[dict[str, str]]] = {}
        self._servers: list[Any] = []
        sweep()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{FOLDERS}{os.getpid()}-")

    def __enter__(self) -> TrainingService:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._moto = DomainDispatcherApplication(create_backend_app)
        self.url = f"http://127.0.0.1:{self._serve(None)}"
        self.client("s3").create_bucket(Bucket=self.bucket)
        trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        name = f"training-{token_hex(4)}"
        role = self.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)
        self.role = str(role["Role"]["Arn"])
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs.values():
            job.close()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._folder.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which boto3 and the SDK find this service."""
        config = Path(self._folder.name) / "sagemaker.yaml"
        config.write_text(SDK_CONFIG.format(bucket=self.bucket), encoding="utf-8")
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
            "SAGEMAKER_VALIDATE_ROLE": "false",
        }

    def client(self, name: str) -> Any:
        """A boto3 client of an emulated service."""
        import boto3

        return boto3.client(
            name,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def job(self, name: str) -> EmulatedJob:
        return self.jobs[name]

    # HTTP

    def _serve(self, listener: socket.socket | None) -> int:
        """Serve on a new port, or on an open socket; return the port."""
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *words: Any) -> None:
                return

        where: dict[str, Any] = {} if listener is None else {"fd": listener.fileno()}
        server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet, **where)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=[0.1], daemon=True).start()
        return int(server.port)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        service, _, name = target.partition(".")
        call = self._calls().get(name) if service in ("SageMaker", "ServiceQuotasV20190624") else None
        if call is not None:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, content = call(json.loads(body or b"{}"))
            text = json.dumps(content).encode()
            kind = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))]
            start(f"{status} {'OK' if status == 200 else 'Bad Request'}", kind)
            return [text]
        return self._moto(environ, start)

    def _calls(self) -> dict[str, Callable[[dict[str, Any]], Answer]]:
        return {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": lambda request: self._of(request, lambda job: job.description),
            "StopTrainingJob": lambda request: self._of(request, self._stop),
            "UpdateTrainingJob": lambda request: self._of(request, lambda job: self._update(job, request)),
            "ListTrainingJobs": self._list,
            "ListTags": lambda request: (200, {"Tags": self.tags.get(request["ResourceArn"], [])}),
            "ListServiceQuotas": lambda request: (200, {"Quotas": []}),  # unknown, which is no problem
        }

    # Calls

    def _create(self, request: dict[str, Any]) -> Answer:
        from rlvr.sagemaker.request import request_problems

        problems = request_problems(request)
        if problems:
            return _refused(f"{len(problems)} validation errors detected: {'; '.join(map(str, problems))}")
        name = request["TrainingJobName"]
        if name in self.jobs:
            return 400, {"__type": "ResourceInUse", "message": "Training job names must be unique within an account"}
        if request.get("EnableManagedSpotTraining"):
            limits = request["StoppingCondition"]
            if limits.get("MaxWaitTimeInSeconds", 0) < limits.get("MaxRuntimeInSeconds", 86400):
                return _refused("MaxWaitTimeInSeconds must be present and not smaller than MaxRuntimeInSeconds")
        clients = {"s3": self.client("s3"), "logs": self.client("logs")}
        job = EmulatedJob(
            request,
            clients,
            variables={**self.variables, "AWS_ENDPOINT_URL": "http://10.77.0.1", **_CREDENTIALS},
            serve_aws=self._serve,
            prefork=self.prefork,
        )
        self.requests.append(request)
        self.jobs[name] = job
        self.tags[job.arn] = list(request.get("Tags", []))
        job.begin()
        return 200, {"TrainingJobArn": job.arn}

    def _of(self, request: dict[str, Any], answer: Callable[[EmulatedJob], Mapping[str, Any]]) -> Answer:
        job = self.jobs.get(request["TrainingJobName"])
        if job is None:
            return _refused("Requested resource not found.")
        try:
            return 200, answer(job)
        except ValueError as error:
            return _refused(str(error))

    def _stop(self, job: EmulatedJob) -> Mapping[str, Any]:
        if job.status not in ("InProgress", "Stopping"):
            raise ValueError(f"The request was rejected because the training job is in status {job.status}.")
        job.stop()
        return {}

    def _update(self, job: EmulatedJob, request: dict[str, Any]) -> Mapping[str, Any]:
        job.keep_alive_s = request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", job.keep_alive_s)
        return {"TrainingJobArn": job.arn}

    def _list(self, request: dict[str, Any]) -> Answer:
        summaries = []
        for name, job in self.jobs.items():
            shown = job.description
            if request.get("NameContains", "") in name and request.get("StatusEquals", job.status) == job.status:
                keys = ("TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingEndTime", "TrainingJobStatus")
                summary = {key: shown[key] for key in keys if key in shown}
                summaries.append({"TrainingJobName": name, **summary})
        summaries.sort(key=lambda summary: summary["CreationTime"], reverse=request.get("SortOrder") != "Ascending")
        return 200, {"TrainingJobSummaries": summaries[: request.get("MaxResults", 100)]}


_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "the-role", "AWS_SECRET_ACCESS_KEY": "the-role", "AWS_DEFAULT_REGION": REGION}


def _refused(message: str) -> Answer:
    return 400, {"__type": "ValidationException", "message": message}
