"""The shipped environments: what their tools return, and what they pay."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from environments.calculator import Calculator
from environments.code_repair import CodeRepair
from environments.python_sandbox import PythonSandbox
from environments.retrieval import Retrieval
from environments.sqlite import Sqlite
from rlvr import InputError
from rlvr.config.specs import EnvironmentSpec
from rlvr.environments.rollouts import EnvironmentWorkers
from rlvr.verifiers.code.executor import Executor
from rlvr.verifiers.code.verdict import Outcome
from tests.support.input_errors import input_error

DOUBLE = {
    "tests": [{"assert": "assert double(21) == 42"}, {"assert": "assert double(-7351) == -14702"}],
    "public_tests": [{"assert": "assert double(3) == 6"}],
    "entry_point": "double",
}
RIGHT, SQUARE = "def double(n):\n    return 2 * n\n", "def double(n):\n    return n * n\n"
HALF = "def double(n):\n    return 42\n"


def write_shop(folder: Path) -> Path:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("CREATE TABLE sales (item TEXT, price REAL)")
        connection.executemany("INSERT INTO sales VALUES (?, ?)", [(f"item {n % 4}", n / 10) for n in range(40)])
    connection.close()
    return folder


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shop(tmp_path_factory.mktemp("databases"))


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("articles")
    (folder / "varn.md").write_text("The lighthouse of Varn is 41 metres tall.\n\nA. Holm built it in 1902.\n")
    (folder / "foxes.txt").write_text("Dune foxes eat beetles.\n")
    return folder


@pytest.mark.parametrize(
    ("expression", "value", "why"),
    [
        ("47*38", "1786", "a product"),
        ("0.1 + 0.2", "0.3", "exact, unlike floats"),
        ("1/3", "1/3", "a fraction that no decimal is equal to"),
        ("2 × 3 − 1", "5", "signs as people write them"),
        ("2**10", "1024", "a power as in Python"),
        ("(12 + 0.5) * 1,000", "12500", "brackets and a thousands separator"),
    ],
)
def test_the_calculator_computes_exactly(expression: str, value: str, why: str) -> None:
    assert Calculator().calculate(expression) == value, why


@pytest.mark.parametrize("expression", ["", "x + 1", "1/0", "7 // 2", "2 ** 0.5", "__import__('os')"])
def test_the_calculator_refuses_what_it_cannot_compute(expression: str) -> None:
    with pytest.raises(ValueError, match="no value"):
        Calculator().calculate(expression)


@pytest.mark.parametrize(
    ("code", "stdin", "result", "why"),
    [
        ("print(int(input()) * 2)", "21\n", "42", "standard output"),
        (
            "1 / 0",
            "",
            'Traceback (most recent call last):\n  File "program.py", line 1, in <module>\n'
            "ZeroDivisionError: division by zero",
            "the traceback",
        ),
        ("pass", "", "[no output]", "a model never gets an empty message"),
        ("print('x' * 50)", "", "x" * 40 + "\n[10 more characters]", "cut"),
        ("def f(:", "", "SyntaxError: invalid syntax", "its end, which has the error"),
        ("while True: pass", "", "[time limit exceeded: ", "stopped"),
    ],
)
def test_a_draft_runs_and_its_output_returns(code: str, stdin: str, result: str, why: str) -> None:
    sandbox = PythonSandbox(time_s=0.3, output_characters=200 if why == "the traceback" else 40)
    sandbox.reset(**DOUBLE)
    output = sandbox.run(code, stdin)
    assert output == result or (result in output and why in ("stopped", "its end, which has the error")), output
    assert sandbox.get_reward() == 0.0, "a draft earns nothing"


def test_only_the_submission_is_paid_and_only_once() -> None:
    sandbox = PythonSandbox()
    sandbox.reset(**DOUBLE)
    assert sandbox.submit(SQUARE) == "0 of 2 tests passed."
    with pytest.raises(ValueError, match="no submission is left"):
        sandbox.submit(RIGHT)
    assert sandbox.get_reward() == 0.0
    sandbox.reset(**DOUBLE)
    assert sandbox.submit(RIGHT) == "2 of 2 tests passed."
    assert sandbox.get_reward() == 1.0, "nothing remains of the rollout before"


def test_a_share_of_the_tests_is_paid_unless_all_are_asked_for() -> None:
    for all_or_nothing, reward in ((False, 0.5), (True, 0.0)):
        sandbox = PythonSandbox(all_or_nothing=all_or_nothing)
        sandbox.reset(**DOUBLE)
        sandbox.submit(HALF)
        assert sandbox.get_reward() == reward


@pytest.mark.parametrize(
    ("attempts", "reward", "why"),
    [
        ([], 0.0, "nothing submitted"),
        ([RIGHT], 1.0, "at once"),
        ([SQUARE, RIGHT], 0.8, "at the second attempt"),
        ([SQUARE, SQUARE, RIGHT], 0.6, "at the third"),
        ([SQUARE, SQUARE, SQUARE], 0.0, "never"),
        ([HALF, SQUARE], 0.5, "the best attempt counts"),
    ],
)
def test_a_repair_is_worth_less_with_each_attempt(attempts: list[str], reward: float, why: str) -> None:
    repair = CodeRepair(attempts=3, attempt_cost=0.2)
    assert repair.reset(**DOUBLE) is None
    for attempt in attempts:
        repair.submit(attempt)
    assert repair.get_reward() == pytest.approx(reward), why


def test_a_faulty_program_is_shown_with_the_public_test_that_fails() -> None:
    repair = CodeRepair(attempts=1)
    text = repair.reset(faulty_program=SQUARE, **DOUBLE)
    assert text is not None
    for shown in (SQUARE.strip(), "0 of 2 tests passed", "assert double(3) == 6", "wrong answer"):
        assert shown in text
    assert "7351" not in text, "a hidden test"
    assert repair.get_reward() == 0.0
    assert repair.submit(RIGHT) == "2 of 2 tests passed.\nAttempts left: 0."
    assert repair.get_reward() == 1.0, "the faulty program was no attempt"
    with pytest.raises(ValueError, match="solved"):
        repair.submit(SQUARE)


@pytest.mark.parametrize(
    ("tests", "quoted"),
    [
        ([{"input": "3\n", "output": "6\n"}], "input:\n3\n\nexpected output:\n6"),
        ([{"call": [3], "expected": 6}], "double(3) == 6"),
    ],
)
def test_a_public_test_of_each_form_is_quoted(tests: list[dict[str, Any]], quoted: str) -> None:
    repair = CodeRepair()
    repair.reset(tests=tests, public_tests=tests, entry_point=None if "input" in tests[0] else "double")
    assert quoted in repair.submit("def double(n): return 0")


def test_a_sandbox_that_fails_gives_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward is None, not 0: the model is not to blame."""
    monkeypatch.setattr(Executor, "run_test", lambda *_: Outcome("SE", "no memory"))
    for environment in (PythonSandbox(), CodeRepair()):
        environment.reset(**DOUBLE)
        assert environment.submit(RIGHT) == "The sandbox failed."
        assert environment.get_reward() is None


