"""Dynamic sampling against an example worked out by hand and against a plain model of it, on simulated ranks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import GRPOConfig

from rlvr.artifacts.identity import Identity
from rlvr.errors import InputError
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from rlvr.training import dynamic_sampling as ds
from rlvr.training.batch_merge import CompletionTable, GroupSource, RolloutBatch
from rlvr.training.grpo_trainer import RecipeTrainer
from tests.conftest import TINY_MODEL

NAN = math.nan
PAD = 9
ELSEWHERE = 100  # tokens that the simulated other ranks are said to have


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


@st.composite
def several_rounds(draw: st.DrawFn) -> list[list[list[bool]]]:
    world = draw(st.integers(1, 4))
    signals = []
    for _ in range(draw(st.integers(1, 4))):
        groups = draw(st.integers(1, 5)) * world
        signals.append(by_rank(world, *draw(st.lists(st.integers(0, 1), min_size=groups, max_size=groups))))
    return signals


def plain_plan(signals: list[list[list[bool]]]) -> list[list[GroupSource]]:
    """The plan as one would do it by hand: cross off the bad groups, deal out the good fresh ones."""
    plan = []
    for rank, first in enumerate(signals[0]):
        batch = [GroupSource(0, group) for group in range(len(first))]
        good_fresh = [
            GroupSource(number, group)
            for number in range(1, len(signals))
            for group in range(len(signals[number][rank]))
            if signals[number][rank][group]
        ]
        for place in range(len(batch)):
            if not first[place] and good_fresh:
                batch[place] = good_fresh.pop(0)
        plan.append(batch)
    return plan


@given(several_rounds())
def test_the_plan_is_that_of_a_plain_model(signals: list[list[list[bool]]]) -> None:
    layout = ds.choose_groups(signals)
    assert layout == plain_plan(signals)
    for rank, places in enumerate(layout):
        assert len(set(places)) == len(places), "no group is trained on twice"
        for place, (number, group) in enumerate(places):
            good = signals[number][rank][group]
            assert good or (number, group) == (0, place), "only a group with signal replaces another"
            assert number == 0 or not signals[0][rank][place], "a group with signal is never replaced"
    bad = [sum(not signals[number][rank][group] for number, group in places) for rank, places in enumerate(layout)]
    assert ds.count_unfilled(signals, layout) == bad
    metrics = ds.batch_metrics(signals, layout)
    assert metrics["dynamic_sampling/unfilled_groups"] == sum(bad)
    useful = sum(len(places) for places in layout) - sum(bad)
    generated = sum(len(groups) for ranks in signals for groups in ranks)
    assert metrics["dynamic_sampling/kept_fraction"] == pytest.approx(useful / generated)


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


def test_the_state_of_a_stream_is_plain_numbers() -> None:
    fresh = ds.FreshPrompts(3, seed=0)
    fresh.draw(2, ())
    assert fresh.state() == {"rows": 3, "seed": 0, "pass": 0, "position": 2}


@pytest.mark.parametrize(("rows", "seed", "named"), [(4, 0, "rows"), (3, 1, "seed")])
def test_the_state_of_another_stream_is_refused(rows: int, seed: int, named: str) -> None:
    state = ds.FreshPrompts(3, seed=0).state()
    with pytest.raises(InputError) as error:
        ds.FreshPrompts(rows, seed).load(state)
    assert (error.value.kind, error.value.key) == ("checkpoint-mismatch", named)


@pytest.mark.parametrize("chat", [False, True])
def test_every_row_with_a_prompt_of_the_batch_is_found(chat: bool) -> None:
    prompts: list[Any] = [[{"role": "user", "content": text}] if chat else text for text in ("a", "b", "a", "c")]
    sampler = ds.DynamicSampler(Dataset.from_dict({"prompt": prompts[:3]}), 0, group=2, max_rounds=1, seed=0)
    assert sampler.rows_with([prompts[0], prompts[0]]) == {0, 2}
    assert sampler.rows_with([prompts[3]]) == set()


# ── Whole batches on simulated ranks ──────────────────────────────────────────────────────────────────────────────────


class SimulatedRanks:
    """Simulate TRL on every rank: a row's completions depend on the row alone.

    Row r has 2 completions, of which r % 3 are right, with r % 4 + 1 and r % 5 + 1 tokens that are all r.
    """

    def __init__(self, rows: int, world: int) -> None:
        self.rows, self.world = rows, world
        self.data = Dataset.from_list([{"prompt": f"prompt {row}", "row": row} for row in range(rows)])

    def outcomes(self, rows: list[int]) -> torch.Tensor:
        return torch.tensor([float(number < row % 3) for row in rows for number in range(2)])

    def rollout(self, by_rank: list[list[int]], rank: int) -> RolloutBatch:
        everyone = [row for rows in by_rank for row in rows]
        outcomes = self.outcomes(everyone)
        advantages = outcomes - outcomes.view(-1, 2).mean(dim=1).repeat_interleave(2)
        own = by_rank[rank]
        start = sum(len(rows) for rows in by_rank[:rank]) * 2
        table = CompletionTable(
            prompt=[f"prompt {row}" for row in everyone for _ in range(2)],
            completion=[f"completion {row}.{number}" for row in everyone for number in range(2)],
            rewards={"right": outcomes.tolist()},
            advantages=advantages.tolist(),
            extra={"row": [row for row in everyone for _ in range(2)]},
        )
        return RolloutBatch(self.output(own, advantages[start : start + 2 * len(own)]), outcomes.unsqueeze(1), table)

    def lengths(self, row: int) -> tuple[int, int]:
        return row % 4 + 1, row % 5 + 1

    def output(self, rows: list[int], advantages: torch.Tensor) -> dict[str, torch.Tensor]:
        prompt_width = max(row % 3 + 1 for row in rows)
        width = max(max(self.lengths(row)) for row in rows)
        prompts = [[PAD] * (prompt_width - row % 3 - 1) + [row] * (row % 3 + 1) for row in rows for _ in range(2)]
        lengths = [length for row in rows for length in self.lengths(row)]
        tokens = [row for row in rows for _ in range(2)]
        completions = [
            [token] * length + [PAD] * (width - length) for token, length in zip(tokens, lengths, strict=True)
        ]
        masks = [[1] * length + [0] * (width - length) for length in lengths]
        return {
            "prompt_ids": torch.tensor(prompts),
            "prompt_mask": (torch.tensor(prompts) != PAD).long(),
            "completion_ids": torch.tensor(completions),
            "completion_mask": torch.tensor(masks),
            "old_per_token_logps": -torch.tensor(completions).float() * torch.tensor(masks),
            "advantages": advantages,
            "num_items_in_batch": torch.tensor(-1),
        }

    def fill(self, first: list[list[int]], rounds: int) -> list[tuple[RolloutBatch, dict[str, float], dict[str, int]]]:
        """Run the sampler of each rank by itself: its batch, its metrics, its state."""
        filled = []
        for rank in range(self.world):
            sampler = ds.DynamicSampler(self.data, 0, group=2, max_rounds=rounds, seed=0)
            sampled: list[list[int]] = []

            def sample(inputs: list[Any], rank: int = rank, sampled: list[list[int]] = sampled) -> RolloutBatch:
                rows = [one["row"] for one in inputs[::2]]
                assert [one["row"] for one in inputs] == [row for row in rows for _ in range(2)], "whole groups"
                sampled.append(rows)
                # A rank doesn't know what the others drew; a second stream says it.
                stream = ds.FreshPrompts(self.rows, seed=0)
                in_batch = {row for rows in first for row in rows}
                drawn: list[int] = []
                for earlier in sampled:
                    drawn = stream.draw(len(earlier) * self.world, in_batch)
                    in_batch.update(drawn)
                by_rank = [drawn[other * len(rows) : (other + 1) * len(rows)] for other in range(self.world)]
                assert by_rank[rank] == rows
                return self.rollout(by_rank, rank)

            batch, metrics = sampler.fill(
                self.rollout(first, rank),
                sample,
                rank=rank,
                world=self.world,
                pad_token=PAD,
                sum_over_ranks=lambda count: count + ELSEWHERE,
            )
            filled.append((batch, metrics, sampler.fresh.state()))
        return filled


@st.composite
def simulated_steps(draw: st.DrawFn) -> tuple[SimulatedRanks, list[list[int]], int]:
    world, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows = draw(st.integers(world * groups, 40))
    batch = draw(st.permutations(range(rows)))[: world * groups]
    first = [list(batch[rank * groups : (rank + 1) * groups]) for rank in range(world)]
    return SimulatedRanks(rows, world), first, draw(st.integers(0, 4))


@settings(max_examples=60, deadline=None)
@given(simulated_steps())
def test_every_rank_trains_on_whole_rows_of_its_own_that_the_table_shows(
    case: tuple[SimulatedRanks, list[list[int]], int],
) -> None:
    simulated, first, max_rounds = case
    world, group = simulated.world, 2
    filled = simulated.fill(first, max_rounds)
    table, metrics, state = filled[0][0].table, filled[0][1], filled[0][2]
    assert metrics["dynamic_sampling/rounds"] <= max_rounds + 1
    for batch, own_metrics, own_state in filled:
        assert (batch.table, own_metrics, own_state) == (table, metrics, state), "every rank computes the same"

    for rank, shown in enumerate(_shown(table, world)):
        tensors = filled[rank][0].tensors
        start = rank * len(shown) * group
        expected = simulated.output(shown, torch.tensor(table.advantages[start : start + len(shown) * group]))
        for key in expected:
            if key != "num_items_in_batch":
                assert torch.equal(_trimmed(key, tensors[key]), _trimmed(key, expected[key])), key
        tokens = sum(length for row in shown for length in simulated.lengths(row))
        assert tensors["completion_mask"].sum().item() == tokens
        if metrics["dynamic_sampling/rounds"] > 1:
            assert tensors["num_items_in_batch"].item() == tokens + ELSEWHERE
    rows = [row for shown in _shown(table, world) for row in shown]
    assert len(set(rows)) == len(rows), "no prompt comes up twice in a batch"
    assert table.completion == [f"completion {row}.{number}" for row in rows for number in range(2)]
    assert table.rewards["right"] == simulated.outcomes(rows).tolist() == filled[0][0].rewards[:, 0].tolist()
    # A group without signal is left only when the budget is spent, or when there are too few fresh prompts for all.
    unfilled = metrics["dynamic_sampling/unfilled_groups"]
    if unfilled and metrics["dynamic_sampling/rounds"] <= max_rounds:
        generated = (len(rows) - unfilled) / metrics["dynamic_sampling/kept_fraction"] if unfilled < len(rows) else None
        assert generated is None or simulated.rows - round(generated) < world


def _shown(table: CompletionTable, world: int) -> list[list[int]]:
    """The rows of each rank, one a group."""
    rows = table.extra["row"][::2]
    each = len(rows) // world
    return [rows[rank * each : (rank + 1) * each] for rank in range(world)]


def _trimmed(key: str, tensor: torch.Tensor) -> torch.Tensor:
    """Without columns of padding only: a group that was replaced may have been the widest."""
    if tensor.dim() == 1:
        return tensor
    empty = {"prompt_ids": PAD, "completion_ids": PAD}.get(key, 0)
    used = (tensor != empty).any(dim=0)
    return tensor[:, used]


# ── In a training ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_trainer_trains_on_groups_with_signal_only_and_logs_what_it_trained_on(tmp_path: Path) -> None:
    data = Dataset.from_list([{"prompt": f"prompt {number}", "number": number} for number in range(12)])
    calls: list[list[int]] = []

    def half_right(completions: list[str], number: list[int], **_: Any) -> list[float | None]:
        # Prompts with an even number are always wrong, the others right every other time.
        calls.append(number)
        return [float(row % 2 == 1 and place % 2 == 0) for place, row in enumerate(number)]

    class Trainer(RecipeTrainer):
        batches: ClassVar[list[dict[str, torch.Tensor]]] = []

        def sample_batch(self, inputs: Any) -> dict[str, Any]:
            self.batches.append(super().sample_batch(inputs))
            return self.batches[-1]

    rewards = [Reward("half_right", half_right)]
    trainer = Trainer(
        model=str(TINY_MODEL),
        rewards=rewards,
        scorer=Scorer(rewards),
        settings={"adaptive": False},
        identity=Identity({}, 1, "plain", ""),
        dynamic_sampler=ds.DynamicSampler(data, 0, group=2, max_rounds=8, seed=0),
        train_dataset=data,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            num_generations=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            max_completion_length=6,
            max_steps=2,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            log_completions=True,
            save_strategy="no",
        ),
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "dynamic_sampling/rounds" in entry]
    assert len(history) == 2
    for step, (entry, batch) in enumerate(zip(history, trainer.batches, strict=True), start=1):
        table = pd.read_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
        numbers = [int(prompt.split()[1]) for prompt in table["prompt"]]
        assert all(number % 2 == 1 for number in numbers), "every group that is trained on has signal"
        assert len(set(numbers)) == 4, "four groups of four prompts"
        assert table["half_right"].tolist() == [1.0, 0.0] * 4
        # The batch in memory is the table: TRL has shuffled nothing yet, and says which tokens count.
        texts = trainer.processing_class.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        assert texts == table["completion"].tolist()
        assert batch["advantages"].tolist() == pytest.approx(table["advantage"].tolist())
        assert batch["num_items_in_batch"].item() == batch["completion_mask"].sum().item()
        assert entry["dynamic_sampling/unfilled_groups"] == 0
        assert entry["grad_norm"] > 0
    first_rounds = [call for call in calls if len(call) == 8]
    assert [entry["reward"] for entry in history] == [
        pytest.approx(sum(number % 2 for number in call) / 16) for call in first_rounds
    ], "the reward that is logged is that of the sampler's own prompts"
    assert any(len(call) < 8 for call in calls), "there were further rounds"


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
