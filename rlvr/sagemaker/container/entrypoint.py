"""What a host of a job does around its program: a secret before it, and the model and the reason of a failure after it.

    python -m rlvr.sagemaker.container.entrypoint train COMMAND …     until training ends
    python -m rlvr.sagemaker.container.entrypoint serve COMMAND …     a judge, until the host that leads the training is
    gone python -m rlvr.sagemaker.container.entrypoint lend                a judge's CPUs to the job's Ray cluster,
    until then

Exit codes: 0 done · 75 stopped early with a checkpoint, which another job on the same checkpoints continues · 2 the
recipe or the data is wrong · 1 anything else. But for 0, /opt/ml/output/failure then holds one line for people. It is
written here, because the SDK's driver would write its own traceback unless the file is there already.
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
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType

from rlvr.sagemaker.container import ray_cluster
from rlvr.sagemaker.container.leader_watch import LeaderHeartbeat, Watch
from rlvr.sagemaker.container.pid1 import RANKS, SERVES

RUN = Path("/opt/ml/checkpoints/run")  # the run directory: all below it is kept in the bucket as it is written
MODEL = Path("/opt/ml/model")
FAILURE = Path("/opt/ml/output/failure")
LONGEST_REASON = 990  # the service cuts at 1024, with its own words around ours
SECRET_VARIABLE = "HF_TOKEN_SECRET_ARN"
STOPPED_EARLY = 75
KEY_VARIABLE = "GRPO_REWARDS_KEY"  # of the reward servers and of their clients
JUDGE_PORT = 8000
START_S = 1800.0  # how long hosts wait for one another: all begin at about the same time, but install for themselves
RAY_VARIABLE = "GRPO_RAY"  # set where rewards run on a Ray cluster of the job's hosts
END_S = 60.0  # how long the Ray cluster stays for hosts whose processes end a little later than rank 0's


class JobError(Exception):
    """The job can't go on. The message is the reason that people read."""


@dataclass(frozen=True)
class Ended:
    """How one training process of this host ended.

    Attributes:
        code: its exit code; None if it was killed before it could say.
        said: the last that it told people.
        at: when, in seconds since 1970.
    """

    rank: int
    code: int | None
    said: str = ""
    at: float = 0.0


def main(words: Sequence[str]) -> int:
    try:
        if len(words) > 1 and words[0] == "train":
            return train(words[1:])
        if len(words) > 1 and words[0] == "serve":
            return serve(words[1:])
        if list(words) == ["lend"]:
            return lend()
        raise JobError("entrypoint.py wants `train` or `serve`, and a command; or `lend`.")
    except JobError as error:
        return fail(str(error), 1)


def train(command: Sequence[str]) -> int:
    """Runs the launcher on this host; hands over what it made.

    Raises:
        JobError: the token can't be read, or a judge, a host of the Ray cluster or the leading host isn't there.
    """
    environment = {**os.environ, **secrets(os.environ.get(SECRET_VARIABLE))}
    leads = os.environ.get("GRPO_HOST_RANK", "0") == "0"
    on_ray, judges = os.environ.get(RAY_VARIABLE) == "1", _hosts("GRPO_JUDGE_HOSTS")
    served = bool(on_ray or judges or _hosts("GRPO_ROLLOUT_HOSTS"))
    key = token_urlsafe() if served and leads else None
    # Left in this order: the nodes of those that lend end while the head is there, without which they take ten seconds.
    with ExitStack() as cluster, LeaderHeartbeat(key) as presence:
        if served:
            leader = None if leads else _met(os.environ["GRPO_MAIN_HOST"])
            word = leader.word if leader is not None else str(key)
            if on_ray:
                environment |= _join(cluster, word, leader, presence)
            else:
                environment[KEY_VARIABLE] = word
                for judge in judges:
                    _wait_for(judge, presence)
        code = subprocess.call(command, env=environment)
        processes = ended_processes(RANKS) if code else []
        words, code = reason(processes, code) if code else ("", 0)
        if on_ray and leads and code in (0, STOPPED_EARLY):
            presence.wait_until_gone(_addresses_of_others(), END_S)
    if code == 0:
        if leads:
            hand_over(RUN, MODEL)
        return 0
    # What the process of rank 0 has said stands in the log already.
    return fail(words, code, told=any(one.said == words and one.rank == 0 for one in processes))


