"""A job with its rewards on a Ray cluster of its hosts: its problems before it runs. test_commands.py runs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.sagemaker import upload, validation
from tests.support.sagemaker_emulator.submission import DEMO

GPUS, CPUS = InstanceGroup("gpus", "ml.m5.xlarge", 1, "train"), InstanceGroup("cpus", "ml.m5.large", 1, "judge")


def recipe(*places: str) -> Recipe:
    """The demonstration with its rewards in these places, in their order."""
    names = ("math_correctness", "answer_format")
    return load_recipe(
        DEMO, [word for name, place in zip(names, places, strict=False) for word in (f"--rewards.{name}.where", place)]
    )


def settings(*groups: InstanceGroup) -> SageMakerSettings:
    return SageMakerSettings(instance_groups=groups, region="us-east-1", role="arn:aws:iam::111122223333:role/x")


@pytest.mark.parametrize(
    ("places", "groups", "kind", "why"),
    [
        (("ray", "ray"), (GPUS, CPUS), None, "what it is for"),
        (("ray",), (GPUS,), None, "the hosts that train are a cluster by themselves"),
        (("ray://head:10001",), (GPUS,), None, "another cluster"),
        (("http://judge:8000",), (GPUS, CPUS), None, "reward servers"),
        ((), (GPUS,), None, "rewards beside each training process"),
        (("http://judge:8000",), (GPUS,), "missing-judge-group", "it would wait forever"),
        (("http://judge:8000", "ray"), (GPUS, CPUS), "mixed-reward-hosts", "a host can't be both"),
        (("http://judge:9000",), (GPUS, CPUS), "invalid-address", "the hosts serve at 8000"),
        (("http://127.0.0.1:8000",), (GPUS,), "unreachable-address", "the training host serves nothing"),
        (("http://rewards.example:8000,http://localhost:8000",), (GPUS,), "unreachable-address", "one of several"),
        ((), (GPUS, CPUS), "idle-hosts", "billed for nothing"),
        (("ray://head:10001",), (GPUS, CPUS), "idle-hosts", "a client of another cluster doesn't make one"),
    ],
)
def test_contradictions_between_rewards_and_instance_groups_are_problems(
    places: tuple[str, ...], groups: tuple[InstanceGroup, ...], kind: str | None, why: str
) -> None:
    problems = validation.settings_problems(recipe(*places), settings(*groups))
    assert [problem.kind for problem in problems] == ([] if kind is None else [kind]), (why, problems)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "installed", "why"),
    [
        ("ray", True, "the job's own cluster"),
        ("ray://head:10001", True, "a client of another"),
        ("local", False, "its installation takes time"),
        ("http://judge:8000", False, "reward servers are no Ray"),
    ],
)
def test_ray_is_installed_only_if_the_recipe_needs_it(place: str, installed: bool, why: str, tmp_path: Path) -> None:
    files = upload.collect_files(recipe(place), {}, tmp_path)
    assert not files.problems
    assert ("ray[default]" in (files.code / "requirements.txt").read_text()) == installed, why
    assert "\nray==" in (files.code / "job-constraints.txt").read_text(), "if it is, at the version that is tested"
