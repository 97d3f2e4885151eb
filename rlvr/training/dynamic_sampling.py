"""Dynamic sampling: groups that teach nothing are replaced by groups of fresh prompts, within a budget of rounds.

A group whose completions are all right, or all wrong, has advantages of 0: it was generated for nothing. DAPO
(arXiv:2503.14476, section 3.2) samples on until the batch is full of groups whose accuracy is neither 0 nor 1. The
filter looks at the outcome (right or wrong), not at the sum of the rewards: a group that is all wrong but differs in
its format has a spread, and would teach the model to be wrong in good format.

How this fits GRPOTrainer. One call of its `_generate_and_score_completions` is a round. Round 0 has the prompts of the
sampler. While some rank has groups without signal and rounds are left, each rank samples a further round with as many
fresh prompts as the rank with the most such groups has of them. Rewards are gathered by TRL, so every rank knows the
outcomes of all ranks and comes to the same plan without a word. A good fresh group replaces a group without signal of
the same rank, in order; tokens never travel. Groups that are still without signal when the budget is spent stay in the
batch, and are counted: their advantages are those that they have without dynamic sampling, so 0 where all rewards are
equal. (To zero the others too would keep a model that is always wrong from learning even the format.)

This needs whole groups on every rank (`alignment_fault`), and advantages that depend on nothing but their own group
(`settings_fault`). What it does not cover: images, whose tensors have a row a patch and not a row a completion.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr.errors import InputError
from rlvr.training import batch_merge
from rlvr.training.batch_merge import Slot, Table

if TYPE_CHECKING:
    from datasets import Dataset

    from rlvr.training.grpo_trainer import RecipeTrainer


@dataclass(frozen=True)
class Round:
    """What one call of TRL's method gave.

    Attributes:
        output: what it returned: this rank's rows.
        signals: (groups of all ranks,) which of them teach something, see `has_signal`.
        table: what it logged: all ranks' rows.
    """

    output: dict[str, torch.Tensor]
    signals: torch.Tensor
    table: Table


# ----------------------------------------------------------------------------------------------------------------------
# What can't be done, said before a run


def alignment_fault(rows_per_rank: int, group: int) -> str | None:
    """Why a rank's rows are no whole groups, if they aren't.

    Args:
        rows_per_rank: `per_device_train_batch_size` times `steps_per_generation`.
        group: `num_generations`.
    """
    if rows_per_rank % group == 0:
        return None
    return (
        f"dynamic_sampling replaces whole groups on a rank, but {rows_per_rank} completions a rank (the product of "
        f"per_device_train_batch_size and steps_per_generation) are no multiple of num_generations: {group}. "
        f"Make them {-(-rows_per_rank // group) * group}, or set dynamic_sampling: 0"
    )


def settings_fault(settings: Mapping[str, Any]) -> str | None:
    """Why dynamic sampling can't go with the other keys of a recipe, if it can't; without a full stop."""
    if settings.get("scale_rewards") == "batch":
        return (
            "dynamic_sampling fills a batch from several rounds, and scale_rewards: batch divides by the standard "
            "deviation of a round. Use scale_rewards: group, adaptive or none"
        )
    if settings.get("multi_objective_aggregation") == "normalize_then_sum":
        return (
            "dynamic_sampling fills a batch from several rounds, and multi_objective_aggregation: normalize_then_sum "
            "normalises over a round. Use sum_then_normalize"
        )
    if settings.get("curriculum", "none") != "none":
        return (
            "dynamic_sampling draws fresh prompts from all of the data, which a curriculum puts into an order. "
            "Set curriculum: none or dynamic_sampling: 0"
        )
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Which groups teach something, and where each place of the batch is filled from


def has_signal(outcomes: torch.Tensor, group: int) -> torch.Tensor:
    """Which groups have both a right and a wrong completion.

    Args:
        outcomes: (N,) the value of the reward that says whether a completion is right, which means at least 1; NaN for
            a masked row, which is neither right nor wrong.
        group: completions a group; groups follow one another.

    Returns:
        (N / group,) booleans.
    """
    groups = outcomes.reshape(-1, group)
    scored = ~torch.isnan(groups)
    right = scored & (groups >= 1.0)
    return right.any(dim=1) & (scored & ~right).any(dim=1)


def choose(signals: Sequence[torch.Tensor], world: int) -> list[list[Slot]]:
    """For each rank and each place of its batch, where it is filled from.

    Args:
        signals: a round's `has_signal` each; ranks one after another, each with as many groups as the others.
        world: the number of ranks.

    Returns:
        Round 0's group where that has signal; else the next fresh group of the same rank that has; else round 0's.
    """
    by_rank = [flags.view(world, -1).tolist() for flags in signals]
    choice = []
    for rank in range(world):
        fresh = iter(
            (number, group)
            for number, flags in enumerate(by_rank)
            if number > 0
            for group, good in enumerate(flags[rank])
            if good
        )
        choice.append([(0, group) if good else next(fresh, (0, group)) for group, good in enumerate(by_rank[0][rank])])
    return choice


def still_needed(signals: Sequence[torch.Tensor], world: int) -> int:
    """Fresh prompts that a further round needs on each rank: as many as the rank with the most unfilled places."""
    return max(len(places) for places in _unfilled(signals, choose(signals, world), world))


def figures(signals: Sequence[torch.Tensor], choice: Sequence[Sequence[Slot]]) -> dict[str, float]:
    """What to log of a batch, over all ranks, by the name of its metric.

    `kept_fraction` is the share of all groups that were generated which are trained on and teach something: its inverse
    is what a useful group costs, in groups.
    """
    unfilled = sum(len(places) for places in _unfilled(signals, choice, len(choice)))
    slots = sum(len(places) for places in choice)
    return {
        "dynamic_sampling/rounds": float(len(signals)),
        "dynamic_sampling/replaced_groups": float(sum(number > 0 for places in choice for number, _ in places)),
        "dynamic_sampling/unfilled_groups": float(unfilled),
        "dynamic_sampling/kept_fraction": (slots - unfilled) / sum(len(flags) for flags in signals),
    }


def _unfilled(signals: Sequence[torch.Tensor], choice: Sequence[Sequence[Slot]], world: int) -> list[list[Slot]]:
    """For each rank the places of its batch that have no signal."""
    by_rank = [flags.view(world, -1).tolist() for flags in signals]
    return [
        [(number, group) for number, group in places if not by_rank[number][rank][group]]
        for rank, places in enumerate(choice)
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Fresh prompts


class FreshPrompts:
    """A stream of row numbers to draw replacements from: one shuffled pass over the data after another.

    The same on all ranks, since it depends on nothing but its arguments and on what was drawn before. The sampler of
    the trainer has an order of its own, so a prompt may come up there as well; within a batch it comes up once.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._pass = 0
        self._position = 0
        self._order: list[int] | None = None  # made when it is first needed: most runs draw late, some never

    def draw(self, count: int, exclude: Collection[int]) -> list[int]:
        """The next `count` rows that are not in `exclude`, fewer only where the data has no more such rows.

        A row that is passed over because it is excluded comes up again in the next pass.
        """
        taken: list[int] = []
        avoided = set(exclude)
        count = min(count, self.left(avoided))
        while len(taken) < count:
            row = self._next()
            if row not in avoided:
                avoided.add(row)
                taken.append(row)
        return taken

    def left(self, exclude: Collection[int]) -> int:
        """How many rows there are beside the excluded ones."""
        return self._rows - sum(0 <= row < self._rows for row in set(exclude))

    def _next(self) -> int:
        if self._position == self._rows:
            self._pass, self._position, self._order = self._pass + 1, 0, None
        if self._order is None:
            self._order = list(range(self._rows))
            random.Random(f"fresh prompts/{self._seed}/{self._pass}").shuffle(self._order)
        self._position += 1
        return self._order[self._position - 1]

    def state(self) -> dict[str, int]:
        """Where the stream is, for a checkpoint."""
        return {"rows": self._rows, "seed": self._seed, "pass": self._pass, "position": self._position}

    def load(self, state: Mapping[str, int]) -> None:
        """Goes on from `state()`.

        Raises:
            InputError: it is the state of a stream over other data, or with another seed.
        """
        for name, mine in (("rows", self._rows), ("seed", self._seed)):
            if state.get(name) != mine:
                raise InputError(
                    f"The checkpoint's stream of fresh prompts (dynamic_sampling) was made with {name} "
                    f"{state.get(name)!r}, but this run has {mine!r}. Continue with the same data and seed, or start "
                    "anew with resume_from_checkpoint: never."
                )
        self._pass, self._position, self._order = int(state["pass"]), int(state["position"]), None


