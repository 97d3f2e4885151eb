"""What a host of a job is there for, and how the hosts that train find one another.

    python3 -m rlvr.sagemaker.container.topology      prints shell assignments, for scripts/run_finetuning.sh

The service tells each host of all of them in resourceconfig.json. Its list of hosts is sorted as text (algo-1, algo-10,
algo-2), and the first of them need not be one that trains: SM_MASTER_ADDR of the SDK, always algo-1, is of no use in a
job with several instance groups. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
# A role, and the variable of the job's environment that names its instance group.
VARIABLES = {"train": "GRPO_TRAIN_GROUP", "judge": "GRPO_JUDGE_GROUP", "rollout": "GRPO_ROLLOUT_GROUP"}


class TopologyError(Exception):
    """The hosts can't be given their roles. The message stands alone."""


@dataclass(frozen=True)
class Topology:
    """One host's place in a job.

    Attributes:
        host: this host's name.
        role: "train", "judge" or "rollout".
        rank: its number among the hosts of its role, from 0.
        machines: how many hosts train.
        processes: how many processes train, on all hosts together: one a GPU, and one on a host without GPUs.
        main: the host whose first process is rank 0 of all.
        trainers, judges, rollouts: the hosts with those roles.
        interface: the network device through which hosts reach one another.
    """

    host: str
    role: str
    rank: int
    machines: int
    processes: int
    main: str
    trainers: tuple[str, ...]
    judges: tuple[str, ...]
    rollouts: tuple[str, ...]
    interface: str

    def assignments(self) -> dict[str, str]:
        """The variables that the rest of the container reads."""
        return {
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


def find_place(resources: Mapping[str, Any], groups: Mapping[str, str], gpus: int) -> Topology:
    """This host's place.

    Args:
        resources: what resourceconfig.json says.
        groups: the name of the instance group of each role that was given one. With a single group it trains, named
            or not.
        gpus: GPUs of this host; those that train have equally many.

    Raises:
        TopologyError: a host or a group without a role, or a role without a group.
    """
    try:
        host, everyone = str(resources["current_host"]), [str(name) for name in resources["hosts"]]
        hosts_of = {
            str(group["instance_group_name"]): sorted((str(name) for name in group["hosts"]), key=_natural)
            for group in resources.get("instance_groups") or []
        }
    except (KeyError, TypeError) as error:
        raise TopologyError(f"resourceconfig.json lacks what is expected of it: {error}.") from error
    hosts_of = hosts_of or {"homogeneousCluster": sorted(everyone, key=_natural)}
    known = ", ".join(sorted(hosts_of))

    if "train" not in groups and len(hosts_of) > 1:
        raise TopologyError(
            f"The job has the instance groups {known}, but doesn't say which of them trains: set {VARIABLES['train']}."
        )
    role_of: dict[str, str] = {}
    for role, group in groups.items():
        if group not in hosts_of:
            raise TopologyError(
                f"{VARIABLES[role]} is {group}, but the job has no such instance group. It has {known}."
            )
        if group in role_of:
            raise TopologyError(f"The instance group {group} has two roles, {role_of[group]} and {role}: give it one.")
        role_of[group] = role
    if "train" not in groups:
        (single,) = hosts_of
        if single in role_of:
            raise TopologyError(f"All hosts of the job are of the role {role_of[single]}: none trains.")
        role_of[single] = "train"

    mine = [group for group, hosts in hosts_of.items() if host in hosts]
    if not mine:
        raise TopologyError(f"This host, {host}, is in none of the job's instance groups ({known}).")
    if mine[0] not in role_of:
        names = ", ".join(VARIABLES.values())
        raise TopologyError(
            f"The instance group {mine[0]} of this host, {host}, has no role: name it in one of {names}."
        )
    by_role = {role: tuple(hosts_of[group]) for group, role in role_of.items()}
    if not by_role["train"]:
        raise TopologyError("No host trains: the instance group that should is empty.")
    role = role_of[mine[0]]
    machines = len(by_role["train"])
    return Topology(
        host=host,
        role=role,
        rank=by_role[role].index(host),
        machines=machines,
        processes=max(gpus, 1) * machines,
        main=by_role["train"][0],
        trainers=by_role["train"],
        judges=by_role.get("judge", ()),
        rollouts=by_role.get("rollout", ()),
        interface=str(resources.get("network_interface_name", "eth0")),
    )


def read_place(file: Path = RESOURCES, environment: Mapping[str, str] = os.environ) -> Topology:
    """The same, from what the container was given."""
    try:
        resources = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TopologyError(f"There is no {file}: this script is for a host of a SageMaker training job.") from None
    except (OSError, ValueError) as error:
        raise TopologyError(f"{file} can't be read: {error}.") from error
    if not isinstance(resources, dict):
        raise TopologyError(f"{file} holds no object.")
    groups = {role: environment[name] for role, name in VARIABLES.items() if environment.get(name)}
    return find_place(resources, groups, int(environment.get("SM_NUM_GPUS") or 0))


def main(file: Path = RESOURCES) -> int:
    try:
        place = read_place(file)
    except TopologyError as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in place.assignments().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _natural(name: str) -> list[tuple[int, str]]:
    """algo-2 before algo-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


if __name__ == "__main__":
    sys.exit(main())
