"""Models of the request bodies. /openapi.json has their descriptions."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import models_json_schema

MAX_REWARDS = 64  # of one request
MAX_KEYS = 1000  # of an object
_SCHEMAS = "#/components/schemas/{model}"

Seconds = Annotated[float, Field(gt=0, le=86400)]
Word = Annotated[str, Field(max_length=1000)]
Name = Annotated[str, Field(max_length=500, description="As the server's recipe writes it.")]
Options = Annotated[
    dict[str, Any] | None,
    Field(description="Options of the function; null: those that the server was started with."),
]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RequestedReward(_StrictModel):
    """One reward of the request."""

    name: Name
    options: Options = None
    reads: list[str] | None = Field(
        default=None, max_length=MAX_KEYS, fail_fast=True, description="The columns that it gets; null: all."
    )
    seed: list[int | Word] | None = Field(default=None, max_length=16, description="Seed of its random numbers.")


_BY_NAME = BeforeValidator(
    lambda reward: {"name": reward} if isinstance(reward, str) else reward, json_schema_input_type=RequestedReward | str
)


class ScoreRequest(_StrictModel):
    """Completions, and the rewards that score them."""

    rewards: list[Annotated[RequestedReward, _BY_NAME]] = Field(
        min_length=1,
        max_length=MAX_REWARDS,
        fail_fast=True,
        description="Names as in the server's recipe, or objects with options, columns or seeds.",
    )
    prompts: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    completions: list[str | list[dict[str, Any]]] = Field(
        fail_fast=True, description="One a row: text, or a list of chat messages."
    )
    columns: dict[str, list[Any]] = Field(
        default_factory=dict,
        description='Columns of the data, one entry a row. An entry {"id": "…"} stands for that column of the row '
        "with this id in the server's file (--tests).",
    )
    trainer_state: dict[str, int | float | Word | bool | None] = Field(
        default_factory=dict, description="What rewards get as trainer_state: global_step, max_steps, epoch …"
    )
    one_by_one: bool = Field(default=False, description="Call the function once a row.")
    rows: list[int] | None = Field(
        default=None, fail_fast=True, description="The rows' numbers in the batch, for `one_by_one`."
    )
    deadline_s: Seconds | None = Field(default=None, description="Timeout of one call.")
    budget_s: Seconds | None = Field(default=None, description="Timeout of the request, including its time in queues.")


class CheckRequest(_StrictModel):
    """Rows of the data that a reward checks before training."""

    name: Name
    options: Options = None
    columns: dict[str, list[Any]] = Field(default_factory=dict, description="Columns of the data, one entry a row.")


class RequestedLimits(_StrictModel):
    """Limits of a test, and of the compiler; see `rlvr.verifiers.code.Limits`."""

    time_s: float | None = Field(default=None, description="CPU seconds of a test; default: the row's, or 2.")
    wall_s: float | None = Field(
        default=None, description="Seconds of a test in which it neither computes nor waits for a processor."
    )
    memory_mb: float | None = Field(default=None, description="Resident memory of a test.")
    output_kb: int | None = Field(default=None, description="Standard output of a test, and standard error.")
    processes: int | None = Field(default=None, description="Threads and processes of a test.")
    compile_time_s: float | None = Field(default=None, description="CPU seconds of the compiler.")


class SubmittedProgram(_StrictModel):
    """One program. The fields are the arguments of `rlvr.verifiers.code.judge`."""

    program: str = Field(description="Its source.")
    language: str | None = Field(default=None, description="python (default), cpp, …")
    tests: list[dict[str, Any]] | None = Field(
        default=None,
        fail_fast=True,
        description="Each is {input, output}: texts; {call: [arguments], expected: value}: of `entry_point`; or "
        "{assert: Python}. Each may have a comparison and a tolerance of its own.",
    )
    id: str | int | None = Field(default=None, description="Instead of tests: id of a row of the server's file.")
    limits: RequestedLimits = Field(default_factory=RequestedLimits)
    entry_point: str | None = Field(default=None, description="The function that tests call; also Class.method.")
    signature: str | None = Field(default=None, description="Of that function in C++: int add(int, int).")
    checker: str | None = Field(
        default=None, description="Python source of check(input, output, expected), used instead of a comparison."
    )
    comparison: str | None = Field(
        default=None, description="lines (default), tokens, exact, float, unordered or yes_no."
    )
    tolerance: float | None = Field(default=None, description="Of float, absolute or relative; default: 1e-6.")
    stop_early: bool = Field(default=False, description="Skip the tests after the first failure.")
    max_timeouts: int | None = Field(
        default=None, ge=1, description="Skip the tests after so many that exceed the time limit."
    )
    sample: int | None = Field(default=None, ge=1, description="Run only this many tests, drawn with `seed`.")
    seed: int = Field(default=0, description="Of the sample.")


class JudgeRequest(_StrictModel):
    """Programs and their tests."""

    submissions: list[SubmittedProgram] = Field(
        min_length=1, fail_fast=True, description="Equal submissions are judged once."
    )
    deadline_s: Seconds | None = Field(
        default=None, description="Timeout of the request, including its time in queues."
    )
    reasons: bool = Field(
        default=False,
        description="Include why tests failed. The text quotes expected outputs: do not show it to a policy.",
    )


class OpenRLHFRequest(BaseModel):
    """The request of OpenRLHF to a remote reward model; unknown keys are ignored."""

    query: list[str] = Field(
        fail_fast=True, description="Prompt and completion together, as the tokenizer decodes them."
    )
    prompts: list[str] = Field(fail_fast=True, description="The beginning of each `query`.")
    labels: list[Any] = Field(
        default_factory=list,
        description="One a row: the value of the one column that the rewards read, or an object of several (also as "
        "JSON).",
    )


_BODIES = (ScoreRequest, CheckRequest, JudgeRequest, OpenRLHFRequest)


def openapi_body(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a path's body."""
    schema = {"$ref": _SCHEMAS.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def add_schemas(openapi: MutableMapping[str, Any]) -> None:
    """Add the models' schemas, to which `openapi_body` refers."""
    _, schema = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_SCHEMAS)
    openapi.setdefault("components", {}).setdefault("schemas", {}).update(schema["$defs"])
