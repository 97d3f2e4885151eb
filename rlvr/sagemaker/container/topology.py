"""Find a host's role in the job, and the hosts of each role.

    python3 -m rlvr.sagemaker.container.topology      prints shell assignments, for scripts/run_finetuning.sh

The service lists all hosts in resourceconfig.json. That list is sorted as text (algo-1, algo-10, algo-2), and its first
host may be one that does not train. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.errors import InputError

RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
# The environment variable that names the instance group of each role.
VARIABLES = {"train": "GRPO_TRAIN_GROUP", "judge": "GRPO_JUDGE_GROUP"}


@dataclass(frozen=True)
class Topology:
    """A host's place in a job. Each attribute becomes a variable, such as GRPO_HOST_RANK.

    Attributes:
        host, gpus: this host's name, and the number of its GPUs.
        role: "train" or "judge".
        host_rank: its number among the hosts of its role, from 0.
        machines: number of training hosts.
        processes: number of training processes on all hosts.
        main_host: the host whose first process is rank 0.
        network_interface: the network device that connects the hosts.
    """

    host: str
    gpus: int
    role: str
    host_rank: int
    machines: int
    processes: int
    main_host: str
    train_hosts: tuple[str, ...]
    judge_hosts: tuple[str, ...]
    network_interface: str

    def assignments(self) -> dict[str, str]:
        """Environment variables for the container's other programs."""
        return {
            f"GRPO_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in vars(self).items()
        }


def find_topology(
    resources: Mapping[str, Any], groups: Mapping[str, str], gpus: int, processes_per_host: int = 1
) -> Topology:
    """This host's place in the job.

    Args:
        resources: content of resourceconfig.json.
        groups: instance group of each role. A single group trains even if it is not named.
        gpus: GPUs of this host; all training hosts have equally many, and a process for each.
        processes_per_host: on hosts without GPUs.

    Raises:
        InputError: this host's group has no role, or no host trains.
    """
    host = str(resources["current_host"])
    listed = resources.get("instance_groups") or [{"instance_group_name": "", "hosts": resources["hosts"]}]
    hosts_of = {group["instance_group_name"]: sorted(group["hosts"], key=_natural_key) for group in listed}
    if "train" not in groups and len(hosts_of) == 1:
        groups = {"train": next(iter(hosts_of)), **groups}
    by_role = {role: tuple(hosts_of.get(group, ())) for role, group in groups.items()}
    trainers = by_role.get("train")
    if not trainers:
        raise InputError(
            f"No host trains. Set {VARIABLES['train']} to one of the instance groups {', '.join(sorted(hosts_of))}.",
            kind="no-training-host",
        )
    role = next((role for role, hosts in by_role.items() if host in hosts), None)
    if role is None:
        names = ", ".join(VARIABLES.values())
        raise InputError(
            f"The instance group of this host, {host}, has no role. Set one of {names} to it.",
            kind="group-without-role",
        )
    return Topology(
        host=host,
        gpus=gpus,
        role=role,
        host_rank=by_role[role].index(host),
        machines=len(trainers),
        processes=(gpus or processes_per_host) * len(trainers),
        main_host=trainers[0],
        train_hosts=trainers,
        judge_hosts=by_role.get("judge", ()),
        network_interface=str(resources.get("network_interface_name", "eth0")),
    )


def read_topology(file: Path = RESOURCES, environment: Mapping[str, str] = os.environ) -> Topology:
    """This host's place in the job, from the container's files and environment.

    Raises:
        InputError: as `find_topology`, or the file can't be read.
    """
    try:
        resources = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} can't be read: {error}. This script runs on the hosts of SageMaker training jobs only.",
            kind="no-resource-config",
        ) from error
    groups = {role: environment[name] for role, name in VARIABLES.items() if environment.get(name)}
    return find_topology(resources, groups, count_gpus(), int(environment.get("GRPO_PROCESSES_PER_HOST") or 1))


def count_gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # no driver
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def main(file: Path = RESOURCES) -> int:
    try:
        topology = read_topology(file)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in topology.assignments().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _natural_key(name: str) -> list[tuple[int, str]]:
    """A sort key that puts algo-2 before algo-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


if __name__ == "__main__":
    sys.exit(main())
