"""Load rewards, tasks and environments by the names in a recipe, and validate their options.

A name is one of
- `math_correctness`: the function of that name in `rewards/math_correctness.py` (for a task: in tasks/), in the working
  directory or else in the project's own folder;
- `path/to/file.py` or `path/to/file.py:function`;
- `trl.rewards.think_format_reward`: a dotted import path. A class, or a function without a parameter `completions`, is
  a factory of rewards: it is called with the options.

A function's signature says what it needs: parameters without a default are columns of the data, keyword-only parameters
with a default are options. An option that may be a list, or whose default is None, may also be a column.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.config import foreign_keys, project, schema, value_types
from rlvr.config.reward_location import is_remote
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.mixture import mix
from rlvr.data.row_selection import select_rows
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.scoring.environment_reward import ENVIRONMENT, environment_reward
from rlvr.scoring.reward import MODULE_FIX, Reward, own_traceback
from rlvr.scoring.signature import annotation_of, may_be_column, named_parameters, parameters


def load_tasks(specs: Sequence[TaskSpec]) -> Task:
    """Load the task of a recipe, or mix its tasks if it has several; see `load_task`.

    Raises:
        InputError: as `load_task`, or tasks can't be mixed.
    """
    if not specs[0].label:
        return load_task(specs[0])
    weights = {spec.label: spec.weight for spec in specs if spec.weight is not None}
    return mix({spec.label: load_task(spec) for spec in specs}, weights or None)


def load_task(spec: TaskSpec) -> Task:
    """Call the task's function with the recipe's options.

    Every task has the options of `rlvr.data.row_selection.select_rows` too.

    Raises:
        InputError: there is no such task or option, the file fails to import, or the task refuses its data or fails.
    """
    function, where = find_plugin("task", "tasks", spec.name)
    own, common = (named_parameters(each, required=False) for each in (function, select_rows))
    check_options("task", spec.name, where, spec.options, {**common, **own})
    try:
        task = function(**{name: value for name, value in spec.options.items() if name in own})
    except (InputError, OSError):  # said in a sentence, or of the hub and the disk
        raise
    except Exception as error:
        trace = own_traceback(error, inspect.getsourcefile(function))
        message = f"The task {spec.name} ({where}) failed:\n{trace}"
        raise InputError(message, kind="task-failed", key="task.name") from error
    if not isinstance(task, Task):
        raise InputError(
            f"The task {spec.name} ({where}) returned {type(task).__name__}, but should return rlvr.data.task.Task.",
            kind="not-a-task",
            key="task",
        )
    from datasets import Dataset

    for split in ("train", "validation", "test"):
        if not isinstance(task.split(split), Dataset):
            raise InputError(
                f"The task {spec.name} ({where}) has {type(task.split(split)).__name__} as its split {split}, but "
                "should have a datasets.Dataset: Dataset.from_list(rows), or Dataset.from_list([]) for none.",
                kind="not-a-task",
                key="task",
            )
    options = {name: value for name, value in spec.options.items() if name in common.keys() - own.keys()}
    if "seed" in own:
        options["seed"] = spec.options.get("seed", own["seed"].default)
    return select_rows(spec.name, task, **options)


def task_module(name: str) -> types.ModuleType:
    """Load the file of a task, for scripts that use more of it than the task's function."""
    function, _ = find_plugin("task", "tasks", name)
    return sys.modules[function.__module__]


def load_rewards(specs: Sequence[RewardSpec]) -> list[Reward]:
    """Load the rewards of a recipe, in its order; see `load_reward`.

    Raises:
        InputError: as `load_reward`, or the metrics of two rewards would have one name.
    """
    rewards = [load_reward(spec) for spec in specs]
    for reward in rewards:
        namesakes = [other.name for other in rewards if other.label == reward.label]
        if len(namesakes) > 1:
            raise InputError(
                f"The rewards {' and '.join(namesakes)} would both be reported as {reward.label}, and TRL would merge "
                "their metrics. Give one of the functions another name.",
                kind="duplicate-reward",
                key="rewards",
            )
    return rewards


