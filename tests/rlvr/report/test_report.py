"""The report page: its content, its safety, and its tolerance of incomplete run directories."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.artifacts.directory import write_status
from rlvr.artifacts.evaluation import (
    Average,
    Estimate,
    Evaluation,
    Gain,
    Interval,
    Score,
    TaskResults,
    from_json,
)
from rlvr.artifacts.evaluation_summary import bars, table, verdict
from rlvr.evaluation.scores import summarise
from rlvr.evaluation.statistics import paired_difference
from rlvr.report.page import write_report
from rlvr.report.rollouts import read_rollouts, reference_of
from rlvr.report.run_reader import read_run
from rlvr.report.samples import changed_answers
from rlvr.report.svg_charts import Series, thin_out
from tests.support.report_runs import HOSTILE, read, record, write_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path / "my-run", base=[False] * 30 + [True] * 10, trained=[True] * 39 + [False])


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the same run, for tests that only read it."""
    folder = tmp_path_factory.mktemp("page") / "my-run"
    return write_report(write_run(folder, base=[False] * 30 + [True] * 10, trained=[True] * 39 + [False]))


def evaluation(base: list[bool], trained: list[bool]) -> Evaluation:
    def score(rights: list[bool]) -> Score:
        return summarise([record(row, right) for row, right in enumerate(rights)], ["math_correctness"])

    return Evaluation(base=score(base), trained=score(trained), difference=paired_difference(base, trained))


def replace_score(content: Evaluation, **changed: int) -> Evaluation:
    """The evaluation with a changed score of the base model."""
    assert content.base is not None
    return replace(content, base=replace(content.base, **changed))


# ── The verdict ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("base", "trained", "kind", "words", "why"),
    [
        ([False] * 40, [True] * 40, "better", "rose from 0.0 % to 100.0 %", "a gain beyond chance"),
        ([True] * 40, [False] * 40, "worse", "fell from 100.0 % to 0.0 %", "a loss beyond chance"),
        ([False] * 40, [True] + [False] * 39, "unclear", "the interval includes 0", "a gain that may be chance"),
        ([True] * 40, [False] + [True] * 39, "unclear", "the interval includes 0", "a loss that may be chance"),
        ([True, False] * 20, [True, False] * 20, "unclear", "stayed at 50.0 %", "nothing changed"),
        ([False], [True], "unclear", "On 1 held-out problem the", "one problem proves nothing; singular"),
    ],
)
def test_the_verdict_claims_a_change_only_beyond_chance(
    base: list[bool], trained: list[bool], kind: str, words: str, why: str
) -> None:
    said = verdict(evaluation(base, trained))
    assert said.kind == kind, why
    assert words in said.sentence, why


@pytest.mark.parametrize(
    ("change", "words", "why"),
    [
        (lambda content: Evaluation(), "There is no held-out evaluation", "no evaluation.json"),
        (lambda content: replace(content, trained=None), "Only the base model was evaluated: 0.0 %", "not done"),
        (lambda content: replace(content, base=None), "Only the trained model was evaluated: 100.0 %", "adapter only"),
        (lambda content: replace(content, difference=None), "the interval of the difference is unknown", "no pairing"),
        (lambda content: replace_score(content, rows=0), "judge none", "the verifier failed"),
        (
            lambda content: replace_score(content, unscored=2),
            "did not judge 2 of 11 answers of the base model, so",
            "the accuracies are of different rows",
        ),
    ],
)
def test_without_a_comparison_the_verdict_is_unknown(
    change: Callable[[Evaluation], Evaluation], words: str, why: str
) -> None:
    said = verdict(change(evaluation([False] * 9, [True] * 9)))
    assert said.kind == "unknown", why
    assert words in said.sentence, why


def test_the_page_counts_rows_that_the_verifier_failed_to_judge(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 58 + [None, None], trained=[True] * 60)
    assert "up to 2 problems that the verifier failed to judge" in read(write_report(folder)).text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
SCORES = st.fixed_dictionaries(
    {},
    optional={
        "rows": JSON | st.integers(0, 9),
        "correct": JSON | st.integers(0, 9),
        "accuracy": JSON | st.floats(0, 1),
        "interval": JSON | st.just({"low": 0.1, "high": 0.9}),
        "rewards": JSON | st.just({"x": math.nan}),
        "unscored": JSON,
        "cut_off": JSON,
        "by_source": JSON | st.dictionaries(st.text(), JSON),
    },
)


