"""The server's paths: scores, judgements and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.verifiers.code import Limits, judge
from tests.support.reward_servers import RewardServer, recipe_of

SUM = "print(sum(map(int, input().split())))"
TESTS = [{"input": "1 2", "output": "3"}, {"input": "5 -5", "output": "0"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    rewards = ["code_execution", {"name": "math_correctness", "weight": 2.0}]
    rewards.append({"name": "answer_format", "weight": 0.5, "gate": "math_correctness"})
    recipe = recipe_of(tmp_path_factory.mktemp("app") / "recipe.yaml", rewards)
    with RewardServer("--config", recipe, "--max_test_time_s", "10") as started:
        yield started


def code(*programs: str) -> list[str]:
    return [f"```python\n{program}\n```" for program in programs]


@pytest.mark.slow
def test_completions_are_scored_by_the_named_rewards(server: RewardServer) -> None:
    content = {
        "rewards": ["code_execution", {"name": "math_correctness"}],
        "prompts": ["p"] * 3,
        "completions": [*code(SUM, "print(3)"), "#### The final answer is 3"],
        "columns": {"tests": [TESTS] * 3, "final_answer": ["3"] * 3},
    }
    status, reply = server.post("/score", content)
    assert status == 200, reply
    assert {one["reward"]: one["values"] for one in reply["results"]} == {
        "code_execution": [1.0, 0.5, 0.0],
        "math_correctness": [0.0, 0.0, 1.0],
    }


def test_a_request_without_a_column_that_its_reward_needs_is_refused(server: RewardServer) -> None:
    content = {"rewards": ["code_execution"], "prompts": ["p"], "completions": code(SUM)}
    status, reply = server.post("/score", content)
    assert (status, reply["kind"]) == (422, "missing-column") and "tests" in reply["detail"]


@pytest.mark.parametrize(
    ("options", "columns", "named", "why"),
    [
        ({"allow_weak_sandbox": True}, {}, "--allow_weak_sandbox", "a client would open the sandbox"),
        ({}, {"allow_weak_sandbox": [True]}, "--allow_weak_sandbox", "the same as a column"),
        ({"time_s": 11}, {}, "time_s is", "more time than the server gives"),
        ({}, {"time_s": [11]}, "time_s", "the same as a column"),
        ({"time_factor": 6.0}, {}, "time_s is", "a factor on the judge's default of two seconds"),
        ({"time_factor": 4.0}, {"time_s": [3]}, "time_s is", "and on the row's limit"),
        ({"memory_mb": 10_000}, {}, "memory_mb is", "more memory"),
        ({"time_s": 1e999}, {}, "time_s is", "infinity"),
        ({"colour": 1}, {}, "colour", "an unknown option"),
        ({"all_or_nothing": "yes"}, {}, "all_or_nothing", "an option of another type"),
    ],
)
def test_options_that_loosen_the_servers_limits_are_refused(
    server: RewardServer, options: Any, columns: Any, named: str, why: str
) -> None:
    rewards = [{"name": "code_execution", "options": options}]
    content = {"rewards": rewards, "prompts": ["p"], "completions": code(SUM), "columns": {"tests": [TESTS], **columns}}
    status, reply = server.post("/score", content)
    assert status == 422 and named in reply["detail"], (why, reply)
    assert server.post("/score", {**content, "rewards": ["code_execution"], "columns": {"tests": [TESTS]}})[0] == 200


@pytest.mark.slow
def test_programs_get_the_same_verdicts_as_locally(server: RewardServer) -> None:
    programs = [
        SUM,
        "print(3)",
        "print(",
        "while True: pass",
        "import socket; socket.create_connection(('1.1.1.1', 80))",
    ]
    limits = {"time_s": 0.3, "wall_s": 10}
    content = {"submissions": [{"program": one, "tests": TESTS, "limits": limits} for one in programs]}
    status, reply = server.post("/judge", content)
    assert status == 200, reply
    here = [judge(one, language="python", tests=TESTS, limits=Limits(**limits)) for one in programs]
    assert [one["verdicts"] for one in reply["judgements"]] == [one.verdicts for one in here]
    assert [one["score"] for one in reply["judgements"]] == [1.0, 0.5, 0.0, 0.0, 0.0]
    assert all("reasons" not in one for one in reply["judgements"]), "they quote expected outputs"
    judgement = server.post("/judge", {**content, "reasons": True})[1]["judgements"][1]
    assert "1 of 2 tests passed" in judgement["feedback"]


def test_judging_stops_at_the_requests_deadline(server: RewardServer) -> None:
    content = {"submissions": [{"program": "while True: pass", "tests": TESTS, "limits": {"time_s": 9}}]}
    status, reply = server.post("/judge", {**content, "deadline_s": 0.5})
    assert status == 422 and reply["kind"] == "timeout"
    assert server.post("/judge", {"submissions": [{"program": SUM, "tests": TESTS}]})[0] == 200, "the server goes on"


@pytest.mark.parametrize(
    ("submission", "status", "kind", "named", "why"),
    [
        ({}, 422, "invalid-body", "tests", "no tests"),
        ({"tests": [{"nonsense": 1}]}, 422, None, "nonsense", "an invalid test"),
        ({"tests": TESTS, "language": "cobol"}, 422, None, "cobol", "an unknown language"),
        ({"tests": TESTS, "limits": {"memory_mb": 1e9}}, 422, "limit-exceeded", "memory_mb", "all of the memory"),
        ({"tests": TESTS, "limits": {"output_kb": 1 << 20}}, 422, "limit-exceeded", "output_kb", "held in memory"),
        ({"tests": TESTS, "limits": {"processes": 4096}}, 422, "limit-exceeded", "processes", "too many threads"),
        ({"tests": TESTS, "limits": {"wall_s": 1e5}}, 422, "limit-exceeded", "wall_s is", "a program that sleeps"),
        ({"tests": TESTS, "limits": {"compile_time_s": 1e9}}, 422, "limit-exceeded", "compile_time_s is", "a compiler"),
        ({"tests": TESTS, "limits": {"time_s": -1}}, 422, None, "time_s", "no time at all"),
        ({"tests": TESTS, "checker": "def check("}, 422, None, "checker", "a checker with a syntax error"),
        ({"tests": TESTS, "allow_weak_sandbox": True}, 422, "invalid-body", "allow_weak_sandbox", "not for clients"),
    ],
)
def test_an_invalid_submission_is_refused(
    server: RewardServer, submission: Any, status: int, kind: str | None, named: str, why: str
) -> None:
    answered, reply = server.post("/judge", {"submissions": [{"program": SUM, **submission}]})
    assert answered == status and named in reply["detail"], (why, reply)
    assert reply["kind"] == kind or kind is None, (why, reply)


# ----------------------------------------------------------------------------------------------------------------------
# Metrics


def test_metrics_count_rows_and_verdicts(server: RewardServer) -> None:
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
    assert "nowhere" not in server.get("/metrics")[1], "clients must not create labels"


# ----------------------------------------------------------------------------------------------------------------------
# Fuzzing, from the OpenAPI description

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
        known = ["math_correctness", "code_execution", SUM, *code(SUM), "python", "cpp"]
        return st.sampled_from(known) | st.text(max_size=20)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers(-10, 10),
        "number": st.floats(0.01, 5),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, _ANYTHING | st.just(TESTS) | st.just("3"))


def test_openapi_describes_the_key_and_the_content_type_of_metrics(server: RewardServer) -> None:
    document = server.get("/openapi.json")[1]
    (scheme,) = document["paths"]["/score"]["post"]["security"][0]
    assert document["components"]["securitySchemes"][scheme] == {"type": "http", "scheme": "bearer"}
    assert "security" not in document["paths"]["/healthz"]["get"]
    (content_type,) = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    server.get("/metrics")
    assert server.headers["content-type"] == content_type and content_type.startswith("text/plain; version=0.0.4")


def test_no_page_of_another_host_is_served_and_a_refusal_has_a_kind(server: RewardServer) -> None:
    kinds = [server.get(path)[1]["kind"] for path in ("/docs", "/redoc", "/score")]
    assert kinds == ["unknown-path", "unknown-path", "wrong-method"]


def test_openapi_describes_every_field(server: RewardServer) -> None:
    schemas = server.get("/openapi.json")[1]["components"]["schemas"]
    for name in ("ScoreRequest", "JudgeRequest", "RequestedReward", "SubmittedProgram", "RequestedLimits"):
        for key, field in schemas[name]["properties"].items():
            assert field.get("description") or "$ref" in field, f"{name}.{key}"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/score", "/judge"])
def test_any_body_gets_a_status_of_the_openapi_description(server: RewardServer, path: str) -> None:
    whole = server.get("/openapi.json")[1]
    operation = whole["paths"][path]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    statuses = {int(status) for status in operation["responses"]}
    seen = set()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.one_of(_like(schema, whole), _like(schema, whole), _ANYTHING))
    def ask(content: Any) -> None:
        status, reply = server.post(path, content)
        seen.add(status)
        assert status in statuses and isinstance(reply, dict), (status, reply)
        assert status == 200 or (isinstance(reply["detail"], str) and reply["detail"])

    ask()
    assert 422 in seen and server.get("/readyz")[0] == 200
    assert "Traceback" not in server.said(), server.said()
