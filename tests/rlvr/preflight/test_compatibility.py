"""Installed versions that this project does not support, and what push_to_hub lacks."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

from rlvr.config.recipe import load_recipe
from rlvr.preflight.compatibility import check_precision, check_publishing, check_versions
from rlvr.preflight.components import RunComponents, TargetMachine
from rlvr.training.launch import as_launched
from tests.conftest import REPOSITORY
from tests.support.run_components import make_components, only


@pytest.mark.parametrize(
    ("name", "version", "kind", "named"),
    [
        ("trl", "1.17.0", "unsupported-version", "<1.17,>=1.16"),
        ("transformers", "5.5.0", "unsupported-version", "this project supports"),
        ("deepspeed", "0.18.5", "unsupported-version", "this project supports"),
        ("peft", "", "package-not-installed", "pip install"),
    ],
)
def test_unsupported_versions_are_refused(name: str, version: str, kind: str, named: str) -> None:
    def installed(package: str) -> str:
        if package == name and not version:
            raise metadata.PackageNotFoundError(package)
        return version if package == name else metadata.version(package)

    assert list(check_versions(None)) == []
    problem = only(check_versions(None, installed))
    assert (problem.kind, problem.key) == (kind, name) and named in problem.message


DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
PUSH = ["--push_to_hub", "true"]
NAMED = [*PUSH, "--hub_model_id", "acme/x"]


@pytest.mark.parametrize(
    ("words", "token", "offline", "machine", "found"),
    [
        pytest.param([], None, True, None, [], id="no push"),
        pytest.param(NAMED, "hf_x", False, None, [], id="all is there"),
        pytest.param(PUSH, "hf_x", False, None, [("missing-key", "hub_model_id")], id="no name"),
        pytest.param(
            [*PUSH, "--hub_model_id", "a/b/c"],
            "hf_x",
            False,
            None,
            [("invalid-repository", "hub_model_id")],
            id="a name that the hub does not take",
        ),
        pytest.param(NAMED, None, False, None, [("hub-token-missing", "push_to_hub")], id="no token"),
        pytest.param(NAMED, "hf_x", True, None, [("hub-offline", "push_to_hub")], id="offline"),
        pytest.param(NAMED, None, True, "H100", [], id="another machine, of which nothing is known"),
    ],
)
def test_what_push_to_hub_lacks_is_found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    token: str | None,
    offline: bool,
    machine: str | None,
    found: list[tuple[str, str]],
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    components = RunComponents(load_recipe(DEMO, words), TargetMachine(machine=machine))
    assert [(problem.kind, problem.key) for problem in check_publishing(components)] == found


FULL = {"use_peft": False, "dtype": "bfloat16", "learning_rate": 1e-6}


@pytest.mark.parametrize(
    ("settings", "launcher", "warns", "why"),
    [
        (FULL, None, True, "a usual rate"),
        (FULL | {"use_cpu": True}, None, True, "CPUs round, too"),
        (FULL | {"learning_rate": 2.9e-5}, "fsdp2", True, "FSDP shards the weights as they are"),
        (FULL | {"dtype": "auto"}, None, True, "the type of the model"),
        ({"use_peft": False, "dtype": "bfloat16"}, None, True, "the default rate"),
        (FULL | {"learning_rate": 3e-5}, None, False, "a high rate"),
        (FULL | {"dtype": "float32"}, None, False, "small steps between weights"),
        (FULL | {"use_peft": True}, None, False, "an adapter is float32"),
        (FULL, "zero2_offload", False, "DeepSpeed keeps float32 weights"),
    ],
)
def test_updates_that_bfloat16_weights_round_away_are_a_warning(
    settings: dict[str, Any], launcher: str | None, warns: bool, why: str
) -> None:
    components = make_components(settings)
    components.config.dtype = torch.bfloat16
    with as_launched(launcher):
        found = [(problem.kind, problem.level) for problem in check_precision(components)]
    assert found == [("rounded-updates", "warning")] * warns, why


@pytest.mark.parametrize(
    ("settings", "has_bf16", "machine", "warns", "why"),
    [
        ({}, False, None, True, "TRL's default"),
        ({"bf16": False, "dtype": "bfloat16"}, False, None, True, "the weights"),
        ({"fp16": True, "dtype": "float16"}, False, None, False, "float16"),
        ({"bf16": False, "dtype": "float32"}, False, None, False, "float32"),
        ({"use_cpu": True}, False, None, False, "on the CPU"),
        ({}, True, None, False, "a newer GPU"),
        ({}, False, "H100", False, "another machine"),
    ],
)
def test_a_gpu_that_emulates_bfloat16_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    has_bf16: bool,
    machine: str | None,
    warns: bool,
    why: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or has_bf16
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    components = make_components(settings, target=TargetMachine(1, machine) if machine else None)
    found = [(problem.kind, problem.level) for problem in check_precision(components)]
    assert found == [("emulated-bf16", "warning")] * warns, why
