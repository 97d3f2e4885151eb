"""The `sagemaker:` section is strict like the other sections, and not part of a run's identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.errors import InputError
from tests.support.cases import cases
from tests.support.input_errors import input_error

DEMO = Path(__file__).resolve().parents[3] / "recipes" / "demo-arithmetic.yaml"


def settings_of(*words: str) -> SageMakerSettings:
    found = load_recipe(DEMO, words).sagemaker
    assert found is not None
    return found


def test_a_recipe_without_the_section_has_none() -> None:
    assert load_recipe(DEMO).sagemaker is None


@pytest.mark.parametrize("words", ['["API_KEY=hunter2hunter2"]', "{API_KEY: null, OTHER: hunter2hunter2}"])
def test_a_wrong_environment_is_refused_without_its_values(words: str) -> None:
    with pytest.raises(InputError) as error:
        settings_of("--sagemaker.environment", words)
    assert error.value.kind == "wrong-type" and "hunter2" not in str(error.value)


def test_every_kind_of_value_reaches_its_field() -> None:
    values = {
        "volume_gb": 100,
        "role": "arn:aws:iam::111122223333:role/x",
        "spot": "true",
        "tags.team": "nlp",
        "environment.MLFLOW_TAGS": '{"team": "nlp"}',
        "environment.NCCL_IB_DISABLE": "1",
        "channels.train": "s3://b/t",
        "subnets": "[s]",
    }
    found = settings_of(*(f"--sagemaker.{key}={value}" for key, value in values.items()))
    assert found == SageMakerSettings(
        volume_gb=100,
        role="arn:aws:iam::111122223333:role/x",
        spot=True,
        tags={"team": "nlp"},
        environment={"MLFLOW_TAGS": '{"team": "nlp"}', "NCCL_IB_DISABLE": "1"},
        channels={"train": "s3://b/t"},
        subnets=("s",),
    )


def test_groups_are_read_with_their_roles() -> None:
    found = settings_of(
        "--sagemaker.instance_groups",
        "[{name: gpus, instance_type: ml.g6e.12xlarge, instance_count: 2}, "
        "{name: judges, instance_type: ml.c5.4xlarge, role: judge}]",
    )
    assert found.groups == (
        InstanceGroup("gpus", "ml.g6e.12xlarge", 2, "train"),
        InstanceGroup("judges", "ml.c5.4xlarge", 1, "judge"),
    )
    assert found.train_group == found.groups[0]


def test_the_section_is_not_part_of_the_runs_identity() -> None:
    """So a run can resume on another instance type."""
    one = load_recipe(DEMO, ["--sagemaker.instance_type", "ml.g5.xlarge"])
    assert one.as_dict() == load_recipe(DEMO).as_dict()


@pytest.mark.parametrize(("words", "kind", "key", "why"), cases(__file__, "faulty"))
def test_a_faulty_section_is_refused_with_the_key(words: list[str], kind: str, key: str, why: str) -> None:
    with input_error(kind, f"sagemaker.{key}".rstrip("."), why=why):
        load_recipe(DEMO, words)


def test_a_problem_in_the_file_has_the_line_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(DEMO.read_text() + "\nsagemaker:\n  instnce_type: ml.g5.xlarge\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    [problem] = caught.value.problems
    assert problem.line == path.read_text().splitlines().index("sagemaker:") + 2
    assert problem.suggestion == "instance_type"


def test_waiting_for_spot_lasts_longer_than_running() -> None:
    assert SageMakerSettings().wait_s is None
    spot = SageMakerSettings(spot=True)
    assert spot.wait_s is not None and spot.wait_s > spot.max_runtime_s
    assert SageMakerSettings(spot=True, max_wait_s=99999).wait_s == 99999


def test_two_descriptions_of_the_hosts_are_refused_with_the_override_that_removes_one(tmp_path: Path) -> None:
    recipe = tmp_path / "demo.yaml"
    section = "\nsagemaker: {instance_type: ml.g5.xlarge, instance_count: 2}\n"
    recipe.write_text(DEMO.read_text(encoding="utf-8") + section, encoding="utf-8")
    groups = ["--sagemaker.instance_groups", "[{name: gpus, instance_type: ml.g6e.12xlarge}]"]
    with pytest.raises(InputError) as caught:
        load_recipe(recipe, groups)
    away = "--sagemaker.instance_type null --sagemaker.instance_count null"
    assert away in str(caught.value) and "--sagemaker.instance_groups null" in str(caught.value)
    for words, types in (
        (away.split(), ["ml.g6e.12xlarge"]),
        (["--sagemaker.instance_groups", "null"], ["ml.g5.xlarge"]),
    ):
        found = load_recipe(recipe, [*(groups if away.split() == words else []), *words]).sagemaker
        assert found is not None and [group.instance_type for group in found.groups] == types
