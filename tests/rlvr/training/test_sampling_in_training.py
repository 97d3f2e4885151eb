"""Dynamic sampling and a curriculum in whole runs of the demonstration, worked out by hand."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from datasets import Dataset

from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from rlvr.training.curriculum import easy_first
from tests.support.dynamic_sampling_runs import (
    DYNAMIC,
    EXTRA,
    GROUP,
    Call,
    FinishedRun,
    count_without_signal,
    expected_batch,
    generations,
    run,
    words_for,
)
from tests.support.launching import Start, accelerated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """Six steps with dynamic sampling, left alone."""
    finished = run(tmp_path_factory.mktemp("whole"), *DYNAMIC)
    assert finished.code == 0
    return finished


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory, start: Start) -> FinishedRun:
    folder = tmp_path_factory.mktemp("ranks")
    words = words_for(folder, *DYNAMIC, "--max_steps", "2")
    launch = start(accelerated("ddp", *words), folder / "run", WITHOUT_REPORT="1").wait()
    assert launch.codes() == [0, 0], launch.output()
    return FinishedRun(folder)


@pytest.fixture(params=["whole", "on_two_ranks"])
def finished(request: pytest.FixtureRequest) -> FinishedRun:
    run: FinishedRun = request.getfixturevalue(request.param)
    return run


# ── Dynamic sampling ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_further_round_is_as_large_as_the_rank_that_lacks_most_needs_and_there_are_no_more_than_wanted(
    finished: FinishedRun,
) -> None:
    sizes = set()
    for rounds in generations(finished).values():
        for number in range(1, len(rounds)):
            missing = count_without_signal(expected_batch(rounds[:number]))
            assert [len(groups) for groups in rounds[number]] == [max(missing)] * len(missing)
        assert max(count_without_signal(expected_batch(rounds))) == 0 or len(rounds) == 1 + EXTRA
        sizes.add(len(rounds))
    assert max(sizes) == 1 + EXTRA, "or this test shows little"


def test_every_completion_has_the_gold_of_its_own_question(finished: FinishedRun) -> None:
    train = load_task(TaskSpec("arithmetic")).train
    gold = dict(zip(train["question"], train["final_answer"], strict=True))
    for step in generations(finished):
        table = finished.table(step + 1)
        assert list(table["final_answer"]) == [gold[prompt[-1]["content"]] for prompt in table["prompt"]]


def test_the_table_holds_the_batch_with_replaced_groups_and_advantages_as_worked_out(finished: FinishedRun) -> None:
    for step, rounds in generations(finished).items():
        batch = [group for groups in expected_batch(rounds) for group in groups]
        table = finished.table(step + 1)
        assert [prompt[-1]["content"] for prompt in table["prompt"]] == [
            group.question for group in batch for _ in range(GROUP)
        ]
        assert [completion[-1]["content"] for completion in table["completion"]] == [
            text for group in batch for text in group.texts
        ]
        for column, values in (
            ("math_correctness", [value for group in batch for value in group.outcomes]),
            ("recorded", [value for group in batch for value in group.shaped]),
            ("advantage", [value for group in batch for value in group.advantages]),
        ):
            assert list(table[column]) == pytest.approx(values, abs=2e-3), (step, column)


def test_the_metrics_say_what_was_generated_and_what_was_kept(finished: FinishedRun) -> None:
    lines = {line["step"]: line for line in finished.lines}
    for step, rounds in generations(finished).items():
        line, batch = lines[step + 1], expected_batch(rounds)
        first = [group for groups in rounds[0] for group in groups]
        kept = [group for groups in batch for group in groups]
        generated = sum(len(groups) for ranks in rounds for groups in ranks)
        assert line["dynamic_sampling/rounds"] == len(rounds)
        assert line["dynamic_sampling/replaced_groups"] == sum(
            old is not new for old, new in zip(first, kept, strict=True)
        )
        assert line["dynamic_sampling/unfilled_groups"] == sum(count_without_signal(batch))
        assert line["dynamic_sampling/kept_fraction"] == pytest.approx(
            (len(kept) - sum(count_without_signal(batch))) / generated
        )
        rewards = [reward for group in kept for reward in group.rewards]
        assert (line["reward/min"], line["reward/max"]) == pytest.approx((min(rewards), max(rewards)))
        advantages = [abs(value) for group in kept for value in group.advantages]
        assert line["advantages/abs_mean"] == pytest.approx(statistics.mean(advantages), abs=1e-3)
        of_first = [reward for group in first for reward in group.rewards]
        assert line["reward"] == pytest.approx(statistics.mean(of_first)), "that of the sampler's own prompts"
        right = [outcome for group in first for outcome in group.outcomes]
        assert line["rewards/math_correctness/mean"] == pytest.approx(statistics.mean(right))


def test_tokens_are_counted_in_all_rounds(whole: FinishedRun) -> None:
    rounds, batch = generations(whole)[0], whole.batches[0]
    assert len(rounds) > 1
    in_batch = int(batch["prompt_mask"].sum() + batch["completion_mask"].sum())
    generated = sum(len(groups) for ranks in rounds for groups in ranks)
    assert whole.lines[0]["num_tokens"] == pytest.approx(in_batch * generated / len(rounds[0][0]), rel=0.15)


# ── Interrupted and continued ─────────────────────────────────────────────────────────────────────────────────────────


def a_further_round(calls: Sequence[Call], after: int) -> int:
    """The number of a call, counted from 1, that is a further round of the first such generation after a step."""
    return next(
        number
        for number, (before, call) in enumerate(zip(calls, calls[1:], strict=False), start=2)
        if call["step"] == before["step"] >= after
    )


def test_a_run_that_was_stopped_and_killed_in_further_rounds_continues_as_if_it_had_not(
    whole: FinishedRun,
    tmp_path: Path,
    start: Start,
) -> None:
    (expected,) = whole.ranks()
    words = words_for(tmp_path, *DYNAMIC)
    (tmp_path / "end").write_text(f"SIGTERM {a_further_round(expected, after=0)}")
    assert run(tmp_path, *DYNAMIC).code == 75
    (calls,) = FinishedRun(tmp_path).ranks()
    assert calls == expected[: len(calls)] and {call["step"] for call in calls} == {0}

    killed_at = a_further_round(expected, after=4)
    (tmp_path / "end").write_text(f"SIGKILL {killed_at}")
    launch = start(["run_grpo", *words], tmp_path / "run").wait()
    assert launch.codes() == [-9], launch.output()
    assert FinishedRun(tmp_path).ranks() == [expected[:killed_at]], "the same prompts and completions"

    ended = run(tmp_path, *DYNAMIC)
    assert ended.code == 0
    # What came after the last checkpoint was done twice, equally.
    (calls,) = ended.ranks()
    again = calls[killed_at:]
    assert [call["step"] for call in again][0] == 4 and again == expected[-len(again) :]
    assert_same(ended, whole)


def assert_same(one: FinishedRun, other: FinishedRun) -> None:
    """Bit for bit: metrics, completions and the adapter."""
    assert one.without_clock == other.without_clock
    assert one.tables() == other.tables()
    assert one.adapter() == other.adapter()


# ── A curriculum ──────────────────────────────────────────────────────────────────────────────────────────────────────

DIFFICULTIES = [3, 1, 2, 1, 3, 2, 1, 3, 2, 1]


def graded(folder: Path) -> list[str]:
    """The words for a task with a row for each difficulty."""
    rows = load_task(TaskSpec("arithmetic")).train.select(range(len(DIFFICULTIES)))
    lines = [
        {"prompt": row["prompt"], "final_answer": row["final_answer"], "difficulty": difficulty}
        for row, difficulty in zip(rows, DIFFICULTIES, strict=True)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = {"name": "jsonl", "path": str(folder / "rows.jsonl"), "test_fraction": 0.0}
    words = ["--task", json.dumps(task), "--curriculum", "easy_first", "--max_steps", "-1", "--num_train_epochs", "2"]
    return [*words, "--max_completion_length", "8", "--temperature", "3.0"]


def test_a_curriculum_shows_easy_rows_first_once_an_epoch_also_when_it_is_interrupted(tmp_path: Path) -> None:
    words = graded(tmp_path)
    words_for(tmp_path)
    (tmp_path / "end").write_text("SIGTERM 3")
    assert run(tmp_path, *words).code == 75
    finished = run(tmp_path, *words)
    assert finished.code == 0
    assert [line["step"] for line in finished.lines] == list(range(1, 9)), (
        "two steps a generation, two of them an epoch"
    )
    order = [group.question for rounds in generations(finished).values() for group in rounds[0][0]]
    rows = load_task(TaskSpec("arithmetic")).train["question"][: len(DIFFICULTIES)]
    assert order == [rows[row] for row in easy_first(Dataset.from_dict({"difficulty": DIFFICULTIES}), 16, seed=0)]
    level = dict(zip(rows, DIFFICULTIES, strict=True))
    # Of the ten rows sixteen are seen: all of them once, and of each difficulty some twice.
    assert [level[question] for question in order] == 6 * [1] + 5 * [2] + 5 * [3]
    assert set(order) == set(rows)
