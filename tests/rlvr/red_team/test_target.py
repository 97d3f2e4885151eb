"""What the rewards under attack are tried on."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr.red_team.target import answer_column

TESTS = '[{"input": "1 2", "output": "3"}]'


@pytest.mark.parametrize(
    ("row", "column", "why"),
    [
        ({"prompt": "1 + 2?", "final_answer": "3"}, "final_answer", "text"),
        ({"answer": '{"sum": 3}'}, "answer", "an answer may be JSON"),
        ({"tests": TESTS}, None, "tests as JSON text are no answer"),
        ({"tests": TESTS, "label": "3"}, "label", "an answer beside tests"),
        ({"tests": [{"input": "1 2", "output": "3"}]}, None, "tests as a list"),
        ({"answer": "", "target": "3"}, "target", "an empty answer is none"),
    ],
)
def test_the_answer_of_a_row_is_in_a_column_of_text(row: dict[str, Any], column: str | None, why: str) -> None:
    assert answer_column(row) == column, why
