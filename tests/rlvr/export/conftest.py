"""A hub for this process, and a finished run with weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session, constants

from rlvr.artifacts.directory import write_json
from rlvr.artifacts.export_record import ExportRecord, Remeasurement, digest_files
from rlvr.artifacts.result_record import ResultRecord
from rlvr.export.publish import Publication, prepare
from tests.support.hub_server import TOKEN, HubServer, served
from tests.support.report_runs import write_run


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with served() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
        close_session()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_finished_run(tmp_path / "my-run")


@pytest.fixture(scope="module")
def publication(tmp_path_factory: pytest.TempPathFactory) -> Publication:
    """That of such a run, which must not be changed."""
    return prepare(write_finished_run(tmp_path_factory.mktemp("runs") / "my-run"), "acme/my-model")


def write_export(folder: Path, run: Path, kind: str) -> Path:
    """Record a folder of weights as an export of a run, with the fields that a publication reads."""
    result = ResultRecord(**{**_unset(ResultRecord), "recipe": run.name})
    result.write(run / "result.json")
    files, figures = digest_files(folder), {"correct": 7, "rows": 9}
    part = {
        "file": next((name for name in files if name.endswith(".gguf")), ""),
        "rows": 9,
        "same_answers": 9,
        "loaded": {"program": "a program", "dtype": "float32"},
        "before": figures,
        "after": figures,
        "difference": {"points": 0.0, "p_value": 1.0},
        "faults": (),
    }
    measured = [Remeasurement(**{**_unset(Remeasurement), **part})]
    facts = {"kind": kind, "run": run.name, "result": result.digest, "dtype": "float32", "files": files}
    ExportRecord(**{**_unset(ExportRecord), **facts, "measured": measured}).write(folder)
    return folder


def _unset(record: Any) -> dict[str, Any]:
    return dict.fromkeys(field.name for field in fields(record))


def write_finished_run(folder: Path) -> Path:
    """A finished run of an adapter, whose base is on the hub."""
    write_run(folder, base=[False] * 9, trained=[True] * 7 + [False] * 2)
    recipe = (folder / "recipe.yaml").read_text()
    recipe = recipe.replace("models/tiny\n", f"acme/tiny\noutput_dir: {folder}\n")
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    adapter = folder / "adapter"
    adapter.mkdir()
    write_json(adapter / "adapter_config.json", {"base_model_name_or_path": "acme/tiny", "r": 8})
    (adapter / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 40)
    (adapter / "training_args.bin").write_bytes(b"a pickle")
    return folder
