"""From a name in a recipe to a callable: rewards from rewards/, tasks from tasks/, their options checked.

A name is one of
- `math_correctness`: the function of that name in `rewards/math_correctness.py` (for a task: in tasks/), looked for in
  the working directory first and in the project's own folder second;
- `path/to/file.py` or `path/to/file.py:function`: a file anywhere;
- `trl.rewards.think_format_reward`: a dotted import path. A class, or a function that takes no `completions`, is
  taken for a factory of rewards and called with the options.

What a function asks for is read from its signature: parameters without a default are columns of the data, keyword-only
parameters with a default are options.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.config import project, schema
from rlvr.config.recipe import RewardSpec, TaskSpec
from rlvr.config.reward_location import is_elsewhere
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.scoring.reward import Reward, own_traceback

# What GRPOTrainer hands to every reward function by itself (trl/trainer/grpo_trainer.py, _calculate_rewards).
FROM_TRAINER = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)


def load_task(spec: TaskSpec) -> Task:
    """Calls the task's function with the recipe's options.

    Raises:
        InputError: no such task, an unknown option, a file that fails to import, or whatever the task says of its data.
    """
    function, where = _find("task", "tasks", spec.name)
    _check_options("task", spec.name, where, spec.options, _options(function))
    task = function(**spec.options)
    if not isinstance(task, Task):
        raise InputError(
            f"The task {spec.name} ({where}) returned {type(task).__name__}, but should return rlvr.data.task.Task."
        )
    return task


def load_rewards(specs: Sequence[RewardSpec]) -> list[Reward]:
    """The rewards of a recipe, in its order; see `load_reward`.

    Raises:
        InputError: as `load_reward`, or two rewards whose figures would go under one name.
    """
    rewards = [load_reward(spec) for spec in specs]
    for reward in rewards:
        namesakes = [other.name for other in rewards if other.label == reward.label]
        if len(namesakes) > 1:
            raise InputError(
                f"The rewards {' and '.join(namesakes)} would both be reported as {reward.label}, and TRL would merge "
                "their figures. Give one of the functions another name."
            )
    return rewards


def load_reward(spec: RewardSpec) -> Reward:
    """Finds a reward function and binds its options.

    Raises:
        InputError: no such reward, an unknown option, or a file that fails to import (with that file's traceback).
    """
    target, where = _find("reward", "rewards", spec.name)
    options = dict(spec.options)
    if inspect.isclass(target) or "completions" not in _parameters(target):
        _check_options("reward", spec.name, where, options, _parameters(target))
        try:
            target = target(**options)
        except TypeError as error:
            raise InputError(f"The reward {spec.name} ({where}) can't be made with these options: {error}.") from error
        options = {}
        if not callable(target):
            raise InputError(
                f"{where} is no reward function: it has no parameter `completions`. "
                "docs/write-a-reward.md shows what one looks like."
            )
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in _parameters(target).values()):
        raise InputError(
            f"The reward {spec.name} ({where}) takes no **kwargs, but is called with more than it asks for (prompts, "
            "completion_ids, every column of the data). Add **kwargs to its parameters."
        )
    _check_options("reward", spec.name, where, options, _options(target))
    return Reward(
        name=spec.name,
        function=target,
        options=options,
        columns=tuple(sorted(_columns(target))),
        weight=spec.weight,
        gate=spec.gate,
        where=spec.where,
        spec=spec,
    )


def companion(function: Callable[..., Any], name: str) -> Callable[..., Any] | None:
    """The function `name` of the file that defines a reward, if that file has one.

    A reward's file may have, beside the reward itself,
    - `check_rows(*, <the columns>, <the options>, **kwargs) -> list[str | None]`: what is wrong with each row of the
      data, asked once before training;
    - `explain(completion, *, <the columns of the row>, <the options>, **kwargs) -> list[str]`: how one score comes
      about, asked by scripts/score.py;
    - `conditions(*, <the options>, **kwargs) -> dict[str, str]`: what its scores depend on beside its arguments, such
      as the sandbox that this machine offers; told when a run starts, and kept with it.
    """
    module = inspect.getmodule(inspect.unwrap(function))
    found = vars(module).get(name) if module is not None else None
    return found if callable(found) else None


def shares(function: Callable[..., Any]) -> str | None:
    """The constant `SHARES` of the file that defines a reward.

    Rewards that share something that is kept in memory, such as the judgements of programs, name it there; they are
    called one after the other in one process (rlvr/scoring/scorer.py).
    """
    module = inspect.getmodule(inspect.unwrap(function))
    found = vars(module).get("SHARES") if module is not None else None
    return found if isinstance(found, str) else None


def conditions(rewards: Sequence[Reward]) -> dict[str, str]:
    """What the rewards' scores depend on beside their arguments on this machine, by a short name."""
    found: dict[str, str] = {}
    for reward in rewards:
        ask = companion(reward.function, "conditions")
        if ask is not None and not is_elsewhere(
            reward.where
        ):  # the servers are asked: rlvr.scoring.scorer.Scorer.conditions
            found |= ask(**reward.options)
    return found


def _find(kind: str, folder: str, name: str) -> tuple[Callable[..., Any], str]:
    """The object that a name stands for, and where it was found, for messages."""
    file_part, _, function_name = name.partition(":")
    if file_part.endswith(".py"):
        path = Path(file_part)
        if not path.is_file():
            raise InputError(f"The {kind} {name}: there is no file {path} (looked in {Path.cwd()}).")
        return _from_file(kind, path, function_name or path.stem)
    if "/" in name:
        raise InputError(
            f"The {kind} {name} looks like a file, but doesn't end in .py: write path/to/file.py[:function]."
        )
    if "." in name:
        return _from_import(kind, name)
    for root in project.roots():
        path = root / folder / f"{name}.py"
        if path.is_file():
            return _from_file(kind, path, name, module=f"{folder}.{name}")
    there = sorted({file.stem for root in project.roots() for file in (root / folder).glob("[!_]*.py")})
    close = schema.nearest(name, there)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(there) or 'none'}."
    raise InputError(f"There is no {kind} {name!r}: {folder}/{name}.py does not exist. {hint}")


