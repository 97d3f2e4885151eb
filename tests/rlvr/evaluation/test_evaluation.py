"""Statistics, scores, tables and refusals of an evaluation."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import run_grpo
from rlvr.artifacts.evaluation import Evaluation, read_evaluation
from rlvr.config.recipe import load_recipe
from rlvr.config.specs import Reference
from rlvr.evaluation.engines import Completion, Decoding, check_engine
from rlvr.evaluation.evaluate import measure
from rlvr.evaluation.evaluation_file import (
    describe_evaluation,
    heading,
    results_table,
    score_in_words,
    write_evaluation,
)
from rlvr.evaluation.scores import (
    compare,
    compare_samples,
    partial_value_warning,
    pass_rates,
    reference_warning,
    summarise,
    summarise_groups,
)
from rlvr.evaluation.statistics import (
    Interval,
    average,
    bootstrap,
    mcnemar,
    paired_difference,
    pass_at_k,
    wilson,
)
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from rlvr.verifiers.math.lenient_match import match_leniently
from tests.conftest import REPOSITORY
from tests.support.input_errors import input_error

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"


@pytest.mark.parametrize(
    ("correct", "rows", "low", "high", "why"),
    [
        (0, 10, 0.0, 0.2775, "none right still leaves room above"),
        (10, 10, 0.7225, 1.0, "all right still leaves room below"),
        (81, 263, 0.2553, 0.3662, "Newcombe 1998, table I: 81 of 263"),
        (15, 148, 0.0624, 0.1605, "Newcombe 1998, table I: 15 of 148"),
        (1, 29, 0.0061, 0.1718, "Newcombe 1998, table I: 1 of 29"),
    ],
)
def test_wilson_agrees_with_published_values(correct: int, rows: int, low: float, high: float, why: str) -> None:
    interval = wilson(correct, rows)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high), why


@given(st.integers(1, 2000), st.data())
def test_wilson_holds_its_own_estimate(rows: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, rows))
    interval = wilson(correct, rows)
    assert 0 <= interval.low <= correct / rows <= interval.high <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_a_paired_difference_is_antisymmetric_and_within_its_interval(pairs: list[tuple[bool, bool]]) -> None:
    base, trained = [a for a, _ in pairs], [b for _, b in pairs]
    forward, reverse = paired_difference(base, trained), paired_difference(trained, base)
    assert forward.points == -reverse.points and forward.gained == reverse.lost
    assert forward.interval.low == pytest.approx(-reverse.interval.high)
    assert -1 <= forward.interval.low <= forward.interval.high <= 1


def test_a_paired_difference_has_the_interval_of_agresti_and_min() -> None:
    """By hand: 8 of 52 rows, plus or minus 1.96 · sqrt(10.5 + 2.5 - 8² / 52) / 52."""
    base, trained = [False] * 10 + [True] * 2 + [True] * 38, [True] * 10 + [False] * 2 + [True] * 38
    difference = paired_difference(base, trained)
    assert (difference.points, difference.gained, difference.lost) == (8 / 50, 10, 2)
    assert difference.interval.low == pytest.approx(0.02454, abs=1e-5)
    assert difference.interval.high == pytest.approx(0.28315, abs=1e-5)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.5)), min_size=1, max_size=5))
def test_an_average_of_tasks_is_narrower_than_their_intervals_and_equals_a_single_one(
    parts: list[tuple[float, float, float]],
) -> None:
    estimates = [(value, Interval(value - below, value + above)) for value, below, above in parts]
    mean, interval = average(estimates)
    assert mean == pytest.approx(sum(value for value, _, _ in parts) / len(parts))
    assert mean - interval.low <= max(below for _, below, _ in parts) + 1e-12
    assert interval.high - mean <= max(above for _, _, above in parts) + 1e-12
    again, single = average(estimates[:1])
    assert again == estimates[0][0] and single.low == pytest.approx(estimates[0][1].low)


def test_an_average_has_the_variance_of_independent_estimates() -> None:
    """Two intervals of ±10: their mean has 10 / sqrt(2)."""
    _, interval = average([(0.5, Interval(0.4, 0.6)), (0.3, Interval(0.2, 0.4))])
    assert interval.high - interval.low == pytest.approx(0.2 / 2**0.5)


def test_a_difference_of_rows_that_did_not_change_is_no_difference() -> None:
    same = [True] * 30 + [False] * 70
    difference = paired_difference(same, same)
    assert difference.points == 0 and difference.interval.low < 0 < difference.interval.high


def record(correct: bool | None, **kwargs: object) -> dict[str, object]:
    return {"row": 0, "correct": correct, "tokens": 10, "ended": True, "rewards/r": 1.0, "source": "a", **kwargs}


def test_rows_that_could_not_be_scored_are_counted_apart() -> None:
    score = summarise([record(True), record(False), record(None), record(True, ended=False, source="b")], ["r"])
    assert (score.rows, score.correct, score.unscored, score.cut_off) == (3, 2, 1, 0.25)
    assert score.by_source["a"].accuracy == 0.5 and score.by_source["b"].rows == 1


def test_a_comparison_leaves_out_rows_that_either_side_could_not_score() -> None:
    base = [record(True), record(None), record(False)]
    trained = [record(True), record(True), record(True)]
    assert compare(base, trained).points == 0.5


def test_an_evaluation_is_written_whole(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    base, trained = [record(False), record(True)], [record(True), record(True)]
    results = {name: (summarise(rows, ["r"]), rows) for name, rows in (("base", base), ("trained", trained))}
    about = {"task": {"name": "t"}, "split": "test", "metric": "r", "decoding": "greedy"}
    content = write_evaluation(tmp_path, about, results)
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert list(written) == [*about, "base", "trained", "difference"] and about.items() <= written.items()
    assert written["base"]["accuracy"] == 0.5 and written["difference"]["points"] == 0.5
    assert read_evaluation(tmp_path) == content
    assert pq.read_table(tmp_path / "completions" / "evaluation_base.parquet").num_rows == 2
    text = results_table(content)
    assert "50.0 %" in text and "100.0 %" in text and "+50.0 points" in text
    assert "1 row gained, 0 lost; McNemar's exact test: p = 1" in text


class Answering:
    """An engine that gives one answer to every prompt."""

    def tokenizer(self, prompts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [[number] for number in range(len(prompts))]}

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        return [Completion("May", 1, True) for _ in prompts]

    def close(self) -> None: ...


def test_the_columns_that_the_metric_reads_stay_with_the_answers() -> None:
    def month(completions: list[str], date: list[str], tests: list[str], days: list[Any], **kwargs: Any) -> list[float]:
        return [float(text in row) for text, row in zip(completions, date, strict=True)]

    columns = {"date": ["3 May", "4 June"], "tests": ["x" * 5000, "y"], "days": [[3], [4]], "note": ["a", "b"]}
    metric = Reward("month", month, columns=("date", "tests", "days"))
    data = Dataset.from_dict({"prompt": ["When?", "And when?"], **columns})
    with Scorer([metric]) as scorer:
        records = measure(Answering(), data, [metric], {"": metric}, scorer, Decoding(4), batch_size=2)  # type: ignore[arg-type]
    assert [(record["date"], record["correct"]) for record in records] == [("3 May", True), ("4 June", False)]
    assert not {"tests", "days", "note"} & set(records[0]), "long, no text, and not read"


def test_golds_that_the_metric_cannot_read_end_the_run_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"prompt": f"What is {n} + {n}?", "final_answer": "quite a lot"}) for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    words = ["--config", str(DEMO), "--task", f"{{name: jsonl, path: {tmp_path}/rows.jsonl, style: chat}}"]
    code = run_grpo.main([*words, "--output_dir", str(tmp_path / "run"), "--report_to", "none"])
    assert code == 2
    errors = capsys.readouterr().err
    assert "'quite a lot'" in errors and "rows-train-0" in errors
    assert not (tmp_path / "run").exists()


# ----------------------------------------------------------------------------------------------------------------------
# Several samples a row, and tests


@pytest.mark.parametrize(
    ("gained", "lost", "expected", "why"),
    [
        (0, 0, 1.0, "nothing changed"),
        (5, 5, 1.0, "as many gained as lost"),
        (10, 2, 2 * (1 + 12 + 66) / 4096, "twelve coins, at most two tails, twice"),
        (2, 10, 2 * (1 + 12 + 66) / 4096, "the same the other way round"),
        (6, 0, 2 / 64, "six heads"),
    ],
)
def test_mcnemar_is_the_exact_binomial_test(gained: int, lost: int, expected: float, why: str) -> None:
    assert mcnemar(gained, lost) == pytest.approx(expected, abs=1e-12), why


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_that_hold_a_right_one(n: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    samples = [True] * correct + [False] * (n - correct)
    choices = list(itertools.combinations(samples, k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_pass_at_k_stays_exact_for_many_samples() -> None:
    assert pass_at_k(1000, 1, 500) == 0.5
    assert 0 < pass_at_k(1024, 1, 1) < 0.001


def test_a_bootstrap_agrees_with_the_normal_interval_where_that_holds() -> None:
    generator = random.Random(0)
    values = [generator.choice([0.0, 0.25, 0.5, 1.0]) for _ in range(1319)]
    mean, spread = statistics.fmean(values), statistics.pstdev(values) / len(values) ** 0.5
    interval = bootstrap(values)
    assert interval == bootstrap(values), "the same for the same values"
    assert interval.low == pytest.approx(mean - 1.96 * spread, abs=0.1 * spread)
    assert interval.high == pytest.approx(mean + 1.96 * spread, abs=0.1 * spread)


@pytest.mark.parametrize(
    ("values", "least", "why"),
    [
        ([0.0] * 20, 0.0, "none right"),
        ([1.0] * 20, 0.0, "all right"),
        ([0.0] * 20, -1.0, "no difference"),
        ([0.5] * 20, 0.0, "half right, everywhere"),
    ],
)
def test_rows_that_all_agree_give_no_interval_of_width_zero(values: list[float], least: float, why: str) -> None:
    interval = bootstrap(values, least=least)
    assert least <= interval.low <= values[0] <= interval.high <= 1 and interval.high - interval.low > 0.1, why


def samples_of(*rights: str) -> list[dict[str, object]]:
    """One row a word: "10-" is a right, a wrong and an unjudged sample."""
    verdict = {"1": True, "0": False, "-": None}
    return [record(verdict[sign], row=row) for row, word in enumerate(rights) for sign in word]


@pytest.mark.parametrize(
    ("groups", "pass_rate", "with_spread", "why"),
    [
        ([[1.0, 0.0], [0.0, 0.0]], 0.25, 0.5, "one group of two differs"),
        ([[0.0, 0.0], [0.0, 0.2]], 0.0, 0.5, "a partial reward is a spread, and no right answer"),
        ([[1.0, 1.0], [1.0, 1.0]], 1.0, 0.0, "all right: nothing differs"),
        ([[None, 0.0], [1.0, 1.0]], 2 / 3, 0.0, "a completion without a score is in no group"),
    ],
)
def test_sampled_groups_have_a_pass_rate_and_a_share_with_a_spread(
    groups: list[list[float | None]], pass_rate: float, with_spread: float, why: str
) -> None:
    records = [
        record(None if value is None else value >= 1, row=row, **{"rewards/r": value})
        for row, group in enumerate(groups)
        for value in group
    ]
    sampled = summarise_groups(records, [Reward("r", print)], "sampled")
    assert (sampled.prompts, sampled.samples) == (2, 4)
    assert (sampled.pass_rate, sampled.with_spread) == pytest.approx((pass_rate, with_spread)), why
    assert (sampled.warning() is None) == (pass_rate > 0), why


def test_pass_rates_are_of_the_rows_with_enough_judged_samples() -> None:
    rates = pass_rates(samples_of("1100", "0000", "1---", "----"), 4)
    assert {k: rate.rows for k, rate in rates.items()} == {"1": 3, "2": 2, "4": 2}
    assert rates["1"].value == pytest.approx((0.5 + 0 + 1) / 3)
    assert rates["2"].value == pytest.approx((1 - 1 / 6) / 2) and rates["4"].value == 0.5


def test_the_difference_in_pass_at_k_is_paired_by_row() -> None:
    base, trained = samples_of("00", "10", "--"), samples_of("11", "10", "11")
    differences = compare_samples(base, trained, 2)
    assert differences["1"].points == 0.5 and differences["2"].points == 0.5 and differences["1"].rows == 2


def test_a_difficulty_in_numbers_is_cut_into_ranges_of_a_quarter_of_the_rows_each() -> None:
    rows = [record(number >= 50, difficulty=number / 100) for number in range(100)]
    parts = summarise(rows, ["r"]).by_difficulty
    assert [(name, part.rows, part.accuracy) for name, part in parts.items()] == [
        ("0 … 0.24", 25, 0.0),
        ("0.25 … 0.49", 25, 0.0),
        ("0.5 … 0.74", 25, 1.0),
        ("0.75 … 0.99", 25, 1.0),
    ]


def test_a_difficulty_of_few_values_is_told_by_value_in_its_order() -> None:
    rows = [record(True, difficulty=value) for value in (10, 2, 2, 1)]
    assert {name: part.rows for name, part in summarise(rows, ["r"]).by_difficulty.items()} == {
        "1": 1,
        "2": 2,
        "10": 1,
    }


# ----------------------------------------------------------------------------------------------------------------------
# Lenient matching


@pytest.mark.parametrize(
    ("text", "gold", "correct", "expected", "why"),
    [
        ("#### The final answer is 18", "18", True, True, "what the metric calls right is right"),
        ("so she has 9 + 9 = 18 eggs", "18", False, True, "its last number"),
        ("The answer is 18.", "18", False, True, "in prose, where the metric wants a form"),
        ("It costs $1,080.", "1080", False, True, "with a comma"),
        ("18 eggs, sold for 2", "18", False, False, "the gold is not the last number"),
        ("she has 17", "18", False, False, "wrong in any form"),
        ("17\nQuestion: what is 9 + 9? 18", "18", False, False, "a number of a problem that it invented"),
        ("none", "18", False, False, "no number"),
        ("The answer is $\\frac{1}{2}$", "0.5", False, True, "another notation"),
        ("18", None, False, None, "no gold"),
        ("18", "18", None, None, "no verdict"),
    ],
)
def test_a_lenient_match_is_right_whatever_its_form(
    text: str, gold: str | None, correct: bool | None, expected: bool | None, why: str
) -> None:
    assert match_leniently([text], [correct], final_answer=[gold]) == [expected], why


def test_what_is_right_without_the_format_is_counted() -> None:
    rows = [
        record(True, formatted=True, lenient=True),
        record(False, formatted=False, lenient=True),
        record(False, formatted=False, lenient=False),
        record(False, formatted=True, lenient=False),
    ]
    score = summarise(rows, ["r"])
    assert (score.correct, score.lenient, score.formatted, score.right_without_format) == (1, 2, 2, 1)
    bare = summarise([record(True)], ["r"])
    assert (bare.lenient, bare.formatted, bare.right_without_format) == (None, None, None), "not measured is not 0"


# ----------------------------------------------------------------------------------------------------------------------
# Published scores


@pytest.mark.parametrize(
    ("right", "rows", "published", "suspect", "why"),
    [
        (11, 100, 0.416, True, "the 11 % that this project grew out of"),
        (38, 100, 0.416, False, "as published, by chance"),
        (2, 10, 0.416, False, "few rows: the interval reaches up to it"),
        (300, 1000, 0.416, False, "below, but not ten points below"),
        (90, 100, 0.416, False, "above"),
    ],
)
def test_a_base_far_below_what_was_published_makes_the_evaluation_suspect(
    right: int, rows: int, published: float, suspect: bool, why: str
) -> None:
    score = summarise([record(number < right) for number in range(rows)], ["r"])
    warning = reference_warning(Reference(published, "the model's card"), score)
    assert (warning is not None) == suspect, why
    assert warning is None or "the model's card" in warning
    assert reference_warning(None, score) is None


@pytest.mark.parametrize(
    ("values", "warned", "why"),
    [
        ([0.5, 0.0, None], True, "half a point for a right answer"),
        ([0.5, 1.0], False, "partial credit beside a right answer"),
        ([0.0, 1.5, 3.0], True, "partial credit that counts as right"),
        ([0.0, 3.0], False, "one value for a right answer"),
        ([0.0, 0.0], False, "nothing is right"),
        ([None], False, "nothing was judged"),
    ],
)
@pytest.mark.parametrize("task", ["", "sums"])
def test_a_metric_whose_values_do_not_say_what_is_right_is_warned_of(
    values: list[float | None], warned: bool, why: str, task: str
) -> None:
    records = [{"rewards/half": value, "task": task} for value in values]
    records.append({"rewards/half": 1.0, "task": "other"} if task else {"rewards/other": 1.0})
    warning = partial_value_warning({task: "half"}, {"base": records})
    assert (warning is not None) == warned, why


def test_the_published_score_and_the_warning_are_told(tmp_path: Path) -> None:
    rows = [record(False) for _ in range(50)]
    about = {"split": "test", "metric": "r", "task": {"name": "t"}, "decoding": "greedy"}
    about["reference"] = {"score": 0.416, "source": "a card"}
    content = write_evaluation(tmp_path, about, {"base": (summarise(rows, ["r"]), rows)})
    assert "Published: 41.6 % (a card)" in results_table(content)
    assert content.warnings[0] in results_table(content)


@pytest.mark.parametrize(
    ("unscored", "cut_off", "warned", "why"),
    [
        (2, 0, "no score for 2 of 40 answers (base)", "one in twenty can hide any gain"),
        (1, 0, None, "a few: the line below the table says how many"),
        (0, 30, "cut off: 75 % (base)", "most of them"),
        (0, 10, None, "a few: the table's column says how many"),
    ],
)
def test_an_accuracy_over_answers_that_were_not_judged_or_mostly_cut_off_is_warned_of(
    tmp_path: Path, unscored: int, cut_off: int, warned: str | None, why: str
) -> None:
    rows = [record(None if row < unscored else True, ended=row >= cut_off) for row in range(40)]
    score = summarise(rows, ["r"])
    about = {"split": "test", "metric": "r", "task": {"name": "t"}, "decoding": "greedy"}
    about |= {"model": "m", "settings": {"rows": None, "max_new_tokens": 24}}
    both = {"base": (score, rows), "trained": (summarise([record(True)] * 40, ["r"]), [record(True)] * 40)}
    content = write_evaluation(tmp_path, about, both)
    table = results_table(content)
    assert "on 40 held-out rows" in heading(content), why
    assert ("of 40 answers not judged" in score_in_words(score)) == bool(unscored), why
    assert ("75 % cut off" in score_in_words(score)) == (cut_off == 30), why
    assert ("trained − base" in table) == (unscored < 2), why
    if warned is None:
        assert "Warning" not in table, why
    else:
        assert warned in table, why
        assert ("raise max_new_tokens (24)" in table) == bool(cut_off), why


@pytest.mark.parametrize(
    ("written", "kind", "key", "why"),
    [
        ("{score: 41.6, source: a card}", "out-of-range", "reference.score", "percent"),
        ("{score: 0.4}", "wrong-type", "reference", "no source"),
        ("0.416", "wrong-type", "reference", "a bare number"),
        ("{score: 0.4, source: ''}", "out-of-range", "reference.source", "an empty source"),
    ],
)
def test_a_faulty_reference_is_refused(written: str, kind: str, key: str, why: str) -> None:
    with input_error(kind, f"evaluation.{key}", why=why):
        load_recipe(DEMO, ["--evaluation.reference", written])


def test_a_published_score_goes_with_the_model_that_it_is_of() -> None:
    def reference(*words: str) -> Reference | None:
        evaluation = load_recipe(REPOSITORY / "recipes" / "gsm8k-qwen2.5-0.5b-qlora.yaml", words).evaluation
        return None if evaluation is None else evaluation.reference

    other = ("--model_name_or_path", "models/tiny-arithmetic")
    assert reference() is not None and reference(*other) is None
    own = reference(*other, "--evaluation.reference", "{score: 0.1, source: its card}")
    assert own == Reference(0.1, "its card")


def test_vllm_is_not_given_weights_that_it_would_load_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")  # installed, as far as the check looks
    monkeypatch.syspath_prepend(tmp_path)
    with input_error("conflicting-keys", match="load_in_4bit"):
        check_engine("vllm", load_recipe(DEMO))
    check_engine("vllm", load_recipe(DEMO, ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false"]))


def test_a_reward_without_a_score_does_not_change_the_means_of_others() -> None:
    rows = [
        {**record(True), "rewards/right": 1.0, "rewards/other": None},
        {**record(False), "rewards/right": 0.0, "rewards/other": 0.5},
    ]
    score = summarise(rows, ["right", "other"])
    assert score.rewards == {"right": 0.5, "other": 0.5} and score.unscored_rewards == {"other": 1}
    shown = results_table(Evaluation(base=score))
    assert "other gave no score for 1" in shown and "right gave" not in shown
    for number, row in enumerate(rows):
        row["task"] = "ab"[number]
    assert summarise(rows, ["other"]).unscored_rewards == {}, "a reward need not apply to each task"


def test_an_evaluation_is_described_by_its_rows_and_the_code_and_options_of_its_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "neighbour_of_a_metric.py").write_text("RIGHT = 1.0\n")
    (tmp_path / "mine.py").write_text(
        "from neighbour_of_a_metric import RIGHT\n"
        "def mine(completions, *, factor=1, **kwargs):\n"
        "    return [RIGHT * factor] * len(completions)\n"
    )
    rows = [{"prompt": f"{number} + 1?", "final_answer": str(number + 1)} for number in range(3)]

    def about(content: list[dict[str, str]] = rows, **options: Any) -> dict[str, Any]:
        rewards = json.dumps([{"name": f"{tmp_path}/mine.py", "options": options}])
        recipe = load_recipe(DEMO, ["--rewards", rewards])
        return describe_evaluation(recipe, {"": load_rewards(recipe.rewards)[0]}, Dataset.from_list(content))

    same = about()
    assert about() == same
    for other in ([{**rows[0], "final_answer": "5"}, *rows[1:]], rows[:2], [{**rows[0], "prompt": "?"}, *rows[1:]]):
        assert about(other)["rows_digest"] != same["rows_digest"]
    assert about(factor=2)["verifier"]["mine"]["options"] == {"factor": 2}
    (tmp_path / "neighbour_of_a_metric.py").write_text("RIGHT = 0.5\n")
    assert about()["verifier"]["mine"]["digest"] != same["verifier"]["mine"]["digest"]