class RowsByPrompt:
    """Finds the rows of the data that a prompt comes from, so that a batch never gets a prompt that it has already."""

    def __init__(self, prompts: Iterable[Any]) -> None:
        self._prompts = prompts  # read when the first batch lacks a group
        self._rows: dict[bytes, list[int]] | None = None

    def rows(self, prompts: Iterable[Any]) -> set[int]:
        """All rows with one of these prompts; a prompt that is not in the data has none."""
        if self._rows is None:
            self._rows = {}
            for row, prompt in enumerate(self._prompts):
                self._rows.setdefault(_key(prompt), []).append(row)
        return {row for key in {_key(prompt) for prompt in prompts} for row in self._rows.get(key, ())}


def _key(prompt: Any) -> bytes:
    """Sixteen bytes that stand for a prompt: every rank keeps all of them, and prompts may be long."""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def sample_rounds(
    first: Round,
    sample: Callable[[list[int]], Round],
    fresh: FreshPrompts,
    known: RowsByPrompt,
    *,
    extra: int,
    rank: int,
    world: int,
) -> list[Round]:
    """Samples further rounds until every group has signal, `extra` rounds are spent, or the data has no fresh prompt.

    Collective: every rank must call it, and calls `sample` equally often with equally many rows.

    Args:
        first: round 0.
        sample: generates and scores a group for each of these rows, on this rank.
        fresh, known: the stream and the index over the rows that the sampler draws from.

    Returns:
        All rounds, `first` among them.
    """
    done = [first]
    in_batch: set[int] | None = None
    while len(done) <= extra:
        needed = still_needed([one.signals for one in done], world)
        if needed == 0:
            break
        if in_batch is None:
            in_batch = known.rows(first.table.prompt)
        needed = min(needed, fresh.left(in_batch) // world)
        if needed == 0:
            break
        drawn = fresh.draw(needed * world, in_batch)
        in_batch.update(drawn)
        done.append(sample(drawn[rank * needed : (rank + 1) * needed]))
    return done


# ----------------------------------------------------------------------------------------------------------------------
# The whole, as the trainer calls it


class DynamicSampler:
    """Dynamic sampling for a trainer.

    What the trainer logs of rewards, lengths and masked rows stays that of round 0, the sampler's own prompts: fresh
    groups are kept because they are neither all right nor all wrong, so their mean reward says nothing of the model.
    The table of completions shows the batch that is trained on.

    Args:
        data: the rows that the trainer's sampler draws from.
        outcome: which of the rewards, counted from 0, says whether a completion is right (its value is at least 1).
        extra: the most further rounds for a batch (the recipe's `dynamic_sampling`).
        seed: of the order in which fresh prompts are drawn.
    """

    def __init__(self, data: Dataset, outcome: int, extra: int, seed: int) -> None:
        self._data = data
        self._outcome = outcome
        self._extra = extra
        self._fresh = FreshPrompts(len(data), seed)
        self._known = RowsByPrompt(data["prompt"])

    def run(
        self, trainer: RecipeTrainer, inputs: list[Any], one_round: Callable[[list[Any]], dict[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """A batch for `trainer` out of as many calls of `one_round` as it takes; collective.

        Afterwards the trainer's settled rewards and its table of completions are those of the batch.
        """
        accelerator, group, logs = trainer.accelerator, trainer.num_generations, trainer._logs
        world, rank = accelerator.num_processes, accelerator.process_index
        if fault := alignment_fault(len(inputs), group):
            raise InputError(f"{fault}.")
        settled: list[torch.Tensor] = []

        def sample(rows: list[Any]) -> Round:
            batch_merge.clear_table(logs)
            output = one_round(rows)
            settled.append(trainer._settled)
            return Round(output, has_signal(trainer._settled[:, self._outcome], group), batch_merge.take_table(logs))

        first = sample(inputs)
        honest = batch_merge.FirstRoundMetrics(trainer._metrics["train"])
        sampled = sample_rounds(
            first,
            lambda rows: sample([self._data[row] for row in rows for _ in range(group)]),
            self._fresh,
            self._known,
            extra=self._extra,
            rank=rank,
            world=world,
        )
        honest.restore()
        signals = [one.signals for one in sampled]
        choice = choose(signals, world)
        for name, value in figures(signals, choice).items():
            trainer._metrics["train"][name].append(value)
        if len(sampled) == 1:
            return first.output
        batch_merge.write_table(logs, batch_merge.merge_table([one.table for one in sampled], choice, group))
        chosen = batch_merge.chosen_rows(settled, choice, group)
        trainer._settled = torch.stack([settled[number][row] for number, row in chosen])
        return batch_merge.merge(
            [one.output for one in sampled],
            choice[rank],
            group,
            pad_token=trainer._tokenizer.pad_token_id,
            over_ranks=lambda count: accelerator.gather(count).sum(),
        )

    def state(self) -> dict[str, int]:
        """Where the stream of fresh prompts is, for a checkpoint."""
        return self._fresh.state()

    def load(self, state: Mapping[str, int]) -> None:
        """Goes on from `state()`; InputError if it is that of other data."""
        self._fresh.load(state)
