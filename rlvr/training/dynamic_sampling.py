"""Dynamic sampling: replace groups without signal by groups of fresh prompts, within a budget of rounds.

A group whose completions are all right, or all wrong, has advantages of 0: it was generated for nothing. DAPO
(arXiv:2503.14476, section 3.2) samples until the batch is full of groups whose accuracy is neither 0 nor 1. The filter
looks at the outcome (right or wrong), not at the sum of the rewards: a group that is all wrong but differs in its
format has a spread, and would teach the model to be wrong in good format.

How this fits GRPOTrainer: one call of its `_generate_and_score_completions` is a round. Round 0 has the sampler's
prompts. While some rank has groups without signal and rounds are left, each rank samples a further round. Its size is
the number of such groups on the rank that has the most. TRL gathers rewards, so every rank knows all outcomes and
computes the same layout without communication. A fresh group with signal replaces a group without signal of the same
rank, in order; tokens never travel. Groups that have no signal when the budget is spent stay in the batch and are
counted. Their advantages are those that they have without dynamic sampling: 0 where all rewards are equal. (To zero the
others too would keep a model that is always wrong from learning even the format.)

It needs whole groups on every rank, and advantages that depend on their own group alone (`sampling_problems`). Not
covered: images, whose tensors have a row a patch and not a row a completion.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rlvr.config.recipe import value_of
from rlvr.dataset_columns import column_values
from rlvr.errors import Problem
from rlvr.training.batch_merge import BatchLayout, CompletionTable, GroupSource, RolloutBatch, merge_rollouts

if TYPE_CHECKING:
    from datasets import Dataset

    from rlvr.training.trl_seam import TrlSeam

# Whether each group has signal, by round, rank and place.
Signals = Sequence[Sequence[Sequence[bool]]]


# ----------------------------------------------------------------------------------------------------------------------
# Recipes that dynamic sampling does not support


def sampling_problems(settings: Mapping[str, Any], rows_per_rank: int, group: int) -> list[Problem]:
    """Find the keys of a recipe that exclude dynamic sampling.

    Args:
        rows_per_rank: `per_device_train_batch_size` times `steps_per_generation`.
        group: `num_generations`.
    """
    rounds = "dynamic_sampling fills a batch from several rounds, but"
    messages = []
    if settings.get("scale_rewards") == "batch":
        messages.append(
            f"{rounds} scale_rewards: batch divides by the standard deviation of one round. Use scale_rewards: group, "
            "adaptive or none."
        )
    if settings.get("multi_objective_aggregation") == "normalize_then_sum":
        messages.append(
            f"{rounds} multi_objective_aggregation: normalize_then_sum normalises over one round. Use "
            "sum_then_normalize."
        )
    if value_of(settings, "curriculum") != "none":
        messages.append(
            "dynamic_sampling draws fresh prompts from all of the data, but a curriculum orders it. Set curriculum: "
            "none or dynamic_sampling: 0."
        )
    if rows_per_rank % group:
        messages.append(
            f"dynamic_sampling replaces whole groups on a rank, but {rows_per_rank} completions a rank (the product of "
            f"per_device_train_batch_size and steps_per_generation) are no multiple of num_generations: {group}. "
            f"Make them {-(-rows_per_rank // group) * group}, or set dynamic_sampling: 0."
        )
    return [Problem(message, "conflicting-keys", "dynamic_sampling") for message in messages]


# ----------------------------------------------------------------------------------------------------------------------
# Which groups have signal, and which of them fill the batch


def has_signal(outcomes: torch.Tensor, group: int) -> torch.Tensor:
    """Find the groups that have both a right and a wrong completion.

    Args:
        outcomes: (N,) the reward that says whether a completion is right, which means at least 1; NaN for a masked row,
            which is neither right nor wrong.
        group: completions a group; groups follow one another.

    Returns:
        (N / group,) booleans.
    """
    groups = outcomes.reshape(-1, group)
    scored = ~torch.isnan(groups)
    right = scored & (groups >= 1.0)
    return right.any(dim=1) & (scored & ~right).any(dim=1)


def choose_groups(signals: Signals) -> list[list[GroupSource]]:
    """Choose the source of each place of each rank's batch.

    Returns:
        Round 0's group where that has signal; else the next fresh group of the same rank that has; else round 0's.
    """
    layout = []
    for rank, first in enumerate(signals[0]):
        fresh = iter(
            GroupSource(number, group)
            for number, ranks in enumerate(signals)
            if number > 0
            for group, good in enumerate(ranks[rank])
            if good
        )
        sources = [(GroupSource(0, group), good) for group, good in enumerate(first)]
        layout.append([source if good else next(fresh, source) for source, good in sources])
    return layout


def count_unfilled(signals: Signals, layout: BatchLayout) -> list[int]:
    """For each rank, count the places of its batch that have no signal."""
    return [
        sum(not signals[source.rollout][rank][source.group] for source in sources)
        for rank, sources in enumerate(layout)
    ]


def batch_metrics(signals: Signals, layout: BatchLayout) -> dict[str, float]:
    """Summarise a batch over all ranks, by the names of metrics.

    `kept_fraction` is the share of all generated groups that have signal and are trained on. Its inverse is the cost of
    a useful group, in groups.
    """
    unfilled = sum(count_unfilled(signals, layout))
    places = sum(len(sources) for sources in layout)
    generated = sum(len(groups) for ranks in signals for groups in ranks)
    return {
        "dynamic_sampling/rounds": float(len(signals)),
        "dynamic_sampling/replaced_groups": float(sum(source.rollout > 0 for sources in layout for source in sources)),
        "dynamic_sampling/unfilled_groups": float(unfilled),
        "dynamic_sampling/kept_fraction": (places - unfilled) / generated,
    }


# ----------------------------------------------------------------------------------------------------------------------
# Fresh prompts


class FreshPrompts:
    """A stream of row numbers to draw replacements from: one shuffled pass over the data after another.

    The same on all ranks, since it depends on its arguments and its earlier draws alone. The trainer's sampler has an
    order of its own, so it may use the same prompt in another batch; within a batch a prompt occurs once.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._pass = 0
        self._position = 0
        self._order: list[int] | None = None  # built on the first draw: some runs never draw

    def draw(self, count: int, exclude: Collection[int]) -> list[int]:
        """Draw the next `count` rows that are not in `exclude`; fewer only where the data has no more such rows.

        A row that is passed over because it is excluded occurs again in the next pass.
        """
        drawn: list[int] = []
        avoided = set(exclude)
        count = min(count, self.count_available(avoided))
        while len(drawn) < count:
            if self._position == self._rows:
                self._pass, self._position, self._order = self._pass + 1, 0, None
            if self._order is None:
                self._order = list(range(self._rows))
                random.Random(f"fresh prompts/{self._seed}/{self._pass}").shuffle(self._order)
            row = self._order[self._position]
            self._position += 1
            if row not in avoided:
                avoided.add(row)
                drawn.append(row)
        return drawn

    def count_available(self, exclude: Collection[int]) -> int:
        return self._rows - sum(0 <= row < self._rows for row in set(exclude))

    def state(self) -> dict[str, int]:
        """The stream's position, for a checkpoint."""
        return {"pass": self._pass, "position": self._position}

    def load(self, state: Mapping[str, int]) -> None:
        """Continue from `state()`, with the same rows and seed (`rlvr.artifacts.identity` holds that)."""
        self._pass, self._position, self._order = state["pass"], state["position"], None


