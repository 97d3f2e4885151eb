"""A profile as a user meets it: what it prints, that it leaves nothing, and when it refuses the rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.preflight.profile import steps_of_each
from rlvr.preflight.sampled_scores import MIN_PROMPTS, ScoredCompletions, check_spread
from rlvr.scoring.reward import Reward
from tests.support.input_errors import input_error
from tests.support.launching import DEMO, LORA, Start, accelerated

# Two prompts a generation, four completions each, and two updates of each generation. No final answer fits 8 tokens.
SHORT = (
    *("--config", str(DEMO), *LORA, "--num_generations", "4", "--per_device_train_batch_size", "4"),
    *("--steps_per_generation", "2", "--max_completion_length", "8", "--temperature", "2.0", "--learning_rate", "1e-6"),
    *("--report_to", "none"),
    *("--task.train_rows", "64", "--task.test_rows", "80", "--mask_truncated_completions", "false"),
)
REWARDS = """
import zlib

def drawn(completions, **kwargs):
    return [zlib.crc32(one[-1]["content"].encode()) % 100 / 100 for one in completions]

def always(completions, **kwargs):
    return [1.0] * len(completions)
"""


def rewards(folder: Path, *names: str) -> list[str]:
    """Words for these rewards, of files in the folder, and math_correctness."""
    specs: list[dict[str, Any]] = []
    for name in names:
        (folder / f"{name}.py").write_text(REWARDS)
        is_own = name != "math_correctness"
        specs.append({"name": str(folder / f"{name}.py") if is_own else name, "weight": 1.0 if is_own else 2.0})
    return ["--rewards", json.dumps(specs)]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a profile printed, its exit code, and what was in its folder afterwards."""
    place, own = tmp_path_factory.mktemp("profile"), tmp_path_factory.mktemp("rewards")
    words = [*SHORT, *rewards(own, "math_correctness", "drawn", "always"), "--output_dir", str(place / "runs" / "x")]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("rlvr.console.info", lambda text="": lines.extend(text.split("\n")))
        code = run_grpo.main([*words, "--profile", "--machine", "ml.g5.xlarge"])
    return {"code": code, "lines": lines, "files": list(place.rglob("*"))}


@pytest.mark.slow
def test_a_profile_leaves_nothing(printed: dict[str, Any]) -> None:
    assert printed["code"] == 0 and printed["files"] == []


def test_a_profile_shows_every_part_and_the_projection_last(printed: dict[str, Any]) -> None:
    text = "\n".join(printed["lines"])
    parts = (
        "generation 2",
        "rewards  ",
        "old log-probabilities",
        "updates  ",
        "(2)",
        "tokens per second",
        "cut off",
        "peak memory",
        "weighted sum",
        "math_correctness",
        "sampled completions are right",
        "groups have a spread",
        "completion  [assistant]",
        "of 64 held-out rows",
        "projection",
        "120 updates",
        "2 evaluations, 160 rows",
        "saving the trained weights",
        "whole run",
    )
    places = [text.find(part) for part in parts if part != "120 updates"]
    assert min(places) > 0, [part for part in parts if part not in text]
    assert text.count("completion  [assistant]") == 3
    assert "whole run" in printed["lines"][-2] and printed["lines"][-1].lstrip().startswith("dollars (ml.g5.xlarge")


def test_a_profile_fits_80_columns_without_being_wrapped(printed: dict[str, Any]) -> None:
    start = next(number for number, line in enumerate(printed["lines"]) if "generation 1" in line)
    texts = ("    prompt ", "    completion ", "  warning: ")
    assert [line for line in printed["lines"][start:] if len(line) > 80 and not line.startswith(texts)] == []


@pytest.mark.slow
def test_a_constant_total_is_an_error_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "rewards"
    own.mkdir()
    words = [*SHORT, *rewards(own, "always"), "--output_dir", str(tmp_path / "runs" / "x"), "--profile"]
    words += ["--per_device_train_batch_size", "64", "--steps_per_generation", "1"]  # 16 prompts a generation
    assert run_grpo.main(words) == 2
    captured = capsys.readouterr()
    assert "projection" not in captured.out and "weighted sum" in captured.out
    assert [path.name for path in tmp_path.iterdir()] == ["rewards"]


@pytest.mark.slow
def test_a_profile_ends_after_the_step_that_passes_its_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "rewards"
    own.mkdir()
    words = [*SHORT, *rewards(own, "math_correctness", "drawn"), "--output_dir", str(tmp_path / "runs" / "x")]
    assert run_grpo.main([*words, "--profile", "0.001"]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "after 1 update of 4" in text and "generation 2" not in text and "whole run" in lines[-1]
    assert "held-out rows" not in text, "an evaluation may take longer than training"


def table(*totals: float | None) -> ScoredCompletions:
    reward = Reward("r", lambda completions, **kwargs: [0.0])
    rows = [[total] for total in totals]
    return ScoredCompletions([reward], [""] * len(rows), [""] * len(rows), rows, list(totals), [None] * len(rows), 2)


@pytest.mark.parametrize(
    ("totals", "why"),
    [((0.0, 0.0), "all alike"), ((1.2, 1.2 + 1e-9), "alike but for rounding"), ((None, None), "none could be scored")],
)
def test_totals_without_a_spread_are_refused(totals: tuple[float | None, ...], why: str) -> None:
    with input_error("constant-reward", "rewards", why=why):
        list(check_spread(table(*totals * MIN_PROMPTS)))


def test_few_prompts_without_a_spread_are_a_warning() -> None:
    [problem] = check_spread(table(*[0.0] * 2 * (MIN_PROMPTS - 1)))
    assert (problem.kind, problem.level) == ("constant-reward", "warning") and "31 prompts" in str(problem)


def test_totals_with_a_spread_are_not_refused() -> None:
    assert list(check_spread(table(0.0, 1.0, None))) == []


@pytest.mark.parametrize(
    ("settings", "steps", "why"),
    [
        ({"gradient_accumulation_steps": 1, "steps_per_generation": 4}, 4, "each pass is an update"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2}, 4, "trained on twice"),
        ({"gradient_accumulation_steps": 8, "steps_per_generation": 4}, 1, "an update takes two generations"),
        ({"per_device_train_batch_size": 4, "generation_batch_size": 32}, 4, "over two processes"),
    ],
)
def test_a_generation_counts_all_its_updates(settings: dict[str, Any], steps: int, why: str) -> None:
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    assert steps_of_each(recipe, 2) == steps, why


@pytest.mark.parametrize(
    "words",
    [
        ["--profile", "0"],
        ["--profile", "--check"],
        ["--machine", "H100"],
        ["--profile", "--json"],
    ],
)
def test_flags_that_go_with_another_one_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_grpo.parse_arguments(["--config", str(DEMO), *words])
    assert ended.value.code == 2


@pytest.mark.slow
def test_two_processes_are_profiled_together(start: Start, tmp_path: Path) -> None:
    run, own = tmp_path / "runs" / "x", tmp_path / "rewards"
    run.parent.mkdir()
    own.mkdir()
    launch = start(accelerated("cpu", *SHORT, *rewards(own, "drawn"), "--profile"), run).wait()
    assert launch.codes() == [0, 0], launch.output()
    assert launch.output().count("whole run") == 1 and "over 2 processes" in launch.output()
    assert [path.name for path in run.parent.iterdir()] == [launch.notes.name]
