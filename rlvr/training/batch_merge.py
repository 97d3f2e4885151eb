"""Merge several rollouts into one batch: tensors of different widths, and TRL's table of completions.

rlvr/training/dynamic_sampling.py chooses which group of which rollout fills which place of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rlvr.errors import InputError


@dataclass(frozen=True)
class CompletionTable:
    """Rows of TRL's table of completions: those of all ranks, in the order that TRL gathers them in."""

    prompt: list[Any]
    completion: list[Any]
    rewards: dict[str, list[float]]
    advantages: list[float]
    extra: dict[str, list[Any]]


@dataclass(frozen=True)
class RolloutBatch:
    """Scored completions, as one call of TRL's `_generate_and_score_completions` makes them.

    Attributes:
        tensors: what the call returned: this rank's rows, padded to the longest of them.
        rewards: (completions of all ranks, rewards), NaN where a row is masked.
        table: what the call logged: all ranks' rows.
    """

    tensors: dict[str, torch.Tensor]
    rewards: torch.Tensor
    table: CompletionTable


class GroupSource(NamedTuple):
    """What fills a place of the batch: a group, by its rollout and its number on its rank in there."""

    rollout: int
    group: int


# For each rank, the source of each place of its batch.
BatchLayout = Sequence[Sequence[GroupSource]]

# What TRL 1.16's `_generate_and_score_completions` returns as one row a completion, at most two dimensions: on which
# side it is padded, and with what; None for the tokenizer's pad token.
PADDING: dict[str, tuple[str, float | None]] = {
    "prompt_ids": ("left", None),
    "prompt_mask": ("left", 0),
    "completion_ids": ("right", None),
    "completion_mask": ("right", 0),
    "tool_mask": ("right", 1),
    "old_per_token_logps": ("right", 0.0),
    "ref_per_token_logps": ("right", 0.0),
    "sampling_per_token_logps": ("right", 0.0),
    "importance_sampling_ratio": ("right", 1.0),
    "advantages": ("right", 0.0),
}
TOKENS_OF_ALL_RANKS = "num_items_in_batch"


def merge_rollouts(
    rollouts: Sequence[RolloutBatch],
    layout: BatchLayout,
    group: int,
    *,
    rank: int,
    pad_token: int,
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor],
) -> RolloutBatch:
    """Build the batch that a layout describes.

    Collective through `sum_over_ranks`: every rank must call it.

    Args:
        group: completions a group.
        rank: this process.
        pad_token: the tokenizer's.
        sum_over_ranks: the sum of a rank's number over all ranks.

    Raises:
        InputError: TRL returned tensors that this module can't cut into rows.
    """
    tensors = merge_tensors(
        [rollout.tensors for rollout in rollouts],
        layout[rank],
        group,
        pad_token=pad_token,
        sum_over_ranks=sum_over_ranks,
    )
    rows = source_rows([len(rollout.rewards) for rollout in rollouts], layout, group)
    rewards = torch.stack([rollouts[number].rewards[row] for number, row in rows])
    return RolloutBatch(tensors, rewards, merge_tables([rollout.table for rollout in rollouts], layout, group))


def merge_tensors(
    outputs: Sequence[Mapping[str, torch.Tensor]],
    sources: Sequence[GroupSource],
    group: int,
    *,
    pad_token: int,
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Build this rank's tensors; arguments as for `merge_rollouts`."""
    keys = list(outputs[0])
    unknown = sorted({key for output in outputs for key in output} - {*PADDING, TOKENS_OF_ALL_RANKS})
    if unknown:
        raise InputError(
            f"dynamic_sampling can't merge {', '.join(unknown)}: it supports text only, neither images nor tensors "
            "that TRL has added since 1.16. Set dynamic_sampling: 0.",
            kind="unsupported-tensor",
            key="dynamic_sampling",
        )
    if any(set(output) != set(keys) for output in outputs):
        raise InputError(
            "dynamic_sampling: the rollouts of a batch hold different tensors. Set dynamic_sampling: 0.",
            kind="unsupported-tensor",
            key="dynamic_sampling",
        )
    merged = {
        key: _merge_rows(key, [output[key] for output in outputs], sources, group, pad_token)
        for key in keys
        if key != TOKENS_OF_ALL_RANKS
    }
    if TOKENS_OF_ALL_RANKS in keys:
        # The divisor of the loss, counted as TRL does: tokens of the rows that are trained on, of all ranks.
        counted = merged["completion_mask"] * merged.get("tool_mask", 1)
        merged[TOKENS_OF_ALL_RANKS] = sum_over_ranks(counted.sum()).to(outputs[0][TOKENS_OF_ALL_RANKS].dtype)
    return {key: merged[key] for key in keys}


def _merge_rows(
    key: str, tensors: Sequence[torch.Tensor], sources: Sequence[GroupSource], group: int, pad_token: int
) -> torch.Tensor:
    side, value = PADDING[key]
    value = pad_token if value is None else value
    pieces = [tensors[source.rollout][source.group * group : (source.group + 1) * group] for source in sources]
    if pieces[0].dim() == 1:
        return torch.cat(pieces)
    width = max(piece.size(1) for piece in pieces)
    padded = []
    for piece in pieces:
        missing = width - piece.size(1)
        padding = (missing, 0) if side == "left" else (0, missing)
        padded.append(torch.nn.functional.pad(piece, padding, value=value))
    return torch.cat(padded)


def source_rows(sizes: Sequence[int], layout: BatchLayout, group: int) -> list[tuple[int, int]]:
    """For each row of the batch, all ranks', its rollout and its row there.

    Args:
        sizes: completions of each rollout, all ranks'.
    """
    rows = []
    for rank, sources in enumerate(layout):
        for source in sources:
            groups_a_rank = sizes[source.rollout] // group // len(layout)
            start = (rank * groups_a_rank + source.group) * group
            rows += [(source.rollout, row) for row in range(start, start + group)]
    return rows


def merge_tables(tables: Sequence[CompletionTable], layout: BatchLayout, group: int) -> CompletionTable:
    """Build the table of the batch; None where a rollout lacks a column."""
    rows = source_rows([len(table.prompt) for table in tables], layout, group)

    def column(columns: Sequence[Sequence[Any] | None]) -> list[Any]:
        return [None if (values := columns[number]) is None else values[row] for number, row in rows]

    rewards = dict.fromkeys(name for table in tables for name in table.rewards)
    extra = dict.fromkeys(name for table in tables for name in table.extra)
    return CompletionTable(
        prompt=column([table.prompt for table in tables]),
        completion=column([table.completion for table in tables]),
        rewards={name: column([table.rewards.get(name) for table in tables]) for name in rewards},
        advantages=column([table.advantages for table in tables]),
        extra={name: column([table.extra.get(name) for table in tables]) for name in extra},
    )
