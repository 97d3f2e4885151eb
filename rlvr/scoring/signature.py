"""What a reward function reads: by its parameters, and by its source where it takes columns out of `**kwargs`."""

from __future__ import annotations

import ast
import dis
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.scoring.reward import Reward

# Arguments that GRPOTrainer itself passes to every reward function (trl/trainer/grpo_trainer.py, _calculate_rewards).
FROM_TRAINER = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)
_READS_ALL_NAMES = frozenset({"locals", "vars", "eval", "exec", "sys", "inspect"})


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def required_columns(function: Callable[..., Any]) -> tuple[str, ...]:
    """The columns of the data that a reward, or a companion function of its file, can't be called without."""
    return tuple(sorted(named_parameters(function, required=True)))


def optional_columns(reward: Reward) -> set[str]:
    """The columns that a reward reads if the data has them.

    These are its options, less those that the recipe sets or that are one value (`single_options`), and what the
    function takes out of its `**kwargs` by a constant name.
    """
    options = named_parameters(reward.function, required=False).keys() - single_options(reward.function)
    return (options | taken_from_kwargs(reward.function)) - reward.options.keys()


def single_options(function: Callable[..., Any]) -> frozenset[str]:
    """The options that are one value by their type hints (`float | None`). A column of such a name would be a list.

    Without a type hint, the default tells: `tolerance=0.1` is one value; `final_answer=None` may be a column.
    """
    try:
        options = named_parameters(function, required=False)
    except (TypeError, ValueError):  # no function, or one of Python's own that says nothing of its parameters
        return frozenset()
    return frozenset(name for name, option in options.items() if _is_single(option))


def _is_single(option: inspect.Parameter) -> bool:
    annotation = option.annotation
    hint = (annotation.__name__ if isinstance(annotation, type) else str(annotation)).replace("typing.", "")
    if annotation is option.empty or hint == "Any":
        return isinstance(option.default, bool | int | float | str) and option.default != ""
    return _SINGLE.fullmatch(hint) is not None


_ONE_TYPE = r"(?:None|bool|int|float|str|Literal\[[^\]]*\])"
_SINGLE = re.compile(rf"{_ONE_TYPE}(?:\s*\|\s*{_ONE_TYPE})*|Optional\[{_ONE_TYPE}\]")


def columns_read(reward: Reward) -> set[str]:
    """The columns that a reward reads, whether or not it can do without them."""
    return {*reward.columns, *optional_columns(reward)}


def taken_from_kwargs(function: Callable[..., Any]) -> frozenset[str]:
    """The constant names in `kwargs["x"]`, `kwargs.get("x")` and `kwargs.pop("x")`, less what the trainer passes.

    Empty where the function has no `**kwargs`, or its source can't be read. What it passes on is not followed.
    """
    definition = definition_of(function)
    if definition is None or definition.args.kwarg is None:
        return frozenset()
    rest = definition.args.kwarg.arg
    keys: list[ast.expr] = []
    for node in ast.walk(definition):
        match node:
            case ast.Subscript(ast.Name(name), key) if name == rest:
                keys.append(key)
            case ast.Call(ast.Attribute(ast.Name(name), "get" | "pop"), [key, *_]) if name == rest:
                keys.append(key)
    names = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return frozenset(names - FROM_TRAINER)


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The syntax tree of a function, or of an object's `__call__`; None where its source can't be read."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(_python_function(function) or function)))
    except (OSError, TypeError, SyntaxError):  # not written in Python, typed in, or a lambda within an expression
        return None
    first = tree.body[0]
    return first if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else None


def named_parameters(function: Callable[..., Any], *, required: bool) -> dict[str, inspect.Parameter]:
    """The parameters that are passed by name, but not by the trainer itself: columns are required, options are not."""
    return {
        name: parameter
        for name, parameter in parameters(function).items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and name not in FROM_TRAINER
        and (parameter.default is parameter.empty) == required
    }


def visible_names(function: Callable[..., Any]) -> frozenset[str] | None:
    """The keyword arguments that a function can see; None if it may see all.

    A function that never touches its `**kwargs` can't see what is in them, so it need not be sent: a million token
    numbers, or megabytes of tests for a reward that only reads the text.
    """
    written = _python_function(function)
    if written is None:
        return None
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


def _python_function(function: Callable[..., Any]) -> types.FunctionType | None:
    """The function itself, or the `__call__` of an object; None if it is not written in Python."""
    if not isinstance(function, types.FunctionType):
        function = type(function).__call__
    return function if isinstance(function, types.FunctionType) else None
