"""Run a host's program in a job: fetch its secrets before it, export the model and the failure reason after it.

    python -m rlvr.sagemaker.container.entrypoint train COMMAND …   train until the launcher ends
    python -m rlvr.sagemaker.container.entrypoint serve COMMAND …   run a reward server until the leading host has ended
    python -m rlvr.sagemaker.container.entrypoint ray-node          lend the CPUs to the job's Ray cluster until then

Exit codes: 0 done; 75 stopped early with a checkpoint, which another job can continue; 2 the recipe or the data is
wrong; 1 any other failure. Except for 0, /opt/ml/output/failure then holds one line for people.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType

from rlvr.errors import InputError
from rlvr.sagemaker.container import ray_cluster
from rlvr.sagemaker.container.failure_reason import STOPPED_EARLY, fail, failure_reason, read_exits
from rlvr.sagemaker.container.leader_watch import LeaderHeartbeat, LeaderWatch
from rlvr.sagemaker.container.pid1 import RANKS, SERVER

RUN = Path("/opt/ml/checkpoints/run")  # the run directory; the service copies it to the bucket while it changes
MODEL = Path("/opt/ml/model")
KEY_VARIABLE = "GRPO_REWARDS_KEY"  # of the reward servers and their clients
SECRETS = ("HF_TOKEN", KEY_VARIABLE)  # a variable NAME_SECRET_ARN of the request names the secret of each
JUDGE_PORT = 8000
START_TIMEOUT_S = 1800.0  # hosts start at about the same time, but each installs its own requirements
RAY_VARIABLE = "GRPO_RAY"  # set if rewards run on a Ray cluster of the job's hosts
RAY_END_TIMEOUT_S = 60.0  # for hosts whose processes end a little later than rank 0's


def main(words: Sequence[str]) -> int:
    try:
        if len(words) > 1 and words[0] == "train":
            return train(words[1:])
        if len(words) > 1 and words[0] == "serve":
            return serve(words[1:])
        if list(words) == ["ray-node"]:
            return run_ray_node()
        raise InputError("Usage: entrypoint.py train COMMAND … | serve COMMAND … | ray-node", kind="usage")
    except InputError as error:
        return fail(str(error), 1)


def train(command: Sequence[str]) -> int:
    """Run the launcher on this host, and export the model on the leading host.

    Raises:
        InputError: a secret can't be read; or a judge, a Ray host or the leading host is missing.
    """
    secrets = fetch_secrets()
    environment = {**os.environ, **secrets}
    leads = os.environ.get("GRPO_HOST_RANK", "0") == "0"
    on_ray, judges = os.environ.get(RAY_VARIABLE) == "1", _hosts("GRPO_JUDGE_HOSTS")
    has_helpers = bool(on_ray or judges)
    own_key = token_urlsafe() if has_helpers and leads else None
    # The heartbeat closes first: the judges' Ray nodes then end before the head, or they would wait ten seconds for it.
    with ExitStack() as ray_node, LeaderHeartbeat(own_key) as heartbeat:
        if has_helpers:
            leader = None if leads else _wait_for_leader(os.environ["GRPO_MAIN_HOST"])
            key = leader.key if leader is not None else str(own_key)
            if on_ray:
                environment |= _join_ray(ray_node, key, leader, heartbeat)
            else:
                environment[KEY_VARIABLE] = secrets.get(KEY_VARIABLE, key)
                _wait_for_hosts(judges, JUDGE_PORT, "serve rewards", heartbeat)
        code = subprocess.call(command, env=environment)
        exits = read_exits(RANKS) if code else []
        reason, code = failure_reason(exits, code) if code else ("", 0)
        if on_ray and leads and code in (0, STOPPED_EARLY):
            heartbeat.wait_for_disconnect(_other_trainers(), RAY_END_TIMEOUT_S)
    # Also if the evaluation failed or was stopped. A profile leaves no run.
    if leads and RUN.is_dir() and (code == 0 or is_trained(RUN)):
        export_model(RUN, MODEL)
    if code == 0:
        return 0
    # Rank 0 has printed its own messages.
    return fail(reason, code, is_logged=any(exit.message == reason and exit.rank == 0 for exit in exits))


def serve(command: Sequence[str]) -> int:
    """Run a program that serves the training, from the training's start to its end.

    Raises:
        InputError: the program ended earlier, or the training never started.
    """
    role, leader = os.environ.get("GRPO_ROLE", "judge"), _wait_for_leader(os.environ["GRPO_MAIN_HOST"])
    secrets = fetch_secrets()
    with _ignore_stop(leader):
        program = subprocess.Popen(command, env={**os.environ, KEY_VARIABLE: leader.key, **secrets})
        try:
            while not leader.lost.wait(0.2):
                if program.poll() is not None:
                    raise InputError(
                        f"The program of the role {role} ended before the training did, with exit code "
                        f"{program.returncode}.",
                        kind="server-ended",
                    )
        finally:
            program.terminate()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
    print(f"The training on {leader.host} has ended, so the {role} on this host ends.", flush=True)
    return 0


def run_ray_node() -> int:
    """Lend this host's CPUs to the job's Ray cluster, from the training's start to its end.

    Raises:
        InputError: the training never started, or Ray does not start here.
    """
    leader = _wait_for_leader(os.environ["GRPO_MAIN_HOST"])
    member = ray_cluster.find_member(os.environ, os.environ["GRPO_HOST"])
    with _ignore_stop(leader), ray_cluster.RayNode(member, leader.key) as node:
        while not leader.lost.wait(0.5):
            if node.failed.is_set():
                raise _ray_failed(node)
    print(f"The training on {leader.host} has ended, so the Ray node on this host ends.", flush=True)
    return 0


def _join_ray(ray_node: ExitStack, key: str, leader: LeaderWatch | None, heartbeat: LeaderHeartbeat) -> dict[str, str]:
    """Join the Ray cluster and wait for all hosts; return the environment that training needs.

    Args:
        leader: None on the leading host.

    Raises:
        InputError: a host has not joined; the message names it.
    """
    node = ray_node.enter_context(
        ray_cluster.RayNode(ray_cluster.find_member(os.environ, os.environ["GRPO_HOST"]), key)
    )
    all_hosts = [*_hosts("GRPO_TRAIN_HOSTS"), *_hosts("GRPO_JUDGE_HOSTS")]
    _wait_for_hosts(all_hosts, ray_cluster.NODE_PORT, "join the Ray cluster", heartbeat, leader, node)
    workers = "judge hosts" if _hosts("GRPO_JUDGE_HOSTS") else "training hosts"
    print(f"All {len(all_hosts)} hosts are in the Ray cluster. Rewards run on the CPUs of the {workers}.", flush=True)
    return node.driver_environment


def _wait_for_hosts(
    hosts: list[str],
    port: int,
    action: str,
    heartbeat: LeaderHeartbeat,
    leader: LeaderWatch | None = None,
    node: ray_cluster.RayNode | None = None,
) -> None:
    """Wait until all hosts accept connections. A Ray node does so after the cluster's head has accepted it.

    Raises:
        InputError: they did not in time, or a host, the leader or this host's node ended before.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while missing := [host for host in hosts if not ray_cluster.is_reachable(host, port)]:
        names = ", ".join(missing)
        if leader is not None and leader.lost.is_set():
            raise InputError(
                f"{leader.host}, which leads the training, ended before the training started. See its log.",
                kind="leader-ended",
            )
        if node is not None and node.failed.is_set():
            raise _ray_failed(node)
        if heartbeat.peer_lost.is_set():
            raise InputError(
                f"A host ended before it could {action}. Missing: {names}. See their logs.", kind="host-ended"
            )
        if time.monotonic() > deadline:
            raise InputError(
                f"{names} did not {action} within {START_TIMEOUT_S:.0f} s. See the log of that host. In a VPC the "
                "security group must allow all traffic from itself.",
                kind="host-timeout",
            )
        time.sleep(0.5)


