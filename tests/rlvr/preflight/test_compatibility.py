"""Installed versions that this project does not support, and what push_to_hub lacks."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import constants

from rlvr.config.recipe import load_recipe
from rlvr.preflight.compatibility import check_publishing, check_versions
from rlvr.preflight.components import RunComponents, TargetMachine
from tests.conftest import REPOSITORY
from tests.support.run_components import only


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
