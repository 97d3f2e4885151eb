"""Merge several rollouts into one batch: tensors of different widths, and TRL's table of completions.

rlvr/training/dynamic_sampling.py chooses which group of which rollout fills which place of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import torch

from rlvr.errors import InputError


@dataclass(frozen=True)
class CompletionTable:
    """Rows of TRL's table of completions: those of all ranks, in the order that TRL gathers them in."""

    prompt: list[Any] = field(default_factory=list)
    completion: list[Any] = field(default_factory=list)
    rewards: dict[str, list[float]] = field(default_factory=dict)
    advantages: list[float] = field(default_factory=list)
    extra: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RolloutBatch:
    """Scored completions, as one call of TRL's `_generate_and_score_completions` makes them."""

    tensors: dict[str, torch.Tensor]  # what the call returned: this rank's rows, padded to the longest of them
    rewards: torch.Tensor  # (completions of all ranks, rewards), NaN where a row is masked
    table: CompletionTable  # what the call logged: all ranks' rows


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
    tensors = merge_tensors([rollout.tensors for rollout in rollouts], layout[rank], group, pad_token, sum_over_ranks)
    rows = source_rows([len(rollout.rewards) for rollout in rollouts], layout, group)
    rewards = torch.stack([rollouts[number].rewards[row] for number, row in rows])
    return RolloutBatch(tensors, rewards, merge_tables([rollout.table for rollout in rollouts], rows))


def merge_tensors(
    outputs: Sequence[Mapping[str, torch.Tensor]],
    sources: Sequence[GroupSource],
    group: int,
    pad_token: int,
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Build this rank's tensors; arguments as for `merge_rollouts`."""
    merged = {}
    for key in outputs[0]:
        if key == TOKENS_OF_ALL_RANKS:
            continue
        if key not in PADDING:
            raise InputError(
                f"dynamic_sampling can't merge {key}: it supports text only, neither images nor tensors that TRL has "
                "added since 1.16. Set dynamic_sampling: 0.",
                kind="unsupported-tensor",
                key="dynamic_sampling",
            )
        merged[key] = _merge_rows(key, [output[key] for output in outputs], sources, group, pad_token)
    if TOKENS_OF_ALL_RANKS in outputs[0]:
        # The divisor of the loss, counted as TRL does: tokens of the rows that are trained on, of all ranks.
        counted = merged["completion_mask"] * merged.get("tool_mask", 1)
        merged[TOKENS_OF_ALL_RANKS] = sum_over_ranks(counted.sum()).to(outputs[0][TOKENS_OF_ALL_RANKS].dtype)
    return merged


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


def merge_tables(tables: Sequence[CompletionTable], rows: Sequence[tuple[int, int]]) -> CompletionTable:
    """Build the table of these rows; None where a rollout lacks a column."""

    def column(columns: Sequence[Sequence[Any] | None]) -> list[Any]:
        return [None if (values := columns[number]) is None else values[row] for number, row in rows]

    def named(groups: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
        return {name: column([group.get(name) for group in groups]) for name in dict.fromkeys(chain(*groups))}

    return CompletionTable(
        prompt=column([table.prompt for table in tables]),
        completion=column([table.completion for table in tables]),
        rewards=named([table.rewards for table in tables]),
        advantages=column([table.advantages for table in tables]),
        extra=named([table.extra for table in tables]),
    )


def plain(values: Any) -> Any:
    """Deques as lists, and dictionaries of them as plain ones, which torch.load takes without trusting the file."""
    if isinstance(values, Mapping):
        return {key: list(column) for key, column in values.items() if column}
    return list(values)


def extend(column: Any, values: Any) -> None:
    """Append to a column of TRL's table, or to each of a dictionary of columns."""
    if isinstance(values, Mapping):
        for key, part in values.items():
            column[key].extend(part)
    else:
        column.extend(values)
