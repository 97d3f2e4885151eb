"""Every host finds its role and rank from the same resourceconfig.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import InputError
from rlvr.sagemaker.container import topology
from rlvr.sagemaker.container.topology import find_topology, read_topology

REPOSITORY = Path(__file__).resolve().parents[4]
MANY = [f"algo-{number}" for number in range(1, 13)]


def config(host: str, groups: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    """resourceconfig.json as the service writes it: hosts sorted as text."""
    return {
        "current_host": host,
        "current_instance_type": "ml.g6.12xlarge",
        "hosts": sorted(name for hosts in groups.values() for name in hosts),
        "instance_groups": [
            {"instance_group_name": name, "instance_type": "ml.g6.12xlarge", "hosts": sorted(hosts)}
            for name, hosts in groups.items()
        ],
        "network_interface_name": "eth0",
        **more,
    }


ONE = {"homogeneousCluster": ["algo-1"]}
TWELVE = {"homogeneousCluster": MANY}
# algo-1 is in the group that doesn't train, as the service may well decide.
MIXED = {"judges": ["algo-1", "algo-4"], "gpus": ["algo-2", "algo-3"]}
ROLES = {"train": "gpus", "judge": "judges"}


@pytest.mark.parametrize(
    ("groups", "roles", "host", "gpus", "expected", "why"),
    [
        (ONE, {}, "algo-1", 4, ("train", 0, 1, 4, "algo-1"), "one host with four GPUs"),
        (ONE, {}, "algo-1", 0, ("train", 0, 1, 1, "algo-1"), "a host without GPUs trains with one process"),
        (ONE, {"train": "homogeneousCluster"}, "algo-1", 1, ("train", 0, 1, 1, "algo-1"), "named, as it may be"),
        (TWELVE, {}, "algo-2", 8, ("train", 1, 12, 96, "algo-1"), "algo-2 is second, not fifth as in a sorted text"),
        (TWELVE, {}, "algo-10", 8, ("train", 9, 12, 96, "algo-1"), "algo-10 is tenth, not second"),
        (MIXED, ROLES, "algo-2", 4, ("train", 0, 2, 8, "algo-2"), "algo-1 judges, so the main address is another"),
        (MIXED, ROLES, "algo-3", 4, ("train", 1, 2, 8, "algo-2"), "the second that trains"),
        (MIXED, ROLES, "algo-1", 0, ("judge", 0, 2, 2, "algo-2"), "a judge knows whom it serves"),
        (MIXED, ROLES, "algo-4", 0, ("judge", 1, 2, 2, "algo-2"), "the second judge"),
    ],
)
def test_a_host_finds_its_role_and_rank(
    groups: dict[str, list[str]], roles: dict[str, str], host: str, gpus: int, expected: tuple[Any, ...], why: str
) -> None:
    place = find_topology(config(host, groups), roles, gpus)
    assert (place.role, place.host_rank, place.machines, place.processes, place.main_host) == expected, why


def test_all_hosts_know_the_judge_hosts() -> None:
    for host in ("algo-1", "algo-2"):
        assert find_topology(config(host, MIXED), ROLES, 1).judge_hosts == ("algo-1", "algo-4")


def test_a_file_without_groups_is_one_group() -> None:
    resources = config("algo-10", TWELVE)
    del resources["instance_groups"]
    assert find_topology(resources, {}, 1).host_rank == 9


@pytest.mark.parametrize(
    ("host", "groups", "roles", "kind", "names", "why"),
    [
        ("algo-2", MIXED, {}, "no-training-host", "GRPO_TRAIN_GROUP", "a guess would train on the judges"),
        ("algo-2", MIXED, {"train": "gpu"}, "no-training-host", "gpus, judges", "a misspelt group"),
        ("algo-1", {"gpus": [], "judges": ["algo-1"]}, ROLES, "no-training-host", "gpus", "an empty group"),
        ("algo-1", MIXED, {"train": "gpus"}, "group-without-role", "algo-1", "a host for nothing"),
        ("algo-9", MIXED, ROLES, "group-without-role", "algo-9", "a file that contradicts itself"),
    ],
)
def test_missing_roles_are_errors_of_one_line(
    host: str, groups: dict[str, list[str]], roles: dict[str, str], kind: str, names: str, why: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_topology(config(host, groups), roles, 1)
    assert caught.value.kind == kind and names in str(caught.value), why
    assert "\n" not in str(caught.value)


@given(st.permutations(MANY), st.integers(1, 12), st.integers(0, 8))
def test_ranks_do_not_depend_on_the_order_in_the_file(hosts: list[str], training: int, gpus: int) -> None:
    groups = {"gpus": hosts[:training], "judges": hosts[training:]}
    roles = {"train": "gpus", "judge": "judges"} if training < 12 else {"train": "gpus"}
    groups = {name: members for name, members in groups.items() if members}
    places = [find_topology(config(host, groups), roles, gpus) for host in MANY]
    train = [place for place in places if place.role == "train"]
    assert sorted(place.host_rank for place in train) == list(range(training))
    assert {place.main_host for place in places} == {next(place.host for place in train if place.host_rank == 0)}
    assert {place.processes for place in places} == {training * max(gpus, 1)}


@pytest.mark.parametrize(("variable", "processes"), [({}, 2), ({"GRPO_PROCESSES_PER_HOST": "3"}, 6)])
def test_a_variable_says_how_many_processes_a_host_without_gpus_has(
    variable: dict[str, str], processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resourceconfig.json"
    file.write_text(json.dumps(config("algo-1", {"cpus": ["algo-1", "algo-2"]})))
    monkeypatch.setattr(topology, "count_gpus", lambda: 0)
    assert read_topology(file, variable).processes == processes


@pytest.mark.parametrize("content", [None, "{"])
def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "resourceconfig.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError) as caught:
        read_topology(file, {})
    assert caught.value.kind == "no-resource-config" and str(file) in str(caught.value)


def test_the_assignments_are_safe_to_evaluate_in_a_shell(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    name = f"eth0'; touch {trap}; $(touch {trap}) `touch {trap}`"
    file = tmp_path / "resourceconfig.json"
    file.write_text(json.dumps(config("algo-1", ONE, network_interface_name=name)))
    code = f"import pathlib; from rlvr.sagemaker.container.topology import main; main(pathlib.Path({str(file)!r}))"
    shell = 'set -eu; place="$("$0" -c "$1")"; eval "$place"; printf %s "$GRPO_NETWORK_INTERFACE"'
    run = subprocess.run(
        ["bash", "-c", shell, sys.executable, code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert run.stdout == name
    assert not trap.exists()


def test_an_error_is_one_line_and_exit_code_2() -> None:
    run = subprocess.run(
        [sys.executable, "-S", "-m", "rlvr.sagemaker.container.topology"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and run.stdout == ""
    assert "/opt/ml/input/config/resourceconfig.json" in run.stderr and run.stderr.count("\n") == 1
