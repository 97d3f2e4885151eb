"""Run a training job from its request: hosts, logs, checkpoints, model and status.

Emulated: /opt/ml and its files, the entry point as process 1, SIGTERM and the time until SIGKILL, a
failure's reason, checkpoints that are synchronised and restored, another attempt after a spot interruption, what is
uploaded where, and the order of the states. Not emulated: images (this machine's interpreter replaces them), GPUs,
roles, pipes, waiting for capacity.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.containers import Attempt, Host

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
REGION = "us-east-1"
LONGEST_REASON = 1024
STOP_S = 120.0  # between SIGTERM and SIGKILL
FOLDERS = "training-emulator-"  # prefix of all temporary folders; the process id follows


def sweep() -> None:
    """Remove the folders of processes that have ended. Their other resources ended with them (cluster.py)."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        if not Path("/proc", folder.name.removeprefix(FOLDERS).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


class EmulatedJob:
    """One job, from its request to its end; `description` is the answer to DescribeTrainingJob.

    Args:
        request: as it was sent.
        clients: boto3 clients by name: s3, logs.
        variables: environment of all containers, besides the request's.
        serve_aws: called with a listening socket for each attempt, on which containers reach AWS; None without AWS.
        prefork: see containers.py.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        clients: Mapping[str, Any],
        *,
        variables: Mapping[str, str],
        serve_aws: Any = None,
        prefork: Path | None = None,
    ) -> None:
        self.request = request
        self.name = str(request["TrainingJobName"])
        self.arn = f"arn:aws:sagemaker:{REGION}:{storage.ACCOUNT}:training-job/{self.name}"
        self.attempts = 0
        self.keep_alive_s = int(request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))  # of its warm pool
        self.codes: list[dict[str, int]] = []  # the hosts' exit codes, attempt by attempt
        self.roots: list[Path] = []  # /opt/ml of each host of the last attempt
        self._clients = clients
        self._variables = variables
        self._serve_aws = serve_aws
        self._prefork = prefork
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._early_end: str | None = None  # "stop" or "interrupt": the early end of the attempt
        self._running = threading.Event()
        self._ended = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-"))
        now = time.time()
        self._state: dict[str, Any] = {
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Starting",
            "CreationTime": now,
            "LastModifiedTime": now,
            "SecondaryStatusTransitions": [
                {"Status": "Starting", "StartTime": now, "StatusMessage": "Starting the training job"}
            ],
        }
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)

    # API

    def begin(self) -> None:
        self._thread.start()

    @property
    def description(self) -> dict[str, Any]:
        shown = {key: value for key, value in self.request.items() if key != "Tags"}
        with self._lock:
            description = {**shown, "TrainingJobArn": self.arn, **self._state}
        if "KeepAlivePeriodInSeconds" in self.request["ResourceConfig"] and "TrainingEndTime" in description:
            description["WarmPoolStatus"] = {"Status": "Available" if self.keep_alive_s else "Terminated"}
        return description

    @property
    def status(self) -> str:
        with self._lock:
            return str(self._state["TrainingJobStatus"])

    def stop(self) -> None:
        """StopTrainingJob."""
        self._end_early("stop")

    def interrupt(self) -> None:
        """Take the machines away, as happens to spot instances; another attempt follows."""
        self._end_early("interrupt")

    def wait(self, seconds: float = 600) -> dict[str, Any]:
        """Wait for the end of the job; return its description."""
        if not self._ended.wait(seconds):
            raise AssertionError(f"{self.name} has not ended in {seconds:.0f} s:\n{self.log()[-3000:]}")
        return self.description

    def wait_for(self, words: str, seconds: float = 600, attempt: int = 1) -> None:
        """Wait until an attempt has printed something."""
        until = time.monotonic() + seconds
        while self.attempts < attempt or words not in self.log(attempt):
            if self._ended.is_set() or time.monotonic() > until:
                raise AssertionError(f"{self.name} never printed {words!r}:\n{self.log(attempt)[-3000:]}")
            time.sleep(0.1)

    def log(self, attempt: int | None = None) -> str:
        """The output of all hosts, of the last attempt or another one."""
        folder = self._folder / str(attempt or self.attempts)
        return "".join(file.read_text(errors="replace") for file in sorted(folder.glob("*.log")))

    def close(self) -> None:
        """End the job and remove its files."""
        with self._lock:
            self._early_end = "stop"
            attempt = self._attempt
        if attempt is not None:
            attempt.end()
        if self._thread.is_alive():
            self._thread.join(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_early(self, what: str) -> None:
        with self._lock:
            if self._ended.is_set():
                raise AssertionError(f"{self.name} has ended already")
            self._early_end = self._early_end or what
            attempt = self._attempt
        if what == "stop":
            self._set_status("Stopping", "Stopping the training job", status="Stopping")
        if attempt is None:
            return  # checked before the hosts start
        names = [host["name"] for host in self._hosts()]
        attempt.signal("term", *names)
        threading.Timer(STOP_S, attempt.signal, ["kill", *names]).start()

    # Execution

    def _live(self) -> None:
        try:
            while True:
                end = self._one_attempt()
                if end != "again":
                    break
        except Exception as error:
            self._finish("Failed", f"InternalServerError: the emulator failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._ended.set()

    def _one_attempt(self) -> str:
        self.attempts += 1
        folder = self._folder / str(self.attempts)
        folder.mkdir()
        self._set_status("Downloading", "Downloading input data")
        hosts = [self._host(host, folder) for host in self._hosts()]
        self.roots = [host.ml for host in hosts]
        mirrors = self._mirrors(hosts)
        self._set_status("Training", "Training image download completed. Training in progress.")
        began = time.time()
        with self._lock:
            self._state.setdefault("TrainingStartTime", began)
            ended_before_start = self._early_end is not None
        attempt = None
        with_aws = self._serve_aws is not None and not self.request.get("EnableNetworkIsolation")
        with self._logged(hosts):
            if not ended_before_start:
                attempt = containers.start(hosts, folder, with_aws=with_aws, prefork=self._prefork)
                if attempt.listener is not None:
                    self._serve_aws(attempt.listener)
                with self._lock:
                    self._attempt = attempt
                attempt.wait()
                attempt.end()
        with self._lock:
            self._attempt = None
            early_end, self._early_end = self._early_end, None
        for mirror in mirrors:
            mirror.close()
        codes = dict(attempt.codes) if attempt is not None else {}
        self.codes.append(codes)
        if early_end == "interrupt":
            self._set_status("Interrupted", "Training job interrupted by spot capacity")
            return "again"
        self._upload(hosts, with_model=early_end is not None or not any(codes.values()))
        if early_end == "stop":
            return self._finish("Stopped")
        failed = [host for host in hosts if codes[host.name]]
        if failed:
            assert attempt is not None
            first = min(failed, key=lambda host: attempt.ended_at[host.name])
            file = first.ml / "output" / "failure"
            words = file.read_text(errors="replace").strip() if file.is_file() else ""
            reason = f"AlgorithmError: {words}{', ' if words else ''}exit code: {codes[first.name]}"
            return self._finish("Failed", reason[:LONGEST_REASON])
        return self._finish("Completed")

    def _hosts(self) -> list[dict[str, str]]:
        """Names, groups and types of the hosts. The service gives numbers to groups as it likes: here, backwards."""
        resources = self.request["ResourceConfig"]
        groups = resources.get("InstanceGroups") or [{**resources, "InstanceGroupName": "homogeneousCluster"}]
        hosts = []
        for group in reversed(groups):
            for _ in range(group["InstanceCount"]):
                name = f"algo-{len(hosts) + 1}"
                hosts.append({"name": name, "group": group["InstanceGroupName"], "type": group["InstanceType"]})
        return hosts

    def _host(self, host: Mapping[str, str], folder: Path) -> Host:
        """Lays out /opt/ml for a host."""
        ml = folder / host["name"]
        for name in ("input/config", "input/data", "model", "output/data", "checkpoints"):
            (ml / name).mkdir(parents=True)
        everyone = self._hosts()
        groups = {other["group"]: other["type"] for other in everyone}
        resources = {
            "current_host": host["name"],
            "current_instance_type": host["type"],
            "current_group_name": host["group"],
            "hosts": sorted(other["name"] for other in everyone),
            "instance_groups": [
                {
                    "instance_group_name": group,
                    "instance_type": kind,
                    "hosts": sorted(other["name"] for other in everyone if other["group"] == group),
                }
                for group, kind in groups.items()
            ],
            "network_interface_name": "eth0",
            "topology": None,
        }
        for channel in self.request["InputDataConfig"]:
            shutil.copytree(self._input(channel), ml / "input" / "data" / channel["ChannelName"])
        (ml / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources), encoding="utf-8")
        storage.download(self._clients["s3"], self._checkpoints, ml / "checkpoints")
        algorithm = self.request["AlgorithmSpecification"]
        environment = {
            **containers.environment_of_the_image(),
            **self._variables,
            **self.request.get("Environment", {}),
            "TRAINING_JOB_NAME": self.name,
            "TRAINING_JOB_ARN": self.arn,
            "AWS_REGION": REGION,
        }
        command = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])]
        return Host(host["name"], ml, command, environment, folder / f"{host['name']}.log")

    def _input(self, channel: Mapping[str, Any]) -> Path:
        """A channel's files, downloaded once for all hosts and attempts."""
        folder = self._folder / "input" / channel["ChannelName"]
        if not folder.is_dir():
            folder.mkdir(parents=True)
            address = channel["DataSource"]["S3DataSource"]["S3Uri"]
            if not storage.download(self._clients["s3"], address, folder):
                raise AssertionError(f"the channel {channel['ChannelName']} has nothing at {address}")
        return folder

    @property
    def _checkpoints(self) -> str:
        return f"{self.request['CheckpointConfig']['S3Uri'].rstrip('/')}/"

    def _mirrors(self, hosts: list[Host]) -> list[storage.Mirror]:
        local = self.request["CheckpointConfig"]["LocalPath"]
        assert local.startswith("/opt/ml/"), "only folders below /opt/ml are known here"
        folders = [host.ml / local.removeprefix("/opt/ml/") for host in hosts]
        return [storage.Mirror(self._clients["s3"], folder, self._checkpoints) for folder in folders]

    def _upload(self, hosts: list[Host], *, with_model: bool) -> None:
        self._set_status("Uploading", "Uploading generated training model")
        output = self.request["OutputDataConfig"]
        base = f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output"
        models, data = [host.ml / "model" for host in hosts], [host.ml / "output" / "data" for host in hosts]
        storage.upload_packed(self._clients["s3"], data, f"{base}/output.tar.gz")
        if not with_model:
            return
        where = f"{base}/model.tar.gz"
        storage.upload_packed(self._clients["s3"], models, where)
        with self._lock:
            self._state["ModelArtifacts"] = {"S3ModelArtifacts": where}

    @contextlib.contextmanager
    def _logged(self, hosts: list[Host]) -> Iterator[None]:
        """Copy the hosts' output to CloudWatch logs, one stream per host and attempt."""
        done = threading.Event()
        stamp = int(time.time()) + self.attempts  # two attempts within a second have two streams
        pumps = [
            threading.Thread(target=self._pump, args=[host, f"{self.name}/{host.name}-{stamp}", done], daemon=True)
            for host in hosts
        ]
        for pump in pumps:
            pump.start()
        try:
            yield
        finally:
            done.set()
            for pump in pumps:
                pump.join()

    def _pump(self, host: Host, stream: str, done: threading.Event) -> None:
        logs, position, made = self._clients["logs"], 0, False
        while True:
            last = done.wait(0.3)
            content = host.log.read_bytes()[position:] if host.log.is_file() else b""
            whole = content if last else content[: content.rfind(b"\n") + 1]
            position += len(whole)
            lines = [line for line in whole.decode("utf-8", errors="replace").split("\n") if line.strip()]
            if lines and not made:
                with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
                    logs.create_log_group(logGroupName=LOG_GROUP)
                logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
                made = True
            now = int(time.time() * 1000)
            for begin in range(0, len(lines), 1000):
                events = [{"timestamp": now, "message": line[:200_000]} for line in lines[begin : begin + 1000]]
                logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)
            if last:
                return

    # Status

    def _set_status(self, secondary: str, message: str, *, status: str = "InProgress") -> None:
        now = time.time()
        with self._lock:
            if self._state["TrainingJobStatus"] == "Stopping":
                status = "Stopping"
            transitions = self._state["SecondaryStatusTransitions"]
            transitions[-1].setdefault("EndTime", now)
            transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
            self._state |= {"TrainingJobStatus": status, "SecondaryStatus": secondary, "LastModifiedTime": now}

    def _finish(self, status: str, reason: str | None = None) -> str:
        now = time.time()
        with self._lock:
            transitions = self._state["SecondaryStatusTransitions"]
            transitions[-1].setdefault("EndTime", now)
            message = reason or f"Training job {status.lower()}"
            ended = {"Status": status, "StartTime": now, "EndTime": now, "StatusMessage": message}
            seconds = int(now - self._state.get("TrainingStartTime", now))
            self._state |= {
                "TrainingJobStatus": status,
                "SecondaryStatus": status,
                "SecondaryStatusTransitions": [*transitions, ended],
                "LastModifiedTime": now,
                "TrainingEndTime": now,
                "TrainingTimeInSeconds": seconds,
                "BillableTimeInSeconds": seconds,
            }
            if reason is not None:
                self._state["FailureReason"] = reason
        return status
