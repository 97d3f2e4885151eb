"""Micro-batches with little padding: completions of similar length together, and no column that is all padding.

TRL pads a generation to its longest prompt and its longest completion, shuffles the rows, and cuts micro-batches from
that. Here the rows of each optimizer step are sorted by the length of their completions. Each micro-batch is trimmed to
its own longest prompt and completion, and keeps its number of rows. So the gradient of a step is that of TRL, but for
rounding. If the loss depends on which rows share a micro-batch, nothing is sorted
(`rlvr.config.batch_plan.sorts_by_length`).

Micro-batches are planned as soon as the lengths are known, and passes without a gradient use the same ones as updates.
In 16 bits, log probabilities of the same row in micro-batches of two widths differ by some percent: before the first
update, ratios to the old policy would not be 1. So TRL's shuffle is undone and replaced by that of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlvr.config.batch_plan import sorts_by_length
from rlvr.training.batch_merge import PADDING

if TYPE_CHECKING:
    from trl import GRPOConfig

Batch = dict[str, torch.Tensor]
# Log probabilities of token ids with an attention mask; the last columns, as many as the number says, are completions.
Compute = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]

ROW = "row"  # a column of TRL's batch: the number of a row in its generation


@dataclass(frozen=True)
class MicroBatch:
    """Rows of a generation, and the columns that one of them needs."""

    rows: torch.Tensor
    prompt: int
    completion: int


class MicroBatches:
    """The micro-batches of a trainer's generation on this rank.

    Args:
        size: rows of a micro-batch.
        per_step: micro-batches of an optimizer step.
        by_length: whether the rows of an optimizer step are sorted.
        seed: of the shuffle.
        multiple: the widths of prompts and completions are multiples of it (`pad_to_multiple_of`).
    """

    def __init__(self, size: int, per_step: int, *, by_length: bool, seed: int, multiple: int = 1) -> None:
        self.size = size
        self.per_step = per_step
        self.by_length = by_length
        self._seed = seed
        self._multiple = multiple
        self._generation = 0
        self._plan: list[MicroBatch] | None = None

    @classmethod
    def of(cls, arguments: GRPOConfig, *, aux_loss: bool) -> MicroBatches:
        """Read the arguments of a trainer.

        Args:
            aux_loss: whether it trains the load balance of experts, which is a mean over the tokens of a micro-batch.
        """
        return cls(
            arguments.per_device_train_batch_size,
            arguments.gradient_accumulation_steps,
            by_length=sorts_by_length(vars(arguments)) and not aux_loss,
            seed=arguments.seed,
            multiple=arguments.pad_to_multiple_of or 1,
        )

    def begin(self, generation: int) -> None:
        """Begin a generation; its number decides the shuffle."""
        self._generation = generation
        self.forget()

    def forget(self) -> None:
        """Plan anew: the rows are not those that were generated together."""
        self._plan = None

    def compute(
        self, compute: Compute, input_ids: torch.Tensor, attention_mask: torch.Tensor, completion_width: int
    ) -> torch.Tensor:
        """Compute log probabilities of all completions of the generation, without a gradient.

        Args:
            completion_width: columns of the completions, which follow those of the prompts.

        Returns:
            (rows, completion_width); 0 in columns that were trimmed.
        """
        start = input_ids.size(1) - completion_width
        computed = torch.Tensor()
        for part in self._planned(attention_mask[:, :start], attention_mask[:, start:]):
            columns = slice(start - part.prompt, start + part.completion)
            found = compute(input_ids[part.rows, columns], attention_mask[part.rows, columns], part.completion)
            if not computed.numel():
                computed = found.new_zeros(len(input_ids), completion_width)
            computed[part.rows.to(found.device), : part.completion] = found
        return computed

    def regroup(self, batches: Sequence[Batch]) -> list[Batch]:
        """Make the micro-batches of the plan of those of TRL, which have a column `ROW`."""
        rows = {key: torch.cat([batch[key] for batch in batches]) for key, value in batches[0].items() if value.dim()}
        shuffled = rows.pop(ROW).argsort()
        rows = {key: value[shuffled] for key, value in rows.items()}
        scalars = {key: value for key, value in batches[0].items() if not value.dim()}
        full = {"left": rows["prompt_mask"].size(1), "right": rows["completion_mask"].size(1)}
        regrouped = []
        for part in self._planned(rows["prompt_mask"], rows["completion_mask"]):
            columns = {"left": slice(full["left"] - part.prompt, None), "right": slice(part.completion)}
            batch = {}
            for key, value in rows.items():
                side = PADDING[key][0]
                is_wide = value.dim() == 2 and value.size(1) == full[side]  # vLLM's ratio of a sequence is not
                batch[key] = value[part.rows, columns[side]] if is_wide else value[part.rows]
            regrouped.append(batch | scalars)
        return regrouped

    def _planned(self, prompt_mask: torch.Tensor, completion_mask: torch.Tensor) -> list[MicroBatch]:
        if self._plan is None:
            # Read at once: each micro-batch would wait for the GPU.
            prompts, completions = prompt_mask.sum(dim=1).cpu(), completion_mask.sum(dim=1).cpu()
            generator = torch.Generator().manual_seed(self._seed + self._generation)
            self._plan = []
            for step in torch.randperm(len(prompts), generator=generator).split(self.size * self.per_step):
                if self.by_length:  # the longest first: what does not fit into memory shows at once
                    step = step[completions[step].argsort(descending=True, stable=True)]
                for rows in step.split(self.size):
                    prompt = self._width(prompts[rows], prompt_mask.size(1))
                    completion = self._width(completions[rows], completion_mask.size(1))
                    self._plan.append(MicroBatch(rows, prompt, completion))
        return self._plan

    def _width(self, tokens: torch.Tensor, full: int) -> int:
        """Columns for rows of so many tokens; at least one, also where all rows are masked."""
        return min(max(math.ceil(int(tokens.max()) / self._multiple), 1) * self._multiple, full)
