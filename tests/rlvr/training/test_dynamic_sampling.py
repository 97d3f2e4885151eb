"""Dynamic sampling against an example worked out by hand and against a plain model of it, on simulated ranks."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlvr.training import dynamic_sampling as ds
from rlvr.training.batch_merge import CompletionTable, RolloutBatch

NAN = math.nan


def by_rank(world: int, *values: int) -> list[list[bool]]:
    each = len(values) // world
    return [[bool(value) for value in values[rank * each : (rank + 1) * each]] for rank in range(world)]


# ── Groups with signal ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("outcomes", "signal", "why"),
    [
        ([1, 1, 1], False, "all right"),
        ([0, 0, 0], False, "all wrong"),
        ([0, 1, 0], True, "one right"),
        ([0.5, 0.9, 0], False, "partial credit is not right"),
        ([0.5, 1.5, 0], True, "at least 1 is right"),
        ([-1, -0.5, 0], False, "a spread among wrong answers is no signal"),
        ([1, NAN, 1], False, "a masked row is not wrong"),
        ([0, NAN, 0], False, "a masked row is not right"),
        ([1, NAN, 0], True, "two rows of different outcome are left"),
        ([NAN, NAN, NAN], False, "nothing is left"),
    ],
)
def test_a_group_has_signal_if_it_holds_a_right_and_a_wrong_completion(
    outcomes: list[float], signal: bool, why: str
) -> None:
    assert ds.has_signal(torch.tensor(outcomes), 3).tolist() == [signal], why


# ── The plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_is_the_one_worked_out_by_hand() -> None:
    # Two ranks of three groups. Rank 0 lacks its groups 0 and 2, rank 1 its group 1: two fresh prompts on each rank.
    signals = [by_rank(2, 0, 1, 0, 1, 0, 1)]
    assert ds.count_unfilled(signals, ds.choose_groups(signals)) == [2, 1]
    # Of the fresh groups rank 0 gets a bad and a good one, rank 1 two good ones, of which it needs only the first.
    signals.append(by_rank(2, 0, 1, 1, 1))
    layout = ds.choose_groups(signals)
    assert layout == [[(1, 1), (0, 1), (0, 2)], [(0, 0), (1, 0), (0, 2)]]
    assert ds.count_unfilled(signals, layout) == [1, 0]
    # The last round's only group of rank 0 is good; rank 1's is left over.
    signals.append(by_rank(2, 1, 0))
    layout = ds.choose_groups(signals)
    assert layout == [[(1, 1), (0, 1), (2, 0)], [(0, 0), (1, 0), (0, 2)]]
    assert ds.batch_metrics(signals, layout) == {
        "dynamic_sampling/rounds": 3.0,
        "dynamic_sampling/replaced_groups": 3.0,
        "dynamic_sampling/unfilled_groups": 0.0,
        "dynamic_sampling/kept_fraction": 6 / 12,
    }


# ── Fresh prompts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pass_holds_every_row_once_and_passes_differ() -> None:
    fresh = ds.FreshPrompts(50, seed=1)
    first = [row for _ in range(10) for row in fresh.draw(5, ())]
    second = fresh.draw(50, ())
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_a_draw_is_the_same_on_every_rank_and_another_with_another_seed() -> None:
    assert ds.FreshPrompts(100, 3).draw(20, {5}) == ds.FreshPrompts(100, 3).draw(20, {5})
    assert ds.FreshPrompts(100, 3).draw(20, {5}) != ds.FreshPrompts(100, 4).draw(20, {5})


@pytest.mark.slow
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 8), st.sets(st.integers(0, 12))), max_size=8))
def test_a_draw_holds_no_excluded_row_and_no_row_twice(rows: int, draws: list[tuple[int, set[int]]]) -> None:
    fresh = ds.FreshPrompts(rows, seed=0)
    for count, exclude in draws:
        drawn = fresh.draw(count, exclude)
        free = set(range(rows)) - exclude
        assert len(drawn) == min(count, len(free))
        assert set(drawn) <= free and len(set(drawn)) == len(drawn)


@given(st.integers(1, 10), st.lists(st.integers(0, 7), max_size=6), st.lists(st.integers(0, 7), max_size=6))
def test_a_stream_that_is_continued_goes_on_as_if_it_had_not_been_interrupted(
    rows: int, before: list[int], after: list[int]
) -> None:
    stream = ds.FreshPrompts(rows, seed=7)
    for count in before:
        stream.draw(count, {0})
    continued = ds.FreshPrompts(rows, seed=7)
    continued.load(stream.state())
    assert [continued.draw(count, {0}) for count in after] == [stream.draw(count, {0}) for count in after]


@pytest.mark.parametrize("chat", [False, True])
def test_every_row_with_a_prompt_of_the_batch_is_found(chat: bool) -> None:
    prompts: list[Any] = [[{"role": "user", "content": text}] if chat else text for text in ("a", "b", "a", "c")]
    sampler = ds.DynamicSampler(Dataset.from_dict({"prompt": prompts[:3]}), 0, group=2, max_rounds=1, seed=0)
    assert sampler.rows_with([prompts[0], prompts[0]]) == {0, 2}
    assert sampler.rows_with([prompts[3]]) == set()


# ── Whole batches on simulated ranks ──────────────────────────────────────────────────────────────────────────────────


def outcomes(rows: list[int]) -> list[float]:
    """Row r has 2 completions, of which r % 3 are right."""
    return [float(number < row % 3) for row in rows for number in range(2)]


def fill(rows: int, first: list[list[int]], rounds: int) -> list[tuple[CompletionTable, dict[str, float], Any]]:
    """Run the sampler of each rank in a thread of its own: its table, its metrics and its state."""
    data = Dataset.from_list([{"prompt": f"prompt {row}", "row": row} for row in range(rows)])
    world = len(first)
    gathered: list[list[int]] = [[] for _ in range(world)]
    everyone_is_here = threading.Barrier(world, timeout=100)

    def sample(rank: int, own: list[int]) -> RolloutBatch:
        gathered[rank] = own
        everyone_is_here.wait()
        of_all = [row for part in gathered for row in part]
        everyone_is_here.wait()
        prompts = [f"prompt {row}" for row in of_all for _ in range(2)]
        right = outcomes(of_all)
        return RolloutBatch(
            {}, torch.tensor(right)[:, None], CompletionTable(prompts, prompts, {"right": right}, right)
        )

    def run(rank: int) -> tuple[CompletionTable, dict[str, float], Any]:
        sampler = ds.DynamicSampler(data, 0, group=2, max_rounds=rounds, seed=0)

        def further(inputs: list[Any]) -> RolloutBatch:
            own = [one["row"] for one in inputs[::2]]
            assert [one["row"] for one in inputs] == [row for row in own for _ in range(2)], "whole groups"
            return sample(rank, own)

        batch, metrics = sampler.fill(
            sample(rank, first[rank]), further, rank=rank, world=world, pad_token=0, sum_over_ranks=lambda count: count
        )
        return batch.table, metrics, sampler.fresh.state()

    with ThreadPoolExecutor(world) as ranks:
        return list(ranks.map(run, range(world)))


@st.composite
def first_rounds(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    world, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows = draw(st.integers(world * groups, 40))
    batch = draw(st.permutations(range(rows)))[: world * groups]
    return rows, [list(batch[rank * groups : (rank + 1) * groups]) for rank in range(world)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(first_rounds(), st.integers(0, 4))
@example((5, [[0], [2], [3]]), 2)  # two fresh prompts for three ranks
def test_ranks_agree_on_a_batch_without_repeated_prompts_as_full_as_the_budget_and_the_data_allow(
    case: tuple[int, list[list[int]]], max_rounds: int
) -> None:
    available, first = case
    (table, metrics, state), *others = fill(available, first, max_rounds)
    assert all(other == (table, metrics, state) for other in others), "every rank computes the same"
    rows = [int(prompt.split()[1]) for prompt in table.prompt[::2]]
    assert table.prompt == table.completion == [f"prompt {row}" for row in rows for _ in range(2)]
    assert table.rewards["right"] == table.advantages == outcomes(rows)
    assert len(set(rows)) == len(rows) == sum(map(len, first)), "no prompt comes up twice in a batch"
    unfilled, rounds = metrics["dynamic_sampling/unfilled_groups"], metrics["dynamic_sampling/rounds"]
    assert rounds <= max_rounds + 1 and unfilled == sum(row % 3 != 1 for row in rows)
    # A group without signal is left only when the budget is spent, or when there are too few fresh prompts for all.
    if 0 < unfilled < len(rows) and rounds <= max_rounds:
        generated = (len(rows) - unfilled) / metrics["dynamic_sampling/kept_fraction"]
        assert available - round(generated) < len(first)


# ── What is refused before a run ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("recipe", "rows", "fix"),
    [
        ({}, 16, None),
        ({"scale_rewards": "adaptive", "curriculum": "none"}, 8, None),
        ({"scale_rewards": "none"}, 8, None),
        ({"scale_rewards": "batch"}, 8, "scale_rewards: group, adaptive or none"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, 8, "sum_then_normalize"),
        ({"curriculum": "easy_first"}, 8, "curriculum: none"),
        ({}, 12, "16"),
        ({}, 4, "8"),
    ],
)
def test_settings_that_mix_rounds_and_groups_that_straddle_ranks_are_refused(
    recipe: dict[str, Any], rows: int, fix: str | None
) -> None:
    problems = ds.sampling_problems(recipe, rows, 8)
    assert [problem.kind for problem in problems] == ["conflicting-keys"] * (fix is not None)
    assert fix is None or fix in problems[0].message