def _ray_failed(node: ray_cluster.RayNode) -> InputError:
    return InputError(f"Ray could not be started on {node.member.host}: {node.error_line}", kind="ray-failed")


def _hosts(variable: str) -> list[str]:
    return [host for host in os.environ.get(variable, "").split(",") if host]


def _other_trainers() -> Iterator[str]:
    """Addresses of the training hosts that do not lead, if they can still be resolved."""
    for host in _hosts("GRPO_TRAIN_HOSTS"):
        if host != os.environ["GRPO_MAIN_HOST"]:
            with suppress(OSError):
                yield socket.gethostbyname(host)


@contextmanager
def _ignore_stop(leader: LeaderWatch) -> Iterator[None]:
    """Ignore a stop of the job, because the current step still needs its rewards.

    The process registers itself with pid1.py, so that the stop signal comes here and not to the command.
    """

    def ignore(number: int, frame: FrameType | None) -> None:
        print(f"{signal.Signals(number).name}: serving until the training on {leader.host} has ended", flush=True)

    RANKS.mkdir(parents=True, exist_ok=True)
    registration = RANKS / str(os.getpid())
    previous = signal.signal(signal.SIGTERM, ignore)
    registration.write_text(SERVER, encoding="ascii")
    try:
        yield
    finally:
        registration.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, previous)