MODELS = {"base": SCORES, "trained": SCORES, "difference": JSON | SCORES}
TASK = st.fixed_dictionaries({}, optional=MODELS)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {}, optional={**MODELS, "tasks": JSON | st.dictionaries(st.text(), JSON | TASK), "average": JSON | TASK}
    )
)
def test_a_malformed_evaluation_breaks_neither_verdict_nor_table_nor_bars(content: dict[str, Any]) -> None:
    try:
        found = from_json(Evaluation, content)
    except ValueError:
        return
    verdict(found)
    table(found)
    bars(found)
    bars(found, "task")


def test_of_several_tasks_the_table_has_a_row_each_and_the_verdict_is_on_their_mean() -> None:
    """Of 40 rows of one task and 10 of another, each task counts half."""
    parts = {"large": evaluation([False] * 40, [False] * 40), "small": evaluation([False] * 10, [True] * 10)}
    whole = evaluation([False] * 50, [False] * 40 + [True] * 10)
    interval = Interval(0.4, 0.6)
    average = Average(Estimate(0.0, Interval(0.0, 0.1)), Estimate(0.5, interval), Gain(0.5, interval))
    tasks = {
        label: TaskResults(base=part.base, trained=part.trained, difference=part.difference)
        for label, part in parts.items()
    }
    content = replace(whole, tasks=tasks, average=average)
    shown = table(content)
    assert shown is not None and [row[0] for row in shown.rows[:4]] == [
        "large",
        "small",
        "mean of the tasks",
        "reward math_correctness",
    ]
    assert shown.rows[1][3].startswith("+100.0 points") and shown.rows[2][3].startswith("+50.0 points")
    said = verdict(content)
    assert said.kind == "better" and "50.0 %" in said.sentence and "20.0 %" not in said.sentence
    assert [detail.partition(":")[0] for detail in said.details[:2]] == ["large", "small"]
    assert [bar[0] for bar in bars(content, "task")[0]] == ["all (50)", "large (40)", "small (10)"]


def test_the_table_shows_no_change_between_accuracies_of_different_rows() -> None:
    content = evaluation([False] * 9, [True] * 9)
    compared = table(replace_score(content, unscored=2))
    assert compared is not None
    rows = {cells[0]: cells[1:] for cells in compared.rows}
    assert [rows[name][2] for name in ("accuracy", "95 % interval", "right")] == ["", "", ""]
    assert rows["not judged"] == ("2", "0", "−2")


def test_the_table_shows_the_change_of_every_figure() -> None:
    shown = table(evaluation([False] * 3 + [True], [True] * 4))
    assert shown is not None
    assert shown.header == ("base", "trained", "change")
    rows = {row[0]: row[1:] for row in shown.rows}
    assert rows["accuracy"] == ("25.0 %", "100.0 %", "+75.0 points")
    assert rows["right"] == ("1 of 4", "4 of 4", "+3")
    assert rows["reward math_correctness"] == ("0.25", "1.00", "+0.75")
    assert rows["cut off"] == ("0.0 %", "0.0 %", "0")


# ── The page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_shows_verdict_setup_rewards_and_completions(page_path: Path) -> None:
    assert page_path.parts[-2:] == ("my-run", "report.html")
    text = re.sub(r"\s+", " ", read(page_path).text)
    for words in (
        "my-run",
        "On 40 held-out problems the accuracy rose from 25.0 % to 97.5 %",
        "addition (20)",
        "a LoRA adapter of rank 16, on q_proj, v_proj, over the frozen 4-bit base",
        "arithmetic (shots 2)",
        "groups of 8 completions, temperature 0.9, at most 44 tokens",
        "Launcherzero3",
        "CPUa CPU, 2 cores",
        "GPU2 x a GPU",
        "0.2 × answer_format, only if math_correctness is positive",
        "math_correctness (weight 1)",
        "4 of 4",
        "Completions that reached the limit of 44 tokens",
        "30 problems; the first 3 of the split",
        "Held out: base was right, trained is wrong",
        "1 problem:",
    ):
        assert words in text
    assert "Training is incomplete" not in text
    assert "too short to judge: 4 log lines" in text


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("running", "Training is incomplete: the last logged step is 4 of 4. It is still in progress, or was killed."),
        ("interrupted", "Training was interrupted: the last logged step is 4 of 4. The same command continues it."),
        ("trained", ""),
        ("done", ""),
    ],
)
def test_the_state_of_an_incomplete_run_is_a_sentence(run_dir: Path, status: str, state: str) -> None:
    write_status(run_dir, status)
    record = read_run(run_dir)
    assert (record.state, record.notes) == (state, ())


