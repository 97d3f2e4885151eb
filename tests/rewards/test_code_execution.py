"""The code_execution reward with real programs, and the options that all code rewards share."""

from __future__ import annotations

import inspect
import json
import logging
import shutil
from dataclasses import fields
from typing import Any

import pytest

from rewards.code_execution import code_execution, validate_rows
from rewards.code_quality import code_quality
from rewards.code_tiered import code_tiered
from rlvr.verifiers.code import VERDICTS, Judgement, completion_judge, judge_many
from rlvr.verifiers.code.completion_judge import JudgedRow, _log_sandbox_failures, batch_metrics
from rlvr.verifiers.code.options import JudgeOptions
from tests.support.cases import cases
from tests.support.input_errors import input_error
from tests.support.judged_programs import fenced

SUMS = [{"input": "1 2\n", "output": "3\n"}, {"input": "2 2\n", "output": "4\n"}]
RIGHT = fenced("print(sum(map(int, input().split())))")
HALF = fenced("print(3)")


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        (RIGHT, 1.0, "right"),
        (HALF, 0.5, "right on one of two tests"),
        (fenced("print(7)"), 0.0, "wrong"),
        (fenced("print("), 0.0, "no Python"),
        (fenced("1 / 0"), 0.0, "an error"),
        (fenced("print(sum(map(int, input().split())))\nraise SystemExit(1)"), 0.0, "an exit status"),
        (fenced("import os\nos._exit(0)"), 0.0, "an early exit"),
        (fenced("while True: pass"), 0.0, "an endless loop"),
        ("3", 0.0, "no program"),
        (f"<think>{HALF}</think>{RIGHT}", 1.0, "a draft among the thoughts"),
        (fenced("int main() {}", "cpp"), 0.0, "another language"),
        (fenced("s = '\ud800'\nprint(3)"), 0.0, "no Unicode"),
        (fenced("print(3)\0"), 0.0, "a NUL"),
    ],
)
def test_scores_plain_and_chat_completions_alike(completion: str, reward: float, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    rewards = code_execution(["", []], [completion, chat], tests=[SUMS, json.dumps(SUMS)], time_s=0.3)
    assert rewards == [reward, reward], why


@pytest.mark.parametrize("reward", [code_execution, code_tiered, code_quality])
def test_rows_without_tests_are_masked(reward: Any) -> None:
    *masked, scored = reward([""] * 5, [RIGHT] * 5, tests=[None, [], "[]", "null", SUMS])
    assert masked == [None] * 4 and scored > 0


def test_all_or_nothing_pays_no_share_and_stops_at_the_first_failure() -> None:
    logged: dict[str, float] = {}
    completions = [RIGHT, HALF, fenced("print(9)  # all or nothing"), "none"]
    rewards = code_execution(
        [""] * 4, completions, tests=[SUMS] * 4, all_or_nothing=True, log_metric=logged.__setitem__
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert logged["code_execution/verdict_skip"] == pytest.approx(1 / 6), "the second test of the third program"


def test_columns_set_options_per_row() -> None:
    rewards = code_execution(
        [""] * 5,
        [
            fenced("def add(a, b): return a + b") + fenced("print(add(1, 2))"),
            "```python\n    return a + b\n```",
            fenced("print(0.30000001)"),
            fenced("print(2)"),
            fenced("print('YES')"),
        ],
        tests=[
            [{"call": [1, 2], "expected": 3}],
            [{"assert": "assert add(1, 2) == 3"}],
            [{"input": "", "output": "0.3"}],
            [{"input": "4", "output": ""}],
            [{"input": "", "output": "yes"}],
        ],
        entry_point=["add", "add", None, None, None],
        prefix=[None, "def add(a, b):\n", None, None, None],
        comparison=[None, None, "float", None, "yes_no"],
        tolerance=[None, None, 1e-3, None, None],
        checker=[None, None, None, "def check(i, o, e): return int(o) ** 2 == int(i)", None],
        language=[None, "python", "py", None, None],
    )
    assert rewards == [1.0] * 5


@pytest.mark.parametrize(
    ("tests", "reward", "why"),
    [
        ([{"assert": "assert add(1, 2) == abs(-3)"}], 1.0, "an assert names it, and a builtin"),
        ([{"assert": "def check(candidate):\n    assert candidate(1, 2) == 3\ncheck(add)"}], 1.0, "HumanEval"),
        ([{"assert": "assert add(1, 2) == 4"}], 0.0, "another value"),
        ([{"input": "", "output": "5\n"}], 1.0, "a test that names nothing takes the last block"),
    ],
)
def test_a_use_behind_the_solution_is_not_the_program(tests: list[Any], reward: float, why: str) -> None:
    completion = fenced("def add(a, b): return a + b") + fenced("print(5)\nabs = len")
    assert code_execution([""], [completion], tests=[tests]) == [reward], why


def test_time_factor_multiplies_the_time_limit() -> None:
    slow = fenced("import time\nwhile time.process_time() < 0.4: pass\nprint(3)")
    arguments: dict[str, Any] = {"tests": [SUMS[:1]], "time_s": [0.2]}
    assert code_execution([""], [slow], **arguments) == [0.0]
    assert code_execution([""], [slow], **arguments, time_factor=5.0) == [1.0]


def test_the_memory_limit_of_a_row_is_enforced() -> None:
    large = fenced("x = b'1' * 150_000_000\nprint(3)")
    assert code_execution([""] * 2, [large] * 2, tests=[SUMS[:1]] * 2, memory_mb=[64, 400]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("completion", "options", "why"),
    [
        ("print(3)", {"bare": True}, "a turn that is nothing but code"),
        (RIGHT, {"opened": False}, "no thoughts"),
        (f"x</think>{RIGHT}", {"opened": True}, "thoughts that the prompt has opened"),
    ],
)
def test_options_change_how_the_program_is_extracted(completion: str, options: dict[str, Any], why: str) -> None:
    assert code_execution([""], [completion], tests=[SUMS[:1]], **options) == [1.0], why


def test_thoughts_opened_by_the_prompt_and_never_closed_hold_no_program() -> None:
    assert code_execution(["Q\n<think>\n"], [RIGHT], tests=[SUMS]) == [0.0]
    assert code_execution(["Q"], [RIGHT], tests=[SUMS], opened=True) == [0.0]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed here")
def test_programs_in_cpp_are_compiled_and_run() -> None:
    plus = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
    rewards = code_execution(
        [""] * 4,
        [
            f"<think>In <code> tags.</think>\n<code>\n{plus}\n</code>",
            fenced(plus, "cpp"),
            fenced("int main() {", "cpp"),
            fenced("int add(int a, int b) { return a + b; }\nint main() {}", "c++"),
        ],
        tests=[SUMS, SUMS, SUMS, [{"call": [1, 2], "expected": 3}]],
        language=["cpp", "c++", "cpp", "cpp"],
        entry_point=[None, None, None, "add"],
        signature=[None, None, None, "int add(int, int)"],
    )
    assert rewards == [1.0, 1.0, 0.0, 1.0]


# ----------------------------------------------------------------------------------------------------------------------
# What the rewards of one recipe share


def test_a_program_runs_once_for_all_rewards_of_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def count(submissions: list[Any]) -> list[Judgement]:
        judged.append(len(submissions))
        return judge_many(submissions)

    monkeypatch.setattr(completion_judge, "judge_many", count)
    program = fenced("print(sum(map(int, input().split())))  # once")
    arguments: dict[str, Any] = {"tests": [SUMS], "time_s": [1.5]}
    assert code_execution([""], [program], **arguments) == [1.0]
    assert code_tiered([""], [program], **arguments) == [1.0]
    assert code_quality([""], [program], **arguments) == [pytest.approx(0.3)]
    assert code_execution([""], [program], **arguments, all_or_nothing=True) == [1.0]
    assert code_execution([""], [program], tests=[json.dumps(SUMS)], time_s=1.5) == [1.0]
    assert code_execution([""], [program], tests=[SUMS], time_s=0.5) == [1.0]
    assert judged == [1, 0, 0, 0, 0, 1], "other limits are another question"


@pytest.mark.parametrize("first", [True, False])
def test_cached_judgements_never_change_a_reward(first: bool) -> None:
    program = fenced(f"x = input()\nprint(4 if x == '2 2' else 0)  # {first}")
    for stops in (first, not first):
        logged: dict[str, float] = {}
        rewards = code_execution([""], [program], tests=[SUMS], all_or_nothing=stops, log_metric=logged.__setitem__)
        assert rewards == [0.0 if stops else 0.5]
        assert logged["code_execution/verdict_skip"] == (0.5 if stops else 0.0)


def test_after_a_timeout_the_other_tests_run_only_if_the_reward_depends_on_them() -> None:
    program = fenced("x = input()\nwhile x == '1 2': pass\nprint(4)")
    for reward, options, expected, skipped in [
        (code_tiered, {}, 0.0, 0.5),
        (code_execution, {}, 0.5, 0.0),  # whatever is cached
        (code_execution, {"max_timeouts": 1}, 0.0, 0.5),
        (code_tiered, {"max_timeouts": 2}, 0.0, 0.0),
    ]:
        logged: dict[str, float] = {}
        arguments: dict[str, Any] = {"tests": [SUMS], "time_s": 0.3, "log_metric": logged.__setitem__, **options}
        assert reward([""], [program], **arguments) == [expected]
        assert logged[f"{reward.__name__}/verdict_skip"] == skipped


def test_metrics_of_a_batch_are_logged() -> None:
    logged: dict[str, float] = {}
    completions = [RIGHT, HALF, fenced("print(("), "none", fenced("1/0"), RIGHT]
    code_execution([""] * 6, completions, tests=[*[SUMS] * 5, None], log_metric=logged.__setitem__)
    shares = dict.fromkeys(VERDICTS, 0.0) | {"AC": 3 / 8, "WA": 1 / 8, "RE": 2 / 8, "CE": 2 / 8}
    assert logged == pytest.approx(
        {
            **{f"code_execution/verdict_{verdict.lower()}": share for verdict, share in shares.items()},
            "code_execution/no_program": 0.2,
            "code_execution/compile_errors": 0.2,
            "code_execution/sandbox_errors": 0.0,
            "code_execution/checker_errors": 0.0,
            "code_execution/cpu_s": logged["code_execution/cpu_s"],
            "code_execution/judge_s": logged["code_execution/judge_s"],
        }
    )
    assert 0 < logged["code_execution/cpu_s"] < 0.5
    assert 0 < logged["code_execution/judge_s"] < 60
    code_execution([""], [RIGHT], tests=[None], log_metric=lambda name, value: pytest.fail("nothing was judged"))


def test_a_sandbox_failure_is_masked_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    failed = Judgement(["AC", "SE"], ["", "no process could be started"], [0.1, 0.0], [1.0, 0.0], ["", ""])
    fine = Judgement(["AC"], [""], [0.1], [1.0], [""])
    rows = [
        JudgedRow(2, "x", "", failed),
        JudgedRow(1, "x", "", fine),
        JudgedRow(1, None, ""),
        JudgedRow(1, "y", "", fine),
    ]
    assert [row.can_be_scored for row in rows] == [False, True, True, True]
    assert not rows[0].passed_all and rows[1].passed_all
    assert batch_metrics(rows, seconds=1.0)["sandbox_errors"] == 0.25
    with caplog.at_level(logging.WARNING):
        _log_sandbox_failures("code_execution", rows)
        _log_sandbox_failures("code_execution", rows[1:])
    (record,) = caplog.records
    assert "failed on 1 of 4" in record.getMessage() and "no process could be started" in record.getMessage()


# ----------------------------------------------------------------------------------------------------------------------
# Mistakes of the caller


@pytest.mark.parametrize(("arguments", "kind", "key", "row", "why"), cases(__file__, "invalid"))
def test_invalid_arguments_are_located(
    arguments: dict[str, Any], kind: str, key: str, row: int | None, why: str
) -> None:
    with input_error(kind, key, row, why=why) as error:
        code_execution([""] * 2, [RIGHT] * 2, **arguments)
    assert "code_execution" in str(error.value)


def test_the_signature_shows_every_shared_option() -> None:
    for reward in (code_execution, code_tiered, code_quality):
        parameters = inspect.signature(reward).parameters
        assert {field.name for field in fields(JudgeOptions)} <= set(parameters) and "options" not in parameters


def test_rows_that_cannot_be_judged_are_found_before_training() -> None:
    tests: list[Any] = [
        SUMS,
        json.dumps(SUMS),
        None,
        [],
        "{",
        [{"input": "1"}],
        [{"call": [1], "expected": 1}],
        [{"assert": "assert ("}],
        [{"assert": "add(1, 2) == 3"}],
        [{"input": 5, "output": "5"}],
    ]
    faults = validate_rows(tests=tests, all_or_nothing=True)
    assert faults[:2] == [None, None]
    words = ["no test", "no test", "JSON", "output", "entry_point", "Python", 'Write "assert ', "text"]
    for fault, word in zip(faults[2:], words, strict=True):
        assert fault is not None and word in fault, fault
    assert validate_rows(tests=[SUMS], time_s=[-1])[0] is not None
    assert validate_rows(tests=[[{"input": ""}]], checker=["def check(i, o, e): return True"]) == [None]
    assert "checker" in (validate_rows(tests=[SUMS], checker=["def check("])[0] or "")
    with input_error("invalid-limit", "max_timeouts"):
        validate_rows(tests=[SUMS], max_timeouts=0)