def load_reward(spec: RewardSpec) -> Reward:
    """Load a reward function and bind its options.

    Raises:
        InputError: there is no such reward or option, or the file fails to import (with the file's traceback).
    """
    if spec.name == ENVIRONMENT:
        return Reward(spec.name, environment_reward, weight=spec.weight, gate=spec.gate, applies_to=spec.applies_to)
    target, where = find_plugin("reward", "rewards", spec.name)
    options = dict(spec.options)
    if inspect.isfunction(target) and "completion" in parameters(target):
        raise InputError(
            f"The reward {spec.name} ({where}) takes one completion, but a reward gets a batch of completions. Write "
            f"def {target.__name__}(completions, **kwargs), and return a list with one number for each.",
            kind="not-a-reward",
            key=spec.name,
        )
    if inspect.isclass(target) or "completions" not in parameters(target):
        check_options("reward", spec.name, where, options, parameters(target))
        try:
            target = target(**options)
        except TypeError as error:
            message = f"The reward {spec.name} ({where}) can't be made with these options: {error}."
            raise InputError(message, kind="invalid-option") from error
        options = {}
        if not callable(target):
            raise InputError(
                f"{where} is no reward function: it has no parameter `completions`. "
                "docs/rewards.md shows what one looks like.",
                kind="not-a-reward",
                key=spec.name,
            )
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters(target).values()):
        raise InputError(
            f"The reward {spec.name} ({where}) takes no **kwargs, but is called with more than it asks for (prompts, "
            "completion_ids, every column of the data). Add **kwargs to its parameters.",
            kind="not-a-reward",
            key=spec.name,
        )
    optional = named_parameters(target, required=False)
    check_options("reward", spec.name, where, options, optional)
    return Reward(
        name=spec.name,
        function=target,
        options=options,
        defaults={name: one.default for name, one in optional.items() if not may_be_column(one)},
        columns=tuple(sorted(named_parameters(target, required=True))),
        weight=spec.weight,
        gate=spec.gate,
        where=spec.where,
        applies_to=spec.applies_to,
        spec=spec,
    )


def companion_function(function: Callable[..., Any], name: str) -> Callable[..., Any] | None:
    """The function `name` of the file that defines a reward; None if the file has none.

    Optional functions of a reward's file:
    - `validate_rows(*, <columns>, <options>, **kwargs) -> list[str | None]`: what is wrong with each row of the data.
      Called for each split before training.
    - `match_leniently(texts, correct, *, final_answer) -> list[bool | None]`: whether it is right in any form.
      Called where the reward is the metric, for the evaluation's table.
    - `environment_info(*, <options>, **kwargs) -> dict[str, str]`: what its scores depend on beside its arguments, such
      as the sandbox of this machine. Printed when a run starts, and kept with the run.
    """
    member = _module_member(function, name)
    return member if callable(member) else None


def worker_group(function: Callable[..., Any]) -> str | None:
    """The constant `WORKER_GROUP` of the file that defines a reward.

    Rewards of one group share a worker process, so that they can share what is in its memory, such as judgements of
    programs. The worker calls them one after the other.
    """
    group = _module_member(function, "WORKER_GROUP")
    return group if isinstance(group, str) else None


def environment_info(rewards: Sequence[Reward]) -> dict[str, str]:
    """What scores depend on beside the arguments, on this machine, by a short name.

    Rewards of other machines are skipped: `rlvr.scoring.scorer.Scorer.environment_info` asks there.
    """
    info: dict[str, str] = {}
    for reward in rewards:
        describe = companion_function(reward.function, "environment_info")
        if describe is not None and not is_remote(reward.where):
            info |= describe(**reward.options)
    return info


def _module_member(function: Callable[..., Any], name: str) -> Any:
    module = inspect.getmodule(inspect.unwrap(function))
    return getattr(module, name, None)


