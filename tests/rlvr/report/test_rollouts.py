"""The completions in a report: their choice, their size, and hostile text."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.artifacts.evaluation import Evaluation
from rlvr.report.packing import PackedRollouts, pack
from rlvr.report.page import write_report
from rlvr.report.rollouts import BASE, TRAINED, Rollout, RunRollouts, read_rollouts
from rlvr.report.run_reader import RunRecord, read_run
from tests.support.report_runs import CONVERSATION, HOSTILE, TOOL_COLUMNS, carried, read, write_run

# Ends of scripts, of HTML comments and of JavaScript lines, changes of writing direction, invalid characters.
STRANGE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "a\u2028b\u2029c",
    "\u202e\u200b\ufeff",
    "\x00\x01\x1b[31m",
    "\ud800 lone",
    "{{ 7 * 7 }}{% raw %}",
    "汉字 🎲 ß",
]


def rollout(stage: int, number: int, prompt: str, text: str = "text", **row: Any) -> Rollout:
    return Rollout(stage, number, prompt, {"prompt": prompt, "completion": text, **row}, (1.0,), 1.0, True)


def unpacked(packed: PackedRollouts | None) -> dict[str, Any]:
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed.data)))


def run_of(tmp_path: Path) -> RunRecord:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n', encoding="utf-8")
    return read_run(tmp_path)


@pytest.mark.slow
def test_a_short_run_is_packed_completely(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 3, trained=[True, True, None])
    data = carried(write_report(folder))
    assert data["rewards"] == ["math_correctness"]
    assert data["stage"].count(BASE) == data["stage"].count(TRAINED) == 3
    assert sorted({stage for stage in data["stage"] if stage >= 0}) == [1, 4]
    step_four = [place for place, stage in enumerate(data["stage"]) if stage == 4]
    assert [data["text"][place].strip() for place in step_four] == [f"completion {at} of step 4" for at in range(4)]
    assert [data["values"][place] for place in step_four] == [[0.0], [0.0], [1.0], [0.0]]
    assert [data["right"][place] for place in step_four] == [0, 0, 1, 0]
    assert [data["right"][place] for place, stage in enumerate(data["stage"]) if stage == TRAINED] == [1, 1, None]
    assert dict(data["columns"][0])["source"].strip() == "addition"


def test_a_conversation_is_packed_turn_by_turn(tmp_path: Path) -> None:
    item = Rollout(1, 0, "p", {"prompt": "p", "completion": CONVERSATION, **TOOL_COLUMNS}, (1.0,), 1.0, True)
    data = unpacked(pack(run_of(tmp_path), RunRollouts([item, rollout(1, 1, "p", "plain")], ("r",))))
    (conversation, plain), (reason, none) = data["turns"], data["cut"]
    assert [label for label, _ in conversation] == [
        "turn 1, assistant",
        "turn 1, call",
        "turn 1, call",
        "result of run",
        "result of a tool",
        "turn 2, call",
    ]
    assert (reason, none) == ("cut off by max_tool_calling_iterations", "")
    assert data["columns"] == [[["time in tools", "0.25 s"]], []]
    assert (data["text"], plain) == (["", "plain"], 0), "no text is carried twice"
    assert sum(len(text) for _, text in conversation) < 8200, "the long result is shortened"


def test_a_report_runs_no_reward(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False], trained=[True])
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef trap(prompts, completions): return [0.0]\n")
    (folder / "recipe.yaml").write_text(f"rewards: [{{name: '{trap}:trap'}}]\n", encoding="utf-8")
    write_report(folder)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
def test_strange_texts_survive_packing(tmp_path: Path, text: str) -> None:
    packed = pack(run_of(tmp_path), RunRollouts([rollout(1, 0, text, text, source=text)], ("r",)))
    assert packed is not None and re.fullmatch(r"[A-Za-z0-9+/=]+", packed.data)
    data = unpacked(packed)
    assert data["text"] == [text]
    assert data["prompts"] == [[["", text]]]
    assert data["columns"] == [[["source", text]]]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.text()), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_packing_keeps_every_completion(rows: list[tuple[int, str, str]]) -> None:
    items = [rollout(stage, number, prompt, text) for number, (stage, prompt, text) in enumerate(rows)]
    data = unpacked(pack(RunRecord(Path(), {}, "", [], Evaluation(), {}, {}, "", ()), RunRollouts(items, ("r",))))
    found = {
        (stage, data["prompts"][prompt][0][1], text)
        for stage, prompt, text in zip(data["stage"], data["prompt"], data["text"], strict=True)
    }
    assert found == {(stage, prompt, text) for stage, prompt, text in rows}


def long_run(draw: random.Random) -> list[Rollout]:
    """100 steps of two groups of four."""
    items = []
    for step in range(1, 101):
        for group in range(2):
            for _ in range(4):
                text = "".join(draw.choices("abcdefgh ", k=400))
                items.append(rollout(step, len(items), f"prompt {step} {group}", text))
    for stage in (BASE, TRAINED):
        items += [rollout(stage, number, f"held out {number}", "x" * 400) for number in range(100)]
    return items


def test_a_long_run_is_packed_as_whole_groups_from_all_steps(tmp_path: Path) -> None:
    items = long_run(random.Random(0))
    packed = pack(run_of(tmp_path), RunRollouts(items, ("r",)), limit=150_000)
    assert packed is not None
    data = unpacked(packed)
    assert packed.shown == len(data["text"]) < len(items)
    groups: dict[tuple[int, int], int] = {}
    for stage, prompt in zip(data["stage"], data["prompt"], strict=True):
        groups[stage, prompt] = groups.get((stage, prompt), 0) + 1
    assert {size for (stage, _), size in groups.items() if stage >= 0} == {4}, "whole groups"
    steps = {stage for stage in data["stage"] if stage >= 0}
    assert {1, 100} <= steps and len(steps) > 30 and max(steps - {100}) > 90, "from the whole run"
    base = {prompt for stage, prompt in groups if stage == BASE}
    assert base and base == {prompt for stage, prompt in groups if stage == TRAINED}, "base beside trained"
    assert sum(map(len, data["text"])) <= 150_000


def test_the_compressed_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.report.packing.MAX_BYTES", 40_000)
    packed = pack(run_of(tmp_path), RunRollouts(long_run(random.Random(1)), ("r",)))
    assert packed is not None
    assert 20_000 < len(base64.b64decode(packed.data)) <= 40_000


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False], trained=[True])
    (folder / "completions" / "completions_00004.parquet").write_bytes(b"PAR1")
    assert "Left out: completions_00004.parquet, which can't be read." in read(write_report(folder)).text


def test_a_total_is_the_weighted_sum_and_missing_if_a_reward_is(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = write_run(tmp_path / "run", base=[False], trained=[True])
    common = {"step": 1, "prompt": HOSTILE, "completion": "text"}
    rows: Sequence[dict[str, Any]] = [
        {**common, "math_correctness": 1.0, "answer_format": 1.0},
        {**common, "math_correctness": None, "answer_format": 1.0},
    ]
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "completions" / "completions_00001.parquet")
    first, second = [item for item in read_rollouts(read_run(folder)).items if item.stage == 1]
    assert first.total == pytest.approx(1.2) and first.right is True
    assert second.total is None and second.right is None