def serve(command: Sequence[str]) -> int:
    """Runs a program that serves the training, from when it has begun until it has ended.

    Raises:
        JobError: the program ended before, or the training never began.
    """
    role, leader = os.environ.get("GRPO_ROLE", "judge"), _met(os.environ["GRPO_MAIN_HOST"])
    token = secrets(os.environ.get(SECRET_VARIABLE))
    with _staying(leader):
        program = subprocess.Popen(command, env={**os.environ, **token, KEY_VARIABLE: leader.word})
        try:
            while not leader.gone.wait(0.2):
                code = program.poll()
                if code is not None:
                    raise JobError(
                        f"The program of the role {role} ended before the training did, with exit code {code}."
                    )
        finally:
            program.terminate()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
    print(f"The training on {leader.host} has ended, and so does this host, of the role {role}.", flush=True)
    return 0


def lend() -> int:
    """Has this host's CPUs used by the job's Ray cluster, from when the training has begun until it has ended.

    Raises:
        JobError: the training never began, or Ray can't be started here.
    """
    leader = _met(os.environ["GRPO_MAIN_HOST"])
    member = ray_cluster.member_of(os.environ, os.environ["SM_CURRENT_HOST"])
    with _staying(leader), ray_cluster.RayNode(member, leader.word) as node:
        while not leader.gone.wait(0.5):
            if node.failed.is_set():
                raise JobError(f"Ray could not be started on {member.host}: {node.fault}")
    print(f"The training on {leader.host} has ended, and so does this host, whose CPUs scored for it.", flush=True)
    return 0


def _join(cluster: ExitStack, word: str, leader: Watch | None, presence: LeaderHeartbeat) -> dict[str, str]:
    """Joins the Ray cluster, waits until all hosts of the job have, and says what training needs in its environment.

    Args:
        leader: the host that leads; None on that host.

    Raises:
        JobError: they have not, by name.
    """
    member = ray_cluster.member_of(os.environ, os.environ["SM_CURRENT_HOST"])
    node = cluster.enter_context(ray_cluster.RayNode(member, word))
    everyone = [*_hosts("GRPO_TRAIN_HOSTS"), *_hosts("GRPO_JUDGE_HOSTS")]
    until = time.monotonic() + START_S
    with ray_cluster.ClusterMembership(node) as roll:
        while missing := roll.missing(everyone):
            names = ", ".join(missing)
            if leader is not None and leader.gone.is_set():
                raise JobError(f"{leader.host}, which leads the training, ended before it began: its log says why.")
            if node.failed.is_set():
                raise JobError(f"Ray could not be started on {member.host}: {node.fault}")
            if presence.left.is_set():
                raise JobError(
                    f"A host ended before it had joined the Ray cluster. Not in it: {names}. Its own log says why."
                )
            if time.monotonic() > until:
                raise JobError(
                    f"{names} did not join the Ray cluster within {_minutes(START_S)}: the log of that host says why. "
                    "In a VPC the security group must allow all traffic from itself."
                )
            time.sleep(0.5)
    rewards = "those that judge" if _hosts("GRPO_JUDGE_HOSTS") else "those that train"
    print(f"All {len(everyone)} hosts are in the Ray cluster: rewards run on the CPUs of {rewards}.", flush=True)
    return node.of_a_driver


def _hosts(variable: str) -> list[str]:
    return [host for host in os.environ.get(variable, "").split(",") if host]


def _addresses_of_others() -> Iterator[str]:
    """Of the hosts that train but don't lead, as far as they are still known."""
    for host in _hosts("GRPO_TRAIN_HOSTS"):
        if host != os.environ["GRPO_MAIN_HOST"]:
            with suppress(OSError):
                yield socket.gethostbyname(host)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


@contextmanager
def _staying(leader: Watch) -> Iterator[None]:
    """While it is entered, a stop of the job doesn't end this host: the step at hand still wants its rewards.

    This process puts itself where a stop looks for those to tell (pid1.py).
    """

    def stay(number: int, frame: FrameType | None) -> None:
        print(f"{signal.Signals(number).name}: serving on until the training on {leader.host} has ended", flush=True)

    RANKS.mkdir(parents=True, exist_ok=True)
    note = RANKS / str(os.getpid())
    before = signal.signal(signal.SIGTERM, stay)
    note.write_text(SERVES, encoding="ascii")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, before)


def _met(host: str) -> Watch:
    """A watch on the host that leads the training, once it is there."""
    watch = Watch(host)
    if not watch.met.wait(START_S):
        raise JobError(f"{host}, which leads the training, was not to be reached in {_minutes(START_S)}.")
    return watch


