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

RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
# The environment variable that names the instance group of each role.
VARIABLES = {"train": "GRPO_TRAIN_GROUP", "judge": "GRPO_JUDGE_GROUP", "rollout": "GRPO_ROLLOUT_GROUP"}


class TopologyError(Exception):
    """The hosts' roles are contradictory or incomplete. `kind` is a stable slug, as in rlvr/errors.py."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Topology:
    """A host's place in a job.

    Attributes:
        host: this host's name.
        role: "train", "judge" or "rollout".
        rank: its number among the hosts of its role, from 0.
        gpus: number of its GPUs.
        machines: number of training hosts.
        processes: number of training processes on all hosts: one per GPU, or one per host without GPUs.
        main: the host whose first process is rank 0.
        trainers, judges, rollouts: the hosts of each role.
        interface: the network device that connects the hosts.
    """

    host: str
    role: str
    rank: int
    gpus: int
    machines: int
    processes: int
    main: str
    trainers: tuple[str, ...]
    judges: tuple[str, ...]
    rollouts: tuple[str, ...]
    interface: str

    def assignments(self) -> dict[str, str]:
        """Environment variables for the container's other programs."""
        return {
            "GRPO_HOST": self.host,
            "GRPO_GPUS": str(self.gpus),
            "GRPO_ROLE": self.role,
            "GRPO_HOST_RANK": str(self.rank),
            "GRPO_MACHINES": str(self.machines),
            "GRPO_PROCESSES": str(self.processes),
            "GRPO_MAIN_HOST": self.main,
            "GRPO_TRAIN_HOSTS": ",".join(self.trainers),
            "GRPO_JUDGE_HOSTS": ",".join(self.judges),
            "GRPO_ROLLOUT_HOSTS": ",".join(self.rollouts),
            "GRPO_NETWORK_INTERFACE": self.interface,
        }


def find_topology(resources: Mapping[str, Any], groups: Mapping[str, str], gpus: int) -> Topology:
    """This host's place in the job.

    Args:
        resources: content of resourceconfig.json.
        groups: instance group of each role. A single group trains even if it is not named.
        gpus: GPUs of this host; all training hosts have equally many.

    Raises:
        TopologyError: a host or group has no role, or a role has no group.
    """
    host, hosts_of = _read_groups(resources)
    known = ", ".join(sorted(hosts_of))
    role_of = _assign_roles(hosts_of, groups)
    own_group = next((group for group, hosts in hosts_of.items() if host in hosts), None)
    if own_group is None:
        raise TopologyError(f"This host, {host}, is in none of the job's instance groups ({known}).", "host-not-in-job")
    if own_group not in role_of:
        names = ", ".join(VARIABLES.values())
        raise TopologyError(
            f"The instance group {own_group} of this host, {host}, has no role. Set one of {names} to it.",
            "group-without-role",
        )
    by_role = {role: tuple(hosts_of[group]) for group, role in role_of.items()}
    if not by_role["train"]:
        raise TopologyError("No host trains: the training instance group is empty.", "no-training-host")
    role = role_of[own_group]
    machines = len(by_role["train"])
    return Topology(
        host=host,
        role=role,
        rank=by_role[role].index(host),
        gpus=gpus,
        machines=machines,
        processes=max(gpus, 1) * machines,
        main=by_role["train"][0],
        trainers=by_role["train"],
        judges=by_role.get("judge", ()),
        rollouts=by_role.get("rollout", ()),
        interface=str(resources.get("network_interface_name", "eth0")),
    )


def _read_groups(resources: Mapping[str, Any]) -> tuple[str, dict[str, list[str]]]:
    """This host, and the hosts of each instance group in natural order."""
    try:
        host, all_hosts = str(resources["current_host"]), [str(name) for name in resources["hosts"]]
        hosts_of = {
            str(group["instance_group_name"]): sorted((str(name) for name in group["hosts"]), key=_natural_key)
            for group in resources.get("instance_groups") or []
        }
    except (KeyError, TypeError) as error:
        raise TopologyError(
            f"resourceconfig.json has an unexpected form: {error}.", "invalid-resource-config"
        ) from error
    return host, hosts_of or {"homogeneousCluster": sorted(all_hosts, key=_natural_key)}


def _assign_roles(hosts_of: Mapping[str, list[str]], groups: Mapping[str, str]) -> dict[str, str]:
    """The role of each named group."""
    known = ", ".join(sorted(hosts_of))
    if "train" not in groups and len(hosts_of) > 1:
        raise TopologyError(
            f"The job has the instance groups {known}, but none is named to train. Set {VARIABLES['train']}.",
            "no-training-group",
        )
    role_of: dict[str, str] = {}
    for role, group in groups.items():
        if group not in hosts_of:
            raise TopologyError(
                f"{VARIABLES[role]} is {group}, but the job has no such instance group. It has {known}.",
                "unknown-instance-group",
            )
        if group in role_of:
            raise TopologyError(
                f"The instance group {group} has two roles, {role_of[group]} and {role}. Give it one.",
                "group-with-two-roles",
            )
        role_of[group] = role
    if "train" not in groups:
        (single,) = hosts_of
        if single in role_of:
            raise TopologyError(
                f"All hosts of the job have the role {role_of[single]}: none trains.", "no-training-host"
            )
        role_of[single] = "train"
    return role_of


def read_topology(file: Path = RESOURCES, environment: Mapping[str, str] = os.environ) -> Topology:
    """This host's place in the job, from the container's files and environment.

    Raises:
        TopologyError: as `find_topology`, or the file can't be read.
    """
    try:
        resources = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TopologyError(
            f"There is no {file}: this script runs on the hosts of SageMaker training jobs only.", "no-resource-config"
        ) from None
    except (OSError, ValueError) as error:
        raise TopologyError(f"{file} can't be read: {error}.", "invalid-resource-config") from error
    if not isinstance(resources, dict):
        raise TopologyError(f"{file} does not contain a JSON object.", "invalid-resource-config")
    groups = {role: environment[name] for role, name in VARIABLES.items() if environment.get(name)}
    return find_topology(resources, groups, count_gpus())


def count_gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # no driver
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def main(file: Path = RESOURCES) -> int:
    try:
        topology = read_topology(file)
    except TopologyError as error:
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
