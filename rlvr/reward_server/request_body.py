"""Parse a request's body and check its size.

Bodies come from the network. Sizes are checked before a model is built, and lists are validated up to their first
error: otherwise the answer to a small request with many wrong entries would list millions of errors.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlvr.reward_server.errors import RequestError
from rlvr.reward_server.limits import ServerLimits
from rlvr.reward_server.schemas import MAX_KEYS

MAX_OPTIONS_BYTES = 1 << 16  # of a reward, as JSON: options travel with every call
LARGE_BODY = 1 << 20  # bytes; such bodies are parsed one at a time
_MAX_ERRORS = 5  # in an answer
_STEPS = 3  # levels of a body that are parsed in steps: its object, its columns, and their rows

Model = TypeVar("Model", bound=BaseModel)


_large_bodies = threading.Lock()
_decode = json.JSONDecoder().raw_decode
_skip_space = re.compile(r"[ \t\n\r]*").match


def parsed_size(body: bytearray) -> int:
    """Bytes that a body needs when it is parsed, about: a small object needs thirty times its size in the body."""
    weights = {b"{": 200, b"[": 90, b",": 40, b":": 30}  # measured with CPython 3.11; also counted within texts
    return len(body) + sum(weight * body.count(character) for character, weight in weights.items())


def load_json(text: str) -> Any:
    """As `json.loads`, in steps: a single call would hold Python's lock, and stop every request, for seconds.

    Raises:
        ValueError: it is not valid JSON.
        RecursionError: it is nested too deeply.
    """
    value, end = _parse(text, 0, _STEPS)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def _parse(text: str, start: int, depth: int) -> tuple[Any, int]:
    """Parse the value at `start`; objects and lists in steps down to `depth`. Also return the next position."""
    start = _skip(text, start)
    if depth == 0 or text[start : start + 1] not in ("{", "["):
        value, end = _decode(text, start)
        return value, _skip(text, end)
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    entries: list[Any] = []
    end = _skip(text, start + 1)
    while text[end : end + 1] != closing or entries:
        if is_object:
            key, end = _parse(text, end, 0)
            if not isinstance(key, str) or text[end : end + 1] != ":":
                raise json.JSONDecodeError("Expecting a name in double quotes and ':'", text, end)
            value, end = _parse(text, end + 1, depth - 1)
            entries.append((key, value))
        else:
            value, end = _parse(text, end, depth - 1)
            entries.append(value)
        if text[end : end + 1] == closing:
            break
        if text[end : end + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
        end += 1
    return dict(entries) if is_object else entries, _skip(text, end + 1)


def _skip(text: str, position: int) -> int:
    match = _skip_space(text, position)
    return match.end() if match is not None else position


def parse_body(model: type[Model], headers: Mapping[str, str], body: bytearray, limits: ServerLimits) -> Model:
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
    try:
        with _large_bodies if len(body) > LARGE_BODY else contextlib.nullcontext():
            content = load_json(body.decode())
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
            413,
            f"{name:.100} has {len(entries):,} entries, but a request may have {limits.rows:,} rows. Send fewer.",
            kind="too-large",
        )


def _check_keys(name: str, entries: Mapping[str, Any]) -> None:
    if len(entries) > MAX_KEYS:
        message = f"{name:.100} has {len(entries):,} keys, but the limit is {MAX_KEYS:,}."
        raise RequestError(422, message, kind="too-large")


def _check_options(name: str, entry: Mapping[str, Any]) -> None:
    options = entry.get("options")
    if options and len(json.dumps(options)) > MAX_OPTIONS_BYTES:
        raise RequestError(
            413,
            f"The options of {name} are longer than {MAX_OPTIONS_BYTES >> 10} kB. Pass values that differ "
            "between rows as a column.",
            kind="too-large",
        )
