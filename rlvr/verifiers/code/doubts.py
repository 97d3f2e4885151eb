"""Tests that can be run, but that most likely no right program passes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LITERAL = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|[Tt]rue|[Ff]alse|None|null")


def is_literal(value: object) -> bool:
    """Whether a value is the text of a number, a bool or None."""
    return isinstance(value, str) and _LITERAL.fullmatch(value.strip()) is not None


def doubt(tests: Sequence[Mapping[str, Any]], checker: str | None) -> str | None:
    """Say how tests contradict each other, or seem to be encoded once too often: no right program passes them."""
    outputs: dict[str, Any] = {}
    for number, test in enumerate(tests, 1):
        given, wanted = ("call", "expected") if "call" in test else ("input", "output")
        if checker is None and wanted in test and "assert" not in test:
            key = json.dumps([given, test.get(given)], default=repr)
            if _apart_from_space(outputs.setdefault(key, test[wanted])) != _apart_from_space(test[wanted]):
                return (
                    f"warning: test {number} has the {given} of an earlier one and expects something else, "
                    f"{test[wanted]!r:.40} and {outputs[key]!r:.40}: no program passes both. Correct them, or give a "
                    "checker."
                )
    for number, test in enumerate(tests, 1):
        for key in ("input", "output"):
            text = test.get(key)
            if isinstance(text, str) and "\\n" in text and "\n" not in text.strip():
                return (
                    f"warning: the {key} of test {number} has a backslash and an n, and no line break: {text[:40]!r}. "
                    "Programs read and print it so. Was it escaped twice?"
                )
    expected = [test.get("expected") for test in tests if "call" in test]
    if expected and all(isinstance(value, str) and _is_json_collection(value) for value in expected):
        return (
            f"warning: the tests of calls expect text, such as {expected[0][:40]!r}, and a list or an object with the "  # type: ignore[index]
            "same content is wrong. Write the value itself, not its JSON text."
        )
    return None


def _apart_from_space(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _is_json_collection(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list | dict)
    except (ValueError, RecursionError):
        return False
