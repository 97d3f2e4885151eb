"""How `--check` shows what the tools of an environment return."""

from __future__ import annotations

import pytest

from rlvr.preflight.environment_trial import quote_result


@pytest.mark.parametrize(
    ("text", "lines", "why"),
    [
        ("42", ["'42'"], "a short one stays in the line of its call"),
        ("", ["''"], "nothing"),
        ("0 of 2 tests passed.\nAttempts left: 2.", ["", "0 of 2 tests passed.", "Attempts left: 2."], "a block"),
        ("\n".join("abcdef"), ["", "a", "b", "c", "d", "[2 more lines]"], "the first lines"),
        ("x" * 81, ["", "x" * 71 + "…"], "a long line"),
        ("\x1b[2J\ta", ["'\\x1b[2J\\ta'"], "codes that would steer a terminal"),
    ],
)
def test_a_result_is_quoted_for_80_columns(text: str, lines: list[str], why: str) -> None:
    quoted = quote_result(text).split("\n")
    assert [line.strip() for line in quoted] == lines, why
    assert max(map(len, quoted)) <= 80
