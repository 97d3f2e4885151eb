"""Small extras for programs beside their being right: that they compile, run through, keep quiet, are fast.

    compiles    the compiler takes it (in Python: no syntax error)
    runs        no test ends in an error, or beyond a limit of time, memory or output
    quiet       and nothing is written to standard error: no warnings, no debugging left in
    fast        and no test takes more than `fast_share` of its time limit

Each is an option that says what it pays; the reward is their sum, 0.3 by default.

By default they are paid to programs that pass all tests, and to no other (`gated`). The reason is what GRPO makes of
rewards: it divides a group's differences by their spread. In a group in which no program is right, the 0.1 that one of
them earns for compiling becomes an advantage as large as that of a right one among wrong ones, and the gradient pulls
towards empty programs that compile, with all the strength of a real signal, though nothing was solved. Trained on such
phantom gradients, policies have collapsed within 40 steps. For the same reason, groups are best filtered by whether a
program was right, and not by this. The same happens among the right ones, on purpose: there it prefers the tidy ones.

What it can be fooled by, without the gate: `pass` earns all of it. With it: nothing that `code_execution` is not fooled
by; but a large weight makes quiet, fast programs of few cases worth more than right ones are, so keep it small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rewards.code_execution import validate_rows as validate_rows
from rlvr.errors import InputError
from rlvr.verifiers.code import detect_capabilities
from rlvr.verifiers.code.completion_judge import Row, explain_row, judge_completions, passed_all
from rlvr.verifiers.code.problems import Settings

WORKER_GROUP = "judgements"  # of programs: rewards that judge are called in one process, so that each runs once

_EXTRAS = ("compiles", "runs", "quiet", "fast")
_BEYOND = {"RE", "TLE", "MLE", "OLE"}


def code_quality(
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
    compiles: float = 0.1,
    runs: float = 0.1,
    quiet: float = 0.1,
    fast: float = 0.0,
    fast_share: float = 0.5,
    gated: bool = True,
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
        compiles, runs, quiet, fast: what each extra pays; 0 leaves it out.
        fast_share: of the time limit, which no test may exceed for `fast`. It is a threshold, since the last
            milliseconds are chance.
        gated: whether the extras are paid only to programs that pass all tests. Leave it on; see above.
        log_metric: given by GRPOTrainer. Logged are code_quality/compiles and so on: the shares of completions that
            have each extra, gate or not.

    Returns:
        0 to the sum of the extras for each completion; None where there are no tests, or the sandbox failed.

    Raises:
        InputError: a column or an option is wrong, or programs can't be confined here.
    """
    pays = _pays({"compiles": compiles, "runs": runs, "quiet": quiet, "fast": fast}, fast_share)
    batch = judge_completions("code_quality", prompts, completions, Settings.of(locals()))
    found = [_extras(row, fast_share) for row in batch.rows]
    scored = [extras for row, extras in zip(batch.rows, found, strict=True) if row.can_be_scored]
    if log_metric is not None and scored:
        for name in _EXTRAS:
            log_metric(f"code_quality/{name}", sum(name in extras for extras in scored) / len(scored))
    return [_reward(row, extras, pays, gated) for row, extras in zip(batch.rows, found, strict=True)]


def environment_info(**kwargs: Any) -> dict[str, str]:
    """The sandbox that programs run in here: told when a run starts, and kept with it."""
    return detect_capabilities().metadata()


def explain(
    completion: Any,
    *,
    prompt: Any = None,
    compiles: float = 0.1,
    runs: float = 0.1,
    quiet: float = 0.1,
    fast: float = 0.0,
    fast_share: float = 0.5,
    gated: bool = True,
    **kwargs: Any,
) -> list[str]:
    """Why `code_quality` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `code_quality`, for one row. What is said quotes expected outputs: it is for people.
    """
    pays = _pays({"compiles": compiles, "runs": runs, "quiet": quiet, "fast": fast}, fast_share)
    row, steps = explain_row("code_quality", completion, prompt, kwargs)
    extras = _extras(row, fast_share)
    steps.append(f"Of {', '.join(name for name in pays if pays[name])} it has: {', '.join(extras) or 'none'}.")
    if gated and not passed_all(row):
        steps.append("It does not pass all tests, so none of them is paid.")
    reward = _reward(row, extras, pays, gated)
    return [*steps, "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _pays(pays: dict[str, float], fast_share: float) -> dict[str, float]:
    for name, value in {**pays, "fast_share": fast_share}.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InputError(f"Reward code_quality, option {name}: {value!r:.60} is no number from 0 to 1.")
    return pays


def _extras(row: Row, fast_share: float) -> list[str]:
    """The extras that a program has, each of which needs the one before it."""
    if row.judgement is None or "CE" in row.verdicts:
        return []
    has = ["compiles"]
    if _BEYOND.isdisjoint(row.verdicts):
        has.append("runs")
        if not any(text.strip() for text in row.judgement.stderr):
            has.append("quiet")
        if max(row.judgement.cpu_s, default=0.0) <= fast_share * row.time_s:
            has.append("fast")
    return has


def _reward(row: Row, extras: list[str], pays: dict[str, float], gated: bool) -> float | None:
    if not row.can_be_scored:
        return None
    if gated and not passed_all(row):
        return 0.0
    return sum(pays[name] for name in extras)
