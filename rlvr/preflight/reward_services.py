"""Whether the reward servers and the Ray cluster of a recipe can be used, before anything is tried with them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import addresses, is_on_ray
from rlvr.errors import Problem
from rlvr.scoring.reward import Reward
from rlvr.scoring.reward_key import is_loopback
from rlvr.scoring.scorer import Scorer
from rlvr.workers.pool import StartError

DEFAULT_PORT = 8000  # of scripts/serve_rewards.py


def contact_services(recipe: Recipe, scorer: Scorer, *, required: bool) -> Iterator[Problem]:
    """Connect to the services of the rewards. One error for each, however many rewards it has.

    Args:
        required: whether a service that can't be reached is an error. If it refuses the rewards, it always is.
    """
    failed: dict[tuple[str, str, bool], list[Reward]] = {}
    for rewards, error in scorer.connect():
        refused = isinstance(error, StartError)
        if refused or required:
            key = (str(rewards[0].where), str(error).rstrip("."), refused)
            failed.setdefault(key, []).extend(rewards)
    for (where, cause, refused), rewards in failed.items():
        names = " and ".join(reward.label for reward in rewards)
        fix = "" if refused else f" {_fix(recipe, where)}"
        message = (
            f"The reward{'s' if len(rewards) > 1 else ''} {names} can't be called. {cause[0].upper()}{cause[1:]}.{fix}"
        )
        place = f"rewards.{rewards[0].name}.where"
        yield Problem(message, "ray-cluster", place) if is_on_ray(where) else Problem(message, "reward-server", place)
    yield from scorer.warnings()


def _fix(recipe: Recipe, where: str) -> str:
    if is_on_ray(where):
        return "Start a cluster (ray start --head), or correct RAY_ADDRESS or `where` (docs/remote-rewards.md#ray)."
    url = urlsplit(addresses(where)[0])
    host = "" if is_loopback(url.hostname or "") else " --host 0.0.0.0"
    port = "" if url.port == DEFAULT_PORT or url.scheme == "https" else f" --port {url.port}"
    command = f"python scripts/serve_rewards.py --config {recipe.path}{host}{port}"
    return f"Correct the address, or start a server there: {command}"
