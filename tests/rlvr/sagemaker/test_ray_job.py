"""A job that really trains, with its rewards on a Ray cluster of its hosts, and what of such a job is known before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.sagemaker import reward_hosts, upload, validation
from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.service import TrainingService
from tests.support.sagemaker_emulator.submitting import DEMO, submit
from tests.support.short_runs import QUICK, steps

GPUS, CPUS = InstanceGroup("gpus", "ml.m5.xlarge", 1, "train"), InstanceGroup("cpus", "ml.m5.large", 1, "judge")
# Says where it was called: the service gave the group that judges the first number.
REWARD = """
import os, zlib

def whereabouts(prompts, completions, **kwargs):
    here = 10.0 if os.uname().nodename == "algo-1" else 0.0
    return [here + zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""


@pytest.mark.slow
@pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))
def test_a_job_with_a_group_that_judges_trains_on_rewards_that_ray_has_run_there(prefork: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "whereabouts.py").write_text(REWARD)
    rewards = json.dumps([{"name": str(tmp_path / "whereabouts.py"), "where": "ray"}])
    with TrainingService(prefork=prefork) as service:
        words = (*QUICK, "--max_steps", "2", "--rewards", rewards)
        job = submit(service, "ray", words, instance_groups=(GPUS, CPUS))
        assert job.wait()["TrainingJobStatus"] == "Completed", job.log()[-5000:]
        assert job.codes == [{"algo-1": 0, "algo-2": 0}]
        metrics = job.roots[1] / "model" / "metrics.jsonl"
        assert steps(metrics) == [1, 2], "one run, not one a host"
        found = [line["reward"] for line in map(json.loads, metrics.open()) if "reward" in line]
        assert all(10.0 <= reward < 11.0 for reward in found), found
        log = job.log()
        assert "All 2 hosts are in the Ray cluster: rewards run on the CPUs of those that judge." in log
        assert "whose CPUs scored for it" in log and "Serving on" not in log
        assert "Traceback" not in log and "RAY_AUTH" not in log


# ----------------------------------------------------------------------------------------------------------------------
# Before it is one


def recipe(*places: str) -> Recipe:
    """The demonstration with its rewards in these places, in their order."""
    names = ("math_correctness", "answer_format")
    return load_recipe(
        DEMO, [word for name, place in zip(names, places, strict=False) for word in (f"--rewards.{name}.where", place)]
    )


def settings(*groups: InstanceGroup) -> SageMakerSettings:
    return SageMakerSettings(instance_groups=groups, region="us-east-1", role="arn:aws:iam::111122223333:role/x")


ROLLOUT = InstanceGroup("servers", "ml.g6e.xlarge", 1, "rollout")


@pytest.mark.parametrize(
    ("places", "groups", "words", "why"),
    [
        (("ray", "ray"), (GPUS, CPUS), None, "what it is for"),
        (("ray",), (GPUS,), None, "the hosts that train are a cluster by themselves"),
        (("ray://head:10001",), (GPUS,), None, "a cluster of somebody's own"),
        (("http://judge:8000",), (GPUS, CPUS), None, "reward servers"),
        ((), (GPUS,), None, "rewards beside each training process"),
        (("http://judge:8000",), (GPUS,), "no instance group has the role judge: add one", "it would wait for ever"),
        (("http://judge:8000", "ray"), (GPUS, CPUS), "give all of them the same where", "a host can't be both"),
        ((), (GPUS, CPUS), "The group cpus has the role judge, but no reward runs there", "paid for nothing"),
        (("ray://head:10001",), (GPUS, CPUS), "The group cpus has the role judge, but no reward runs there",
         "a client of another cluster doesn't make one"),
        ((), (GPUS, ROLLOUT), "The group servers has the role rollout, for which there is no program", "none yet"),
    ],
)  # fmt: skip
def test_what_of_places_and_groups_cant_work_is_said_before_anything_is_sent(
    places: tuple[str, ...], groups: tuple[InstanceGroup, ...], words: str | None, why: str
) -> None:
    found = validation.settings_faults(recipe(*places), settings(*groups))
    assert [words is not None and words in fault for fault in found] == ([] if words is None else [True]), (why, found)


def test_a_plan_says_which_hosts_are_the_cluster_and_whose_cpus_it_uses() -> None:
    with_judges = reward_hosts.place_line(recipe("ray"), settings(GPUS, CPUS))
    alone = reward_hosts.place_line(recipe("ray"), settings(GPUS))
    assert with_judges and "2 hosts as one cluster" in with_judges and "the CPUs of the 1 host of cpus" in with_judges
    assert alone and "1 host as one cluster" in alone and "the CPUs of the hosts that train" in alone
    assert reward_hosts.place_line(recipe(), settings(GPUS)) is None


@pytest.mark.parametrize(
    ("place", "installed", "why"),
    [
        ("ray", True, "the job's own cluster"),
        ("ray://head:10001", True, "a client of another"),
        ("local", False, "who doesn't use it doesn't wait for its installation"),
        ("http://judge:8000", False, "reward servers are no Ray"),
    ],
)
def test_ray_is_installed_in_a_job_only_where_its_recipe_needs_it(
    place: str, installed: bool, why: str, tmp_path: Path
) -> None:
    parcel = upload.pack(recipe(place), {}, tmp_path)
    assert not parcel.faults
    assert ("ray[default]" in (parcel.code / "requirements.txt").read_text()) == installed, why
    assert "\nray==" in (parcel.code / "job-constraints.txt").read_text(), "if it is, at the version that is tested"
