"""Answers of a base that are kept outside the runs: used as a whole, only where nothing that decides them differs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from rlvr.config.recipe import load_recipe
from rlvr.evaluation import evaluated_model, shared_answers
from rlvr.evaluation.engines import Decoding, TransformersEngine
from rlvr.evaluation.shared_answers import SharedAnswers, conditions
from rlvr.modeling import loading
from scripts import evaluate as script
from tests.conftest import REPOSITORY, TINY_MODEL
from tests.scripts.test_evaluate import copy_with_other_weights
from tests.support.launching import Start, accelerated

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
# Without 4-bit weights, which take CPU time. The name of the model stays where a test changes its files.
MODEL = ("--load_in_4bit", "false", "--use_bnb_nested_quant", "false", "--model_name_or_path", "./model")
WORDS = ("--config", str(DEMO), *MODEL, "--evaluation.batch_size", "2", "--task.train_rows", "64")
LINES = [{"key": "a", "sample": 0, "text": "4", "tokens": 2, "ended": True}]


def sets(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def measure(output: Path, *words: str) -> None:
    assert script.main([*WORDS, "--limit", "3", *words, "--output", str(output)]) == 0


def load_nothing(*_: Any, **__: Any) -> Any:
    pytest.fail("a model was loaded")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the tiny model, and the answers of its first three rows in `shared`."""
    folder = tmp_path_factory.mktemp("measured")
    shutil.copytree(TINY_MODEL, folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GRPO_RECIPES_ANSWERS", str(folder / "shared"))
        measure(folder / "first")
    return folder


@pytest.fixture
def shared(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these answers, and of the model in the working folder."""
    shutil.copytree(measured / "model", tmp_path / "model")
    shutil.copytree(measured / "shared", tmp_path / "shared")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_RECIPES_ANSWERS", str(tmp_path / "shared"))
    return tmp_path / "shared"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "the same command"),
        (("--learning_rate", "1e-5", "--lora_r", "4", "--seed", "3"), "what a sweep varies does not change the base"),
        (("--rewards", "[{name: math_correctness}]"), "verdicts are not kept"),
    ],
)
def test_a_base_that_another_run_has_measured_is_not_loaded(
    words: Sequence[str], why: str, measured: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = sets(shared)
    monkeypatch.setattr(loading, "load_model", load_nothing)
    measure(tmp_path / "second", *words)
    assert len(before) == 1 and sets(shared) == before, why
    first, second = (
        json.loads((folder / "evaluation.json").read_text()) for folder in (measured / "first", tmp_path / "second")
    )
    assert second["base"]["correct"] == first["base"]["correct"]
    if not words:
        assert second == first
    kept = [next((folder / "answers").iterdir()).read_text() for folder in (measured / "first", tmp_path / "second")]
    assert kept[0] == kept[1], "the run keeps them as if it had generated them"


def test_answers_are_scored_anew(measured: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert json.loads((measured / "first" / "evaluation.json").read_text())["base"]["correct"] < 3
    monkeypatch.setattr(loading, "load_model", load_nothing)
    (tmp_path / "always.py").write_text("def always(completions, **kwargs):\n    return [1.0] * len(completions)\n")
    measure(tmp_path / "second", "--rewards", json.dumps([{"name": str(tmp_path / "always.py")}]))
    assert json.loads((tmp_path / "second" / "evaluation.json").read_text())["base"]["correct"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--limit", "4"), "a row more"),
        (("--task.operations", "addition"), "other rows"),
        (("--evaluation.split", "validation", "--task.validation_rows", "8"), "rows of another split"),
        (("--evaluation.max_new_tokens", "20"), "the limit of tokens"),
        (("--evaluation.batch_size", "3"), "a batch of another size rounds differently"),
        (("--dtype", "bfloat16"), "dtype"),
        (("--attn_implementation", "eager"), "attention"),
        (("--load_in_4bit", "true"), "4-bit weights"),
        (("--engine", "vllm"), "another engine"),
    ],
)
def test_another_evaluation_has_other_answers(
    words: Sequence[str], why: str, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rlvr.evaluate_models.check_engine", lambda *_: None)
    monkeypatch.setattr(
        evaluated_model,
        "VllmEngine",
        lambda recipe, tokenizer, _: TransformersEngine(loading.load_model(recipe, tokenizer), tokenizer),
    )
    loaded = []
    load = loading.load_model
    monkeypatch.setattr(loading, "load_model", lambda *args, **kwargs: loaded.append(1) or load(*args, **kwargs))
    measure(tmp_path / "second", *words)
    assert loaded, why
    assert len(sets(shared)) == (1 if "vllm" in words else 2), "what vLLM generates is not kept"


def edit(name: str, *changes: tuple[str, str]) -> Callable[[], None]:
    def change() -> None:
        file = Path("model", name)
        text = file.read_text()
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        file.write_text(text)

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda: copy_with_other_weights(Path("model")), "weights"),
        (edit("config.json", ('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05')), "configuration"),
        (edit("chat_template.jinja", ("{%", "Please. {%")), "prompts"),
        (edit("generation_config.json", ("{", '{"suppress_tokens": null,')), "which tokens end an answer"),
        (edit("tokenizer_config.json", ("{", '{"clean_up_tokenization_spaces": true,')), "how answers are decoded"),
    ],
)
def test_another_model_under_the_same_name_has_other_answers(
    change: Callable[[], None], why: str, shared: Path, tmp_path: Path
) -> None:
    change()
    measure(tmp_path / "second")
    assert len(sets(shared)) == 2, why


def conditions_of(*words: str, sampling: dict[str, Any] | None = None, seed: int = 0) -> Any:
    recipe = load_recipe(DEMO, [*MODEL, *words])
    return conditions(recipe, Decoding(8, ("\n\n",), sampling, seed))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--load_in_4bit", "true", "--use_bnb_nested_quant", "true"), "double quantisation"),
        (("--load_in_4bit", "true", "--bnb_4bit_quant_type", "fp4"), "kind of quantisation"),
        (("--load_in_4bit", "true", "--bnb_4bit_quant_storage", "bfloat16"), "storage of 4-bit weights"),
    ],
)
def test_each_setting_of_the_quantisation_counts(words: Sequence[str], why: str, shared: Path) -> None:
    assert conditions_of("--load_in_4bit", "true") != conditions_of(*words), why


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("versions", lambda: {"torch": "9.0"}, "versions of libraries"),
        ("installed", lambda _: {"tokenizers": "9.0"}, "versions of packages that runs do not record"),
        ("project_digest", lambda: "0", "the code that generates"),
        ("machine", lambda gpus: {"cpu": "another"}, "kind of processor"),
        ("_device", lambda _: ["NVIDIA H100", "ieee"], "kind of device"),
    ],
)
def test_another_machine_has_other_answers(
    place: str, value: Callable[..., Any], why: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = conditions_of()
    assert before is not None and before == conditions_of()
    monkeypatch.setattr(shared_answers, place, value)
    assert before != conditions_of(), why


def test_the_number_of_threads_counts(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conditions_of()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert before != conditions_of()


def test_the_seed_counts_for_samples_only(shared: Path) -> None:
    sampling = {"temperature": 1.0}
    assert conditions_of(seed=0) == conditions_of(seed=1)
    assert conditions_of(sampling=sampling, seed=0) != conditions_of(sampling=sampling, seed=1)
    assert conditions_of(sampling=sampling) != conditions_of(sampling={"temperature": 0.7})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--trust_remote_code", "true"), "code of the model's folder or of another repository"),
        (("--model_init_kwargs", "{rope_theta: 1000.0}"), "may name other files"),
        (("--environment", "{name: python_sandbox}"), "tools may read anything"),
    ],
)
def test_what_no_digest_covers_is_not_shared(words: Sequence[str], why: str, shared: Path) -> None:
    assert conditions_of() is not None and conditions_of(*words) is None, why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "folder", "why"),
    [
        (("--evaluation.cache", "false"), "shared", "the recipe says so"),
        ((), "", "the environment says so"),
    ],
)
def test_sharing_can_be_turned_off(
    words: Sequence[str], folder: str, why: str, shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRPO_RECIPES_ANSWERS", folder and str(shared))
    before = sets(shared)
    measure(tmp_path / "second", "--limit", "2", *words)
    assert sets(shared) == before, why


def test_the_folder_is_in_the_users_cache_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRPO_RECIPES_ANSWERS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert shared_answers.shared_folder() == tmp_path / "grpo-recipes-answers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert shared_answers.shared_folder() == tmp_path / ".cache" / "grpo-recipes-answers"


@pytest.mark.slow
def test_an_evaluation_that_continues_mixes_no_batches_into_a_set(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ran out of memory with two rows a batch, and continues with one."""
    shutil.rmtree(shared)
    measure(tmp_path / "out")
    [file] = (tmp_path / "out" / "answers").iterdir()
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    before = sets(shared)
    measure(tmp_path / "out", "--evaluation.batch_size", "1")
    assert sets(shared) == before
    assert len(file.read_text().splitlines()) == 1 + 3, "what was missing was generated"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (r"(?s).*", "", "empty"),
        (r"(?s).{9}$", "", "cut off"),
        (r"(?s).*", "[]", "another thing"),
        (r'"sha256": "\w+"', '"sha256": null', "without a digest"),
        (r'"tokens": 2', '"tokens": 3', "one changed answer"),
        (r'"format": 1', '"format": 2', "another format"),
    ],
)
def test_a_damaged_set_is_not_read(before: str, after: str, why: str, shared: Path) -> None:
    SharedAnswers("another").write(LINES)
    file = max(shared.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    whole = file.read_text()
    assert SharedAnswers("another").read() == LINES
    file.write_text(re.sub(before, after, whole, count=1))
    assert SharedAnswers("another").read() is None, why
    SharedAnswers("another").write(LINES)
    assert file.read_text() == whole


def test_a_renamed_set_is_not_read(shared: Path) -> None:
    [first] = shared.iterdir()
    SharedAnswers("another").write(LINES)
    [second] = set(shared.iterdir()) - {first}
    first.replace(second)
    assert SharedAnswers("another").read() is None


@pytest.mark.slow
def test_an_evaluation_replaces_a_damaged_set(shared: Path, tmp_path: Path) -> None:
    [file] = shared.iterdir()
    whole = file.read_text()
    file.write_bytes(b"\xff\x00")
    measure(tmp_path / "second")
    assert file.read_text() == whole


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_ends_no_run(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRPO_RECIPES_ANSWERS", str(tmp_path / "file" / "inside"))
    measure(tmp_path / "second")
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_a_writer_that_is_killed_leaves_no_set(shared: Path, tmp_path: Path) -> None:
    """It is killed between writing and renaming."""
    code = (
        "import os, signal\n"
        "from rlvr.evaluation import shared_answers\n"
        "shared_answers.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"shared_answers.SharedAnswers('another').write({LINES!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=dict(os.environ), check=False)
    assert done.returncode == -9 and len(sets(shared)) == 2
    assert SharedAnswers("another").read() is None
    SharedAnswers("another").write(LINES)
    assert SharedAnswers("another").read() == LINES


@pytest.mark.slow
def test_runs_that_write_and_read_one_set_at_a_time_see_whole_sets(shared: Path) -> None:
    sizes = [[line] * 2000 for line in LINES]
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            SharedAnswers("same").write(sizes[0])

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        while SharedAnswers("same").read() is None:
            pass
        assert all(SharedAnswers("same").read() == sizes[0] for _ in range(20))
    finally:
        ends.set()
        for writer in writers:
            writer.join()
    assert not [name for name in sets(shared) if name.endswith(".tmp")]


def test_the_sets_that_were_used_least_recently_go_first(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(shared)
    (shared.parent / "kept").write_text("not a set")
    for age, key in ((30, "first"), (20, "second")):
        SharedAnswers(key).write(LINES)
        path = shared / max(sets(shared), key=lambda name: (shared / name).stat().st_mtime_ns)
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert SharedAnswers("first").read() == LINES, "now used"
    monkeypatch.setattr(shared_answers, "MAX_BYTES", int(2.5 * path.stat().st_size))
    SharedAnswers("third").write(LINES)
    assert [SharedAnswers(key).read() is not None for key in ("first", "second", "third")] == [True, False, True]


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_sweep_measures_its_base_once(shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Greedy answers and samples: the second run loads only the trained model."""
    words = [*WORDS, "--evaluation.rows", "5", "--max_steps", "1", "--report_to", "none"]
    words += ["--per_device_train_batch_size", "16"]
    assert run_grpo.main([*words, "--output_dir", str(tmp_path / "a")]) == 0
    loaded = []
    load = loading.load_model
    monkeypatch.setattr(
        loading, "load_model", lambda *a, adapter=None, **k: loaded.append(adapter) or load(*a, adapter=adapter, **k)
    )
    assert run_grpo.main([*words, "--output_dir", str(tmp_path / "b")]) == 0
    assert loaded == [tmp_path / "b" / "adapter"]
    first, second = (json.loads((tmp_path / run / "evaluation.json").read_text()) for run in "ab")
    assert first == second


@pytest.mark.slow
def test_two_processes_agree_on_what_is_missing(start: Start, shared: Path, tmp_path: Path) -> None:
    """The set of one process is not theirs: their batches differ. Their own is read by both."""
    words = ["--config", DEMO, *MODEL[:-1], str(TINY_MODEL), "--evaluation.batch_size", "2", "--evaluation.rows", "5"]
    words += ["--task.train_rows", "64", "--max_steps", "1", "--report_to", "none"]
    words += ["--per_device_train_batch_size", "8"]
    for run, count in (("a", 3), ("b", 3)):
        launch = start(accelerated("cpu", *words), tmp_path / run, WITHOUT_REPORT="1").wait()
        assert launch.codes() == [0, 0], launch.output()
        assert len(sets(shared)) == count
        assert ("answers of the base come from" in launch.output()) == (run == "b")
    first, second = (json.loads((tmp_path / run / "evaluation.json").read_text()) for run in "ab")
    assert first["base"] == second["base"] and first["sampled"] == second["sampled"]
    names = [sorted(path.name for path in (tmp_path / run / "answers").glob("base*")) for run in "ab"]
    assert names[0] == names[1] and len(names[0]) == 4, "each process keeps its own share in the run"
