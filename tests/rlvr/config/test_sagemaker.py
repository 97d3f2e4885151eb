"""The `sagemaker:` section: strict like the other sections, and no part of what a run is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.errors import InputError

DEMO = Path(__file__).resolve().parents[3] / "recipes" / "demo-arithmetic.yaml"


def settings_of(*words: str) -> SageMakerSettings:
    found = load_recipe(DEMO, words).sagemaker
    assert found is not None
    return found


def test_a_recipe_without_the_section_has_none() -> None:
    assert load_recipe(DEMO).sagemaker is None


def test_every_key_reaches_its_field() -> None:
    values = {
        "instance_type": "ml.g6e.12xlarge", "instance_count": 2, "volume_gb": 100, "launcher": "zero2",
        "image": "pytorch-amzn2023:2.14", "spot": True, "max_runtime_s": 3600, "max_wait_s": 7200, "keep_alive_s": 60,
        "role": "arn:aws:iam::111122223333:role/x", "region": "eu-west-1", "bucket": "b", "prefix": "p",
        "output": "s3://b/o", "checkpoints": "s3://b/c", "retries": 2, "hf_token_secret_arn": "arn:aws:s",
        "mlflow_tracking_uri": "arn:aws:m", "mlflow_experiment": "e", "job_name": "j",
    }  # fmt: skip
    words = [word for key, value in values.items() for word in (f"--sagemaker.{key}", str(value).lower())]
    words[words.index("--sagemaker.role") + 1] = values["role"]  # type: ignore[call-overload]
    found = settings_of(
        *words, "--sagemaker.tags.team", "nlp", "--sagemaker.subnets", "[s]", "--sagemaker.security_groups", "[g]"
    )
    rest = {"instance_groups": (), "tags": {"team": "nlp"}, "subnets": ("s",), "security_groups": ("g",)}
    assert dataclasses.asdict(found) == {**values, **rest}


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


def test_the_section_is_no_part_of_what_a_run_is() -> None:
    """Else a checkpoint could not be continued on another instance type."""
    one = load_recipe(DEMO, ["--sagemaker.instance_type", "ml.g5.xlarge"])
    assert one.as_dict() == load_recipe(DEMO).as_dict()


@pytest.mark.parametrize(
    ("words", "said", "why"),
    [
        (["--sagemaker.instance_typ", "x"], "instance_typ is not a key; did you mean instance_type?", "a typo"),
        (["--sagemaker.zzz", "1"], "zzz is not a key.", "nothing is near it"),
        (["--sagemaker.spot", "maybe"], "spot is text ('maybe'), but should be true or false.", "a type"),
        (["--sagemaker.instance_count", "0"], "instance_count is 0, but should be at least 1.", "no hosts"),
        (["--sagemaker.instance_count", "1.5"], "should be a whole number", "half a host"),
        (["--sagemaker.keep_alive_s", "-1"], "keep_alive_s is -1, but should be at least 0.", "negative time"),
        (["--sagemaker.role", '""'], "role is empty text", "a notebook's variable that was never set"),
        (["--sagemaker.subnets", "subnet-1"], "but should be a list, like [subnet-0123].", "one, not in a list"),
        (["--sagemaker.tags", "[a]"], "should be a mapping of names to values", "tags as a list"),
        (["--sagemaker", "x"], "must be a mapping", "the section as text"),
        (["--sagemaker.instance_groups", "[]"], "should be a list with one entry a group", "no groups"),
        (["--sagemaker.instance_groups", "[{name: a}]"], "should have a name and an instance_type", "half a group"),
        (
            ["--sagemaker.instance_groups", "[{name: a, instance_type: t, rol: judge}]"],
            "rol is not a key; did you mean role?",
            "a typo within a group",
        ),
        (
            ["--sagemaker.instance_groups", "[{name: a, instance_type: t, role: chef}]"],
            "role is 'chef', but should be train, judge or rollout.",
            "a role that there isn't",
        ),
        (
            ["--sagemaker.instance_groups", "[{name: a, instance_type: t, role: judge}]"],
            "0 groups have the role train, but exactly one must.",
            "nobody trains",
        ),
        (
            ["--sagemaker.instance_groups", "[{name: a, instance_type: t}, {name: a, instance_type: t, role: judge}]"],
            "two groups are called a.",
            "hosts could not tell which they are of",
        ),
        (
            ["--sagemaker.instance_type", "t", "--sagemaker.instance_groups", "[{name: a, instance_type: t}]"],
            "instance_groups together with instance_type",
            "the service takes one of the two",
        ),
    ],
)
def test_a_fault_is_said_with_the_way_out(words: list[str], said: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(DEMO, words)
    assert said in str(caught.value), why


def test_a_fault_in_the_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(DEMO.read_text() + "\nsagemaker:\n  instnce_type: ml.g5.xlarge\n", encoding="utf-8")
    line = path.read_text().splitlines().index("sagemaker:") + 1
    with pytest.raises(InputError, match=f"line {line}: sagemaker: instnce_type is not a key"):
        load_recipe(path)


def test_waiting_for_spot_lasts_longer_than_running() -> None:
    assert SageMakerSettings().wait_s is None
    spot = SageMakerSettings(spot=True)
    assert spot.wait_s is not None and spot.wait_s > spot.max_runtime_s
    assert SageMakerSettings(spot=True, max_wait_s=99999).wait_s == 99999


def test_hosts_of_both_kinds_are_refused_with_the_words_that_take_one_away(tmp_path: Path) -> None:
    recipe = tmp_path / "demo.yaml"
    section = "\nsagemaker: {instance_type: ml.g5.xlarge, instance_count: 2}\n"
    recipe.write_text(DEMO.read_text(encoding="utf-8") + section, encoding="utf-8")
    groups = ["--sagemaker.instance_groups", "[{name: gpus, instance_type: ml.g6e.12xlarge}]"]
    with pytest.raises(InputError, match="instance_groups together with") as caught:
        load_recipe(recipe, groups)
    away = "--sagemaker.instance_type null --sagemaker.instance_count null"
    assert away in str(caught.value) and "--sagemaker.instance_groups null" in str(caught.value)
    for words, types in (
        (away.split(), ["ml.g6e.12xlarge"]),
        (["--sagemaker.instance_groups", "null"], ["ml.g5.xlarge"]),
    ):
        found = load_recipe(recipe, [*(groups if away.split() == words else []), *words]).sagemaker
        assert found is not None and [group.instance_type for group in found.groups] == types
