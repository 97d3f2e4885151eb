"""What vLLM can't do is found before training; `rollouts: auto` then takes transformers, and says why."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlvr import estimates
from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import earlier_engine
from rlvr.config.recipe import load_recipe
from rlvr.estimates.machines import find_machine
from rlvr.modeling import vllm_engines
from rlvr.preflight.components import RunComponents, TargetMachine
from rlvr.preflight.vllm_checks import check_vllm, choose_engine
from tests.support.run_components import make_components

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "recipes" / "demo-arithmetic.yaml"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that a version of vLLM is installed: what the checks read of it."""

    def write(version: str) -> None:
        (tmp_path / "vllm-0.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        (tmp_path / "vllm-0.dist-info" / "METADATA").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    return write


def problems(components: RunComponents) -> list[tuple[str, str | None]]:
    return [(problem.kind, problem.key) for problem in check_vllm(components)]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("0.21.4", "unsupported-version"),
        ("0.22.0", None),
        ("0.31.2+cu130", None),
        ("0.32.0", "unsupported-version"),
    ],
)
def test_trl_supports_a_range_of_versions(install: Any, version: str, kind: str | None) -> None:
    install(version)
    assert problems(make_components({"use_vllm": True})) == ([(kind, "use_vllm")] if kind else [])


def test_the_range_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["vllm"] == [f"vllm{vllm_engines.SUPPORTED}"]


@pytest.mark.parametrize(
    ("settings", "version", "gpu", "vllm", "named"),
    [
        ({}, "0.30.0", True, True, "vLLM is installed"),
        ({}, None, True, False, "not installed"),
        ({}, "0.33.0", True, False, "vLLM 0.33.0"),
        ({}, "0.30.0", False, False, "no GPU"),
        ({"use_cpu": True}, "0.30.0", True, False, "CPUs"),
        ({"load_in_4bit": True}, "0.30.0", True, True, "vLLM is installed"),
        ({"use_dora": True}, "0.30.0", True, False, "use_dora"),
        ({"vllm_gpu_memory_utilization": 0.01}, "0.30.0", True, False, "no room"),
    ],
)
def test_auto_takes_vllm_where_it_can(
    install: Any,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    version: str | None,
    gpu: bool,
    vllm: bool,
    named: str,
) -> None:
    if version is not None:
        install(version)
    monkeypatch.setattr(estimates, "this_machine", lambda: find_machine("L4-24GB") if gpu else None)
    components = make_components({"rollouts": "auto", **settings})
    took, why = choose_engine(components)
    assert took == vllm and named in why and not why.endswith(".")
    elsewhere = make_components({"rollouts": "auto", **settings}, target=TargetMachine(machine="L4-24GB"))
    assert choose_engine(elsewhere)[0] == (vllm or named == "no GPU"), "another machine has its own GPU"


@pytest.mark.parametrize("vllm", [True, False])
def test_a_continuation_keeps_the_engine_of_its_run(tmp_path: Path, vllm: bool) -> None:
    words = ["--rollouts", "auto", "--output_dir", str(tmp_path)]
    assert earlier_engine(load_recipe(DEMO, words)) is None, "nothing to continue"
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    recipe = load_recipe(DEMO, ["--use_vllm", str(vllm).lower()])
    identity = Identity(recipe.as_dict(), 1, "plain", "")
    checkpoints.mark_complete(folder, 3, identity)
    directory.write_status(tmp_path, "interrupted")
    earlier = earlier_engine(load_recipe(DEMO, words))
    assert earlier is vllm
    assert choose_engine(make_components({"rollouts": "auto"}), earlier)[0] is vllm
    other = Identity(load_recipe(DEMO, ["--rollouts", "transformers"]).as_dict(), 1, "plain", "")
    assert other.differences(identity) == (["use_vllm was True, now False"] if vllm else []), "another run"
