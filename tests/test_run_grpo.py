"""run_grpo.py as a user meets it: what it prints, what it leaves behind, and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

import run_grpo
from tests.support.launching import Start, accelerated

REPOSITORY = Path(__file__).resolve().parents[1]
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"


LEARNIG_RATE = next(line for line in DEMO.read_text().splitlines() if line.startswith("learning_rate")).replace(
    "learning_rate", "learnig_rate"
)
EXPLODING = "import no_such_module_at_all\n"
WANTS_TESTS = "def wants_tests(completions, *, tests, **kwargs):\n    return [0.0 for _ in completions]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "named", "why"),
    [
        (["--model_name_or_path", "some/model"], "could not be reached to download", "offline, nothing cached"),
        (["--rewards", "[{name: TMP/exploding.py}]"], "No module named 'no_such_module_at_all'", "a failing import"),
        (["--rewards", "[{name: TMP/wants_tests.py}]"], "column tests", "a column that isn't there"),
        (["--resume_from_checkpoint", "nowhere"], "there is no such folder", "nothing to resume"),
        (["--rewards.math_correctness.weight", "0", "--rewards.answer_format.weight", "0"], "every weight is 0", "0"),
    ],
)
def test_a_faulty_run_ends_with_a_message_and_exit_2_and_leaves_nothing(
    words: list[str], named: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exploding.py").write_text(EXPLODING)
    (tmp_path / "wants_tests.py").write_text(WANTS_TESTS)
    words = [word.replace("TMP", str(tmp_path)) for word in words]
    code = run_grpo.main(["--config", str(DEMO), "--output_dir", str(tmp_path / "runs" / "x"), *words])
    captured = capsys.readouterr()
    assert code == 2 and named.lower() in captured.err.lower(), why
    assert captured.out == "", "nothing but the message"
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"exploding.py", "wants_tests.py"}


SEVERAL = ["--optim", "bogus", "--lora_target_modules", "lm_head", "--task.rows", "3", "--num_generations", "7"]


def misspelt(folder: Path) -> list[str]:
    recipe = folder / "recipe.yaml"
    recipe.write_text(DEMO.read_text().replace("learning_rate", "learnig_rate"))
    return ["--config", str(recipe), "--output_dir", str(folder / "run"), *SEVERAL]


def test_a_check_reports_in_one_pass_what_would_stop_runs_one_after_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = misspelt(tmp_path)
    assert run_grpo.main([*words, "--check"]) == 2
    captured = capsys.readouterr()
    for named in ("Did you mean learning_rate?", "a LoRA on lm_head", "'rows'", "optim is 'bogus'"):
        assert captured.err.count(named) == 1, named
    assert captured.out == "" and not (tmp_path / "run").exists()
    assert run_grpo.main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1, "a run ends at once, before anything is imported"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/x/adapter"), 1),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "runs/x/adapter"), 1),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), 1),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "runs/x/adapter"), None),
        (SafetensorError("invalid header"), None),
    ],
)
def test_a_full_disk_is_one_sentence(
    error: Exception, expected: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(recipe: Any, started: float, interrupts: Any) -> int:
        raise error

    monkeypatch.setattr("rlvr.run.train_and_measure", fail)
    if expected is None:
        with pytest.raises(type(error)):
            run_grpo.main(["--config", str(DEMO)])
        return
    assert run_grpo.main(["--config", str(DEMO)]) == expected
    assert len([line for line in capsys.readouterr().err.splitlines() if " …" not in line]) == 1


@pytest.mark.slow
def test_a_check_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(*words: str) -> tuple[int, dict[str, Any]]:
        code = run_grpo.main([*words, "--check", "--json"])
        captured = capsys.readouterr()
        assert [line for line in captured.err.splitlines() if " …" not in line] == []
        return code, json.loads(captured.out)

    code, result = check(*misspelt(tmp_path), "--ds3_gather_for_generation", "false")
    assert code == 2 and list(result) == ["problems", "warnings", "notes", "plan"] and result["plan"] is None
    first, *others = result["problems"]
    assert (first["kind"], first["key"], first["suggestion"]) == ("unknown-key", "learnig_rate", "learning_rate")
    assert first["line"] == (tmp_path / "recipe.yaml").read_text().splitlines().index(LEARNIG_RATE) + 1
    assert "lora-on-head" in {problem["kind"] for problem in others}
    assert [warning["kind"] for warning in result["warnings"]] == ["slow-generation"]

    code, result = check("--config", str(tmp_path / "missing.yaml"))
    assert code == 2 and [problem["kind"] for problem in result["problems"]] == ["recipe-not-found"]

    code, result = check("--config", str(DEMO), "--output_dir", str(tmp_path / "run"))
    assert code == 0 and result["problems"] == result["warnings"] == []
    assert result["plan"]["steps"] == 20 and any("20 optimizer steps" in note for note in result["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(("words", "rank"), [(["--check", "--json"], "0"), ([], "1")])
def test_programs_and_other_ranks_get_no_line_before_heavy_imports(words: list[str], rank: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(9)")
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "run_grpo.py"), "--config", str(DEMO), *words],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "RANK": rank},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout, result.stderr) == (9, "", "")


@pytest.mark.slow
def test_check_says_what_would_run_warns_of_nothing_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_grpo.main(["--config", str(DEMO), "--check", "--output_dir", str(tmp_path / "runs" / "x")])
    out, err = capsys.readouterr()
    assert code == 0 and "warning" not in out
    assert err.startswith("Loading torch") and all(" …" in line for line in err.splitlines()), "only slow steps"
    assert "8 prompts x 8 completions per generation" in out and "No problems found." in out
    assert list(tmp_path.iterdir()) == []


SHORT = ["--max_steps", "2", "--task.train_rows", "64", "--evaluation.rows", "8", "--report_to", "none"]
SHORT += ["--per_device_train_batch_size", "16", "--warmup_steps", "0"]


@pytest.mark.slow
def test_check_judges_for_the_processes_that_are_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", str(DEMO), "--output_dir", str(tmp_path / "run"), "--check", "--world_size"]
    assert run_grpo.main([*words, "8"]) == 0
    assert "64 prompts x 8 completions per generation over 8 processes" in capsys.readouterr().out
    assert run_grpo.main([*words, "400"]) == 2
    said = capsys.readouterr().err
    assert "takes 3200 prompts, but the training split has 1500" in said and said.endswith("\n1 error: see above.\n")
    assert run_grpo.main([*words, "4", "--machine", "ml.g6e.12xlarge", "--launcher", "zero3"]) == 0
    assert "fits on ml.g6e.12xlarge" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run_grpo.main(["--config", str(DEMO), "--world_size", "8"])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_batch_that_is_whole_only_over_the_processes_that_are_meant_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TRL reckons with the processes of this launch: 4 completions are half a group, and 8 a whole one."""
    words = ["--config", str(DEMO), "--output_dir", str(tmp_path / "run"), "--per_device_train_batch_size", "4"]
    assert run_grpo.main([*words, "--gradient_accumulation_steps", "1", "--check", "--world_size", "2"]) == 0
    said = capsys.readouterr().out
    assert "  1 prompt x 8 completions per generation over 2 processes" in said