GOLD = "SELECT item, sum(price) FROM sales GROUP BY item"
HANGS = "def double(n):\n    while True: pass\n"
HANGING_QUERY = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT count(*) FROM n"


@pytest.mark.slow
def test_a_killed_submission_counts_and_scores_0(databases: Path) -> None:
    """Else a program asks one question about the hidden tests with each submission: it hangs, or it does not."""
    table: list[tuple[str, dict[str, Any], list[tuple[str, str]], str, float, str]] = [
        ("python_sandbox", {}, [("submit", HANGS), ("submit", RIGHT)], "no submission is left", 0.0, "the only one"),
        ("python_sandbox", {}, [("run", HANGS + "double(1)"), ("submit", RIGHT)], "2 of 2", 1.0, "a draft is free"),
        ("python_sandbox", {"submissions": 2}, [("submit", HANGS), ("submit", RIGHT)], "2 of 2", 1.0, "the last"),
        ("python_sandbox", {"submissions": 2}, [("submit", RIGHT), ("submit", HANGS)], "not done", 0.0, "the last"),
        ("code_repair", {"attempts": 1}, [("submit", HANGS), ("submit", RIGHT)], "no attempt is left", 0.0, "the only"),
        ("code_repair", {"attempts": 2}, [("submit", HANGS), ("submit", RIGHT)], "2 of 2", 0.8, "the second"),
        ("code_repair", {"attempts": 2}, [("submit", HALF), ("submit", HANGS)], "not done", 0.5, "the best counts"),
        ("sqlite", {}, [("answer", HANGING_QUERY), ("answer", GOLD)], "no answer is left", 0.0, "the only one"),
        ("sqlite", {}, [("query", HANGING_QUERY), ("answer", GOLD)], "4 rows", 1.0, "a query is free"),
    ]
    folder = {"python_sandbox": {}, "code_repair": {}, "sqlite": {"folder": str(databases)}}
    row = {**DOUBLE, "database": "shop.db", "gold_query": GOLD}
    specs = [EnvironmentSpec(name, {**folder[name], **options, "time_s": 60.0}) for name, options, *_ in table]
    with EnvironmentWorkers(specs, timeout_s=8, budget_s=120, max_output=1000, processes=len(table)) as workers:
        rollouts = [workers.begin(number, row, (0, 0, number)) for number in range(len(table))]
        results = [
            [rollout.call(tool, {"sql" if name == "sqlite" else "code": text}) for tool, text in calls]
            for rollout, (name, _, calls, *_) in zip(rollouts, table, strict=True)
        ]
        for rollout, texts, (*_, said, reward, why) in zip(rollouts, results, table, strict=True):
            assert said in texts[1].text(), why
            assert (rollout.reward(60).result(), rollout.killed, rollout.failed) == (pytest.approx(reward), 1, ""), why