def find_plugin(kind: str, folder: str, name: str, *, own_class: bool = False) -> tuple[Callable[..., Any], str]:
    """The object of a name, and its location for messages.

    Args:
        own_class: take the class that a file defines, unless the name says which object to take.
    """
    file_part, _, function_name = name.partition(":")
    if file_part.endswith(".py"):
        path = Path(file_part)
        if not os.path.isfile(path):
            elsewhere = "nor one beside the recipe, in the folder above it or in the project"
            raise _not_found(kind, f"The {kind} {name}: there is no file {path.absolute()}, {elsewhere}.", name)
        return _from_file(kind, path, function_name or ("" if own_class else path.stem))
    if "/" in name:
        fix = "write path/to/file.py[:function]."
        raise _not_found(kind, f"The {kind} {name} looks like a file, but doesn't end in .py: {fix}")
    if "." in name:
        return _from_import(kind, name)
    for root in project.roots():
        path = root / folder / f"{name}.py"
        if os.path.isfile(path):  # Path.is_file raises for a name that is too long
            return _from_file(kind, path, "" if own_class else name, module=f"{folder}.{name}")
    names = sorted({file.stem for root in project.roots() for file in (root / folder).glob("[!_]*.py")})
    close = schema.nearest(name, names)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(names) or 'none'}."
    searched = " nor ".join(str(root / folder / f"{name}.py") for root in project.roots())
    raise _not_found(kind, f"There is no {kind} {name!r}: there is no {searched}. {hint}", name)


def _not_found(kind: str, message: str, key: str | None = None) -> InputError:
    return InputError(message, kind=f"{kind}-not-found", key=key)


def _from_file(kind: str, path: Path, function: str, module: str | None = None) -> tuple[Callable[..., Any], str]:
    """The function of this name; for no name the file's public class."""
    path = path.resolve()
    shown = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
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
            if isinstance(error, ModuleNotFoundError) and kind == "environment":
                message = f"The {kind} {shown} needs {error.name}, which can't be imported here. {MODULE_FIX}"
                raise InputError(message, kind="package-not-installed", path=path) from error
            message = f"The {kind} file {shown} fails to import:\n{own_traceback(error, path)}"
            if isinstance(error, ModuleNotFoundError):
                message += f"\n{MODULE_FIX}"
            raise InputError(message, kind="import-failed", path=path) from error
    return _member(kind, loaded, function or _own_class(kind, loaded, shown), shown)


def _own_class(kind: str, module: types.ModuleType, where: str) -> str:
    """The name of the one public class that a file defines."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    names = [value.__name__ for value in own if inspect.isclass(value) and not value.__name__.startswith("_")]
    if len(names) != 1:
        lack = f"defines the classes {', '.join(names)}" if names else "defines no class"
        raise _not_found(kind, f"The {kind} {where} {lack}. Name the class in the recipe: {where}:CLASS.")
    return names[0]


def _from_import(kind: str, name: str) -> tuple[Callable[..., Any], str]:
    module_name, _, function = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = (error.name or module_name) if isinstance(error, ModuleNotFoundError) else ""
        if missing and f"{module_name}.".startswith(f"{missing}."):
            fix = "Is it misspelt, or not installed?"
            raise _not_found(kind, f"The {kind} {name}: there is no module {missing} here. {fix}") from error
        trace = "".join(traceback.format_exception(error)[-3:])
        raise InputError(f"The {kind} {name} fails to import:\n{trace}", kind="import-failed") from error
    return _member(kind, module, function, name)


def _member(kind: str, module: types.ModuleType, function: str, where: str) -> tuple[Callable[..., Any], str]:
    member = getattr(module, function, None)
    if member is None or not callable(member):
        # By `dir`, since packages like trl load their members lazily.
        close = schema.nearest(function, [name for name in dir(module) if not name.startswith("_")])
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        hint = f"Did you mean {close[0]}?" if close else f"It has: {', '.join(own) or 'none'}."
        if where.endswith(".py"):
            hint += f" Name the function like the file, or write {where}:FUNCTION in the recipe."
        raise _not_found(kind, f"The {kind} {where} has no function {function}. {hint}")
    return member, where


def check_options(
    kind: str, name: str, where: str, options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]
) -> None:
    at = name if name == where else f"{name} ({where})"
    for key, value in options.items():
        if key not in known:
            close = schema.nearest(key, known)
            hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(sorted(known)) or 'none'}."
            hint = foreign_keys.removed_options().get(key, hint)
            message = f"The {kind} {at} has no option {key!r}; {hint}"
            raise InputError(message, kind="unknown-option", key=key)
        if fault := value_types.mismatch(value, annotation_of(known[key])):
            raise InputError(f"The {kind} {at}: its option {key} {fault}.", kind="invalid-option", key=key)
