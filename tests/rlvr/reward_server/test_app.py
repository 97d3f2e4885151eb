"""What the server's paths answer: scores, judgements, tests by reference, figures, and another trainer's protocol."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.errors import InputError
from rlvr.reward_server.limits import Refused
from rlvr.reward_server.metrics import Metrics
from rlvr.reward_server.openrlhf import Labels, completion_of
from rlvr.reward_server.stored_tests import References
from rlvr.scoring.reward import Reward
from rlvr.verifiers.code import Limits, judge
from tests.support.reward_servers import RewardServer, recipe_of

SUM = "print(sum(map(int, input().split())))"
TESTS = [{"input": "1 2", "output": "3"}, {"input": "5 -5", "output": "0"}]
ROWS = [
    {"id": "sum", "tests": TESTS, "final_answer": "3"},
    {"id": 7, "tests": [{"call": [2], "expected": 4}], "entry_point": "double", "time_s": 1.0},
    {"id": "slow", "tests": TESTS, "time_s": 100.0},
    {"id": "none"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    folder = tmp_path_factory.mktemp("app")
    tests = folder / "tests.jsonl"
    tests.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    rewards = ["code_execution", {"name": "math_correctness", "weight": 2.0}]
    rewards.append({"name": "answer_format", "weight": 0.5, "gate": "math_correctness"})
    words = ("--config", recipe_of(folder / "recipe.yaml", rewards), "--tests", tests, "--most-test-time-s", "10")
    with RewardServer(*words) as started:
        yield started


@pytest.fixture(scope="module")
def maths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    rewards = [{"name": "math_correctness", "weight": 2.0}]
    rewards.append({"name": "answer_format", "weight": 0.5, "gate": "math_correctness"})
    with RewardServer("--config", recipe_of(tmp_path_factory.mktemp("maths") / "recipe.yaml", rewards)) as started:
        yield started


def code(*programs: str) -> list[str]:
    return [f"```python\n{program}\n```" for program in programs]


def test_completions_are_scored_by_whom_one_names(server: RewardServer) -> None:
    content = {
        "rewards": ["code_execution", {"name": "math_correctness"}],
        "prompts": ["p"] * 3,
        "completions": [*code(SUM, "print(3)"), "#### The final answer is 3"],
        "columns": {"tests": [TESTS, {"id": "sum"}, {"id": "sum"}], "final_answer": ["3", "3", {"id": "sum"}]},
    }
    status, said = server.post("/score", content)
    assert status == 200, said
    assert {one["reward"]: one["values"] for one in said["results"]} == {
        "code_execution": [1.0, 0.5, 0.0],
        "math_correctness": [0.0, 0.0, 1.0],
    }


@pytest.mark.parametrize(
    ("options", "columns", "told", "why"),
    [
        ({"allow_weak_sandbox": True}, {}, "--allow-weak-sandbox", "a client would open the sandbox"),
        ({}, {"allow_weak_sandbox": [True]}, "--allow-weak-sandbox", "the same as a column"),
        ({"time_s": 11}, {}, "a test 10 s at most", "more time than the server gives"),
        ({}, {"time_s": [11]}, "a test 10 s at most", "the same as a column"),
        ({"time_factor": 6.0}, {}, "a test 10 s at most", "a factor on the judge's own two seconds"),
        ({"time_factor": 4.0}, {"time_s": [3]}, "a test 10 s at most", "and on the row's"),
        ({"memory_mb": 10_000}, {}, "a test 4096 MB at most", "more memory"),
        ({"time_s": 1e999}, {}, "a test 10 s at most", "more than any number"),
        ({"colour": 1}, {}, "no option 'colour'", "an option that it has not"),
        ({"all_or_nothing": "yes"}, {}, "all_or_nothing", "an option of another type"),
    ],
)
def test_options_that_loosen_the_servers_limits_are_refused(
    server: RewardServer, options: Any, columns: Any, told: str, why: str
) -> None:
    rewards = [{"name": "code_execution", "options": options}]
    content = {"rewards": rewards, "prompts": ["p"], "completions": code(SUM), "columns": {"tests": [TESTS], **columns}}
    status, said = server.post("/score", content)
    assert status == 422 and told in said["detail"], (why, said)
    assert server.post("/score", {**content, "rewards": ["code_execution"], "columns": {"tests": [TESTS]}})[0] == 200


def test_programs_are_judged_as_they_are_here(server: RewardServer) -> None:
    programs = [
        SUM,
        "print(3)",
        "print(",
        "while True: pass",
        "import socket; socket.create_connection(('1.1.1.1', 80))",
    ]
    limits = {"time_s": 0.3}
    content = {"submissions": [{"program": one, "tests": TESTS, "limits": limits} for one in programs]}
    status, said = server.post("/judge", content)
    assert status == 200, said
    here = [judge(one, language="python", tests=TESTS, limits=Limits(**limits)) for one in programs]
    assert [one["verdicts"] for one in said["judgements"]] == [one.verdicts for one in here]
    assert [one["score"] for one in said["judgements"]] == [1.0, 0.5, 0.0, 0.0, 0.0]
    assert all("reasons" not in one for one in said["judgements"]), "they quote expected outputs"
    told = server.post("/judge", {**content, "reasons": True})[1]["judgements"][1]
    assert "1 of 2 tests passed" in told["feedback"]


def test_programs_that_take_longer_than_they_may_are_given_up(server: RewardServer) -> None:
    content = {"submissions": [{"program": "while True: pass", "tests": TESTS, "limits": {"time_s": 9}}]}
    status, said = server.post("/judge", {**content, "deadline_s": 0.5})
    assert status == 422 and "not judged within 0.5 s" in said["detail"]
    assert server.post("/judge", {"submissions": [{"program": SUM, "tests": TESTS}]})[0] == 200, "and others are"


def test_tests_are_given_by_reference_with_all_that_belongs_to_the_problem(server: RewardServer) -> None:
    submissions = [
        {"program": SUM, "id": "sum"},
        {"program": "def double(x): return 2 * x", "id": 7},
        {"program": "def double(x): return 3 * x", "id": "7"},
    ]
    status, said = server.post("/judge", {"submissions": submissions})
    assert status == 200 and [one["score"] for one in said["judgements"]] == [1.0, 1.0, 0.0], said


@pytest.mark.parametrize(
    ("submission", "status", "told", "why"),
    [
        ({"id": "missing"}, 404, "no tests with the id 'missing'", "an id that isn't there"),
        ({"id": "none"}, 404, "has no tests", "a row without tests"),
        ({"id": "slow"}, 422, "10 s at most", "the file's own limits are held to the server's, too"),
        ({}, 422, "either tests, or the id", "neither tests nor id"),
        ({"id": "sum", "tests": TESTS}, 422, "either tests, or the id", "both"),
        ({"tests": [{"nonsense": 1}]}, 422, "nonsense", "a test that is none"),
        ({"tests": TESTS, "language": "cobol"}, 422, "cobol", "a language that isn't known"),
        ({"tests": TESTS, "limits": {"memory_mb": 1e9}}, 422, "4096 MB", "all memory of the machine"),
        (
            {"tests": TESTS, "limits": {"output_kb": 1 << 20}},
            422,
            "65,536 at most",
            "a gigabyte, held in memory",
        ),
        ({"tests": TESTS, "limits": {"processes": 4096}}, 422, "256 at most", "threads without measure"),
        ({"tests": TESTS, "limits": {"wall_s": 1e5}}, 422, "10 s", "a program that sleeps"),
        ({"tests": TESTS, "limits": {"time_s": -1}}, 422, "should be a number from", "no time at all"),
        ({"tests": TESTS, "checker": "def check("}, 422, "no Python", "a checker that is none"),
        ({"tests": TESTS, "allow_weak_sandbox": True}, 422, "allow_weak_sandbox", "what no client may ask"),
    ],
)
def test_a_submission_that_is_wrong_is_said_to_be(
    server: RewardServer, submission: Any, status: int, told: str, why: str
) -> None:
    found, said = server.post("/judge", {"submissions": [{"program": SUM, **submission}]})
    assert found == status and told in said["detail"], (why, said)


def test_a_reference_that_is_missing_is_named(server: RewardServer) -> None:
    content = {"rewards": ["math_correctness"], "prompts": ["p"], "completions": ["c"]}
    status, said = server.post("/score", {**content, "columns": {"final_answer": [{"id": "gone"}]}})
    assert status == 404 and "'gone'" in said["detail"] and "4 others" in said["detail"]
    status, said = server.post("/score", {**content, "columns": {"final_answer": [{"id": "slow"}]}})
    assert status == 404 and "no column final_answer" in said["detail"]


@pytest.mark.parametrize(
    ("lines", "told", "why"),
    [
        (['{"id": 1}', "{"], "line 2: no JSON", "a line that breaks off"),
        (['{"tests": []}'], "line 1: a row should be an object with an id", "a row that nobody can name"),
        (['{"id": 1}', '{"id": "1"}'], "line 2: the id '1' comes twice", "one of the two would never be found"),
    ],
)
def test_a_file_of_tests_that_is_none_does_not_start_a_server(
    tmp_path: Path, lines: list[str], told: str, why: str
) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(told)):
        References(file)


def test_a_file_of_tests_that_changes_gives_no_other_rows(tmp_path: Path) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text('{"id": "a", "tests": [1]}\n{"id": "b", "tests": [2]}\n', encoding="utf-8")
    held = References(file)
    assert len(held) == 2 and held.row("b")["tests"] == [2]
    file.write_text('{"id": "x", "tests": [9]}\n{"id": "y", "tests": [9]}\n', encoding="utf-8")
    with pytest.raises(Refused, match="has changed under it"):
        held.row("b")


# ----------------------------------------------------------------------------------------------------------------------
# OpenRLHF


def test_another_trainers_requests_get_the_weighted_sum_with_gates(maths: RewardServer) -> None:
    prompt = "<|im_start|>user\nWhat is 1+2?<|im_end|>\n<|im_start|>assistant\n"
    answers = ["1+2=3\n#### The final answer is 3", "I do not know", "#### The final answer is 4"]
    content = {
        "query": [f"{prompt}{answer}<|im_end|>" for answer in answers],
        "prompts": [prompt] * 3,
        "labels": ["3", "3", json.dumps({"final_answer": "3"})],
        "a key of a later version": 1,
    }
    status, said = maths.post("/get_reward", content)
    assert status == 200, said
    assert said["extra_logs"] == {"math_correctness": [1.0, 0.0, 0.0], "answer_format": [1.0, 0.0, 0.0]}
    assert said["rewards"] == said["scores"] == [2.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("content", "status", "told", "why"),
    [
        ({"query": ["other text"], "prompts": ["p q"], "labels": ["3"]}, 422, "does not begin with its prompt", "cut"),
        ({"query": ["pa"], "prompts": ["p"], "labels": []}, 422, "0 in labels", "no gold"),
        ({"query": ["pa"], "prompts": [], "labels": []}, 422, "0 in prompts", "no prompt"),
        (
            {"query": ["pa"], "prompts": ["p"], "labels": [None]},
            422,
            "it is NoneType, but should be text",
            "no number is no reward",
        ),
    ],
)
def test_what_openrlhf_cannot_be_told_is_an_error_and_no_number(
    maths: RewardServer, content: Any, status: int, told: str, why: str
) -> None:
    found, said = maths.post("/get_reward", content)
    assert found == status and told in said["detail"], (why, said)


def test_several_columns_are_not_guessed_from_one_label(server: RewardServer) -> None:
    status, said = server.post("/get_reward", {"query": ["pa"], "prompts": ["p"], "labels": ["3"]})
    assert status == 422 and "final_answer, tests" in said["detail"] and "--label-column" in said["detail"]
    label = {"final_answer": "3", "tests": {"id": "sum"}}
    status, said = server.post("/get_reward", {"query": [f"p{code(SUM)[0]}"], "prompts": ["p"], "labels": [label]})
    assert status == 200 and said["extra_logs"]["code_execution"] == [1.0]


@pytest.mark.parametrize(
    ("query", "prompt", "completion", "why"),
    [
        ("ask answer", "ask ", "answer", "as it is"),
        ("<s>ask answer</s>", "ask ", "answer", "special tokens on both sides"),
        ("ask answer<|im_end|>\n<|endoftext|>", "ask ", "answer", "more than one at the end"),
        ("ask answer</s> so", "ask ", "answer</s> so", "what stands within is the model's"),
        ("ask ask ", "ask ", "ask ", "the first place counts"),
    ],
)
def test_the_completion_is_what_follows_the_prompt(query: str, prompt: str, completion: str, why: str) -> None:
    assert completion_of(query, prompt, 0) == completion, why


def test_a_label_is_the_one_column_that_is_read_or_the_one_that_is_named() -> None:
    rewards = [Reward("a", len, columns=("gold",)), Reward("b", len, columns=())]
    assert Labels(rewards).columns(["x", '{"gold": 1}', "{no JSON"], 3) == {"gold": ["x", 1, "{no JSON"]}
    assert Labels([Reward("b", len)]).columns([], 2) == {}
    two = [*rewards, Reward("c", len, columns=("tests",))]
    with pytest.raises(Refused):
        Labels(two).columns(["x"], 1)
    assert Labels(two, "tests").columns(["x"], 1) == {"tests": ["x"]}


# ----------------------------------------------------------------------------------------------------------------------
# Figures


def test_figures_are_those_of_what_was_asked(server: RewardServer) -> None:
    rows, unscored = (
        server.figure(f'grpo_rows{word}_total{{reward="math_correctness"}}') for word in ("", "_unscored")
    )
    verdicts = server.figure('grpo_verdicts_total{verdict="WA"}')
    content = {"rewards": ["math_correctness"], "prompts": ["p"] * 3, "completions": ["#### 3"] * 3}
    assert server.post("/score", {**content, "columns": {"final_answer": ["3", None, "4"]}})[0] == 200
    server.post("/judge", {"submissions": [{"program": "print(8)", "tests": TESTS}]})
    assert server.figure('grpo_rows_total{reward="math_correctness"}') == rows + 3
    assert server.figure('grpo_rows_unscored_total{reward="math_correctness"}') == unscored + 1
    assert server.figure('grpo_verdicts_total{verdict="WA"}') == verdicts + 2
    assert server.figure("grpo_ready") == 1 and server.figure("grpo_requests_in_flight") == 0
    server.post("/nowhere", {})
    assert "nowhere" not in server.get("/metrics")[1], "what clients make up is no label"


_SAMPLE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? (\d+|\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)')


def test_the_page_of_figures_is_in_prometheus_own_format() -> None:
    metrics = Metrics()
    metrics.add("grpo_rows_total", 'a "name"\\ of\nlines', by=2.5)
    metrics.add("grpo_rows_total", "b", by=math.nan)
    metrics.add("grpo_rows_total", "b", by=-1)
    for value in (0.001, 0.3, 1e9):
        metrics.observe("grpo_request_seconds", "/score", value=value)
    metrics.watch("grpo_ready", lambda: 1.0)
    lines = metrics.page().splitlines()
    assert all(_SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")), lines
    assert 'grpo_request_seconds_bucket{path="/score",le="0.5"} 2' in lines
    assert 'grpo_request_seconds_bucket{path="/score",le="+Inf"} 3' in lines
    assert 'grpo_rows_total{reward="b"}' not in "\n".join(lines), "a counter only rises"
    assert len([line for line in lines if line.startswith("# TYPE grpo_request_seconds ")]) == 1


# ----------------------------------------------------------------------------------------------------------------------
# Fuzzing, from the server's own description

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def _like(schema: Any, whole: Any) -> st.SearchStrategy[Any]:
    """Values that an OpenAPI schema describes."""
    if "$ref" in schema:
        return _like(whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return st.one_of([_like(one, whole) for one in schema["anyOf"]])
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        required = schema.get("required", [])
        parts = {name: _like(one, whole) for name, one in schema["properties"].items()}
        needed = {name: part for name, part in parts.items() if name in required}
        return st.fixed_dictionaries(
            needed, optional={name: part for name, part in parts.items() if name not in required}
        )
    if kind == "object":
        names = st.sampled_from(["tests", "final_answer", "time_s", "allow_weak_sandbox", "prompts"]) | st.text(
            max_size=5
        )
        return st.dictionaries(
            names,
            _like(inner if isinstance(inner := schema.get("additionalProperties"), dict) else {}, whole),
            max_size=3,
        )
    if kind == "array":
        return st.lists(_like(schema["items"], whole), min_size=schema.get("minItems", 0), max_size=3)
    if kind == "string":
        known = ["math_correctness", "code_execution", "sum", SUM, *code(SUM), "python", "cpp"]
        return st.sampled_from(known) | st.text(max_size=20)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers(-10, 10), "number": st.floats(0.01, 5), "boolean": st.booleans(), "null": st.none(),
    }  # fmt: skip
    return simple.get(kind, _ANYTHING | st.just(TESTS) | st.sampled_from([{"id": "sum"}, "3"]))


def test_every_field_that_is_taken_is_described(server: RewardServer) -> None:
    schemas = server.get("/openapi.json")[1]["components"]["schemas"]
    taken = {
        "ScoreAsked",
        "CheckAsked",
        "JudgeAsked",
        "RewardAskedByOpenRLHF",
        "RewardAsked",
        "Submitted",
        "LimitsAsked",
    }
    assert taken <= schemas.keys()
    bare = [
        f"{name}.{key}" for name in sorted(taken) for key, one in schemas[name]["properties"].items()
        if not (one.get("description") or "$ref" in one)
    ]  # fmt: skip
    assert not bare


@pytest.mark.parametrize("path", ["/score", "/check", "/judge", "/get_reward"])
def test_whatever_comes_is_answered_as_the_description_says(server: RewardServer, path: str) -> None:
    whole = server.get("/openapi.json")[1]
    operation = whole["paths"][path]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    statuses = {int(status) for status in operation["responses"]}
    seen = set()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.one_of(_like(schema, whole), _like(schema, whole), _ANYTHING))
    def ask(content: Any) -> None:
        status, said = server.post(path, content)
        seen.add(status)
        assert status in statuses and isinstance(said, dict), (status, said)
        assert status == 200 or (isinstance(said["detail"], str) and said["detail"])

    ask()
    assert 422 in seen and server.get("/readyz")[0] == 200
    assert "Traceback" not in server.said(), server.said()
