"""scripts/evaluate.py with the tiny model: its results, continuation after a kill, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from rlvr.artifacts.evaluation import Evaluation, PassAtK, Score, read_evaluation
from rlvr.artifacts.run_lock import lock_file
from rlvr.config.recipe import load_recipe
from rlvr.errors import InputError
from rlvr.evaluation.evaluation_file import write_evaluation
from rlvr.evaluation.scores import summarise
from rlvr.evaluation.trained_rows import record_training_rows
from rlvr.scoring.registry import load_task
from scripts import evaluate as script
from tests.conftest import REPOSITORY, TINY_MODEL
from tests.support.input_errors import input_error
from tests.support.locks import locked_by_another_process
from tests.support.report_runs import record, write_recorded_run

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
# Without 4-bit weights, which cost a CPU time, and in batches small enough to be killed between two of them.
WORDS = (
    *("--config", str(DEMO), "--load_in_4bit", "false", "--use_bnb_nested_quant", "false"),
    *("--evaluation.batch_size", "4", "--task.train_rows", "64"),
)
Capture = pytest.CaptureFixture[str]


def answers(folder: Path) -> list[dict[str, Any]]:
    """The cached answers of all models and decodings, without the settings."""
    lines = []
    for path in sorted((folder / "answers").glob("*.jsonl")):
        whole = path.read_bytes().rpartition(b"\n")[0].decode()
        lines += [json.loads(line) for line in whole.splitlines()[1:]]
    return lines


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(folder / "completions" / f"{name}.parquet").to_pylist()


def evaluation(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))


def truncate_cache(folder: Path, keep: int) -> None:
    """Keep the first `keep` answers of each cache file, and a line that a kill broke off."""
    for path in (folder / "answers").glob("*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: keep + 1]) + '{"key": "half a li')


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes nothing: its second matrices are zero, as before the first step."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("run") / "adapter"
    model = AutoModelForCausalLM.from_pretrained(TINY_MODEL)
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"])).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_answers_and_samples_come_out_the_same_after_an_interruption(tmp_path: Path, capsys: Capture) -> None:
    words = [*WORDS, "--limit", "6", "--samples", "4", "--temperature", "0.9", "--output"]
    assert script.main([*words, str(tmp_path / "whole")]) == 0
    shutil.copytree(tmp_path / "whole" / "answers", tmp_path / "again" / "answers")
    truncate_cache(tmp_path / "again", keep=4)
    before = answers(tmp_path / "again")
    assert script.main([*words, str(tmp_path / "again")]) == 0
    after = answers(tmp_path / "again")
    assert len(before) == 8 and len(after) == 6 + 24, "every row and sample once"
    assert all(line in after for line in before), "what was kept was left alone"
    assert records(tmp_path / "again", "evaluation_base") == records(tmp_path / "whole", "evaluation_base")
    whole, again = (records(tmp_path / name, "samples_base") for name in ("whole", "again"))
    assert whole == again and len(whole) == 24
    assert {row["sample"] for row in whole} == {0, 1, 2, 3}
    assert len({row["completion"] for row in whole if row["row"] == 0}) > 1, "they are samples"

    found = evaluation(tmp_path / "whole")
    assert found == evaluation(tmp_path / "again")
    assert found["decoding"] == "greedy" and found["base"]["rows"] == 6, "the accuracy is still the greedy one"
    rates = found["pass_at_k"]
    assert rates["decoding"] == "sampled at temperature 0.9" and list(rates["base"]) == ["1", "2", "4"]
    values = [rates["base"][k]["value"] for k in ("1", "2", "4")]
    assert values == sorted(values) and values[0] == pytest.approx(sum(row["correct"] for row in whole) / 24)
    assert "pass@4" in capsys.readouterr().out


@pytest.mark.slow
def test_more_samples_and_more_rows_ask_only_for_what_is_new(tmp_path: Path) -> None:
    words = [*WORDS, "--output", str(tmp_path)]
    assert script.main([*words, "--limit", "4", "--samples", "2"]) == 0
    before = answers(tmp_path)
    assert script.main([*words, "--limit", "6", "--samples", "3"]) == 0
    after = answers(tmp_path)
    assert len(before) == 4 + 8 and len(after) == 6 + 18
    assert all(line in after for line in before)


@pytest.mark.slow
def test_base_and_trained_answer_the_same_rows_and_are_compared_in_pairs(
    tmp_path: Path, adapter: Path, capsys: Capture
) -> None:
    words = [*WORDS, "--limit", "8", "--adapter", str(adapter), "--compare", "base", "--output", str(tmp_path)]
    assert script.main(words) == 0
    found = evaluation(tmp_path)
    assert found["base"] == found["trained"], "an adapter that changes nothing changes no answer"
    assert found["difference"]["points"] == 0 and found["difference"]["p_value"] == 1.0
    assert set(found["base"]["by_difficulty"]) <= {"carry", "no carry"} and len(found["base"]["by_source"]) == 2
    assert found["base"]["formatted"] is not None and found["base"]["lenient"] >= found["base"]["correct"]
    said = capsys.readouterr().out
    assert "McNemar" in said and "the required format" in said and "Note:" not in said
    assert len({path.name for path in (tmp_path / "answers").iterdir()}) == 2, "an answer of one is none of the other"
    assert script.main([word for word in words if word not in ("--compare", "base")]) == 0
    [earlier] = tmp_path.glob("evaluation.*.json")
    assert json.loads(earlier.read_text()) == found, "a comparison is not replaced by one of its models"


@pytest.mark.slow
def test_a_whole_model_in_place_of_an_adapter_is_measured_as_it_is(tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    shutil.copytree(TINY_MODEL, merged)
    words = [*WORDS, "--limit", "4", "--compare", "base", "--output", str(tmp_path / "out")]
    assert script.main([*words, "--adapter", str(merged)]) == 0
    found = evaluation(tmp_path / "out")
    assert found["base"] == found["trained"] and found["trained"]["rows"] == 4


@pytest.mark.parametrize(
    ("words", "kind", "key", "why"),
    [
        (["--engine", "vllm"], "package-not-installed", "--engine", "an engine that isn't there"),
        (["--compare", "base"], "conflicting-keys", "--compare", "nothing to compare with"),
        (["--samples", "2", "--temperature", "0"], None, "temperature", "samples that can't differ"),
        (["--adapter", "runs/nothing-here/adapter"], "model-not-found", "--adapter", "a typo in the path"),
        (["--evaluation.sampels", "3"], "unknown-key", "evaluation.sampels", "a typo in a key"),
    ],
)
def test_a_command_that_cannot_be_done_exits_with_2_before_anything_is_generated(
    words: list[str], kind: str | None, key: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[InputError] = []
    run = script.run

    def recorded(*arguments: Any) -> int:
        try:
            return run(*arguments)
        except InputError as error:
            errors.append(error)
            raise

    monkeypatch.setattr(script, "run", recorded)
    assert script.main([*WORDS, *words, "--output", str(tmp_path)]) == 2, why
    [error] = errors
    assert error.key == key and (kind is None or error.kind == kind), (why, error.kind, error.key)
    assert not list(tmp_path.iterdir()), "nothing was generated"


def test_an_adapter_of_another_model_is_refused_before_the_base_is_measured(
    tmp_path: Path, adapter: Path, capsys: Capture
) -> None:
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    tensors = load_file(other / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    save_file({**tensors, name: tensors[name].new_zeros(4, 896)}, other / "adapter_model.safetensors")
    words = [*WORDS, "--adapter", str(other), "--compare", "base", "--limit", "4", "--output", str(tmp_path / "out")]
    assert script.main(words) == 2
    said = capsys.readouterr().err
    assert name in said and "(4, 896)" in said and "(4, 64)" in said
    assert not (tmp_path / "out" / "answers").exists()


@pytest.mark.slow
def test_an_evaluation_locks_its_folder_and_writes_into_no_run_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr.artifacts.run_lock.RETRY_S", 0.1)
    with locked_by_another_process(tmp_path / "run"), input_error("run-in-use"):
        write_evaluation(tmp_path / "run", {}, {})
    assert not (tmp_path / "run" / "evaluation.json").exists()

    locked = []
    lock = lock_file(tmp_path / "run")
    monkeypatch.setattr("rlvr.evaluate_models._update_run", lambda *_, **__: locked.append(lock.exists()))
    assert script.main([*WORDS, "--limit", "2", "--output", str(tmp_path / "run")]) == 0
    assert locked == [True] and not lock.exists()


@pytest.mark.slow
def test_rows_that_the_adapter_was_trained_on_are_refused(adapter: Path, tmp_path: Path, capsys: Capture) -> None:
    """Another seed divides the rows anew."""
    rows = [{"prompt": f"What is {n} + {n}?", "final_answer": str(2 * n)} for n in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "test_fraction": 0.3}
    words = [*WORDS, "--adapter", str(tmp_path / "run" / "adapter"), "--limit", "4", "--output", str(tmp_path / "out")]
    shutil.copytree(adapter, tmp_path / "run" / "adapter")
    record_training_rows(tmp_path / "run", load_task(load_recipe(DEMO, ["--task", json.dumps(task)]).tasks[0]).train)
    assert script.main([*words, "--task", json.dumps(task)]) == 0
    assert script.main([*words, "--task", json.dumps({**task, "seed": 7})]) == 2
    assert "are not held out" in capsys.readouterr().err


def score_of(rows: int) -> Score:
    return summarise([record(row, True) for row in range(rows)], [])


def test_what_a_run_has_measured_is_not_replaced_by_less(tmp_path: Path, capsys: Capture) -> None:
    whole = Evaluation(base=score_of(250), trained=score_of(250))
    whole.write(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert script.main([*WORDS, "--limit", "4", "--output", str(tmp_path)]) == 2
    assert "base, trained on 250 rows" in capsys.readouterr().err
    assert read_evaluation(tmp_path) == whole and not (tmp_path / "answers").exists()
    Evaluation(base=score_of(4), pass_at_k=PassAtK(8, "sampled")).write(tmp_path)
    assert script.main([*WORDS, "--limit", "4", "--output", str(tmp_path)]) == 2
    assert "base, pass_at_k on 4 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--task.operations", "addition"], "other questions under the same name"),
        (["--model", "COPY"], "other weights under another name"),
        (["--model", "COPY", "--allow_base_mismatch"], "the record names one base"),
    ],
)
def test_a_run_gets_no_figures_of_another_task_or_base(
    words: list[str], why: str, adapter: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = write_recorded_run(tmp_path / "run")
    copy = copy_with_other_weights(tmp_path / "copy")
    shutil.copytree(adapter, run / "adapter", dirs_exist_ok=True)
    before = (run / "result.json").read_text()
    words = [str(copy) if word == "COPY" else word for word in words]
    words = [*WORDS, *words, "--adapter", str(run / "adapter"), "--compare", "base", "--output", str(run)]
    assert script.main(words) == 2, why
    assert "--output" in capsys.readouterr().err and (run / "result.json").read_text() == before


@pytest.mark.slow
def test_a_base_whose_weights_changed_since_the_run_is_refused(adapter: Path, tmp_path: Path, capsys: Capture) -> None:
    base = tmp_path / TINY_MODEL.name
    shutil.copytree(TINY_MODEL, base)
    words = [*WORDS, "--model_name_or_path", str(base), "--limit", "2", "--adapter", str(tmp_path / "run" / "adapter")]
    write_recorded_run(tmp_path / "run", "--model_name_or_path", str(base))
    shutil.copytree(adapter, tmp_path / "run" / "adapter", dirs_exist_ok=True)
    words += ["--output", str(tmp_path / "out")]
    assert script.main(words) == 0
    copy_with_other_weights(base)
    assert script.main(words) == 2
    assert "its digest differs" in capsys.readouterr().err
    assert script.main([*words, "--allow_base_mismatch"]) == 0


def copy_with_other_weights(folder: Path) -> Path:
    """The tiny model with one tensor changed."""
    shutil.copytree(TINY_MODEL, folder, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[0]
    save_file({**weights, name: weights[name] * 1.5}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.slow
def test_a_damaged_answer_cache_is_refused_and_left_alone(tmp_path: Path, capsys: Capture) -> None:
    words = [*WORDS, "--limit", "4", "--output", str(tmp_path)]
    assert script.main(words) == 0
    file = next((tmp_path / "answers").iterdir())
    file.write_text(file.read_text().replace('"text"', '"txet"'))
    damaged = file.read_text()
    assert script.main(words) == 2
    assert str(file) in capsys.readouterr().err and file.read_text() == damaged


def test_a_failing_reward_costs_no_answer(tmp_path: Path, capsys: Capture) -> None:
    faulty = tmp_path / "faulty.py"
    faulty.write_text("def faulty(completions, **kwargs):\n    raise RuntimeError('out of ideas')\n")
    words = [*WORDS, "--limit", "4", "--rewards", json.dumps([{"name": str(faulty)}])]
    assert script.main([*words, "--evaluation.metric", "faulty", "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "out of ideas" in said and "The answers are kept" in said
    assert len(answers(tmp_path / "out")) == 4


def test_an_adapter_that_names_another_base_is_refused(tmp_path: Path, adapter: Path, capsys: Capture) -> None:
    """Two models of one shape: nothing but its name says that the adapter was trained from the other."""
    words = [*WORDS, "--model", str(REPOSITORY / "models" / "tiny-programs"), "--adapter", str(adapter), "--limit", "2"]
    assert script.main([*words, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "tiny-arithmetic" in said and "--allow_base_mismatch" in said and not list(tmp_path.glob("*.json"))
    assert script.main([*words, "--output", str(tmp_path), "--allow_base_mismatch"]) == 0
    first = capsys.readouterr()
    assert "it is measured on" in first.out and "--allow_base_mismatch" not in first.err