@pytest.mark.slow
def test_a_failing_run_exits_1_and_says_why_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails_on_a_batch = "def late(completions, **kwargs):\n    return [1 / (len(completions) > 16)] * len(completions)\n"
    (tmp_path / "late.py").write_text(fails_on_a_batch)  # and not on the 48 answers that it is tried on before
    words = ["--config", str(DEMO), *SHORT, "--evaluation", "null", "--output_dir", str(tmp_path / "run")]
    assert run_grpo.main([*words, "--rewards", f"[{{name: {tmp_path}/late.py}}]"]) == 1
    said = capsys.readouterr().err
    failure = (tmp_path / "run" / "failure.txt").read_text()
    assert "Traceback" in failure and "late.py raised ZeroDivisionError" in failure
    assert "late.py" in said and "line 2" in said
    assert "rlvr/" not in said, "our frames say nothing to the author of the reward"


@pytest.mark.slow
def test_a_finished_run_is_trained_further_and_prints_its_set_up_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(DEMO), *SHORT, "--save_strategy", "steps", "--output_dir", str(tmp_path / "run")]
    assert run_grpo.main(words) == 0
    assert any(line.startswith("  CPU threads") for line in capsys.readouterr().out.splitlines())
    damaged = shutil.copytree(tmp_path / "run" / "checkpoint-2", tmp_path / "run" / "checkpoint-9")
    file = damaged / "trainer_state.json"
    file.write_text(file.read_text().swapcase())
    assert run_grpo.main([*words, "--max_steps", "3", "--save_total_limit", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert (damaged.with_name("checkpoint-3") / "complete.json").is_file(), "the damaged one does not replace it"
    assert "checkpoint-9 is skipped" in said[0]
    assert "checkpoint-2, step 2" in said[0] and "max_steps was 2, now 3" in said[0]
    set_up = said[1 : said.index(next(line for line in said if "before training" in line))]
    assert all(line.startswith("  warning: ") for line in set_up), "what may be new"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "reward" in line] == [1, 2, 3]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 3
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["run"], "not moved aside"


@pytest.mark.slow
def test_a_run_that_continues_judges_base_and_trained_alike(start: Start, tmp_path: Path) -> None:
    """Else a change of the verifier between stop and continuation is reported as a gain."""
    (tmp_path / "own_verdict.py").write_text("def verdict(text):\n    return 0.0\n")
    (tmp_path / "mine.py").write_text(
        "import pathlib, sys, zlib\n"
        "sys.path.append(str(pathlib.Path(__file__).parent))\n"
        "from own_verdict import verdict\n"
        "def mine(completions, *, trainer_state, folder='', **kwargs):\n"
        "    if trainer_state.global_step == 1 and not pathlib.Path(folder, 'go').exists():\n"
        "        raise RuntimeError('stopped here')\n"
        "    if trainer_state.global_step >= 0 and trainer_state.max_steps > 0:\n"
        "        return [zlib.crc32(str(one).encode()) % 100 / 100 for one in completions]\n"
        "    return [verdict(one) for one in completions]\n"
    )
    (tmp_path / "judge.py").write_text(
        "import pathlib, sys\n"
        "sys.path.append(str(pathlib.Path(__file__).parent))\n"
        "from own_verdict import verdict\n"
        "def judge(completions, **kwargs):\n"
        "    return [verdict(one) for one in completions]\n"
    )
    rewards = [{"name": f"{tmp_path}/mine.py", "options": {"folder": str(tmp_path)}}]
    rewards.append({"name": f"{tmp_path}/judge.py", "weight": 0.0})
    words = ["run_grpo.py", "--config", DEMO, *SHORT, "--rewards", json.dumps(rewards), "--evaluation.metric", "judge"]
    words += ["--save_strategy", "steps", "--save_steps", "1"]
    stopped = start(words, tmp_path / "run").wait()
    assert stopped.codes() == [1] and "checkpoint-1 is complete" in stopped.output(), stopped.output()
    content = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert content["base"]["correct"] == content["sampled"]["pass_rate"] == 0
    assert stopped.output().count("warning: None of 128 completions") == 1

    (tmp_path / "go").touch()
    (tmp_path / "own_verdict.py").write_text("def verdict(text):\n    return 1.0\n")
    answers = sorted(path.read_bytes() for path in (tmp_path / "run" / "answers").glob("base*"))
    last = start(words, tmp_path / "run").wait()
    assert last.codes() == [0], last.output()
    assert "own_verdict has changed since the run was stopped" in last.output()
    content = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert content["base"]["correct"] == content["trained"]["correct"] == 8
    assert content["sampled"]["pass_rate"] == 1 and "None of 128" not in last.output()
    assert answers == sorted(path.read_bytes() for path in (tmp_path / "run" / "answers").glob("base*")), "asked again"


@pytest.mark.slow
@pytest.mark.smoke
def test_two_processes_train_together_and_leave_one_whole_run(start: Start, tmp_path: Path) -> None:
    launch = start(accelerated("cpu", "--config", DEMO, *SHORT), tmp_path / "run", WITHOUT_REPORT="1").wait()
    assert launch.codes() == [0, 0], launch.output()
    assert "over 2 processes" in launch.output()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "reward" in line] == [1, 2], "one line a step, not one per process"
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 8, "shared between the processes, none twice"
    sampled = evaluation["sampled"]
    assert (sampled["prompts"], sampled["samples"]) == (16, 128) and 0 < sampled["pass_rate"] < 1
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()
    warnings = [line for line in launch.output().splitlines() if "warning" in line.lower()]
    assert ["8 rows" in line for line in warnings] == [True], "nothing that a reader must ignore"
