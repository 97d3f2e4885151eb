"""Dynamic sampling against an example worked out by hand and against a plain model of it, with several ranks played."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.errors import InputError
from rlvr.training import batch_merge
from rlvr.training import dynamic_sampling as ds
from tests.conftest import TINY_MODEL

NAN = math.nan
PAD = 9


def flags(*values: int) -> torch.Tensor:
    return torch.tensor([bool(value) for value in values])


# ── Which groups teach something ──────────────────────────────────────────────────────────────────────────────────────


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
    first = flags(0, 1, 0, 1, 0, 1)
    assert ds.still_needed([first], world=2) == 2
    # Of the fresh groups rank 0 gets a bad and a good one, rank 1 two good ones, of which it needs only the first.
    second = flags(0, 1, 1, 1)
    choice = ds.choose([first, second], world=2)
    assert choice == [[(1, 1), (0, 1), (0, 2)], [(0, 0), (1, 0), (0, 2)]]
    assert ds.still_needed([first, second], world=2) == 1
    # The last round's only group of rank 0 is good; rank 1's is left over.
    third = flags(1, 0)
    choice = ds.choose([first, second, third], world=2)
    assert choice == [[(1, 1), (0, 1), (2, 0)], [(0, 0), (1, 0), (0, 2)]]
    assert ds.still_needed([first, second, third], world=2) == 0
    assert ds.figures([first, second, third], choice) == {
        "dynamic_sampling/rounds": 3.0,
        "dynamic_sampling/replaced_groups": 3.0,
        "dynamic_sampling/unfilled_groups": 0.0,
        "dynamic_sampling/kept_fraction": 6 / 12,
    }


@st.composite
def several_rounds(draw: st.DrawFn) -> tuple[int, list[torch.Tensor]]:
    world = draw(st.integers(1, 4))
    sampled: list[torch.Tensor] = []
    for _ in range(draw(st.integers(1, 4))):
        groups = draw(st.integers(1, 5)) * world
        sampled.append(flags(*draw(st.lists(st.integers(0, 1), min_size=groups, max_size=groups))))
    return world, sampled


def plain_plan(world: int, sampled: list[list[list[bool]]]) -> list[list[batch_merge.Slot]]:
    """The plan as one would do it by hand: cross off the bad groups, deal out the good fresh ones."""
    plan = []
    for rank in range(world):
        batch = [(0, group) for group in range(len(sampled[0][rank]))]
        good_fresh = [
            (number, group)
            for number in range(1, len(sampled))
            for group in range(len(sampled[number][rank]))
            if sampled[number][rank][group]
        ]
        for place in range(len(batch)):
            if not sampled[0][rank][place] and good_fresh:
                batch[place] = good_fresh.pop(0)
        plan.append(batch)
    return plan


@given(several_rounds())
def test_the_plan_is_that_of_a_plain_model(case: tuple[int, list[torch.Tensor]]) -> None:
    world, sampled = case
    by_rank = [flags.view(world, -1).tolist() for flags in sampled]
    choice = ds.choose(sampled, world)
    assert choice == plain_plan(world, by_rank)
    for rank, places in enumerate(choice):
        assert len(set(places)) == len(places), "no group is trained on twice"
        for place, (number, group) in enumerate(places):
            good = by_rank[number][rank][group]
            assert good or (number, group) == (0, place), "only a group with signal replaces another"
            assert number == 0 or not by_rank[0][rank][place], "a group with signal is never replaced"
    bad = [sum(not by_rank[number][rank][group] for number, group in places) for rank, places in enumerate(choice)]
    assert ds.still_needed(sampled, world) == max(bad)
    found = ds.figures(sampled, choice)
    assert found["dynamic_sampling/unfilled_groups"] == sum(bad)
    useful = sum(len(places) for places in choice) - sum(bad)
    assert found["dynamic_sampling/kept_fraction"] == pytest.approx(useful / sum(len(flags) for flags in sampled))


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
    with pytest.raises(InputError, match=f"made with {named} "):
        ds.FreshPrompts(rows, seed).load(state)


def test_every_row_with_a_prompt_of_the_batch_is_found() -> None:
    chat = [{"role": "user", "content": "a"}]
    known = ds.RowsByPrompt(["a", "b", "a", chat])
    assert known.rows(["a", "a"]) == {0, 2}
    assert known.rows([[{"content": "a", "role": "user"}]]) == {3}
    assert known.rows(["not in the data"]) == set()


# ── Whole batches, with several ranks played ──────────────────────────────────────────────────────────────────────────


class PlayedRanks:
    """Plays TRL on every rank: what a row's completions are depends on the row and on nothing else.

    Row number r has 2 completions, of which r % 3 are right, with r % 4 + 1 and r % 5 + 1 tokens that are all r.
    """

    group = 2

    def __init__(self, rows: int, world: int) -> None:
        self.rows, self.world = rows, world

    def outcomes(self, rows: list[int]) -> torch.Tensor:
        return torch.tensor([float(number < row % 3) for row in rows for number in range(2)])

    def round(self, by_rank: list[list[int]], rank: int) -> ds.Round:
        everyone = [row for rows in by_rank for row in rows]
        outcomes = self.outcomes(everyone)
        advantages = outcomes - outcomes.view(-1, 2).mean(dim=1).repeat_interleave(2)
        mine = by_rank[rank]
        start = sum(len(rows) for rows in by_rank[:rank]) * 2
        table = batch_merge.Table(
            prompt=[f"prompt {row}" for row in everyone for _ in range(2)],
            completion=[f"completion {row}.{number}" for row in everyone for number in range(2)],
            rewards={"right": outcomes.tolist()},
            advantages=advantages.tolist(),
            extra={"row": [row for row in everyone for _ in range(2)]},
        )
        return ds.Round(self.output(mine, advantages[start : start + 2 * len(mine)]), ds.has_signal(outcomes, 2), table)

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

    def step(self, first: list[list[int]], extra: int) -> tuple[list[list[ds.Round]], list[ds.FreshPrompts]]:
        """Each rank runs the same code on its own; what each asked for is handed to the others afterwards."""
        streams = [ds.FreshPrompts(self.rows, seed=0) for _ in range(self.world)]
        all_rounds = []
        for rank in range(self.world):
            asked: list[list[int]] = []

            def sample(rows: list[int], rank: int = rank, asked: list[list[int]] = asked) -> ds.Round:
                asked.append(rows)
                # What the other ranks drew can't be known here; a twin of the stream says it.
                twin = ds.FreshPrompts(self.rows, seed=0)
                in_batch = {row for rows in first for row in rows}
                drawn: list[int] = []
                for earlier in asked:
                    drawn = twin.draw(len(earlier) * self.world, in_batch)
                    in_batch.update(drawn)
                by_rank = [drawn[other * len(rows) : (other + 1) * len(rows)] for other in range(self.world)]
                assert by_rank[rank] == rows
                return self.round(by_rank, rank)

            known = ds.RowsByPrompt(f"prompt {row}" for row in range(self.rows))
            all_rounds.append(
                ds.sample_rounds(
                    self.round(first, rank),
                    sample,
                    streams[rank],
                    known,
                    extra=extra,
                    rank=rank,
                    world=self.world,
                )
            )
        return all_rounds, streams


@st.composite
def played_steps(draw: st.DrawFn) -> tuple[PlayedRanks, list[list[int]], int]:
    world, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows = draw(st.integers(world * groups, 40))
    batch = draw(st.permutations(range(rows)))[: world * groups]
    first = [list(batch[rank * groups : (rank + 1) * groups]) for rank in range(world)]
    return PlayedRanks(rows, world), first, draw(st.integers(0, 4))


@settings(max_examples=60, deadline=None)
@given(played_steps())
def test_every_rank_trains_on_whole_rows_of_its_own_that_the_table_shows(
    case: tuple[PlayedRanks, list[list[int]], int],
) -> None:
    played, first, extra = case
    world, group = played.world, 2
    all_rounds, streams = played.step(first, extra)
    signals = [sampled.signals for sampled in all_rounds[0]]
    for own in all_rounds:
        assert len(own) <= extra + 1
        assert [sampled.signals.tolist() for sampled in own] == [found.tolist() for found in signals]
    assert len({str(stream.state()) for stream in streams}) == 1, "every rank's stream is at the same place"

    choice = ds.choose(signals, world)
    table = batch_merge.merge_table([sampled.table for sampled in all_rounds[0]], choice, group)
    totals = [sum(length for row in shown for length in played.lengths(row)) for shown in _shown(table, world)]
    for rank, shown in enumerate(_shown(table, world)):
        outputs = [sampled.output for sampled in all_rounds[rank]]
        merged = batch_merge.merge(
            outputs, choice[rank], group, pad_token=PAD, over_ranks=lambda count: torch.tensor(sum(totals))
        )
        start = rank * len(shown) * group
        expected = played.output(shown, torch.tensor(table.advantages[start : start + len(shown) * group]))
        for key in expected:
            if key != "num_items_in_batch":
                assert torch.equal(_trimmed(key, merged[key]), _trimmed(key, expected[key])), key
        assert merged["completion_mask"].sum().item() == totals[rank]
        assert merged["num_items_in_batch"].item() == sum(totals)
    rows = [row for shown in _shown(table, world) for row in shown]
    assert len(set(rows)) == len(rows), "no prompt comes up twice in a batch"
    assert table.completion == [f"completion {row}.{number}" for row in rows for number in range(2)]
    assert table.rewards["right"] == played.outcomes(rows).tolist()
    # Nothing was given up that could have been had: a group without signal is left only when the budget is spent, or
    # when there are not enough fresh prompts for every rank.
    if ds.still_needed(signals, world) and len(signals) <= extra:
        used = world * len(first[0]) + sum(len(found) for found in signals[1:])
        assert played.rows - used < world


def _shown(table: batch_merge.Table, world: int) -> list[list[int]]:
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


# ── With GRPOTrainer itself ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_trainer_trains_on_groups_with_signal_only_and_logs_what_it_trained_on(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = [{"prompt": f"prompt {number}", "number": number} for number in range(12)]
    data = Dataset.from_list(rows)
    calls: list[list[int]] = []

    def half_right(completions: list[str], number: list[int], **_: Any) -> list[float]:
        # Prompts with an even number are always wrong, the others right every other time.
        calls.append(number)
        return [float(row % 2 == 1 and place % 2 == 0) for place, row in enumerate(number)]

    class Trainer(GRPOTrainer):
        """What Refill.run needs of RecipeTrainer."""

        refill = ds.DynamicSampler(data, outcome=0, extra=8, seed=0)
        batches: ClassVar[list[dict[str, torch.Tensor]]] = []

        def _calculate_rewards(self, *arguments: Any) -> torch.Tensor:
            self._settled = super()._calculate_rewards(*arguments)
            return self._settled

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = self.refill.run(self, inputs, super()._generate_and_score_completions)
            self.batches.append(output)
            assert self._settled[:, 0].tolist() == list(self._logs["rewards"]["half_right"])
            return output

    trainer = Trainer(
        model=str(TINY_MODEL),
        reward_funcs=half_right,
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
    ("rows", "group", "named"),
    [(16, 8, None), (8, 8, None), (12, 8, "Make them 16"), (4, 8, "Make them 8")],
)
def test_groups_that_straddle_ranks_are_refused(rows: int, group: int, named: str | None) -> None:
    fault = ds.alignment_fault(rows, group)
    assert (fault is None) == (named is None)
    assert named is None or (fault is not None and named in fault)


@pytest.mark.parametrize(
    ("recipe", "named", "why"),
    [
        ({}, None, "TRL's defaults"),
        ({"scale_rewards": "adaptive", "curriculum": "none"}, None, "advantages of a group's own"),
        ({"scale_rewards": "none"}, None, "advantages of a group's own"),
        ({"scale_rewards": "batch"}, "scale_rewards", "a round's standard deviation"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "sum_then_normalize", "a round's mean"),
        ({"curriculum": "easy_first"}, "curriculum", "fresh prompts would be of any difficulty"),
    ],
)
def test_settings_that_mix_rounds_are_refused(recipe: dict[str, Any], named: str | None, why: str) -> None:
    fault = ds.settings_fault(recipe)
    assert (fault is None) == (named is None), why
    assert named is None or (fault is not None and named in fault), why
