"""What the server's paths take, and how a body becomes that.

Bodies come from the network. So everything that is counted is counted before a model is made of it, and a list is read
up to its first fault: a small request of many wrong entries would otherwise be answered with millions of faults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from rlvr.reward_server.judge_endpoint import Submitted
from rlvr.reward_server.limits import Refused, ServerLimits

MOST_REWARDS = 64  # of one request
MOST_KEYS = 1000  # of an object, where keys are names that somebody thought of
MOST_OPTIONS_BYTES = 1 << 16  # of a reward, as JSON: they go with every call
MOST_NESTED = 5_000_000  # lists and objects of one request: each takes thirty times the room that it has in the body
_MOST_FAULTS = 5  # that are told
_SCHEMAS = "#/components/schemas/{model}"

Seconds = Annotated[float, Field(gt=0, le=86400)]
Word = Annotated[str, Field(max_length=1000)]
_Name = Annotated[str, Field(max_length=500, description="As the server's recipe writes it.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RewardAsked(_Strict):
    """One reward of the request."""

    name: _Name
    options: dict[str, Any] | None = Field(
        default=None, description="Options of the function; null: those that the server was started with."
    )
    reads: list[str] | None = Field(
        default=None,
        max_length=MOST_KEYS,
        fail_fast=True,
        description="The columns it is to see; null: all of them.",
    )
    seed: list[int | Word] | None = Field(
        default=None, max_length=16, description="What random numbers that it draws depend on."
    )


class ScoreAsked(_Strict):
    """Completions, and the rewards that are to score them."""

    rewards: list[RewardAsked | str] = Field(
        min_length=1,
        max_length=MOST_REWARDS,
        fail_fast=True,
        description="By the names of the server's recipe; as objects where options, columns or seeds are to differ.",
    )
    prompts: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    completions: list[Any] = Field(description="One a row: text, or a list of chat messages.")
    columns: dict[str, list[Any]] = Field(
        default_factory=dict,
        description='Of the data, by name, one entry a row. An entry {"id": "…"} stands for what the file that the '
        "server was started with (--tests) holds in that column under that id.",
    )
    trainer_state: dict[str, int | float | Word | bool | None] = Field(
        default_factory=dict, description="What rewards see as trainer_state: global_step, max_steps, epoch …"
    )
    one_by_one: bool = Field(default=False, description="Whether each row is a call of its own.")
    rows: list[int] | None = Field(
        default=None, fail_fast=True, description="The rows' numbers in the batch, for `one_by_one`."
    )
    deadline_s: Seconds | None = Field(default=None, description="Seconds that one call may take.")
    budget_s: Seconds | None = Field(default=None, description="Seconds that all of it may take, waiting included.")


class CheckAsked(_Strict):
    """Rows of the data that a reward is to look through before training."""

    name: _Name
    options: dict[str, Any] | None = Field(
        default=None, description="Options of the function; null: those that the server was started with."
    )
    columns: dict[str, list[Any]] = Field(default_factory=dict, description="Of the data, by name, one entry a row.")


class JudgeAsked(_Strict):
    """Programs, and the tests that they are judged by."""

    submissions: list[Submitted] = Field(min_length=1, fail_fast=True, description="The same one is judged once.")
    deadline_s: Seconds | None = Field(default=None, description="Seconds that all of it may take, waiting included.")
    reasons: bool = Field(
        default=False,
        description="Whether to say why tests failed. It quotes expected outputs: not for the eyes of a policy.",
    )


class RewardAskedByOpenRLHF(BaseModel):
    """What OpenRLHF sends to a remote reward model; keys of other versions are passed over."""

    query: list[str] = Field(
        fail_fast=True, description="Prompt and completion together, as the tokenizer decodes them."
    )
    prompts: list[str] = Field(fail_fast=True, description="The beginning of each `query`.")
    labels: list[Any] = Field(
        default_factory=list,
        description="One a row: the value of the one column that the rewards read, or an object of several (also as "
        "JSON).",
    )


_Model = TypeVar("_Model", bound=BaseModel)
_TAKEN = (ScoreAsked, CheckAsked, JudgeAsked, RewardAskedByOpenRLHF)


def read(model: type[_Model], headers: Mapping[str, str], body: bytes, allowance: ServerLimits) -> _Model:
    """The request that a body is.

    Raises:
        Refused: it is no JSON (400), not said to be (415), has more of anything than it may (413), or is not what the
            path takes (422).
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        # A page in somebody's browser may send anything else to anywhere without being asked.
        raise Refused(415, "Send JSON, and say so: Content-Type: application/json.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "Send the body as it is, without a Content-Encoding.")
    nested = body.count(b"[") + body.count(b"{")  # and those in texts
    if nested > MOST_NESTED:
        raise Refused(
            413, f"The body has {nested:,} opening brackets, but a request may have {MOST_NESTED:,}. Send fewer rows "
            "at a time."
        )  # fmt: skip
    try:
        content = json.loads(body)
    except RecursionError:
        raise Refused(400, "The body is nested too deeply.") from None
    except ValueError as error:  # of the syntax, the encoding, or a number of thousands of digits
        raise Refused(400, f"The body is no JSON: {str(error)[:200]}.") from None
    if not isinstance(content, dict):
        raise Refused(422, "The body should be a JSON object.")
    _count(content, allowance)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # Without what was sent: that may be megabytes.
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        said = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"[:300] for fault in faults]
        more = f" (and {len(said) - _MOST_FAULTS} more)" if len(said) > _MOST_FAULTS else ""
        raise Refused(422, "; ".join(said[:_MOST_FAULTS]) + more) from None


def _count(content: Mapping[str, Any], allowance: ServerLimits) -> None:
    """Refuses what has too many entries, before anything is made of them."""
    _count_keys("The body", content)
    for name, value in content.items():
        if isinstance(value, list):
            _count_rows(name, value, allowance)
            for place, entry in enumerate(value) if name in ("submissions", "rewards") else ():
                if isinstance(entry, dict):
                    _count_keys(f"{name}.{place}", entry)
                    _check_options(f"{name}.{place}", entry)
        elif isinstance(value, dict):
            _count_keys(name, value)
            for key, entries in value.items():
                if name == "columns" and isinstance(entries, list):
                    _count_rows(f"columns.{key:.100}", entries, allowance)
    _check_options("The body", content)


def _count_rows(name: str, entries: list[Any], allowance: ServerLimits) -> None:
    if len(entries) > allowance.rows:
        raise Refused(
            413, f"{name:.100} has {len(entries):,} entries, but a request may have {allowance.rows:,} rows. Send "
            "fewer at a time."
        )  # fmt: skip


def _count_keys(name: str, entries: Mapping[str, Any]) -> None:
    if len(entries) > MOST_KEYS:
        raise Refused(422, f"{name:.100} has {len(entries):,} keys, but may have {MOST_KEYS:,}.")


def _check_options(name: str, asked: Mapping[str, Any]) -> None:
    options = asked.get("options")
    if options and len(json.dumps(options)) > MOST_OPTIONS_BYTES:
        raise Refused(
            413, f"The options of {name} are longer than {MOST_OPTIONS_BYTES >> 10} kB. What differs from row to row "
            "is a column."
        )  # fmt: skip


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI is told of a path that takes this."""
    schema = {"$ref": _SCHEMAS.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(openapi: MutableMapping[str, Any]) -> None:
    """Adds to a description what `takes` refers to."""
    _, found = models_json_schema([(model, "validation") for model in _TAKEN], ref_template=_SCHEMAS)
    openapi.setdefault("components", {}).setdefault("schemas", {}).update(found["$defs"])
