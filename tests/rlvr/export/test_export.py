"""scripts/export.py writes what answers as its run did, refuses what doesn't, and leaves nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from rlvr.artifacts import directory, result_record
from rlvr.artifacts.export_record import read_export
from rlvr.artifacts.finished_run import open_run
from rlvr.config.recipe import load_recipe
from rlvr.config.recipe_writer import write_recipe
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.evaluation_file import describe_evaluation, write_evaluation
from rlvr.evaluation.measured import greedy_decoding, held_out_rows
from rlvr.export import export as exporting
from rlvr.export.merged import write_merged
from rlvr.export.remeasure import Limits, compare_answers, open_held_out, remeasure_folder
from rlvr.modeling import loading
from rlvr.scoring.metric_choice import choose_metrics, rewards_to_run
from rlvr.scoring.registry import load_rewards, load_task
from rlvr.scoring.scorer import Scorer
from scripts.export import main
from tests.conftest import REPOSITORY, TINY_MODEL

ROWS = 40
pytestmark = pytest.mark.slow  # all of them share one run


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `base` and `run`: a QLoRA run as run_grpo.py leaves it, whose adapter is random and not trained."""
    folder = tmp_path_factory.mktemp("exports")
    shutil.copytree(TINY_MODEL, folder / "base")
    run = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--output_dir", "run", "--model_name_or_path", "./base", "--evaluation.rows", str(ROWS)]
        recipe = load_recipe(REPOSITORY / "recipes" / "demo-arithmetic.yaml", words)
        tokenizer = loading.load_tokenizer(recipe, chat=True)
        torch.manual_seed(0)
        peft = get_peft_model(loading.load_model(recipe, tokenizer), LoraConfig(r=8, target_modules="all-linear"))
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.15)
        peft.save_pretrained(run / "adapter")
        tokenizer.save_pretrained(run / "adapter")
        write_recipe(recipe, run / "recipe.yaml")
        task, rewards = load_task(recipe.tasks[0]), load_rewards(recipe.rewards)
        metrics = choose_metrics(recipe, rewards)
        with Scorer(rewards_to_run(rewards, metrics), timeout_s=60, batch_timeout_s=60, rank=0) as scorer:
            measured = (recipe, tokenizer, task, rewards, metrics, scorer)
            model = EvaluatedModel(*measured, "trained", run, adapter=run / "adapter")
            result = model.measure(greedy_decoding(task, recipe), "after")
        about = describe_evaluation(recipe, metrics, held_out_rows(task, recipe))
        write_evaluation(run, about, {"trained": result})
        finish(run, "adapter")
    return folder


def finish(run: Path, trained: str) -> None:
    directory.write_json(run / "versions.json", directory.versions())
    directory.write_status(run, "done", identity={"rows": "digest of the training rows"})
    result_record.record_run(run, load_recipe(run / "recipe.yaml"), trained=trained)


@pytest.fixture
def here(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the workspace, as the working directory."""
    shutil.copytree(workspace, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def merged(workspace: Path) -> Path:
    """The merged model of the run, written once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace)
        folder = workspace.parent / "merged"
        folder.mkdir(exist_ok=True)
        write_merged(open_run(workspace / "run"), folder, "float32")
    return folder


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


