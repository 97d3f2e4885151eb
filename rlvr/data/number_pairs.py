"""Assign pairs of two-digit numbers to splits, for generated problems.

A problem with two numbers is held out by its pair: a model that trained on "47 + 38", in any words, order or operation,
is never tested on {38, 47}. A checksum fixes the split, not the seed, so all tasks, runs and bundled models agree:

    crc32("smaller,larger") % 10    0: test    1: validation    2-9: training
"""

from __future__ import annotations

import zlib

SMALLEST, LARGEST = 10, 99


def split_of(first: int, second: int) -> str:
    """Return the split of every problem with these two numbers: "test", "validation" or "train"."""
    residue = zlib.crc32(f"{min(first, second)},{max(first, second)}".encode()) % 10
    return {0: "test", 1: "validation"}.get(residue, "train")


def number_pairs(split: str) -> list[tuple[int, int]]:
    """List the (smaller, larger) pairs of two-digit numbers of a split, equal numbers included."""
    return [
        (small, large)
        for small in range(SMALLEST, LARGEST + 1)
        for large in range(small, LARGEST + 1)
        if split_of(small, large) == split
    ]
