"""scripts/filter_by_pass_rate.py with the tiny model and a reward whose pass rates are known beforehand."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.specs import TaskSpec
from rlvr.data.pass_rates import PassRate, PassRateBounds, PassRateFile, histogram
from rlvr.errors import InputError
from rlvr.scoring.registry import load_rewards, load_task
from scripts import filter_by_pass_rate as script
from tests.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "filter_by_pass_rate.py"

# Right as often as the row's column says: never, every other time, or always; or nothing that can be scored.
REWARD = '''
def known(completions, how, **kwargs):
    """Right as often as the row says."""
    values = {"never": (0.0, 0.5), "half": (0.0, 1.0), "always": (1.0, 1.0), "unscored": (None, None)}
    return [values[often][place % 2] for place, often in enumerate(how)]

def played(completions, how, environments, **kwargs):
    """The same, of conversations in environments."""
    assert {environment.target for environment in environments} == {3}
    return known(completions, how)
'''
HOW = ("never", "half", "always", "unscored", "half", "half")
RECIPE = """\
model_name_or_path: models/{model}
task: {{name: jsonl, path: {data}, test_path: {test}, style: {style}}}
rewards: [{{name: "{reward}"}}]
max_completion_length: 4
use_cpu: true
"""
ENVIRONMENT = """\
environment: {name: tests/support/counting.py}
max_tool_calling_iterations: 1
"""


def rows(count: int) -> list[dict[str, Any]]:
    # Prompts of every length, so that the order in which they are sampled isn't that of the data.
    return [
        {"prompt": f"Number {row}{' and more' * (row % 7)}", "how": HOW[row % 6], "tests": json.dumps([{"input": row}])}
        for row in range(count)
    ]


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    def write(count: int = 24, style: str = "chat", *, played: bool = False) -> Path:
        (tmp_path / "known.py").write_text(REWARD, encoding="utf-8")
        for name, content in (("data", rows(count)), ("test", [{"prompt": "Held out", "how": "never", "tests": "[]"}])):
            lines = "".join(json.dumps(row) + "\n" for row in content)
            (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        path = tmp_path / "recipe.yaml"
        text = RECIPE.format(
            model="tiny-tools" if played else "tiny-arithmetic",
            data=tmp_path / "data.jsonl",
            test=tmp_path / "test.jsonl",
            style=style,
            reward=f"{tmp_path / 'known.py'}:{'played' if played else 'known'}",
        )
        path.write_text(text + (ENVIRONMENT if played else ""), encoding="utf-8")
        return path

    return write


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("style", "played"), [("chat", False), ("text", False), ("chat", True)])
def test_rows_that_are_solved_sometimes_are_kept_and_a_recipe_trains_on_them(
    recipe: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], style: str, played: bool
) -> None:
    from rlvr.scoring.registry import load_task

    output = tmp_path / "kept.jsonl"
    path = recipe(style=style, played=played)
    words = ["--config", str(path), "--output", str(output), "--samples", "2", "--batch_size", "5"]
    assert script.main(words) == 0
    said = capsys.readouterr().out
    assert "Kept 12 of 24 rows" in said
    assert "4 rows that could not be scored" in said

    expected = [row for row in rows(24) if row["how"] == "half"]
    kept = read(output)
    assert [row["tests"] for row in kept] == [row["tests"] for row in expected], "in the order of the data, untouched"
    assert {row["pass_rate"] for row in kept} == {row["difficulty"] for row in kept} == {0.5}

    # The lines that it prints are a task section that reads both files.
    import yaml

    section = yaml.safe_load(said[said.index("task:") :])["task"]
    task = load_task(TaskSpec(section.pop("name"), section))
    prompts = [row["prompt"] if style == "text" else [{"role": "user", "content": row["prompt"]}] for row in expected]
    assert list(task.train["prompt"]) == prompts
    assert set(task.train["pass_rate"]) == {0.5}
    assert len(task.test) == 1

    # Other bounds are cut from what was measured; a model would be needed to sample again.
    before = Path(f"{output}.rates").read_bytes()
    assert script.main([*words, "--low", "0", "--high", "0.2"]) == 0
    assert "24 of 24 rows are already measured" in capsys.readouterr().out
    assert {row["how"] for row in read(output)} == {"never"}
    assert Path(f"{output}.rates").read_bytes() == before

    # Rates of other settings are not mixed in.
    assert script.main([*words, "--temperature", "0.5"]) == 2
    assert "temperature 1.0, now 0.5" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_killed_or_interrupted_goes_on_where_it_was(
    command: Command, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    output, measured = tmp_path / "kept.jsonl", tmp_path / "kept.jsonl.rates"
    words = ["--config", str(recipe(200)), "--output", str(output), "--samples", "2", "--batch_size", "2"]

    def lines() -> int:
        return measured.read_bytes().count(b"\n") if measured.exists() else 0

    def stop(number: signal.Signals, after: int) -> tuple[int, str]:
        process = subprocess.Popen(
            command(SCRIPT, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            end = time.monotonic() + 300
            while lines() < after and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            process.send_signal(number)
            _, said = process.communicate(timeout=300)
        finally:
            process.kill()
        return process.returncode, said

    code, _ = stop(signal.SIGKILL, after=5)
    assert code == -signal.SIGKILL
    with measured.open("ab") as file:
        file.write(b'{"key": "torn')
    torn = measured.read_bytes().removesuffix(b'{"key": "torn')
    assert not output.exists(), "no half result"

    code, said = stop(signal.SIGTERM, after=lines() + 5)
    assert code == 75, said
    assert "the same command to continue" in said
    known = measured.read_bytes()
    assert known.startswith(torn) and len(known) > len(torn)

    assert script.main(words) == 0
    assert measured.read_bytes().startswith(known), "nothing was measured twice"
    assert lines() == 201
    assert len(read(output)) == sum(row["how"] == "half" for row in rows(200))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--samples", "0"], "--samples is 0"),
        (["--limit", "-1"], "--limit is -1"),
        (["--low", "0.9", "--high", "0.1"], "0 <= low <= high <= 1"),
        (["--high", "1.5"], "0 <= low <= high <= 1"),
        (["--output", "x.parquet"], "must end in .jsonl"),
        (["--temprature", "1"], "temperature"),
    ],
)
def test_invalid_options_are_refused_before_loading(
    recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert script.main(["--config", str(recipe()), *words]) == 2
    assert said in capsys.readouterr().err


def test_several_processes_are_refused(
    recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert script.main(["--config", str(recipe())]) == 2
    assert "in one process" in capsys.readouterr().err


def test_a_task_with_tests_comes_back_as_it_was(tmp_path: Path) -> None:
    from rlvr.scoring.registry import load_task

    task = load_task(TaskSpec("one_line_programs", {}))
    rates = [PassRate(number % 9, 8) for number in range(len(task.train))]
    output = tmp_path / "programs.jsonl"
    script.write(output, task, task.train, rates, PassRateBounds(0.01, 0.99))
    again = load_task(TaskSpec("jsonl", {"path": str(output), "test_path": str(script.held_out_file(output))}))
    expected = [row for row, rate in zip(task.train, rates, strict=True) if 0 < rate.right < 8]
    assert [{name: row[name] for name in task.train.column_names} for row in again.train] == expected
    assert len(again.test) == len(task.test)


def test_a_bound_that_no_row_meets_is_an_error_with_the_histogram(tmp_path: Path) -> None:
    from rlvr.scoring.registry import load_task

    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Number {row}"}) + "\n" for row in range(4)), encoding="utf-8")
    task = load_task(TaskSpec("jsonl", {"path": str(data), "test_fraction": 0}))
    output = tmp_path / "kept.jsonl"
    with pytest.raises(InputError, match="Widen --low") as raised:
        script.write(output, task, task.train, [PassRate(0, 8)] * 3 + [PassRate(0, 0)], PassRateBounds(0.01, 0.99))
    assert "never" in str(raised.value)
    assert not output.exists()


# ── What was measured ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("values", "rate", "why"),
    [
        ([1.0, 0.0, 2.0, 0.9], PassRate(2, 4), "at least 1 is right"),
        ([None, 1.0], PassRate(1, 1), "what can't be scored is neither right nor wrong"),
        ([None, None], PassRate(0, 0), "nothing could be scored"),
    ],
)
def test_a_rate_is_the_share_of_right_completions(values: list[float | None], rate: PassRate, why: str) -> None:
    assert PassRate.of(values) == rate, why


def test_a_row_that_was_not_scored_is_never_kept() -> None:
    assert not PassRateBounds(0.0, 1.0).keep(PassRate(0, 0))
    assert PassRateBounds(0.5, 0.5).keep(PassRate(1, 2)), "bounds are themselves within"


def test_the_histogram_counts_every_scored_row_once() -> None:
    rates = [PassRate(right, 10) for right in range(11)] + [PassRate(99, 100), PassRate(0, 0)]
    lines = histogram(rates, PassRateBounds(0.01, 0.95)).splitlines()[2:]
    assert [line.split("   ")[0].strip() for line in lines][::11] == ["never", "always"]
    assert [int(line.split("%")[-2].split()[-2]) for line in lines] == [1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1]


@pytest.mark.parametrize(
    ("content", "kind", "key"),
    [
        ("some notes\n", "unusable-file", None),
        ('{"rows": 3}\n', "unusable-file", None),
        ('{"settings": {"samples": 8}}\n{"key": "a"}\n', "unusable-file", None),
        ('{"settings": {"sam', "unusable-file", None),
        ('{"settings": {"samples": 16}}\n', "settings-mismatch", "samples"),
        ('{"settings": {"samples": 8, "top_k": 5}}\n', "settings-mismatch", "top_k"),
    ],
)
def test_a_file_of_other_rates_is_refused(tmp_path: Path, content: str, kind: str, key: str | None) -> None:
    path = tmp_path / "x.rates"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        PassRateFile(path, {"samples": 8})
    assert (error.value.kind, error.value.key) == (kind, key)


def test_rates_of_another_verifier_or_base_are_not_taken_over(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "models" / "tiny-arithmetic", tmp_path / "base")
    reward = tmp_path / "mine.py"
    reward.write_text("def mine(completions, **kwargs):\n    return [1.0] * len(completions)\n")
    words = ["--model_name_or_path", str(tmp_path / "base"), "--rewards", json.dumps([{"name": str(reward)}])]
    recipe = load_recipe(ROOT / "recipes" / "demo-arithmetic.yaml", words)
    task = load_task(recipe.task)

    def settings() -> dict[str, Any]:
        return script.settings_of(recipe, task, load_rewards(recipe.rewards)[0], 4)

    before = settings()
    assert settings() == before
    reward.write_text(reward.read_text().replace("1.0", "0.0"))
    other_reward = settings()
    assert other_reward != before
    with (tmp_path / "base" / "chat_template.jinja").open("a") as file:
        file.write("{# another #}")
    assert settings() != other_reward


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert (
        script.main(["--config", "recipes/demo-arithmetic.yaml", "--output", str(tmp_path / "file" / "x.jsonl")]) == 2
    )
    assert "--output" in capsys.readouterr().err