# ----------------------------------------------------------------------------------------------------------------------
# What is written


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to", "merged"), {"model.safetensors", "chat_template.jinja", "generation_config.json", "tokenizer.json"}),
        (("--to", "gguf", "--quantization", "q8_0", "--allow_worse"), {"run-q8_0.gguf"}),
        (("--to", "gguf", "--allow_worse"), {"run-float32.gguf"}),
        (("--to", "adapter"), {"adapter_model.safetensors", "adapter_config.json", "chat_template.jinja"}),
    ],
)
def test_an_export_answers_as_its_run_did(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: set[str]
) -> None:
    assert main(["run", *words, "--out", "exports/new", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    record = read_export(here / "exports" / "new")
    assert printed == json.loads(json.dumps(record.as_dict())) and expected <= set(record.files)
    part = record.measured[0]
    assert part.rows == part.same_prompts == ROWS
    # This adapter is random, and its answers often near a tie: another program may round one the other way.
    least = {"gguf": 0.9, "q8_0": 0.6}
    assert part.same_answers >= min([1.0, *(share for word, share in least.items() if word in words)]) * ROWS
    assert record.result == result_record.read_record(here / "run").digest
    if "merged" in words:
        assert "lm_head.weight" not in load_file(here / "exports/new/model.safetensors"), "tied: written once"
    if "adapter" in words:
        config = json.loads((here / "exports/new/adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == "base" and record.base["only_local"]
        assert [part.loaded.get("load_in_4bit", False) for part in record.measured] == [True, False]


def test_a_run_of_all_weights_is_copied(here: Path, merged: Path) -> None:
    text = (here / "run/recipe.yaml").read_text()
    for key in ("use_peft", "load_in_4bit", "use_bnb_nested_quant"):
        text = text.replace(f"{key}: true", f"{key}: false")
    (here / "run/recipe.yaml").write_text(text)
    shutil.copytree(merged, here / "run/model")
    finish(here / "run", "model")
    assert main(["run", "--to", "merged", "--out", "new", "--rows", "8"]) == 0
    assert (here / "new/model.safetensors").read_bytes() == (merged / "model.safetensors").read_bytes()
    assert main(["run", "--to", "adapter", "--out", "adapter"]) == 2


# ----------------------------------------------------------------------------------------------------------------------
# What is worse


def tampered(merged: Path, folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy of the merged model after `change(weights, those of the dequantised base)`."""
    shutil.copytree(merged, folder)
    weights = load_file(folder / "model.safetensors")
    recipe = load_recipe("run/recipe.yaml")
    base = loading.load_model(recipe, loading.load_tokenizer(recipe, chat=True)).dequantize(torch.float32)
    change(weights, base.state_dict())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def scale_the_adapter(weights: dict[str, Any], base: dict[str, Any]) -> None:
    weights.update({name: base[name] + 1.2 * (weight - base[name]) for name, weight in weights.items()})


def drop_a_module(weights: dict[str, Any], base: dict[str, Any]) -> None:
    name = "model.layers.0.mlp.gate_proj.weight"
    weights[name] = base[name].clone()


def change_the_base(weights: dict[str, Any], base: dict[str, Any]) -> None:
    other = load_file(REPOSITORY / "models" / "tiny-programs" / "model.safetensors")
    weights.update({name: weight - base[name] + other[name] for name, weight in weights.items()})


@pytest.mark.parametrize("change", [scale_the_adapter, drop_a_module, change_the_base])
def test_wrong_weights_are_found(
    here: Path, merged: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    folder = tampered(merged, here / "tampered", change)
    with open_held_out(open_run(here / "run"), None) as held:
        assert not remeasure_folder(held, merged).faults
        assert remeasure_folder(held, folder).faults


def test_another_template_is_refused_and_kept_only_if_the_user_says_so(
    here: Path, merged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(run: Any, folder: Path, dtype: str) -> None:
        shutil.copytree(merged, folder, dirs_exist_ok=True)
        template = folder / "chat_template.jinja"
        template.write_text("<|im_start|>system\nCompute.<|im_end|>\n" + template.read_text())

    monkeypatch.setattr(exporting, "write_merged", write)
    before = entries(here)
    words = ["run", "--to", "merged", "--rows", "8", "--out", "exports/new"]
    assert main(words) == 1 and entries(here) == before
    assert main([*words, "--allow_worse"]) == 0
    part = read_export(here / "exports/new").measured[0]
    assert part.same_prompts == 0 and part.faults


def test_only_what_chance_does_not_explain_is_worse() -> None:
    def faults(
        before: str, after: str, least: float = 0.0, same_prompts: int | None = None, shift: float | None = None
    ) -> int:
        records = [[{"completion": mark, "correct": mark in "Rr"} for mark in marks] for marks in (before, after)]
        return len(compare_answers(*records, "", {}, Limits(least, 0.1), same_prompts, shift).faults)

    assert faults("R" * 20, "W" * 5 + "R" * 15) == 0, "p = 0.06"
    assert faults("R" * 20, "W" * 6 + "R" * 14) == 1, "p = 0.03"
    assert faults("W" * 20, "R" * 6 + "W" * 14) == 0, "better"
    assert faults("R" * 20, "r" + "R" * 19, least=0.96) == 1, "right, with another text"
    assert faults("R" * 20, "r" + "R" * 19, least=0.95) == 0
    assert faults("R" * 20, "R" * 20, same_prompts=19) == 1
    assert faults("R" * 20, "R" * 20, shift=0.09) == 0
    assert faults("R" * 20, "R" * 20, shift=0.11) == 1


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def remove_evaluation(run: Path) -> None:
    (run / "evaluation.json").unlink()
    finish(run, "adapter")


def measured_with(key: str, value: Any) -> Callable[[Path], None]:
    """The run was judged by something else than the export would be."""

    def change(run: Path) -> None:
        content = json.loads((run / "evaluation.json").read_text())
        directory.write_json(run / "evaluation.json", {**content, key: value})
        result_record.record_run(run, load_recipe(run / "recipe.yaml"), trained="adapter")

    return change


def append(file: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        with (run / file).open("a") as opened:
            opened.write("\n")

    return change


def nothing(run: Path) -> None:
    """The run is as it was."""


@pytest.mark.parametrize(
    ("prepare", "words", "kind"),
    [
        (lambda run: directory.write_status(run, "interrupted"), (), "run-not-finished"),
        (remove_evaluation, (), "not-measured"),
        (append("adapter/adapter_config.json"), (), "hash-mismatch"),
        (append("../base/config.json"), (), "base-mismatch"),
        (measured_with("rows_digest", "other golds"), (), "rows-changed"),
        (measured_with("verifier", {"math_correctness": {}}), (), "verifier-changed"),
        (lambda run: run.with_name("base").rename(run.with_name("other")), (), "model-not-found"),
        (shutil.rmtree, (), "no-record"),
        (nothing, ("--out", "base"), "would-overwrite"),
        (nothing, ("--quantization", "q8_0"), "conflicting-keys"),
        (nothing, ("--to", "adapter", "--dtype", "bfloat16"), "conflicting-keys"),
        (nothing, ("--to", "gguf", "--quantization", "q9"), "invalid-flag"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path], Any],
    words: tuple[str, ...],
    kind: str,
) -> None:
    prepare(here / "run")
    before = entries(here)
    assert main(["run", "--to", "merged", "--out", "new", "--json", *words]) == 2
    assert json.loads(capsys.readouterr().out)["problems"][0]["kind"] == kind
    assert entries(here) == before


def test_a_full_disk_is_named_and_nothing_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = entries(here)
    monkeypatch.setattr(exporting, "write_merged", fill)
    assert main(["run", "--to", "merged", "--out", "exports/new"]) == 1
    assert "The disk is full" in capsys.readouterr().err and entries(here) == before


def test_an_interrupted_export_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = entries(here)
    monkeypatch.setattr(exporting, "write_merged", interrupt)
    assert main(["run", "--to", "merged", "--out", "exports/new"]) == 130
    assert entries(here) == before
