"""A file of rewards whose behaviour each completion names: raise, hang, exit …; workers can load it."""

from __future__ import annotations

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

# Batches for `outcome`: function, completions, why.
REMOTE_BATCHES = [
    ("puppet", ["fine", "none", "fine"], "nothing is wrong"),
    ("puppet", ["fine", "raise", "fine"], "an exception"),
    ("puppet", ["fine", "exit"], "one that would end the process"),
    ("puppet", ["fine", "die", "fine"], "a worker there that is gone"),
    ("puppet", ["hang", "fine"], "a call that waits for ever"),
    ("puppet", ["fine", "short"], "a row that is left out"),
    ("puppet", ["text", "fine", "nan"], "values that are no numbers"),
    ("puppet", ["raise"], "a batch of one"),
    ("only_rows", ["a", "b"], "right for rows, wrong for the batch"),
    ("draws", ["a", "b", "c"], "random numbers"),
]


def outcome(file: Path, name: str, completions: list[str], where: str | None) -> tuple[Any, ...]:
    """Score a batch; return its values, failures, and what was logged."""
    logged: list[Any] = []
    rewards = load_rewards([RewardSpec(f"{file}:{name}", where=where)])
    with Scorer(rewards, timeout_s=1.5 if "hang" in completions else 20.0, rank=3, seed=5) as scorer:
        scored = scorer.score(
            ["p"] * len(completions),
            list(completions),
            {"question": ["q"] * len(completions)},
            step=2,
            log_extra=lambda *extra: logged.append(extra),
            log_metric=lambda *metric: logged.append(metric),
        )
    return scored.values, scored.failures, logged
