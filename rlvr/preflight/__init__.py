"""Checks of a run before a weight is loaded.

TRL would report these problems after the first generation, or never: it finishes "successfully" with 0 steps if the
data is smaller than a batch. check.py has the table of checks; prepare.py opens a run's resources; profile.py measures
the first two generations.
"""

from __future__ import annotations

import argparse

from rlvr import console

PROFILE_MINUTES = 30.0  # after which a profile makes no further step
LAUNCHERS = ("python", "ddp", "zero2", "zero2_offload", "zero3", "fsdp2")  # of `--launcher`


def add_profile_option(parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    """Add `--profile [MINUTES]` to a parser or a group of options."""
    parser.add_argument(
        "--profile",
        type=console.positive_float,
        nargs="?",
        const=PROFILE_MINUTES,
        metavar="MINUTES",
        help=f"measure two generations, at most {PROFILE_MINUTES:g} minutes, and project the run",
    )