def _digest(prompt: Any) -> bytes:
    """Sixteen bytes for a prompt: every rank keeps those of all prompts, which may be long."""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# ----------------------------------------------------------------------------------------------------------------------


class DynamicSampler:
    """Fill a batch from as many rounds as it takes.

    Args:
        data: the rows that the trainer's sampler draws from.
        outcome: index of the reward that says whether a completion is right (its value is at least 1).
        group: completions a prompt (`num_generations`).
        max_rounds: further rounds a batch (the recipe's `dynamic_sampling`).
        seed: of the order in which fresh prompts are drawn.
    """

    def __init__(self, data: Dataset, outcome: int, *, group: int, max_rounds: int, seed: int) -> None:
        self._data = data
        self._outcome = outcome
        self._group = group
        self._max_rounds = max_rounds
        self.fresh = FreshPrompts(len(data), seed)

    @functools.cached_property
    def _rows(self) -> dict[bytes, list[int]]:
        """The rows that have a prompt; read when the first batch lacks a group."""
        rows: dict[bytes, list[int]] = {}
        for row, prompt in enumerate(column_values(self._data, "prompt")):
            rows.setdefault(_digest(prompt), []).append(row)
        return rows

    def rows_with(self, prompts: Iterable[Any]) -> set[int]:
        """All rows with one of these prompts: a batch never gets a prompt twice."""
        return {row for prompt in prompts for row in self._rows.get(_digest(prompt), ())}

    def fill(
        self,
        first: RolloutBatch,
        sample: Callable[[list[Any]], RolloutBatch],
        *,
        rank: int,
        world: int,
        pad_token: int,
        sum_over_ranks: Callable[[torch.Tensor], torch.Tensor],
    ) -> tuple[RolloutBatch, dict[str, float]]:
        """Build a batch of groups with signal, and its metrics.

        Collective: every rank must call it. All call `sample` equally often with equally many rows.

        Args:
            first: round 0.
            sample: generates and scores a completion for each of these inputs, on this rank.
            rank, world: this process, and the number of processes.
            pad_token, sum_over_ranks: as for `merge_rollouts`.
        """
        rollouts = [first]
        signals = [self._signals(first, world)]
        layout = choose_groups(signals)
        in_batch: set[int] | None = None
        while len(rollouts) <= self._max_rounds and (needed := max(count_unfilled(signals, layout))):
            if in_batch is None:
                in_batch = self.rows_with(first.table.prompt)
            needed = min(needed, self.fresh.count_available(in_batch) // world)
            if needed == 0:
                break
            drawn = self.fresh.draw(needed * world, in_batch)
            in_batch.update(drawn)
            own = drawn[rank * needed : (rank + 1) * needed]
            rollouts.append(sample([self._data[row] for row in own for _ in range(self._group)]))
            signals.append(self._signals(rollouts[-1], world))
            layout = choose_groups(signals)
        metrics = batch_metrics(signals, layout)
        if len(rollouts) == 1:
            return first, metrics
        batch = merge_rollouts(
            rollouts, layout, self._group, rank=rank, pad_token=pad_token, sum_over_ranks=sum_over_ranks
        )
        return batch, metrics

    def _signals(self, rollout: RolloutBatch, world: int) -> list[list[bool]]:
        return has_signal(rollout.rewards[:, self._outcome], self._group).view(world, -1).tolist()


def sample_rounds(trainer: TrlSeam, sampler: DynamicSampler, inputs: list[Any]) -> dict[str, Any]:
    """Sample a trainer's batch in as many rounds as it needs. Collective.

    What TRL logs of rewards and lengths stays that of round 0. Fresh groups are kept because they are neither all right
    nor all wrong. A mean reward over them would draw towards one half, and could not be compared with that of a run
    without dynamic sampling. The table of completions shows the batch that is trained on.
    """

    def sample(rows: list[Any]) -> RolloutBatch:
        trainer.write_table(CompletionTable())
        tensors = trainer.sample_round(rows)
        return RolloutBatch(tensors, trainer.scores.values, trainer.read_table())

    first, accelerator = sample(inputs), trainer.accelerator
    with trainer.without_further_metrics():
        batch, metrics = sampler.fill(
            first,
            sample,
            rank=accelerator.process_index,
            world=accelerator.num_processes,
            pad_token=trainer.text_tokenizer.pad_token_id,
            sum_over_ranks=lambda count: accelerator.gather(count).sum(),
        )
    for name, value in metrics.items():
        trainer.metrics[name].append(value)
    if batch is not first:
        trainer.micro_batches.forget()
    trainer.write_table(batch.table)
    trainer.scores = replace(trainer.scores, values=batch.rewards)
    return batch.tensors
