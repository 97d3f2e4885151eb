"""The table of machines: found by their usual names, with prices that belong together."""

from __future__ import annotations

import pytest

from rlvr.errors import InputError
from rlvr.estimates.machines import GPUS, INSTANCES, Machine, find_machine, this_machine

# Dollars an hour of the same machine at EC2, us-east-1, 2026-11-09.
EC2 = {"ml.p4d.24xlarge": 21.957642, "ml.p4de.24xlarge": 27.44705, "ml.p5.48xlarge": 55.04}


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
    with pytest.raises(InputError) as error:
        find_machine(name)
    assert error.value.kind == "unknown-machine" and hint in str(error.value), why


@pytest.mark.parametrize("name", EC2)
def test_sagemaker_prices_are_15_percent_above_those_of_ec2(name: str) -> None:
    assert INSTANCES[name].price == pytest.approx(EC2[name] * 1.15, abs=0.001)


def test_more_gpus_of_a_kind_never_cost_less() -> None:
    for gpu in GPUS.values():
        same = [one for one in INSTANCES.values() if one.gpu is gpu and one.price is not None]
        prices = {gpus: [one.price for one in same if one.gpus == gpus and one.price] for gpus in (1, 4, 8)}
        for fewer, more in ((1, 4), (4, 8)):
            if prices[fewer] and prices[more]:
                assert max(prices[fewer]) < min(prices[more]), gpu.name


@pytest.mark.parametrize(("processes", "machines"), [(1, 1), (8, 1), (9, 2), (16, 2)])
def test_machines_are_rented_whole(processes: int, machines: int) -> None:
    assert INSTANCES["ml.p4d.24xlarge"].needed(processes) == machines
    assert Machine("H100-80GB", GPUS["H100-80GB"]).needed(processes) == 1


def test_without_a_gpu_there_is_no_machine_to_estimate_for() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert this_machine() is None
