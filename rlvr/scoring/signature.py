"""What a reward function reads, by its parameters."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr.config.value_types import mismatch
from rlvr.data.task import FROM_TRAINER

if TYPE_CHECKING:
    from rlvr.scoring.reward import Reward

_READS_ALL_NAMES = frozenset({"locals", "vars", "eval", "exec", "sys", "inspect"})


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def columns_read(reward: Reward) -> set[str]:
    """The columns that a reward reads: its parameters, less the options that the recipe sets.

    An option may be a column (see `rlvr.scoring.registry`).
    """
    read = {*reward.columns, *named_parameters(reward.function, required=False)}
    return read - reward.options.keys() - reward.defaults.keys()


def named_parameters(function: Callable[..., Any], *, required: bool) -> dict[str, inspect.Parameter]:
    """The parameters that are passed by name, but not by the trainer itself: columns are required, options are not."""
    return {
        name: parameter
        for name, parameter in parameters(function).items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and name not in FROM_TRAINER
        and (parameter.default is parameter.empty) == required
    }


def annotation_of(parameter: inspect.Parameter) -> str:
    """The annotation as text; "Any" if there is none."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return "Any"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def may_be_column(parameter: inspect.Parameter) -> bool:
    """Whether a column of the data may take the place of an option: it may be a list by its type, or has no value."""
    if parameter.default is None:
        return True
    return parameter.annotation is not parameter.empty and mismatch([], annotation_of(parameter)) is None


def visible_names(function: Callable[..., Any]) -> frozenset[str] | None:
    """The keyword arguments that a function can see; None if it may see all.

    A function that never touches its `**kwargs` can't see what is in them, so it need not be sent: a million token
    numbers, or megabytes of tests for a reward that only reads the text.
    """
    written = function if isinstance(function, types.FunctionType) else type(function).__call__
    if not isinstance(written, types.FunctionType):
        return None  # it is not written in Python
    code = written.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = code.co_varnames[named + bool(code.co_flags & inspect.CO_VARARGS)]
        for instruction in dis.get_instructions(code):
            operand = instruction.argval
            if operand == rest or (isinstance(operand, tuple) and rest in operand):
                return None
    if _READS_ALL_NAMES.intersection(code.co_names):
        return None
    return frozenset(code.co_varnames[:named])
