"""What a reward function reads, by its parameters."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read, visible_names


def _named(completions: Any, *, gold: Any, **kwargs: Any) -> None: ...


def _touches(completions: Any, **rest: Any) -> Any:
    return rest.get("gold")


def _passes_on(completions: Any, **kwargs: Any) -> Any:
    return lambda: _named(completions, **kwargs)


def _looks_around(completions: Any, *, gold: Any, **kwargs: Any) -> Any:
    return locals()


class _Called:
    def __call__(self, completions: Any, gold: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "seen", "why"),
    [
        (_named, {"completions", "gold"}, "what it names is all it can see"),
        (_Called(), {"self", "completions", "gold"}, "the same for an object that can be called"),
        (_touches, None, "what it takes out of the others can't be told"),
        (_passes_on, None, "nor what it passes on, if only later"),
        (_looks_around, None, "and these are the others as well"),
        (max, None, "nothing is known of what isn't written in Python"),
    ],
)
def test_arguments_that_a_function_cannot_see_are_not_sent(function: Any, seen: set[str] | None, why: str) -> None:
    assert visible_names(function) == seen, why


def _takes(completions: Any, *, gold: Any, language: list[str] | None = None, at_least: int = 1, **kwargs: Any) -> Any:
    return kwargs["a"], language, gold


def test_a_parameter_is_a_column_unless_the_recipe_sets_it() -> None:
    assert columns_read(Reward("takes", _takes, options={"at_least": 2}, columns=("gold",))) == {"gold", "language"}
