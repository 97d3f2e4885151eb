"""The share of a problem's tests that the program in a completion passes, run for real and confined.

    tests: [{"input": "1 2\n", "output": "3\n"}]      # a row's column; or calls, or asserts: docs/code-rewards.md

The program is the last complete code block of the model's own turn. It meets neither the expected outputs nor anything
else of this machine (docs/sandbox.md). No program earns 0, and so does one that does not compile.

What it can be fooled by: tests that are few or weak. A program that prints the one expected answer passes a problem
with one test; where the prompt shows tests, judge by others (`tests`, not `public_tests`). A share of the tests is paid
to programs that are wrong, for the easy cases: `all_or_nothing` pays nothing for those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlvr.verifiers.code import detect_capabilities
from rlvr.verifiers.code.completion_judge import Row, explain_row, judge_completions, passed_all
from rlvr.verifiers.code.problems import Settings, row_faults

WORKER_GROUP = "judgements"  # of programs: rewards that judge are called in one process, so that each runs once


def code_execution(
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
    all_or_nothing: bool = False,
    visibility: Literal["private", "public", "all"] = "private",
    time_factor: float = 1.0,
    blocks: Literal["last", "first", "only", "join"] = "last",
    code_tags: bool = True,
    bare: bool = False,
    opened: bool | None = None,
    stop_early: bool = False,
    sample: int | None = None,
    seed: int = 0,
    allow_weak_sandbox: bool = False,
    log_metric: Callable[[str, float], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Runs each program against the tests of its row.

    The first group may be columns of the data, one value a row; all of it but `tests` and `public_tests` may also be
    set for all rows by the recipe. An empty entry of a column stands for the default.

    Args:
        completions: strings, or lists of chat messages.
        tests: a list of tests, or the same as JSON. None: the row can't be scored.
        public_tests: those that the prompt shows, in the same form.
        prefix: the beginning of the program that the prompt gives (HumanEval), put before a program that lacks it.
        checker: Python source of `check(input, output, expected)` for problems with several right outputs.
        language: "python", "cpp", or another of rlvr/sandbox/languages.py.
        entry_point: the function that tests call.
        signature: of that function, in C++: "int add(int, int)".
        comparison: of outputs: "lines", "tokens", "exact", "float", "unordered" or "yes_no".
        tolerance: of "float".
        time_s: seconds of CPU time a test; 2 if not given.
        memory_mb: memory a test; 256 if not given.

        all_or_nothing: whether to pay 1 for passing all tests and nothing for less; a program is then not run any
            further once it has failed a test.
        visibility: which tests count: "private" (`tests`), "public" (`public_tests`), or "all".
        time_factor: what every `time_s` is multiplied by.
        blocks: which of several code blocks is the program: the "last", the "first", "only" one that must be the only
            one, or all of them, to "join".
        code_tags: whether <code>…</code> is a block, as a fence is.
        bare: whether a turn without any block is a program as it stands.
        opened: whether the prompt has opened <think>. If not given, it is read from a prompt that is text. What a chat
            template adds can't be seen here: say `opened: true` for one that ends in <think>.
        stop_early: whether a program is not run any further once it has failed a test. Its share then ends there.
        sample: how many tests of a problem are run, drawn with `seed`; all if not given.
        seed: of the sample.
        allow_weak_sandbox: whether to run programs where they can't be confined. They can then do whatever you can.
        log_metric: given by GRPOTrainer. Logged are code_execution/verdict_ac and so on (shares of all tests),
            /no_program, /compile_errors and /sandbox_errors (shares of completions), /cpu_s (mean of a test) and
            /judge_s (of the batch).

    Returns:
        0 to 1 for each completion; None where there are no tests, or the sandbox failed.

    Raises:
        InputError: a column or an option is wrong, or programs can't be confined here.
    """
    settings = Settings.of({**locals(), "stop_early": stop_early or all_or_nothing})
    batch = judge_completions("code_execution", prompts, completions, settings)
    batch.log("code_execution", log_metric)
    return [_reward(row, all_or_nothing) for row in batch.rows]


def validate_rows(
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
    **kwargs: Any,
) -> list[str | None]:
    """For each row of the data, why no program can be judged by its tests, or None. Called once, before training.

    Raises:
        InputError: an option is wrong, a compiler is missing, or programs can't be confined here.
    """
    return row_faults("code_execution", Settings.of({**kwargs, **locals()}))


def environment_info(**kwargs: Any) -> dict[str, str]:
    """The sandbox that programs run in here: told when a run starts, and kept with it."""
    return detect_capabilities().metadata()


def explain(completion: Any, *, prompt: Any = None, all_or_nothing: bool = False, **kwargs: Any) -> list[str]:
    """Why `code_execution` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `code_execution`, for one row. What is said quotes expected outputs: it is for people.
    """
    stop_early = all_or_nothing or kwargs.get("stop_early", False)
    row, steps = explain_row("code_execution", completion, prompt, {**kwargs, "stop_early": stop_early})
    reward = _reward(row, all_or_nothing)
    return [*steps, "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _reward(row: Row, all_or_nothing: bool) -> float | None:
    if not row.can_be_scored:
        return None
    if row.judgement is None:
        return 0.0
    return float(passed_all(row)) if all_or_nothing else row.judgement.score
