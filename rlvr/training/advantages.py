"""Compute advantages: how much better a completion scored than the others of its group.

GRPO (arXiv:2402.03300, section 4.1.2) subtracts the mean reward of a group of completions of one prompt and divides by
the group's standard deviation. The division gives every prompt the same say, and that is also its fault: a group whose
rewards differ only by the noise of a shaped reward, say 1, 1.001, 1, 1, gets advantages as large as those of a group
that is half right. `adaptive` divides only where there is a spread worth the name.
"""

from __future__ import annotations

import torch

EPSILON = 1e-4  # TRL's: added to the standard deviation that is divided by


def adaptive(rewards: torch.Tensor, group: int, threshold: float) -> torch.Tensor:
    """GRPO's advantages, divided by a group's standard deviation only where that is above a threshold.

        advantage = (reward - mean) / (std + 1e-4)   where std > threshold
        advantage =  reward - mean                   elsewhere

    Mean and standard deviation (Bessel's, over one less than the number of rewards) are the group's own. The first line
    is GRPO's normalisation as TRL computes it for `scale_rewards: group`; the second is that of `scale_rewards: none`
    (Dr. GRPO, arXiv:2503.20783). A choice between the two by the group's spread was described as adaptive group
    normalisation in write-ups of training runs with OpenRLHF.

    Rewards that are 0 or 1 in groups of 8 never see the second line: their smallest standard deviation but 0 is 0.354.

    Args:
        rewards: (N,) one reward a completion, whole groups one after another; NaN where a row is masked: it counts
            neither in the mean nor in the standard deviation.
        group: completions a group.
        threshold: at or below this standard deviation rewards are only centred.

    Returns:
        (N,) advantages; 0 for masked rows, and in groups of which one row or none is left.
    """
    groups = rewards.reshape(-1, group)
    centred = groups - torch.nanmean(groups, dim=1, keepdim=True)
    counts = (~torch.isnan(centred)).sum(dim=1, keepdim=True)
    spread = torch.sqrt(torch.nansum(centred**2, dim=1, keepdim=True) / (counts - 1).clamp(min=1))
    scaled = torch.where(spread > threshold, centred / (spread + EPSILON), centred)
    return torch.nan_to_num(scaled, nan=0.0).reshape(-1)


def without_spread(rewards: torch.Tensor, group: int) -> torch.Tensor:
    """Find the completions of groups whose rewards are all equal, but for rounding.

    Eight times 1 + 0.2 have a standard deviation of 1.2e-07 in float32, not 0: their advantages should be 0 and are
    about 1e-3, and where no group has spread, Adam, which divides a gradient by its size, makes full steps of that.

    Args:
        rewards: (N,) whole groups one after another, or (N, rewards) where each of a completion's must be equal; NaN
            where a row is masked.
        group: completions a group.

    Returns:
        (N,) booleans; true as well where a group has one scored completion or none.
    """
    groups = rewards.reshape(len(rewards) // group, group, -1)
    masked = torch.isnan(groups)
    highest = groups.masked_fill(masked, -torch.inf).amax(dim=1)
    lowest = groups.masked_fill(masked, torch.inf).amin(dim=1)
    same = highest - lowest <= 1e-6 * torch.maximum(highest.abs(), lowest.abs()).clamp(min=1.0)
    return same.all(dim=1).repeat_interleave(group)


def statistics(advantages: torch.Tensor, rewards: torch.Tensor) -> dict[str, float]:
    """Summarise a batch's advantages, by the names of metrics.

    Args:
        advantages: (N,) of all ranks.
        rewards: (N,) their rewards; rows whose reward is NaN are masked, and left out here.

    Returns:
        The mean, standard deviation, extremes and mean absolute value; nothing if every row is masked. A mean absolute
        value near 0 means that the batch gives no gradient, whatever its rewards are.
    """
    counted = advantages[~torch.isnan(rewards)].float()
    if counted.numel() == 0:
        return {}
    return {
        "advantages/mean": counted.mean().item(),
        "advantages/std": counted.std().item() if counted.numel() > 1 else 0.0,
        "advantages/min": counted.min().item(),
        "advantages/max": counted.max().item(),
        "advantages/abs_mean": counted.abs().mean().item(),
    }
