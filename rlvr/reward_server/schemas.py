"""Models of the request bodies. /openapi.json has their descriptions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _optional(description: str, **limits: Any) -> Any:
    return Field(default=None, description=description, **limits)


def _seconds(description: str) -> Any:
    return _optional(description, gt=0, le=86400)


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RequestedReward(_StrictModel):
    """One reward of the request."""

    name: str = Field(description="As the server's recipe writes it.")
    options: dict[str, Any] | None = _optional("Options of the function; null: the server's own.")
    reads: list[str] | None = _optional("The columns that it gets; null: all.")
    seed: list[int | str] | None = _optional("Seed of its random numbers.")


_BY_NAME = BeforeValidator(
    lambda reward: {"name": reward} if isinstance(reward, str) else reward, json_schema_input_type=RequestedReward | str
)


class ScoreRequest(_StrictModel):
    """Completions, and the rewards that score them. Lists are validated up to their first error."""

    rewards: list[Annotated[RequestedReward, _BY_NAME]] = Field(
        min_length=1, description="Names as in the server's recipe, or objects with options, columns or seeds."
    )
    prompts: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    completions: list[str | list[dict[str, Any]]] = Field(
        min_length=1, fail_fast=True, description="One a row: text, or a list of chat messages."
    )
    columns: dict[str, list[Any]] = Field(default_factory=dict, description="Columns of the data, one entry a row.")
    trainer_state: dict[str, int | float | str | bool | None] = Field(
        default_factory=dict, description="What rewards get as trainer_state: global_step, max_steps, epoch …"
    )
    one_by_one: bool = Field(default=False, description="Call the function once a row.")
    rows: list[int] | None = _optional("The rows' numbers in the batch, for `one_by_one`.", fail_fast=True)
    deadline_s: float | None = _seconds("Timeout of one call.")
    budget_s: float | None = _seconds("Timeout of the request, including its time in queues.")


class RequestedLimits(_StrictModel):
    """Limits of a test, and of the compiler; see `rlvr.verifiers.code.Limits`."""

    time_s: float | None = _optional("CPU seconds of a test; default: 2.")
    wall_s: float | None = _optional("Seconds of a test in which it neither computes nor waits for a processor.")
    memory_mb: float | None = _optional("Resident memory of a test.")
    output_kb: int | None = _optional("Standard output of a test, and standard error.")
    processes: int | None = _optional("Threads and processes of a test.")
    compile_time_s: float | None = _optional("CPU seconds of the compiler.")


class SubmittedProgram(_StrictModel):
    """One program. The fields are the arguments of `rlvr.verifiers.code.judge`."""

    program: str = Field(description="Its source.")
    language: str | None = _optional("python (default), cpp, …")
    tests: list[dict[str, Any]] = Field(
        description="Each is {input, output}: texts; {call: [arguments], expected: value}: of `entry_point`; or "
        "{assert: Python}. Each may have a comparison and a tolerance of its own.",
        fail_fast=True,
    )
    limits: RequestedLimits = Field(default_factory=RequestedLimits)
    entry_point: str | None = _optional("The function that tests call; also Class.method.")
    signature: str | None = _optional("Of that function in C++: int add(int, int).")
    checker: str | None = _optional("Python source of check(input, output, expected), used instead of a comparison.")
    comparison: str | None = _optional("lines (default), tokens, exact, float, unordered or yes_no.")
    tolerance: float | None = _optional("Of float, absolute or relative; default: 1e-6.")
    stop_early: bool = Field(default=False, description="Skip the tests after the first failure.")
    max_timeouts: int | None = _optional("Skip the tests after so many that exceed the time limit.", ge=1)


class JudgeRequest(_StrictModel):
    """Programs and their tests."""

    submissions: list[SubmittedProgram] = Field(
        min_length=1, fail_fast=True, description="Equal submissions are judged once."
    )
    deadline_s: float | None = _seconds("Timeout of the request, including its time in queues.")
    reasons: bool = Field(
        default=False,
        description="Include why tests failed. The text quotes expected outputs: do not show it to a policy.",
    )
