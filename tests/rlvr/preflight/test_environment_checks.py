"""Columns that an environment's `reset` reads, and can do without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset

from rlvr.environments.loading import Environment
from rlvr.preflight.environment_checks import check_rows
from tests.support.run_components import make_components


class _Named:
    def reset(self, *, final_answr: str = "", **row: Any) -> None: ...


class _Taken:
    def reset(self, **row: Any) -> None:
        self.answer = row.get("final_answr")


class _Right:
    def reset(self, *, final_answer: str = "", **row: Any) -> None:
        self.level = row.get("level", 1)


class _Required:
    def reset(self, *, final_answr: str, **row: Any) -> None: ...


@pytest.mark.parametrize(
    ("cls", "is_named", "why"),
    [
        (_Named, True, "its default would be used"),
        (_Taken, True, "it would be None"),
        (_Right, False, "level is like no column"),
        (_Required, False, "the trial finds what raises"),
    ],
)
def test_a_misspelt_column_of_reset_is_named(cls: type, is_named: bool, why: str) -> None:
    messages = [[{"role": "user", "content": f"{row}?"}] for row in range(4)]
    train = Dataset.from_dict({"prompt": messages, "final_answer": list("1234")})
    environment = Environment("e", "e", cls, {}, ("tool",), False, None)
    problems = list(check_rows(replace(make_components(train=train), environments=(environment,))))
    assert [(one.kind, one.level, one.key) for one in problems] == [("missing-column", "warning", "e")] * is_named, why
    assert all("Did you mean final_answer?" in one.message for one in problems)