@pytest.mark.parametrize(
    ("name", "content", "words", "why"),
    [
        ("run.json", '{"status": "paused for the night"}', "run.json is missing or can't be read", "no status of ours"),
        ("run.json", None, "run.json is missing or can't be read", "not all files were copied"),
        ("run.json", '{"status": "do', "run.json is missing or can't be read", "half written"),
        ("recipe.yaml", "- a\n- list", "recipe.yaml is not a YAML mapping", "not our recipe"),
        ("evaluation.json", '{"base": {"ro', "evaluation.json can't be read", "half written"),
        ("metrics.jsonl", '{"step": 1}\n{"st', "The last line of metrics.jsonl is incomplete", "going on"),
        ("metrics.jsonl", '{"step": 1}\nnonsense\n{"step": 3}\n', "damaged: 1 line can't be read", "a flipped bit"),
        ("metrics.jsonl", '{"step": 1}\nnonsense\n{"st', "damaged: 2 lines can't be read", "a flipped bit, going on"),
    ],
)
def test_a_damaged_or_foreign_file_has_a_note(
    run_dir: Path, name: str, content: str | None, words: str, why: str
) -> None:
    path = run_dir / name
    path.unlink() if content is None else path.write_text(content, encoding="utf-8")
    notes = read_run(run_dir).notes
    assert len(notes) == 1 and words in notes[0], why


def test_notes_and_state_are_on_the_page(run_dir: Path) -> None:
    write_status(run_dir, "half asleep")
    (run_dir / "metrics.jsonl").unlink()
    text = read(write_report(run_dir)).text
    assert "run.json is missing or can't be read" in text and "No training step has been logged." in text


@pytest.mark.slow
def test_findings_are_on_the_page_with_their_fix(run_dir: Path) -> None:
    log = run_dir / "metrics.jsonl"
    line = json.loads(log.read_text().splitlines()[0])
    lines = [{**line, "step": step, "completions/clipped_ratio": 1.0, "reward": 0.0} for step in range(1, 31)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = read(write_report(run_dir)).text
    assert "alarm since step 5: 100 % of the completions are cut off" in text
    assert "Raise max_completion_length (44)" in text


def test_texts_of_models_and_data_sets_never_become_markup(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 5, trained=[True] * 5, text=HOSTILE)
    (folder / "failure.txt").write_text(f"Traceback\nValueError: {HOSTILE}", encoding="utf-8")
    with (folder / "recipe.yaml").open("a", encoding="utf-8") as file:
        file.write(f"run_name: {json.dumps(HOSTILE)}\n")
    page = read(write_report(folder))
    harmless = write_run(tmp_path / "harmless", base=[False] * 5, trained=[True] * 5)
    (harmless / "failure.txt").write_text("ValueError", encoding="utf-8")
    assert page.tags == read(write_report(harmless)).tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    for place in ("answer 0 ", "Expected answer: 0 ", "ValueError: "):
        assert place + HOSTILE in page.text


def test_the_page_loads_nothing(page_path: Path) -> None:
    page, source = read(page_path), page_path.read_text(encoding="utf-8")
    assert not page.tags & {"img", "iframe", "object", "embed", "link", "base"}
    assert [value for name, value in page.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert all(value.startswith("#") for name, value in page.attributes if name in ("src", "href", "srcset", "action"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", source))
    assert "@import" not in source
    assert "http://" not in source and "https://" not in source


def test_the_policy_allows_only_our_script(page_path: Path) -> None:
    page = read(page_path)
    assert [(attributes.get("type"), attributes.get("src")) for attributes, _ in page.scripts] == [
        ("text/plain", None),  # the completions
        (None, None),
    ]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1][1].encode()).digest()).decode()
    policy = next(value for _, value in page.attributes if value.startswith("default-src"))
    assert policy == (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    assert "unsafe-eval" not in policy and re.fullmatch(r"[A-Za-z0-9+/=]+", page.scripts[0][1])


def test_ids_are_unique_and_every_reference_has_a_target(page_path: Path) -> None:
    page, source = read(page_path), page_path.read_text(encoding="utf-8")
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for name, value in page.attributes if name == "href"} | set(
        re.findall(r"url\(#([^)]*)", source)
    )
    assert targets <= set(ids)


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(run_dir: Path, drawn: dict[str, str]) -> None:
    first = write_report(run_dir).read_bytes()
    drawn.clear()
    assert write_report(run_dir).read_bytes() == first


def test_a_token_in_the_recipe_is_not_shown(page_path: Path) -> None:
    text = read(page_path).text
    assert "hf_verysecret" not in text
    assert "hub_token: (not shown)" in text


@pytest.mark.slow
def test_a_long_run_with_long_completions_stays_small(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", base=[False] * 8, trained=[True] * 8, text="words " * 20_000, steps=5000)
    path = write_report(folder)
    assert path.stat().st_size < 2_000_000
    text = read(path).text
    assert "characters left out" in text
    assert "A point is the mean of 17 logged steps" in text


# ── Gaps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(("share", "end"), [(0.5, b""), (0, b""), (0, b"\xff\xfe\x00\x01"), (0, b'{"step": "x"}')])
def test_no_half_written_or_foreign_file_stops_the_report(run_dir: Path, share: float, end: bytes) -> None:
    for path in sorted(path for path in run_dir.rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))] + end)
        read_rollouts(read_run(run_dir))
    write_report(run_dir)


