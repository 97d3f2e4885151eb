"""Several rounds of completions made into one batch: tensors of other widths, and TRL's table of completions.

A round is what one call of GRPOTrainer's `_generate_and_score_completions` gives: tensors with this rank's rows, padded
to the longest of the round, and in the trainer's `_logs` the rows of all ranks. rlvr/training/dynamic_sampling.py
chooses which group of which round fills which place of the batch; here the choice is carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rlvr.errors import InputError

# Where a place in the batch is filled from: the round, and the group's number on its rank in that round.
Slot = tuple[int, int]

# What TRL 1.16's `_generate_and_score_completions` returns as one row a completion, at most two dimensions: on which
# side it is padded, and with what; None for the tokenizer's pad token.
_PADDING: dict[str, tuple[str, float | None]] = {
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
_TOKENS_OF_ALL_RANKS = "num_items_in_batch"


@dataclass(frozen=True)
class Table:
    """Rows of TRL's table of completions, all ranks', in the order that TRL gathers them in."""

    prompt: list[Any]
    completion: list[Any]
    rewards: dict[str, list[float]]
    advantages: list[float]
    extra: dict[str, list[Any]]


def merge(
    outputs: Sequence[Mapping[str, torch.Tensor]],
    places: Sequence[Slot],
    group: int,
    *,
    pad_token: int,
    over_ranks: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """This rank's batch out of what TRL's method returned in each round.

    Collective through `over_ranks`: every rank must call it.

    Args:
        outputs: one a round.
        places: this rank's part of `choose`.
        group: completions a group.
        pad_token: the tokenizer's.
        over_ranks: a rank's number of tokens -> the sum over all ranks (`accelerator.gather(count).sum()`).

    Raises:
        InputError: TRL returned something that this module doesn't know how to cut into rows.
    """
    keys = list(outputs[0])
    unknown = sorted({key for output in outputs for key in output} - {*_PADDING, _TOKENS_OF_ALL_RANKS})
    if unknown:
        raise InputError(
            f"dynamic_sampling can't merge {', '.join(unknown)}, which this run's batches hold: it knows text only, "
            "neither images nor tensors that TRL has added since 1.16. Set dynamic_sampling: 0."
        )
    if any(set(output) != set(keys) for output in outputs):
        raise InputError("dynamic_sampling: the rounds of a batch hold different tensors. Set dynamic_sampling: 0.")
    merged = {
        key: _rows_of(key, [output[key] for output in outputs], places, group, pad_token)
        for key in keys
        if key != _TOKENS_OF_ALL_RANKS
    }
    if _TOKENS_OF_ALL_RANKS in keys:
        # As TRL counts it: what the loss is divided by, so the tokens of the rows that are trained on, of all ranks.
        counted = (
            merged["completion_mask"] * merged["tool_mask"] if "tool_mask" in merged else merged["completion_mask"]
        )
        total = over_ranks(counted.sum())
        merged[_TOKENS_OF_ALL_RANKS] = total.to(outputs[0][_TOKENS_OF_ALL_RANKS].dtype)
    return {key: merged[key] for key in keys}


def _rows_of(
    key: str, tensors: Sequence[torch.Tensor], places: Sequence[Slot], group: int, pad_token: int
) -> torch.Tensor:
    side, value = _PADDING[key]
    value = pad_token if value is None else value
    pieces = [tensors[number][place * group : (place + 1) * group] for number, place in places]
    if pieces[0].dim() == 1:
        return torch.cat(pieces)
    width = max(piece.size(1) for piece in pieces)
    padded = []
    for piece in pieces:
        missing = width - piece.size(1)
        sides = (missing, 0) if side == "left" else (0, missing)
        padded.append(torch.nn.functional.pad(piece, sides, value=value))
    return torch.cat(padded)


# ----------------------------------------------------------------------------------------------------------------------
# The table of completions, and metrics: TRL writes to them in every round


def clear_table(logs: Mapping[str, Any]) -> None:
    """Empties TRL's `_logs` before a round, so that afterwards it holds the round's rows and no others."""
    for column in _columns(logs):
        column.clear()


def take_table(logs: Mapping[str, Any]) -> Table:
    """What TRL's `_logs` hold after a round."""
    return Table(
        prompt=list(logs["prompt"]),
        completion=list(logs["completion"]),
        rewards={name: list(column) for name, column in logs["rewards"].items() if column},
        advantages=list(logs["advantages"]),
        extra={name: list(column) for name, column in logs["extra"].items() if column},
    )


def chosen_rows(
    rounds: Sequence[Sequence[Any] | torch.Tensor], choice: Sequence[Sequence[Slot]], group: int
) -> list[tuple[int, int]]:
    """For each row of the batch, all ranks', the round and the row there that it is filled from.

    Args:
        rounds: something of each round that has an entry a completion, ranks one after another.
    """
    chosen = []
    for rank, places in enumerate(choice):
        for number, place in places:
            groups_a_rank = len(rounds[number]) // group // len(choice)
            start = (rank * groups_a_rank + place) * group
            chosen += [(number, row) for row in range(start, start + group)]
    return chosen


def merge_table(tables: Sequence[Table], choice: Sequence[Sequence[Slot]], group: int) -> Table:
    """The rows that are trained on, in the order that TRL gathers them in; None where a round lacks a column."""
    chosen = chosen_rows([table.prompt for table in tables], choice, group)

    def column(lists: Sequence[Sequence[Any] | None]) -> list[Any]:
        return [None if (values := lists[number]) is None else values[row] for number, row in chosen]

    rewards = dict.fromkeys(name for table in tables for name in table.rewards)
    extra = dict.fromkeys(name for table in tables for name in table.extra)
    return Table(
        prompt=column([table.prompt for table in tables]),
        completion=column([table.completion for table in tables]),
        rewards={name: column([table.rewards.get(name) for table in tables]) for name in rewards},
        advantages=column([table.advantages for table in tables]),
        extra={name: column([table.extra.get(name) for table in tables]) for name in extra},
    )


def write_table(logs: Mapping[str, Any], table: Table) -> None:
    """Puts a table into TRL's `_logs` in place of what they hold."""
    clear_table(logs)
    logs["prompt"].extend(table.prompt)
    logs["completion"].extend(table.completion)
    logs["advantages"].extend(table.advantages)
    for name, values in table.rewards.items():
        logs["rewards"][name].extend(values)
    for name, values in table.extra.items():
        logs["extra"][name].extend(values)


def _columns(logs: Mapping[str, Any]) -> list[deque[Any]]:
    plain = [logs[name] for name in ("prompt", "completion", "advantages")]
    return [*plain, *logs["rewards"].values(), *logs["extra"].values()]


@dataclass
class FirstRoundMetrics:
    """Keeps TRL's metrics at what round 0 added to them.

    Fresh groups are kept because they are neither all right nor all wrong. A reward averaged over them would draw
    towards one half and could not be compared with that of a run without dynamic sampling; round 0 is an honest sample
    of the data.
    """

    metrics: MutableMapping[str, list[float]]
    _lengths: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._lengths = {name: len(values) for name, values in self.metrics.items()}

    def restore(self) -> None:
        """Forgets what was added since this object was made, which should be after round 0."""
        for name in list(self.metrics):
            if name in self._lengths:
                del self.metrics[name][self._lengths[name] :]
            else:
                del self.metrics[name]  # TRL would log an empty list as None
