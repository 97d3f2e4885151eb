"""What happens when a reward fails in training."""

from __future__ import annotations

from collections.abc import Sequence

from accelerate.utils import gather_object

from rlvr import console
from rlvr.scoring.call_result import RewardFailure
from rlvr.scoring.failures import report
from rlvr.scoring.reward import RewardError


def raise_or_report(failures: Sequence[RewardFailure], *, is_silent: bool, on_error: str) -> None:
    """End the run on all ranks, or continue without the rows, as the recipe says. Collective.

    Args:
        failures: of this rank.
        is_silent: whether a service of the rewards does not answer.
        on_error: `on_reward_error` of the recipe.
    """
    outage = is_silent and all(failure.status == "unavailable" for failure in failures)
    gathered = gather_object([(report(failures), outage)] if failures else [])
    if not gathered:
        return  # a reward returned None by itself
    reports = [text for text, _ in gathered]
    # Servers may come back, and no reward has failed: an outage ends with a checkpoint (SyncedStopCallback).
    if on_error == "raise" and not all(is_outage for _, is_outage in gathered):
        raise RewardError(
            "\n\n".join(reports) + "\n\non_reward_error: mask would leave such rows out of the update and go on."
        )
    console.error("\n" + "\n\n".join(reports))


def nothing_scored(where: str, rewards: Sequence[str]) -> str:
    """What to say where no row was scored.

    Args:
        where: the steps or generations.
        rewards: those that returned None for the whole last generation, or failed.
    """
    return (
        f"Not one completion of {where} could be scored: every row was masked, so nothing is learnt. "
        f"{', '.join(rewards) or 'A reward'} failed or returned None. Check what it reads (columns, golds, a server)."
    )
