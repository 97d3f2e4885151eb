"""The order of prompts of the epoch at hand."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rlvr.tracking.trackers import unused_trackers_hidden

with unused_trackers_hidden():
    from trl.trainer.utils import RepeatSampler


class EpochSampler(RepeatSampler):
    """TRL's order of prompts, whichever epoch a process begins with.

    TRL draws one epoch's order after the other from one generator. A run that continues in a later epoch would get the
    order of the first one again.
    """

    epoch = 0

    @classmethod
    def like(cls, own: RepeatSampler) -> EpochSampler:
        """Make one of TRL's sampler."""
        names = ("data_source", "mini_repeat_count", "batch_size", "repeat_count", "shuffle", "seed")
        return cls(**{name: getattr(own, name) for name in names})

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()
