"""Parse a request's body and check its size.

Bodies come from the network. Sizes are checked before a model is built, and lists are validated up to their first
error: otherwise the answer to a small request with many wrong entries would list millions of errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlvr.reward_server.errors import RequestError
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.schemas import MAX_KEYS

MAX_OPTIONS_BYTES = 1 << 16  # of a reward, as JSON: options travel with every call
MAX_BRACKETS = 5_000_000  # lists and objects of a request: each takes thirty times its size in the body
_MAX_ERRORS = 5  # in an answer

Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], headers: Mapping[str, str], body: bytes, limits: ServerLimits) -> Model:
    """Parse and validate a body.

    Raises:
        RequestError: it is not valid JSON (400), has another content type (415), exceeds a limit (413), or does not
            match the model (422).
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (
        media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))
    ):
        # Browsers send any other content type to any address without a preflight request (CORS).
        raise RequestError(415, "Send JSON with Content-Type: application/json.", kind="content-type")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError(415, "Send the body without a Content-Encoding.", kind="content-type")
    brackets = body.count(b"[") + body.count(b"{")  # including those in texts
    if brackets > MAX_BRACKETS:
        raise RequestError(
            413, f"The body has {brackets:,} opening brackets, but the limit is {MAX_BRACKETS:,}. Send fewer rows.",
            kind="too-large",
        )  # fmt: skip
    try:
        content = json.loads(body)
    except RecursionError:
        raise RequestError(400, "The body is nested too deeply.", kind="invalid-json") from None
    except ValueError as error:  # syntax, encoding, or a number of thousands of digits
        raise RequestError(400, f"The body is not valid JSON: {str(error)[:200]}.", kind="invalid-json") from None
    if not isinstance(content, dict):
        raise RequestError(422, "The body should be a JSON object.", kind="invalid-body")
    _check_sizes(content, limits)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # Without the input, which may be megabytes.
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"[:300] for one in errors]
        more = f" (and {len(lines) - _MAX_ERRORS} more)" if len(lines) > _MAX_ERRORS else ""
        raise RequestError(422, "; ".join(lines[:_MAX_ERRORS]) + more, kind="invalid-body") from None


def _check_sizes(content: Mapping[str, Any], limits: ServerLimits) -> None:
    _check_keys("The body", content)
    for name, value in content.items():
        if isinstance(value, list):
            _check_rows(name, value, limits)
            for index, entry in enumerate(value) if name in ("submissions", "rewards") else ():
                if isinstance(entry, dict):
                    _check_keys(f"{name}.{index}", entry)
                    _check_options(f"{name}.{index}", entry)
        elif isinstance(value, dict):
            _check_keys(name, value)
            for key, entries in value.items():
                if name == "columns" and isinstance(entries, list):
                    _check_rows(f"columns.{key:.100}", entries, limits)
    _check_options("The body", content)


def _check_rows(name: str, entries: list[Any], limits: ServerLimits) -> None:
    if len(entries) > limits.rows:
        raise RequestError(
            413, f"{name:.100} has {len(entries):,} entries, but a request may have {limits.rows:,} rows. Send fewer.",
            kind="too-large",
        )  # fmt: skip


def _check_keys(name: str, entries: Mapping[str, Any]) -> None:
    if len(entries) > MAX_KEYS:
        message = f"{name:.100} has {len(entries):,} keys, but the limit is {MAX_KEYS:,}."
        raise RequestError(422, message, kind="too-large")


def _check_options(name: str, entry: Mapping[str, Any]) -> None:
    options = entry.get("options")
    if options and len(json.dumps(options)) > MAX_OPTIONS_BYTES:
        raise RequestError(
            413, f"The options of {name} are longer than {MAX_OPTIONS_BYTES >> 10} kB. Pass values that differ "
            "between rows as a column.", kind="too-large",
        )  # fmt: skip