@pytest.mark.parametrize(
    ("gold", "answer", "ordered", "reward", "why"),
    [
        (GOLD, GOLD + " ORDER BY 2 DESC", None, 1.0, "the order was not asked for"),
        (GOLD, GOLD, True, 1.0, "asked for by the row, and equal"),
        (GOLD, GOLD + " ORDER BY 1 DESC", True, 0.0, "asked for by the row, and different"),
        (GOLD + " ORDER BY item", GOLD + " ORDER BY item DESC", None, 0.0, "asked for by the gold query"),
        (GOLD + " ORDER BY item", GOLD + " ORDER BY item DESC", False, 1.0, "the row goes first"),
        (f"SELECT * FROM ({GOLD} ORDER BY item)", GOLD + " ORDER BY item DESC", None, 1.0, "only inside brackets"),
        ("SELECT 0.3", "SELECT 0.1 + 0.2", None, 1.0, "rounding of floats"),
        ("SELECT 20260101000001", "SELECT 20260101000002", None, 0.0, "long numbers are exact"),
    ],
)
def test_an_answer_is_right_if_its_rows_are(
    databases: Path, gold: str, answer: str, ordered: bool | None, reward: float, why: str
) -> None:
    environment = Sqlite(folder=str(databases))
    environment.reset("shop.db", gold, ordered)
    environment.answer(answer)
    assert environment.get_reward() == reward, why