def _wait_for(judge: str, presence: LeaderHeartbeat) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((judge, JUDGE_PORT), timeout=10).close()
            return
        except OSError:
            if presence.left.is_set():
                raise JobError("A host that should judge ended before it could: its own log says why.") from None
            if time.monotonic() > until:
                raise JobError(f"{judge}, which judges, did not serve within {_minutes(START_S)}.") from None
            time.sleep(0.5)


def secrets(arn: str | None) -> dict[str, str]:
    """The Hugging Face token that lies in AWS Secrets Manager, for the programs' environment only.

    Args:
        arn: of the secret, which is the token itself or JSON with a key HF_TOKEN; None for no token.

    Raises:
        JobError: it can't be read, or holds no token.
    """
    if not arn:
        return {}
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        region = arn.split(":")[3] if arn.count(":") >= 6 else None
        found = boto3.client("secretsmanager", region_name=region).get_secret_value(SecretId=arn)
    except (BotoCoreError, ClientError) as error:
        kind = getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__)
        raise JobError(
            f"The secret {arn} can't be read ({kind}). The job's role needs secretsmanager:GetSecretValue on it."
        ) from None
    token = found.get("SecretString", "")
    if token.lstrip().startswith("{"):
        try:
            token = json.loads(token).get("HF_TOKEN", "")
        except ValueError:
            token = ""
    if not token.strip():
        raise JobError(
            f"The secret {arn} holds no token: it should be the token itself, or JSON with the key HF_TOKEN."
        )
    return {"HF_TOKEN": token.strip()}


def hand_over(run: Path, model: Path) -> None:
    """Puts what a run has made into the model folder, which the service packs up: all of it but the checkpoints."""
    model.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.iterdir()):
        if path.name.startswith((".", "checkpoint-")):
            continue
        target = model / path.name
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True, copy_function=_link)
        else:
            _link(str(path), str(target))


def ended_processes(ranks: Path) -> list[Ended]:
    """The training processes of this host, as they noted themselves (rank.py)."""
    found = {}
    for file in ranks.glob("*.json"):
        note = json.loads(file.read_text(encoding="utf-8"))
        found[note["rank"]] = Ended(note["rank"], note["code"], note["said"], note["at"])
    begun = [int(file.read_text(encoding="ascii") or 0) for file in ranks.iterdir() if file.name.isdigit()]
    return [*found.values(), *(Ended(rank, None) for rank in begun if rank not in found)]


def reason(processes: Sequence[Ended], code: int) -> tuple[str, int]:
    """Why training ended, in words, and the exit code for it.

    The first that failed is at fault: the launcher ends the others. Those that it ended before they could say so, or
    that stopped with a checkpoint because they were told to, only followed.
    """
    failed = sorted((one for one in processes if one.code not in (None, 0, STOPPED_EARLY)), key=lambda one: one.at)
    killed = [one for one in processes if one.code is None]
    stopped = sorted((one for one in processes if one.code == STOPPED_EARLY), key=lambda one: one.rank)
    if failed:
        first = failed[0]
        return first.said or f"Process {first.rank} ended with exit code {first.code} and no word.", first.code or 1
    if killed:
        return (
            f"Process {killed[0].rank} was killed, most often because the machine's memory ran out (not the GPU's). "
            "Another job on the same checkpoints continues from the last of them.",
            1,
        )
    if stopped:
        again = f"scripts/sagemaker.py resume {os.environ.get('TRAINING_JOB_NAME', 'JOB')}"
        return stopped[0].said.replace("the same command", again), STOPPED_EARLY
    return f"The launcher ended with exit code {code} before any process began to train: see the log.", 1


def fail(words: str, code: int, *, told: bool = False) -> int:
    """Writes down why the job failed, as one line; returns the exit code."""
    line = in_one_line(words)
    if not told:
        print(f"\n{line}", file=sys.stderr, flush=True)
    FAILURE.parent.mkdir(parents=True, exist_ok=True)
    FAILURE.write_text(line, encoding="utf-8")
    return code


def in_one_line(words: str) -> str:
    """Several lines as one, not longer than the service takes, which goes on with a comma and the exit code."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    text = ""
    for line in lines:
        text += ("" if not text else " " if text[-1] in ".:;!?," else "; ") + line
    return text.rstrip(".") if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def _link(source: str, target: str) -> str:
    """A second name for a file instead of a second copy of a model, where the disk allows it."""
    try:
        Path(target).unlink(missing_ok=True)
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