def _wait_for_leader(host: str) -> LeaderWatch:
    watch = LeaderWatch(host)
    if not watch.connected.wait(START_TIMEOUT_S):
        raise InputError(
            f"{host}, which leads the training, did not answer within {START_TIMEOUT_S:.0f} s.",
            kind="leader-timeout",
        )
    return watch


def fetch_secrets() -> dict[str, str]:
    """The job's secrets by their variables, for the programs' environment only.

    Raises:
        InputError: as `fetch_secret`.
    """
    arns = {name: os.environ.get(f"{name}_SECRET_ARN") for name in SECRETS}
    return {name: fetch_secret(arn, name) for name, arn in arns.items() if arn}


def fetch_secret(arn: str, name: str) -> str:
    """A secret from AWS Secrets Manager.

    Args:
        arn: of the secret, which is the text itself or JSON with the key `name`.

    Raises:
        InputError: the secret can't be read, or is empty.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        region = arn.split(":")[3] if arn.count(":") >= 6 else None
        answer = boto3.client("secretsmanager", region_name=region).get_secret_value(SecretId=arn)
    except (BotoCoreError, ClientError) as error:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__)
        raise InputError(
            f"The secret {arn} can't be read ({code}). The job's role needs secretsmanager:GetSecretValue on it.",
            kind="secret-unreadable",
        ) from None
    text = answer.get("SecretString", "")
    if text.lstrip().startswith("{"):
        try:
            text = json.loads(text).get(name, "")
        except ValueError:
            text = ""
    if not text.strip():
        raise InputError(
            f"The secret {arn} holds no {name}. Store its text alone, or JSON with the key {name}.", kind="secret-empty"
        )
    return str(text.strip())


def is_trained(run: Path) -> bool:
    """Whether a run has saved its trained model."""
    try:
        return json.loads((run / "run.json").read_text(encoding="utf-8"))["status"] in ("trained", "done")
    except (OSError, ValueError, KeyError):
        return False


def export_model(run: Path, model: Path) -> None:
    """Link a run's files, except checkpoints, into the model folder, which the service uploads."""
    model.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.iterdir()):
        if path.name.startswith((".", "checkpoint-")):
            continue
        target = model / path.name
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True, copy_function=_link)
        else:
            _link(str(path), str(target))


def _link(source: str, target: str) -> str:
    """Make a hard link, so that the model needs no second copy; a copy if the disk does not allow links."""
    try:
        Path(target).unlink(missing_ok=True)
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
