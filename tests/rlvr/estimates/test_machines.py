"""The table of machines: found by their usual names, and rented whole."""

from __future__ import annotations

import pytest

from rlvr.estimates.machines import GPUS, INSTANCES, Machine, find_machine, this_machine
from tests.support.input_errors import input_error


@pytest.mark.parametrize(
    ("name", "found", "gpus", "why"),
    [
        ("ml.p4d.24xlarge", "ml.p4d.24xlarge", 8, "as SageMaker writes it"),
        ("p5.48xlarge", "ml.p5.48xlarge", 8, "as EC2 writes it"),
        ("H100-80GB", "H100-80GB", 0, "a GPU"),
        ("h100", "H100-80GB", 0, "the GPU of which there is one size"),
        ("a10g", "A10G-24GB", 0, "in small letters"),
    ],
)
def test_machines_are_found_by_name(name: str, found: str, gpus: int, why: str) -> None:
    machine = find_machine(name)
    assert (machine.name, machine.gpus) == (found, gpus), why


@pytest.mark.parametrize(
    ("name", "hint", "why"),
    [
        ("ml.p5.24xlarge", "ml.p5.48xlarge", "a size that doesn't exist"),
        ("A100", "A100-40GB, A100-80GB", "two sizes"),
        ("TPU", "H100-80GB", "nothing near: what there is"),
    ],
)
def test_an_unknown_machine_is_an_input_error_with_similar_names(name: str, hint: str, why: str) -> None:
    with input_error("unknown-machine", match=hint, why=why):
        find_machine(name)


@pytest.mark.parametrize(("processes", "machines"), [(1, 1), (8, 1), (9, 2), (16, 2)])
def test_machines_are_rented_whole(processes: int, machines: int) -> None:
    assert INSTANCES["ml.p4d.24xlarge"].needed(processes) == machines
    assert Machine("H100-80GB", GPUS["H100-80GB"]).needed(processes) == 1


def test_without_a_gpu_there_is_no_machine_to_estimate_for() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert this_machine() is None