def _from_file(kind: str, path: Path, function: str, module: str | None = None) -> tuple[Callable[..., Any], str]:
    path = path.resolve()
    # Registered under an importable name, so that `from rewards.x import x` elsewhere gets the same objects.
    module = module or f"rlvr_plugin_{path.stem}_{abs(hash(str(path))):x}"
    loaded = sys.modules.get(module)
    if loaded is None or Path(getattr(loaded, "__file__", None) or "") != path:
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None and spec.loader is not None  # a .py file always has a loader
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        try:
            spec.loader.exec_module(loaded)
        except (Exception, SystemExit) as error:
            del sys.modules[module]
            raise InputError(
                f"The {kind} file {_short(path)} fails to import:\n{own_traceback(error, path)}"
            ) from error
    return _member(kind, loaded, function, _short(path))


def _from_import(kind: str, name: str) -> tuple[Callable[..., Any], str]:
    module_name, _, function = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InputError(
                f"The {kind} {name}: there is no module {missing} here. Is it misspelt, or not installed?"
            ) from error
        raise InputError(f"The {kind} {name} fails to import: {error}.") from error
    except Exception as error:
        trace = "".join(traceback.format_exception(error)[-3:])
        raise InputError(f"The {kind} {name} fails to import:\n{trace}") from error
    return _member(kind, module, function, name)


def _member(kind: str, module: types.ModuleType, function: str, where: str) -> tuple[Callable[..., Any], str]:
    found = getattr(module, function, None)
    if found is None or not callable(found):
        # By `dir`, since packages like trl load their members lazily.
        close = schema.nearest(function, [name for name in dir(module) if not name.startswith("_")])
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InputError(f"The {kind} {where} has no function {function}.{hint}")
    return found, where


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _options(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in _named(function).items()
        if parameter.default is not inspect.Parameter.empty
    }


def _columns(function: Callable[..., Any]) -> set[str]:
    return {name for name, parameter in _named(function).items() if parameter.default is inspect.Parameter.empty}


def _named(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters that can be passed by name and that the trainer does not fill by itself."""
    return {
        name: parameter
        for name, parameter in _parameters(function).items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name not in FROM_TRAINER
    }


def _check_options(
    kind: str, name: str, where: str, options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]
) -> None:
    for key, value in options.items():
        if key not in known:
            close = schema.nearest(key, known)
            hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(sorted(known)) or 'none'}."
            raise InputError(f"The {kind} {name} ({where}) has no option {key!r}; {hint}")
        annotation = known[key].annotation
        if isinstance(annotation, type):
            annotation = annotation.__name__
        if isinstance(annotation, str) and (fault := schema.mismatch(value, annotation)):
            raise InputError(f"The {kind} {name} ({where}): its option {key} {fault}.")
