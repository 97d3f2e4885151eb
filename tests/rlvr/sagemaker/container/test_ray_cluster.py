"""The job's Ray cluster on emulated hosts: membership, timeouts, and the nodes' environment."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlvr.sagemaker.container import ray_cluster
from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.containers import Attempt, Host

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))

SECRETS = {"HF_TOKEN": "hf_of_a_person", "AWS_SECRET_ACCESS_KEY": "of-the-role"}
GROUPS = {"train": ["algo-2", "algo-3"], "cpus": ["algo-1"]}
TRAIN = """
mkdir -p /tmp/grpo-ranks
cd /opt/ml/input/data/code
assignments=$(python3 -m rlvr.sagemaker.container.topology)
eval "$assignments"
exec python3 start.py {start_s} {words}
"""

START = """
    import os, sys
    from rlvr.sagemaker.container import entrypoint, ray_cluster

    ray_cluster._MAX_STARTS = int(os.environ.get("TRIES", ray_cluster._MAX_STARTS))
    entrypoint.START_TIMEOUT_S = float(sys.argv[1])
    sys.exit(entrypoint.main(sys.argv[2:]))
"""


def printed(folder: Path, name: str) -> str:
    """The log of a host."""
    file = folder / f"{name}.log"
    return file.read_text(errors="replace") if file.is_file() else ""


@contextmanager
def hosts(
    folder: Path, scripts: Mapping[str, str], groups: Mapping[str, Sequence[str]] = GROUPS, **files: str
) -> Iterator[Attempt]:
    """Hosts of a job, each with a shell script as its process 1.

    Args:
        scripts: by host; a host of `groups` without one does not start.
        files: Python files of the job's code, without their ending.
    """
    started = []
    for name, script in scripts.items():
        ml = folder / name
        code = ml / "input" / "data" / "code"
        shutil.copytree(
            containers.REPOSITORY / "rlvr", code / "rlvr", ignore=shutil.ignore_patterns("__pycache__", "report")
        )
        for file, text in {"start": START, **files}.items():
            (code / f"{file}.py").write_text(textwrap.dedent(text))
        for part in ("input/config", "output", "model", "checkpoints/run"):
            (ml / part).mkdir(parents=True)
        listed = [{"instance_group_name": group, "hosts": list(members)} for group, members in groups.items()]
        everyone = [host for members in groups.values() for host in members]
        resources = {"current_host": name, "hosts": everyone, "instance_groups": listed}
        (ml / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
        environment = {
            **containers.environment_of_the_image(),
            **SECRETS,
            "GRPO_HOST": name,
            "GRPO_RAY": "1",
            "GRPO_TRAIN_GROUP": "train",
            "GRPO_JUDGE_GROUP": "cpus",
        }
        started.append(Host(name, ml, ["/bin/bash", "-c", script], environment, folder / f"{name}.log"))
    attempt = containers.start(started, folder)
    try:
        yield attempt
    finally:
        attempt.end()


def training(*words: str, start_s: float = 300.0) -> str:
    return TRAIN.format(start_s=start_s, words=" ".join(words))


def reason(folder: Path, name: str) -> str:
    file = folder / name / "output" / "failure"
    return file.read_text() if file.is_file() else ""


# Takes part as a training process does: finds the cluster by its environment alone.
DRIVER = """
    import json, os, pathlib, signal, time
    import ray

    ray.init(log_to_driver=False, logging_level="ERROR")

    @ray.remote(num_cpus=1)
    def look():
        import rlvr
        return {"node": os.uname().nodename, "names": sorted(os.environ), "raylet": int(os.environ["RAY_RAYLET_PID"])}

    @ray.remote(num_cpus=1, max_retries=0)
    def lose():
        os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)

    seen = [ray.get(look.remote(), timeout=200)]
    if os.environ["GRPO_HOST_RANK"] == "0":
        while len([node for node in ray.nodes() if node["Alive"]]) < 3:
            time.sleep(0.2)
        lose.remote()
        until = time.monotonic() + 200
        while seen[-1]["raylet"] == seen[0]["raylet"] and time.monotonic() < until:
            time.sleep(1)
            try:
                seen.append(ray.get(look.options(max_retries=0).remote(), timeout=200))
            except ray.exceptions.RayError:
                pass
    with open("/opt/ml/checkpoints/run/seen.json", "a") as file:
        file.write(json.dumps(seen) + "\\n")
    ray.shutdown()
