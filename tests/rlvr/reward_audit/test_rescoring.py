"""Completions are read, completed from the task, and scored as in training; a run's own files can be rescored."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.formatting import one_line, visible
from rlvr.reward_audit.completions import read_completions
from rlvr.reward_audit.explain import texts
from rlvr.reward_audit.missing_columns import fill_columns
from rlvr.reward_audit.rescoring import BATCH, batches, score
from rlvr.reward_audit.reward_call import explanation
from rlvr.reward_audit.score_summary import column_stats, compare_with_recorded, disagreements, group_stats
from rlvr.scoring.registry import load_reward, load_rewards
from rlvr.scoring.reward import Reward
from tests.rlvr.training.test_train import BASE
from tests.support.input_errors import input_error
from tests.support.trainers import trainer_of


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def length(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return [float(len(completion)) for completion in completions]


def matches(completions: list[Any], *, final_answer: list[str], **kwargs: Any) -> list[float | None]:
    return [
        None if gold is None else float(completion == gold)
        for completion, gold in zip(completions, final_answer, strict=True)
    ]


LENGTH = Reward("length", length, weight=0.1)
MATCHES = Reward("matches", matches, columns=("final_answer",))
GATED = Reward("length", length, weight=0.1, gate="matches")


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def test_a_list_of_strings_becomes_several_rows(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.jsonl", [{"prompt": "p", "completions": ["a", "b"]}, {"prompt": "q", "completions": "c"}]
    )
    rows = read_completions(str(file), "completions").rows
    assert [(row["prompt"], row["completion"]) for row in rows] == [("p", "a"), ("p", "b"), ("q", "c")]
    assert [row["completion"] for row in read_completions(str(file), "completions", limit=1).rows] == ["a"]


def test_a_run_is_read_in_the_order_of_its_steps_without_repeats_evaluations_and_damaged_files(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    for step, text in ((10, "c"), (2, "a"), (3, "a"), (4, "b")):
        write(folder / f"completions_{step:05d}.parquet", [{"step": step, "prompt": "p", "completion": text}])
    write(folder / "evaluation_base.parquet", [{"prompt": "p", "completion": "e"}])
    (folder / "completions_00011.parquet").write_bytes(b"PAR1 half written")
    for place in (tmp_path, folder):
        source = read_completions(str(place))
        assert [(row["step"], row["completion"]) for row in source.rows] == [(2, "a"), (4, "b"), (10, "c")]
        notes = " ".join(source.notes)
        assert "evaluation_base.parquet" in notes and "completions_00011.parquet" in notes and "1 files" in notes


def test_a_folder_of_evaluations_alone_is_read(tmp_path: Path) -> None:
    write(tmp_path / "completions" / "evaluation_base.parquet", [{"prompt": "p", "completion": "e"}])
    assert [row["completion"] for row in read_completions(str(tmp_path)).rows] == ["e"]


@pytest.mark.parametrize(
    ("make", "hint", "why"),
    [
        (lambda folder: folder / "nothing.jsonl", "does not exist", "a typo"),
        (lambda folder: folder, "log_completions: true", "a folder that no run wrote to"),
        (lambda folder: write(folder / "x.jsonl", [{"completion": "a"}, {"response": "a"}]), "Row 1 of", "no column"),
        (
            lambda folder: write(folder / "x.jsonl", [{"completion": "a", "final_answer": float("nan")}]),
            "row 0, column final_answer",
            "NaN of a data frame",
        ),
    ],
)
def test_unreadable_completions_are_an_input_error(
    tmp_path: Path, make: Callable[[Path], Path], hint: str, why: str
) -> None:
    with pytest.raises(InputError, match=hint):
        read_completions(str(make(tmp_path)))


# ----------------------------------------------------------------------------------------------------------------------
# Columns from the task


def task_of(rows: list[dict[str, Any]]) -> Callable[[], Task]:
    def load() -> Task:
        data = Dataset.from_list(rows)
        return Task(train=data, validation=data.select([]), test=data.select([]))

    return load


def not_needed() -> Task:
    raise AssertionError("the task was loaded although nothing is missing")


CHAT = [{"role": "user", "content": "2+2?"}]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"prompt": CHAT}, "the prompt itself"),
        ({"prompt": [{"role": "user", "content": "2+2?", "tool_calls": None}]}, "as parquet gives it back, with nulls"),
        ({"prompt": "2+2?"}, "the last message as text"),
        ({"question": "How much?"}, "the question"),
        ({"prompt": CHAT, "final_answer": None}, "an empty entry"),
    ],
)
def test_a_missing_column_is_looked_up_by_the_prompt(row: dict[str, Any], why: str) -> None:
    rows = [{**row, "completion": "4"}]
    load = task_of([{"prompt": CHAT, "question": "How much?", "final_answer": "4"}])
    assert "final_answer of 1 rows" in (fill_columns(rows, [MATCHES], load, "sums") or "")
    assert rows[0]["final_answer"] == "4", why


def test_the_task_is_not_loaded_if_no_column_is_missing() -> None:
    assert fill_columns([{"completion": "4", "final_answer": "4"}], [MATCHES, LENGTH], not_needed, "t") is None


@pytest.mark.parametrize(
    ("rows", "row", "cause", "why"),
    [
        (
            [{"prompt": "a", "final_answer": "1"}, {"prompt": "no\x1b such"}],
            1,
            r"\(no\\x1b such\): the task t does not have this prompt",
            "not found",
        ),
        ([{"completion": "x"}], 0, "they have no prompt", "nothing to look up by"),
        ([{"prompt": "twice"}], 0, "several times, with different values", "two golds for one prompt: ambiguous"),
    ],
)
def test_a_row_whose_column_is_not_found_is_named(rows: list[dict[str, Any]], row: int, cause: str, why: str) -> None:
    golds = [("a", "1"), ("twice", "1"), ("twice", "2")]
    with input_error("missing-column", "final_answer", row, match=cause, why=why):
        fill_columns(rows, [MATCHES], task_of([{"prompt": p, "final_answer": gold} for p, gold in golds]), "t")


def test_an_optional_list_is_looked_up_if_the_task_has_it() -> None:
    def covers(completions: list[Any], *, keywords: list[str] | None = None, **kwargs: Any) -> list[float | None]:
        return [float(words == ["x"]) for words in keywords or [None] * len(completions)]  # type: ignore[list-item]

    reward = Reward("covers", covers)
    rows = [{"prompt": "p", "completion": "x"}, {"prompt": "elsewhere", "completion": "x"}]
    load = task_of([{"prompt": "p", "keywords": ["x"]}])
    fill_columns(rows, [reward], load, "t")
    assert score(rows, [reward]).values == [[1.0], [0.0]]
    rows = [{"prompt": "p", "completion": "x"}]
    fill_columns(rows, [Reward("covers", covers, options={"keywords": ["y"]})], load, "t")
    assert "keywords" not in rows[0], "the recipe sets it"


def test_a_reward_that_needs_arguments_of_training_is_refused() -> None:
    def by_tokens(completions: list[Any], completion_ids: list[Any], **kwargs: Any) -> list[float | None]:
        return [0.0 for _ in completions]

    with input_error("needs-training", "by_tokens", match="completion_ids"):
        fill_columns([{"completion": "x"}], [Reward("by_tokens", by_tokens)], not_needed, "t")


# ----------------------------------------------------------------------------------------------------------------------
# Scoring


def test_gates_masks_and_weights_are_those_of_training() -> None:
    rows = [
        {"completion": "ab", "final_answer": "ab"},
        {"completion": "abc", "final_answer": "ab"},
        {"completion": "abc", "final_answer": None},
    ]
    scores = score(rows, [MATCHES, GATED])
    assert scores.values == [[1.0, 2.0], [0.0, 3.0], [None, 3.0]]
    assert scores.effective == [[1.0, 2.0], [0.0, 0.0], [None, None]]
    assert scores.totals == [1.2, 0.0, None]


def test_text_after_a_chat_prompt_becomes_a_message() -> None:
    seen: list[Any] = []
    reward = Reward("r", lambda completions, **kwargs: seen.extend(completions) or [0.0 for _ in completions])
    score([{"prompt": CHAT, "completion": "4"}, {"prompt": "2+2?", "completion": "4"}], [reward])
    assert seen == [[{"role": "assistant", "content": "4"}], "4"]


def test_a_reward_receives_the_columns_of_the_data_alone() -> None:
    seen: dict[str, Any] = {}

    def r(completions: list[Any], *, final_answer: list[str], scale: float = 1, **kwargs: Any) -> list[float | None]:
        seen.update(kwargs, scale=scale)
        return [0.0 for _ in completions]

    reward = Reward("r", r, columns=("final_answer",), options={"scale": 2})
    written = {"r": 1.0, "rewards/r": 1.0, "advantage": 0.5, "step": 3, "correct": True, "scale": 7}
    score([{"prompt": "p", "completion": "c", "final_answer": "4", "difficulty": "hard", **written}], [reward])
    assert seen.keys() - {"log_extra", "log_metric"} == {"prompts", "completion_ended", "difficulty", "scale"}
    assert (seen["difficulty"], seen["scale"]) == (["hard"], 2)


def test_only_the_failing_rows_of_a_reward_are_unscored() -> None:
    def fussy(completions: list[Any], **kwargs: Any) -> list[float | None]:
        return [1.0 / len(completion) if completion != "nan" else math.nan for completion in completions]

    scores = score([{"completion": text} for text in ("ab", "", None, "nan", "a")], [Reward("fussy", fussy)])
    assert scores.values == [[0.5], [None], [None], [None], [1.0]]
    assert scores.raised[0].keys() == {1, 2, 3}
    assert scores.raised[0][1].startswith("ZeroDivisionError")
    assert scores.raised[0][2].startswith("TypeError"), "its own error, not that of the message about it"
    assert "returned nan for this row" in scores.raised[0][3]


def test_a_wrong_option_or_entry_is_an_input_error_with_the_row() -> None:
    def strict(completions: list[Any], *, final_answer: list[Any], **kwargs: Any) -> list[float | None]:
        for gold in final_answer:
            if not isinstance(gold, str):
                raise InputError("final_answer should be text, row 0: no")
        return [0.0 for _ in completions]

    rows = [{"completion": "", "final_answer": gold} for gold in ("1", "2", 3)]
    with pytest.raises(InputError, match="row 2, reward strict: final_answer should be text") as error:
        score(rows, [Reward("strict", strict, columns=("final_answer",))])
    assert error.value.row == 2 and "row 0" not in str(error.value)


@given(st.lists(st.integers(0, 2), max_size=40).map(sorted), st.integers(0, 2 * BATCH))
def test_batches_cover_every_row_once_and_no_two_steps(steps: list[int], more: int) -> None:
    rows = [{"step": step} for step in steps] + [{"step": 9}] * more
    parts = list(batches(rows))
    assert [number for batch in parts for number in batch] == list(range(len(rows)))
    assert all(len(batch) <= BATCH and len({rows[number]["step"] for number in batch}) == 1 for batch in parts)


HOSTILE = [
    (None, "null"),
    ("", "empty"),
    ([], "no messages"),
    ([{"role": "assistant", "content": None}, 5, "x"], "odd messages"),
    ({"a": 1}, "an object"),
    (5, "a number"),
    ("\x00\ud800\u202e\x1b[2J#### 4", "NUL, a lone surrogate, a terminal's commands"),
    ("#### 4\n" * 50_000, "long"),
    ("<think>" * 50_000, "thinking that never ends"),
    ("[" * 200_000, "brackets"),
]


@pytest.mark.parametrize(("completion", "why"), HOSTILE, ids=[why for _, why in HOSTILE])
def test_no_completion_breaks_scoring_or_explaining(completion: Any, why: str) -> None:
    rewards = load_rewards([RewardSpec("math_correctness"), RewardSpec("answer_format", gate="math_correctness")])
    row = {"prompt": "p", "completion": completion, "final_answer": "4"}
    started = time.process_time()
    scores = score([row, row], rewards)
    assert not any(scores.raised) and all(value is not None for value in scores.values[0])
    for reward in rewards:
        explanation(row, reward, rewards)
    assert sum(len(line) for _, lines in texts(row) for line in lines) < 100_000
    assert time.process_time() - started < 20


@given(st.text(st.characters(codec=None), max_size=60), st.integers(1, 30))
def test_visible_text_has_no_control_characters(text: str, most: int) -> None:
    for shown in (visible(text), one_line(text, most), one_line(text, most, end=True)):
        shown.encode("utf-8")
        assert not any(ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 or 0x202A <= ord(c) <= 0x202E for c in shown)
    assert "\n" not in one_line(text, most)
    assert len(one_line(text, most)) <= most + 1


# ----------------------------------------------------------------------------------------------------------------------
# Figures


def test_column_statistics_leave_out_unscored_rows() -> None:
    figures = column_stats([1.0, 0.0, None, 2.0])
    assert (figures.rows, figures.unscored, figures.mean, figures.std) == (3, 1, 1.0, 1.0)
    assert (figures.least, figures.most, figures.positive) == (0.0, 2.0, 2 / 3)
    assert column_stats([None]).mean is None and column_stats([3.0]).std == 0.0


@pytest.mark.parametrize(
    ("written", "differing", "why"),
    [
        ({"matches": 1.0}, [], "what TRL writes"),
        ({"matches": 0.0}, [0], "another value"),
        ({"matches": None}, [0], "it could not say then"),
        ({"rewards/matches": 0.0}, [0], "what an evaluation writes"),
        ({"rewards/length": 2.0000001}, [], "a float32"),
        ({"correct": True}, [], "the metric says at least 1"),
        ({"correct": False}, [0], "by hand"),
    ],
)
def test_recorded_values_are_compared(written: dict[str, Any], differing: list[int], why: str) -> None:
    # The second row has a number in every column, so that a column with None in the first is one of numbers.
    rows = [{"completion": "ab", "final_answer": "ab", **written}]
    rows.append({"completion": "ab", "final_answer": "ab", **{name: _now(name) for name in written}})
    (recorded,) = compare_with_recorded(rows, score(rows, [MATCHES, GATED]), MATCHES)
    assert (recorded.differing, recorded.compared) == (differing, 2), why


def _now(name: str) -> float:
    return 2.0 if name.endswith("length") else 1.0


def test_recorded_values_are_compared_after_gates_and_masks() -> None:
    rows = [
        {"completion": "x", "final_answer": "ab", "length": 0.0},
        {"completion": "x", "final_answer": None, "length": math.nan},
        {"completion": "x", "final_answer": "x", "length": 10**400},
        {"completion": "x", "final_answer": "x", "length": "long"},
    ]
    rows = [{**row, "correct": "yes"} for row in rows]
    [recorded] = compare_with_recorded(rows, score(rows, [MATCHES, GATED]), MATCHES)
    assert (recorded.compared, recorded.differing) == (2, [])


def test_disagreements_go_both_ways_and_skip_unscored_rows() -> None:
    rows = [
        {"completion": "ab", "final_answer": "x"},
        {"completion": "", "final_answer": ""},
        {"completion": "abc", "final_answer": "x"},
        {"completion": "ab", "final_answer": None},
        {"completion": "ab", "final_answer": "ab"},
    ]
    pairs = disagreements(score(rows, [MATCHES, LENGTH]))
    assert [(one.yes, one.no, one.rows) for one in pairs] == [("length", "matches", [0, 2]), ("matches", "length", [1])]


def test_groups_are_rows_of_one_prompt_and_step() -> None:
    rows = [{"prompt": p, "step": s} for p, s in (("a", 1), ("a", 1), ("a", 2), ("a", 2), ("b", 1), ("c", 1), ("c", 1))]
    groups = group_stats(rows, [1.0, 1.0 + 1e-12, 0.0, 1.0, 0.0, None, None], 8)
    assert (groups.count, groups.rows, groups.smallest, groups.largest, groups.without_spread) == (3, 6, 2, 2, 2)
    assert group_stats([{}, {}], [0.0, 0.0], 8).count == 0, "rows without a prompt are no group"


@pytest.mark.parametrize(("size", "count", "equal"), [(2, 2, 2), (4, 1, 0), (8, 1, 0), (3, 1, 0)])
def test_a_prompt_that_a_step_has_twice_has_two_groups(size: int, count: int, equal: int) -> None:
    groups = group_stats([{"prompt": "a", "step": 1}] * 4, [1.0, 1.0, 0.0, 0.0], size)
    assert (groups.count, groups.without_spread) == (count, equal)


# ----------------------------------------------------------------------------------------------------------------------
# explain


@pytest.mark.parametrize(
    ("body", "lines", "error", "why"),
    [
        ('log_extra("mine/why", [f"{completions[0]} {gold[0]}", "x"])', ["c g"], None, "a text of its own"),
        ('log_extra("mine/why", ["a\\nb"])', ["a", "b"], None, "several lines"),
        ('log_extra("extracted", [4])', ["extracted: 4"], None, "another column, with its name"),
        ('log_extra("mine/why", [f"x {scale}"])', ["x 2"], None, "the options"),
        ("pass", [], None, "nothing"),
        ("raise KeyError('boom')", [], "KeyError: 'boom'", "an exception"),
    ],
)
def test_a_reward_explains_itself_by_what_it_logs(
    tmp_path: Path, body: str, lines: list[str], error: str | None, why: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(completions, *, gold, scale: float = 1, log_extra=None, **kwargs):\n"
        f"    if log_extra is not None:\n        {body}\n    return [0.0 for _ in completions]\n"
    )
    reward = load_reward(RewardSpec(str(file), options={"scale": 2}))
    said, failure = explanation({"completion": "c", "gold": "g"}, reward, [reward])
    assert said == lines and (failure == "") == (error is None), why
    assert error is None or error in failure


def test_a_reward_without_the_hook_is_not_called_again() -> None:
    def costly(completions: list[Any], **kwargs: Any) -> list[float]:
        raise AssertionError("called")

    reward = Reward("costly", costly)
    assert explanation({"completion": "c"}, reward, [reward]) == ([], "")


# ----------------------------------------------------------------------------------------------------------------------
# What training logs, so that its completions can be scored again


@pytest.mark.slow
def test_a_real_run_is_rescored_from_its_files_alone(tmp_path: Path) -> None:
    """With two rewards that read one column, one of them logging it too, and with evaluation while training."""

    def ends_in(completions: list[Any], *, final_answer: list[str], **kwargs: Any) -> list[float | None]:
        return [
            float(text[-1]["content"].strip().endswith(gold))
            for text, gold in zip(completions, final_answer, strict=True)
        ]

    def close(completions: list[Any], *, final_answer: list[str], log_extra: Any, **kwargs: Any) -> list[float | None]:
        log_extra("final_answer", final_answer)
        return [
            len(text[-1]["content"]) / (1 + len(gold)) for text, gold in zip(completions, final_answer, strict=True)
        ]

    sums = [(number, number + 3) for number in range(10, 26)]
    data = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}], "final_answer": str(a + b)} for a, b in sums]
    )
    rewards = [Reward(f.__name__, f, columns=("final_answer",)) for f in (ends_in, close)]
    settings = {**BASE, "output_dir": str(tmp_path), "max_completion_length": 40, "num_completions_to_print": 2}
    settings |= {"per_device_eval_batch_size": 4, "eval_strategy": "steps", "eval_steps": 1}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    task = Task(train=data, validation=data.select(range(2)), test=data.select([]))
    trainer_of(recipe, task, rewards).train()

    rows = read_completions(str(tmp_path)).rows
    assert len(rows) == 16 and {row["step"] for row in rows} == {1, 2}
    for row in rows:  # each gold stands beside its own prompt
        a, b = (int(word.rstrip("?")) for word in row["prompt"][0]["content"].split()[2::2])
        assert row["final_answer"] == str(a + b)
    assert fill_columns(rows, rewards, not_needed, "t") is None
    recorded = compare_with_recorded(rows, score(rows, rewards), None)
    assert [(one.name, one.compared, one.differing) for one in recorded] == [("ends_in", 16, []), ("close", 16, [])]


def test_a_reward_that_edits_messages_changes_nothing_for_others() -> None:
    def edits(completions: list[Any], **kwargs: Any) -> list[float]:
        for completion in completions:
            completion[-1]["content"] = "edited"
        return [1.0] * len(completions)

    def reads(completions: list[Any], **kwargs: Any) -> list[float]:
        return [float(completion[-1]["content"] == "as written") for completion in completions]

    written = [{"role": "assistant", "content": "as written"}]
    rows: list[Any] = [{"prompt": [{"role": "user", "content": "?"}], "completion": written}]
    assert score(rows, [Reward("edits", edits), Reward("reads", reads)]).values == [[1.0, 1.0]]
    assert written[0]["content"] == "as written"