def test_a_query_shows_its_first_rows_and_is_no_answer(databases: Path) -> None:
    environment = Sqlite(folder=str(databases), rows=2)
    assert "CREATE TABLE sales (item TEXT, price REAL)" in environment.reset("shop.db", GOLD)
    assert environment.query("SELECT * FROM sales") == "item | price\nitem 0 | 0.0\nitem 1 | 0.1\n[more rows]"
    assert environment.get_reward() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "said", "why"),
    [
        ("SELECT printf('%.*c', 2147483647, 'x')", "longer than 0.4 s", "one call that writes 2 GB"),
        ("SELECT printf('%.*c', 90, 'x') LIKE '%x'", "\n1", "the same call, but short"),
        ("SELECT instr(hex(zeroblob(499999)), hex(zeroblob(250000)) || '1')", "longer than 0.4 s", "one long search"),
        ("SELECT instr(hex(zeroblob(499999)), '1')", "\n0", "the same search for a short text"),
        ("SELECT replace(hex(zeroblob(499999)), hex(zeroblob(200000)) || '1', '')", "longer than 0.4 s", "and replace"),
        (HANGING_QUERY, "longer than 0.4 s", "many steps"),
        ("SELECT zeroblob(1048577)", "too big", "a value over the limit"),
        ("SELECT '\ud800'", "no UTF-8 text", "a lone surrogate"),
        (5, "sql must be a text", "a number"),
        ("SELECT x'00ff', 1e999, NULL, 'é'", "<2 bytes> | inf | NULL | é", "values of all types"),
    ],
)
def test_a_query_ends_within_twice_its_limit(databases: Path, query: Any, said: str, why: str) -> None:
    environment = Sqlite(folder=str(databases), time_s=0.4)
    environment.reset("shop.db", GOLD)
    before = os.times()
    try:
        result = environment.query(query)
    except ValueError as error:
        result = str(error)
    after = os.times()
    seconds = sum(after[2:4]) - sum(before[2:4])  # of CPU time of child processes
    assert said in result and seconds < 0.8, (why, result, seconds)


@pytest.mark.parametrize(
    ("query", "result", "why"),
    [
        ("How tall is Varn's lighthouse?", "[varn.md]\nThe lighthouse of Varn is 41 metres tall.", "the best passage"),
        ("beetles", "[foxes.txt]\nDune foxes eat beetles.", "another file"),
        ("zebra", "No passage has any of these words.", "nothing is found"),
        ("", "No passage has any of these words.", "nothing is asked"),
    ],
)
def test_a_search_returns_the_best_passages(articles: Path, query: str, result: str, why: str) -> None:
    assert Retrieval(folder=str(articles), results=1).search(query) == result, why


@pytest.mark.parametrize(
    ("environment", "kind", "key", "why"),
    [
        (lambda: PythonSandbox(submissions=0), "invalid-value", "submissions", "no submission"),
        (lambda: PythonSandbox(time_s=0), "invalid-limit", "time_s", "no time"),
        (lambda: PythonSandbox().reset(prompt="Add."), "missing-column", "tests", "no tests"),
        (lambda: PythonSandbox().reset(tests=[{"inptu": "1"}]), "unknown-key", None, "a test of no form"),
        (lambda: CodeRepair(attempts=0), "invalid-value", "attempts", "no attempt"),
        (lambda: CodeRepair(attempt_cost=2), "invalid-value", "attempt_cost", "a reward below 0"),
        (lambda: Sqlite(rows=0), "invalid-value", "rows", "no rows"),
        (lambda: Sqlite(time_s=0), "invalid-value", "time_s", "no time"),
        (lambda: Sqlite().reset("none.db", GOLD), "file-not-found", "database", "no database"),
        (lambda: Sqlite("/usr").reset("../etc/passwd", GOLD), "file-not-found", "database", "outside of the folder"),
        (lambda: Retrieval("/proc/self/fdinfo"), "file-not-found", "folder", "no text"),
        (lambda: Retrieval("/tmp", results=0), "invalid-value", "results", "no results"),
    ],
)
def test_bad_input_is_an_error_with_a_key(
    environment: Callable[[], object], kind: str, key: str | None, why: str
) -> None:
    with pytest.raises(InputError) as error:
        environment()
    assert error.value.kind == kind and (key is None or error.value.key == key), why


def test_a_gold_query_that_fails_is_an_error(databases: Path) -> None:
    with input_error("invalid-row"):
        Sqlite(str(databases)).reset("shop.db", "SELECT nothing FROM sales")