"""


@pytest.mark.slow
def test_tasks_run_on_judge_hosts_only_and_a_lost_node_restarts(tmp_path: Path) -> None:
    train = training("train", "python3", "driver.py")
    scripts = {"algo-1": training("ray-node"), "algo-2": train, "algo-3": train}
    with hosts(tmp_path, scripts, driver=DRIVER) as attempt:
        assert attempt.wait(400), [printed(tmp_path, name) for name in scripts]
    logs = {name: printed(tmp_path, name) for name in scripts}
    assert attempt.codes == {"algo-1": 0, "algo-2": 0, "algo-3": 0}, logs
    for name in ("algo-2", "algo-3"):
        (line,) = (tmp_path / name / "checkpoints" / "run" / "seen.json").read_text().splitlines()
        assert "All 3 hosts are in the Ray cluster. Rewards run on the CPUs of the judge hosts" in logs[name]
        seen = json.loads(line)
        assert {task["node"] for task in seen} == {"algo-1"}, "once a host, and never on one that trains"
        for task in seen:
            assert not {*SECRETS, "GRPO_REWARDS_KEY", "RAY_AUTH_TOKEN"} & set(task["names"])
    assert len({task["raylet"] for task in json.loads((tmp_path / "algo-2/model/seen.json").read_text())}) == 2
    assert "The Ray node of algo-1 ended with exit code" in logs["algo-1"]
    assert not [secret for secret in SECRETS.values() if secret in "".join(logs.values())]


LEADER_THAT_DIES = """
    import time
    from rlvr.sagemaker.container.leader_watch import LeaderHeartbeat
    with LeaderHeartbeat("key") as heartbeat:
        while not heartbeat._connected:
            time.sleep(0.1)
        time.sleep(0.5)
"""
JUDGE_THAT_DIES = """
    import time
    from rlvr.sagemaker.container.leader_watch import LeaderWatch
    LeaderWatch("algo-2").connected.wait()
    time.sleep(0.5)
"""
BROKEN = "raise ImportError('libray.so: no such file')"
RUN = "cd /opt/ml/input/data/code && exec python3 {}.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scripts", "host", "words", "why"),
    [
        (
            {"algo-2": RUN.format("leader"), "algo-3": training("train", "false")},
            "algo-3",
            "algo-2, which leads the training, ended before the training started",
            "the head will never come",
        ),
        (
            {"algo-1": RUN.format("judge"), "algo-2": training("train", "false")},
            "algo-2",
            "A host ended before it could join the Ray cluster. Missing: ",
            "one that is gone",
        ),
        (
            {"algo-2": training("train", "false", start_s=1)},
            "algo-2",
            "algo-1 did not join the Ray cluster within 1 s",
            "one that never came",
        ),
        (
            {"algo-1": training("ray-node", start_s=1)},
            "algo-1",
            "algo-2, which leads the training, did not answer within 1 s",
            "a head that never came",
        ),
        (
            {
                "algo-2": "export TRIES=2; cd /opt/ml/input/data/code; mv broken.py ray.py; "
                f"{training('train', 'false')}"
            },
            "algo-2",
            "Ray could not be started on algo-2: ImportError: libray.so",
            "what would be paid for half an hour",
        ),
    ],
)
def test_a_missing_host_is_named_and_nothing_trains(
    tmp_path: Path, scripts: dict[str, str], host: str, words: str, why: str
) -> None:
    with hosts(tmp_path, scripts, leader=LEADER_THAT_DIES, judge=JUDGE_THAT_DIES, broken=BROKEN) as attempt:
        assert attempt.wait(300), [printed(tmp_path, name) for name in scripts]
    assert words in reason(tmp_path, host), (why, printed(tmp_path, host))
    assert attempt.codes[host] == 1


def test_a_node_gets_only_allowed_variables() -> None:
    variables = {**SECRETS, "PATH": "/bin", "GRPO_REWARDS_KEY": "k", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"}
    dashboards = {"RAY_PROMETHEUS_HOST": "http://metrics:9090", "RAY_GRAFANA_HOST": "http://grafana:3000"}
    dashboards["RAY_PROMETHEUS_NAME"] = "prometheus"
    environment = ray_cluster.node_environment(variables)
    assert ray_cluster.node_environment(dashboards).items() >= dashboards.items()
    assert environment["PATH"] == "/bin" and "RAY_AUTH_TOKEN" not in environment, "the token is in a file"
    assert not (variables.keys() - {"PATH"}) & environment.keys()


@pytest.mark.parametrize(
    ("role", "judges", "lends", "why"),
    [
        ("train", "", True, "without judge hosts the training hosts lend theirs"),
        ("train", "algo-1", False, "rewards are for the hosts that judge only"),
        ("judge", "algo-1", True, "which is this one"),
    ],
)
def test_rewards_use_the_judge_hosts_cpus_if_there_are_any(role: str, judges: str, lends: bool, why: str) -> None:
    environment = {"GRPO_ROLE": role, "GRPO_JUDGE_HOSTS": judges, "GRPO_MAIN_HOST": "localhost"}
    assert (ray_cluster.find_member(environment, "another").cpus > 0) == lends, why


def test_the_dashboard_is_on_the_heads_own_loopback_and_every_port_is_fixed() -> None:
    head = ray_cluster.RayMember("algo-1", "10.0.0.1", "10.0.0.1", 4).command()
    other = ray_cluster.RayMember("algo-2", "10.0.0.2", "10.0.0.1", 4).command()
    assert head[head.index("--dashboard-host") + 1] == "127.0.0.1" and "--dashboard-host" not in other
    for command in (head, other):
        ports = [command[place + 1] for place, word in enumerate(command) if word.endswith("-port")]
        assert len(ports) >= len(ray_cluster.PORTS) and all(port.isdigit() for port in ports)
