"""What a reward function reads, by its parameters and its source."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from rlvr.scoring.reward import Reward, RewardError
from rlvr.scoring.signature import columns_read, single_options, taken_from_kwargs, visible_names


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
    key = "computed"
    return kwargs["a"], kwargs.get("b", 0), kwargs.pop("c"), kwargs.get(key), kwargs["trainer_state"], language, gold


class _Takes:
    def __call__(self, completions: Any, **data: Any) -> Any:
        return data["a"]


def _without(completions: Any, kwargs: Any) -> Any:
    return kwargs["a"]


@pytest.mark.parametrize(
    ("function", "taken", "why"),
    [
        (_takes, {"a", "b", "c"}, "constant names, less what the trainer passes"),
        (_Takes(), {"a"}, "an object that can be called, and another name of kwargs"),
        (_without, set(), "a dictionary of its own"),
        (lambda completions, **kwargs: kwargs["a"], set(), "no definition to read"),
        (max, set(), "no source"),
    ],
)
def test_names_taken_out_of_kwargs_are_found(function: Any, taken: set[str], why: str) -> None:
    assert taken_from_kwargs(function) == taken, why


def test_the_columns_read_are_those_needed_and_those_taken_if_there() -> None:
    reward = Reward("takes", _takes, options={"b": 2}, columns=("gold",))
    assert columns_read(reward) == {"gold", "language", "a", "c"}, "less options of the recipe"


def _untyped(completions, gold=None, text="", many=(), tolerance=0.1, mode="x", strict=False, **kwargs): ...


def test_options_without_a_type_hint_may_be_columns_unless_their_default_is_a_value() -> None:
    assert single_options(_untyped) == {"tolerance", "mode", "strict"}
    assert columns_read(Reward("untyped", _untyped, options={"many": []})) == {"gold", "text"}


def _options(
    completions: Any,
    *,
    one: float | None = None,
    two: bool = False,
    three: Literal["a", "b"] = "a",
    many: list[str] | None = None,
    either: list[Any] | str = "x",
    anything: Any = None,
    untyped=None,
    **kwargs: Any,
) -> list[float]:
    return [float(bool(two))] * len(completions)


def test_options_that_are_one_value_take_no_column() -> None:
    assert single_options(_options) == {"one", "two", "three"}
    reward = Reward("options", _options)
    assert reward([""], ["a"], many=["x"], either=["x"], anything=["x"], untyped=["x"]) == [0.0]
    assert reward([""], ["a"], two=[None]) == [0.0], "a column of another task"
    with pytest.raises(RewardError, match="a column two, and the reward options an option"):
        reward([""], ["a"], two=[False])
    assert Reward("options", _options, options={"two": True})([""], ["a"], two=[False]) == [1.0], "as the recipe says"