HUGE = f'{{"step": 6, "time": 1e299, "reward": 1{"0" * 400}, "entropy": true, "grad_norm": 1e308}}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "words", "why"),
    [
        ("metrics.jsonl", lambda text: text[:-40], "the last logged step is 3 of 4", "a half-written last line"),
        ("metrics.jsonl", lambda text: text.replace('"entropy"', '"x"'), "Not logged: entropy.", "a metric is missing"),
        ("metrics.jsonl", lambda text: f'{text}{{"step": 5, "reward": null, "kl": NaN}}', "0.1 → 0.4", "no numbers"),
        ("metrics.jsonl", lambda text: f'{text}{{"step": 5, "step_time": "2 s"}}\n{HUGE}', "0.1 → 0.4", "not drawable"),
        ("failure.txt", lambda text: "Traceback:\n  …\nE: no room\n", "The run failed: E: no room", "a failure"),
    ],
)
def test_an_odd_file_changes_one_sentence_of_the_page(
    run_dir: Path, name: str, change: Callable[[str], str], words: str, why: str
) -> None:
    path = run_dir / name
    path.write_text(change(path.read_text(encoding="utf-8") if path.exists() else ""), encoding="utf-8")
    write_status(run_dir, "running")
    assert words in read(write_report(run_dir)).text, why


# ── Samples and curves ──────────────────────────────────────────────────────────────────────────────────────────────


def test_changed_answers_are_counted_and_paired_by_row(run_dir: Path) -> None:
    changed = changed_answers(read_rollouts(read_run(run_dir)).items)
    assert changed is not None
    gained, lost = changed
    assert (gained.count, len(gained.examples), lost.count) == (30, 3, 1)
    assert [answer.right for answer in lost.examples[0].answers] == [True, False]
    assert lost.examples[0].expected.strip() == "39"


@pytest.mark.parametrize(
    ("columns", "expected", "why"),
    [
        ({"final_answer": "39", "date": "May"}, "39", "the usual column"),
        ({"final_answer": None, "date": "May", "id": "1", "lenient": False}, "May", "a column of another name"),
        ({"low": 3, "high": 5, "difficulty": 2}, "low: 3, high: 5", "two columns"),
        ({"source": "a"}, "", "unknown"),
    ],
)
def test_the_reference_answer_is_what_the_metric_read(columns: dict[str, Any], expected: str, why: str) -> None:
    row = {"row": 0, "prompt": "When?", "completion": "In May", "correct": True, "rewards/r": 1.0, **columns}
    assert reference_of(row) == expected, why


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000), st.integers(1, 300))
def test_thinning_keeps_the_number_of_points_down_and_the_values_within_bounds(values: list[float], most: int) -> None:
    thin = thin_out(Series("x", list(range(len(values))), values), most)
    assert len(thin.steps) == len(thin.values) <= most
    assert list(thin.steps) == sorted(thin.steps)
    assert min(values) - 1e-6 <= min(thin.values) and max(thin.values) <= max(values) + 1e-6
