"""Confidence intervals and tests of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlvr.artifacts.evaluation import Difference, Interval

Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution
RESAMPLES = 10_000


def wilson(correct: float, rows: int) -> Interval:
    """The 95 % score interval of a proportion (Wilson 1927; Brown, Cai, DasGupta 2001, eq. 4)."""
    if rows == 0:
        return Interval(0.0, 1.0)
    share, z2 = correct / rows, Z95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = Z95 / (1 + z2 / rows) * math.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2))
    # At 0 and at 1 the bound is exact; rounding would leave it at 1e-17 or so.
    return Interval(0.0 if correct == 0 else centre - half, 1.0 if correct == rows else centre + half)


def average(estimates: Sequence[tuple[float, Interval]]) -> tuple[float, Interval]:
    """The mean of independent estimates, each with equal weight, and its 95 % interval.

    The interval is that of MOVER (Zou and Donner 2008, "Construction of confidence limits about effect measures"): it
    keeps the asymmetry of the estimates' own intervals, which Wald's would lose near 0 and 1.
    """
    mean = sum(value for value, _ in estimates) / len(estimates)
    below = math.sqrt(sum((value - interval.low) ** 2 for value, interval in estimates)) / len(estimates)
    above = math.sqrt(sum((interval.high - value) ** 2 for value, interval in estimates)) / len(estimates)
    return mean, Interval(mean - below, mean + above)


def paired_difference(base: Sequence[bool], trained: Sequence[bool]) -> Difference:
    """The difference of two accuracies on the same rows.

    The interval is Agresti and Min's (2005, "Simple improved confidence intervals for comparing matched proportions"):
    Wald's with half a row added to each of the four cells of the table, which holds its level on few rows.
    """
    gained = sum(after and not before for before, after in zip(base, trained, strict=True))
    lost = sum(before and not after for before, after in zip(base, trained, strict=True))
    rows = len(base)
    if rows == 0:
        return Difference(0.0, Interval(-1.0, 1.0), 0, 0)
    b, c, n = gained + 0.5, lost + 0.5, rows + 2
    centre = (b - c) / n
    half = Z95 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    interval = Interval(max(centre - half, -1.0), min(centre + half, 1.0))
    return Difference((gained - lost) / rows, interval, gained, lost, mcnemar(gained, lost))


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's exact test, two-sided: under the hypothesis a row that changed sides did so by the toss of a coin."""
    changed = gained + lost
    tail = sum(math.comb(changed, count) for count in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**changed)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that at least one of k samples is right, from `correct` right ones of `samples`, without bias.

    Chen et al. 2021 (arXiv:2107.03374), eq. 1: 1 − C(n − c, k) / C(n, k). In whole numbers, so nothing is rounded
    before the one division.
    """
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 … up to `most`."""
    return [2**exponent for exponent in range(most.bit_length())]


def bootstrap(values: Sequence[float], *, least: float = 0.0) -> Interval:
    """The 95 % percentile interval of a mean over rows; the same for the same values.

    Where all rows have one value there is nothing to resample, and a bootstrap would claim certainty: then it is
    Wilson's interval of so many rows, on the scale of the values.

    Args:
        values: one a row, from `least` to 1.
        least: 0 for a share, -1 for a difference of two.
    """
    distinct, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    if len(distinct) == 1:
        scale = 1 - least
        around = wilson((float(distinct[0]) - least) / scale * len(values), len(values))
        return Interval(least + scale * around.low, least + scale * around.high)
    # Drawing rows with replacement is drawing how often each different value comes up.
    drawn = np.random.default_rng(0).multinomial(len(values), counts / counts.sum(), size=RESAMPLES)
    low, high = np.quantile(drawn @ distinct / len(values), [0.025, 0.975])
    return Interval(float(low), float(high))
