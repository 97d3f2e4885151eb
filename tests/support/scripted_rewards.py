"""A file of rewards whose behaviour each completion names: raise, hang, exit …; workers can load it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer

SCRIPTED_REWARDS = '''
import asyncio, datetime, json, math, multiprocessing, os, random, subprocess, sys, threading, time

def puppet(prompts, completions, **kwargs):
    """Do what each completion says."""
    values = []
    for word in completions:
        if word == "raise":
            raise ValueError("no good")
        if word == "exit":
            sys.exit(3)
        if word == "hang":
            time.sleep(1000)
        if word == "spin":
            while True:
                pass
        if word == "die":
            os.abort()
        if word == "short":
            continue
        values.append({"text": "0.5", "nan": math.nan, "inf": math.inf, "none": None, "list": [1]}.get(word, 1.0))
    return values

def only_rows(completions, **kwargs):
    if len(completions) > 1:
        raise RuntimeError("too many")
    return [1.0]

def draws(completions, **kwargs):
    import numpy
    return [random.random() + numpy.random.random() for _ in completions]

def group_sizes(prompts, completions, **kwargs):
    return [float(prompts.count(prompt)) for prompt in prompts]
'''

# Batches for `outcome`: completions, why.
REMOTE_BATCHES = [
    (["fine", "none", "fine"], "nothing is wrong"),
    (["fine", "raise", "fine"], "an exception"),
    (["fine", "exit"], "one that would end the process"),
    (["fine", "die", "fine"], "a worker there that is gone"),
    (["fine", "short"], "a row that is left out"),
    (["text", "fine", "nan"], "values that are no numbers"),
    (["one", "raise", "bad"], "what it logs of rows alone"),
    (["raise"], "a batch of one"),
]


def both_sides(file: Path, where: str, names: Sequence[str], timeout_s: float = 20.0) -> tuple[Scorer, Scorer]:
    """Scorers of the same rewards there and here. The caller closes them."""
    there, here = (
        Scorer(load_rewards([RewardSpec(f"{file}:{name}", where=place) for name in names]), timeout_s=timeout_s, seed=5)
        for place in (where, None)
    )
    return there, here


def outcome(scorer: Scorer, completions: list[str]) -> tuple[Any, ...]:
    """Score a batch; return its values, failures, and what was logged."""
    logged: list[Any] = []
    scored = scorer.score(
        ["p"] * len(completions),
        list(completions),
        {"question": ["q"] * len(completions)},
        step=2,
        log_extra=lambda *extra: logged.append(extra),
        log_metric=lambda *metric: logged.append(metric),
    )
    return scored.values, scored.failures, logged
