"""A reward in tiers for competitive programs, as published for CodeFu-7B: -1, -0.5, 0, then the share of tests passed.

    no code block                       -1
    it does not compile                 -0.5    (in Python: a syntax error)
    a test runs into the time limit      0
    else                                the share of the private tests passed, 0 to 1

The published code differs from what was published about it: there, anything short of all tests earns 0, so that the
rewards are -1, -0.5, 0 and 1. `published: false` gives that.

What it can be fooled by: as `code_execution`; and among programs that solve nothing, one that compiles is a step up
from one that does not. In a group in which nothing is solved, that step is all there is to learn from, until every
program compiles: watch the share of tests passed, not the mean of this reward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rewards.code_execution import validate_rows as validate_rows
from rlvr.verifiers.code import detect_capabilities
from rlvr.verifiers.code.completion_judge import Row, explain_row, judge_completions, passed_all
from rlvr.verifiers.code.problems import Settings

WORKER_GROUP = "judgements"  # of programs: rewards that judge are called in one process, so that each runs once


def code_tiered(
    prompts: list[Any],
    completions: list[Any],
    *,
    tests: list[Any],
    public_tests: list[Any] | None = None,
    prefix: list[Any] | str | None = None,
    checker: list[Any] | str | None = None,
    language: list[Any] | str = "python",
    entry_point: list[Any] | str | None = None,
    signature: list[Any] | str | None = None,
    comparison: list[Any] | str | None = None,
    tolerance: list[Any] | float | None = None,
    time_s: list[Any] | float | None = None,
    memory_mb: list[Any] | float | None = None,
    published: bool = True,
    visibility: Literal["private", "public", "all"] = "private",
    time_factor: float = 1.0,
    blocks: Literal["last", "first", "only", "join"] = "last",
    code_tags: bool = True,
    bare: bool = False,
    opened: bool | None = None,
    sample: int | None = None,
    seed: int = 0,
    allow_weak_sandbox: bool = False,
    log_metric: Callable[[str, float], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Runs each program against the tests of its row, once for all code rewards of a recipe.

    Args: as `code_execution`, and
        published: whether a program that passes some tests earns their share, as was published, or 0, as the published
            code has it.
        log_metric: given by GRPOTrainer. Logged is what `code_execution` logs, under code_tiered/.

    Returns:
        -1 to 1 for each completion; None where there are no tests, or the sandbox failed.

    Raises:
        InputError: a column or an option is wrong, or programs can't be confined here.
    """
    settings = Settings.of({**locals(), "stop_early": not published})
    batch = judge_completions("code_tiered", prompts, completions, settings)
    batch.log("code_tiered", log_metric)
    return [_tier(row, published)[0] for row in batch.rows]


def environment_info(**kwargs: Any) -> dict[str, str]:
    """The sandbox that programs run in here: told when a run starts, and kept with it."""
    return detect_capabilities().metadata()


def explain(completion: Any, *, prompt: Any = None, published: bool = True, **kwargs: Any) -> list[str]:
    """Why `code_tiered` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `code_tiered`, for one row. What is said quotes expected outputs: it is for people.
    """
    row, steps = explain_row("code_tiered", completion, prompt, {**kwargs, "stop_early": not published})
    reward, why = _tier(row, published)
    return [*steps, f"Tier: {why}.", "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _tier(row: Row, published: bool) -> tuple[float | None, str]:
    if not row.can_be_scored:
        return None, "none, through no fault of the program's"
    if row.judgement is None:
        return -1.0, "no code"
    if "CE" in row.verdicts:
        return -0.5, "it does not compile"
    if "TLE" in row.verdicts:
        return 0.0, "over the time limit"
    if not published:
        return float(passed_all(row)), "all tests or nothing"
    return row.judgement.score, "the share of the tests passed"
