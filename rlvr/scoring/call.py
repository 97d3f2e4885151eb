"""One call of a reward function, and its result as plain data: the same in a worker and in the training process.

`prepare` runs in a fork server and makes the function that its workers call with what `item` has packed. A reward
server's workers use `prepare_served`: their items come from the network, so they are JSON and never unpickled.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import importlib
import inspect
import json
import pickle
import random
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rlvr.errors import InputError
from rlvr.scoring.reward import Reward, as_list, as_number, file_of, own_traceback
from rlvr.workers.pool import Status

Note = tuple[str, str, Any]  # ("extra", column, list) or ("metric", name, number)
LONGEST_TRACE = 4000  # characters
_DRAWING = ("numpy", "torch")  # packages with random numbers of their own
_INTO_EVERYTHING = frozenset({"locals", "vars", "eval", "exec", "sys", "inspect"})


@dataclass(frozen=True)
class CallResult:
    """What a call came to.

    Attributes:
        values: one a row: a number, None for a row that the function can't score, or text that shows what it returned
            instead of a number.
        kind: "" or what went wrong with the call as a whole.
        said: what that was, as in "The reward x raised ZeroDivisionError: division by zero".
        trace: the traceback from the user's file on.
        notes: what the function logged, in its order.
    """

    values: Sequence[float | str | None] = ()
    kind: Literal["", "raised", "wrong length"] = ""
    said: str = ""
    trace: str = ""
    notes: Sequence[Note] = field(default_factory=list)


# `TaskResult.status` in the reward server's protocol.
WIRE_STATUS: Mapping[Status, str] = {
    "done": "done", "timeout": "late", "crashed": "crashed", "failed": "failed", "unavailable": "unserved"
}  # fmt: skip


def call(reward: Reward, given: Mapping[str, Any], trainer_state: object) -> CallResult:
    """Calls a reward as GRPOTrainer would, with stand-ins for what belongs to the trainer.

    Args:
        given: the prompts, the completions and the columns.
    """
    notes: list[Note] = []
    extras: dict[str, list[Any]] = {}

    def log_extra(column: str, values: list[Any]) -> None:
        if column not in extras:
            extras[column] = []
            notes.append(("extra", str(column), extras[column]))
        extras[column] += [_plain(value) for value in values]  # GRPOTrainer strings them together, too

    def log_metric(name: str, value: float) -> None:
        notes.append(("metric", str(name), float(value)))

    arguments = {
        **given,
        "trainer_state": trainer_state,
        "log_extra": log_extra,
        "log_metric": log_metric,
    }
    prompts, completions = arguments.pop("prompts"), arguments.pop("completions")
    try:
        returned = reward.call(prompts, completions, arguments)
        listed = as_list(returned)
    except (Exception, SystemExit) as error:
        trace = own_traceback(error, file_of(reward.function), chain=True)
        if isinstance(error, InputError) or not trace.startswith("Traceback"):
            trace = ""  # it says all there is to know; or it never came to the user's code
        if len(trace) > LONGEST_TRACE:
            trace = f"{trace[: LONGEST_TRACE // 2]}\n…\n{trace[-LONGEST_TRACE // 2 :]}"
        return CallResult(kind="raised", said=f"raised {type(error).__name__}: {error}"[:1000], trace=trace)
    if listed is None:
        return CallResult(kind="wrong length", said=f"returned {type(returned).__name__}, but should return a list")
    if len(listed) != len(completions):
        said = f"returned {len(listed)} values for {len(completions)} completions"
        return CallResult(kind="wrong length", said=said)
    return CallResult([_value(entry) for entry in listed], notes=notes)


def _value(entry: Any) -> float | str | None:
    try:
        return as_number(entry)
    except ValueError:
        return repr(entry)[:200]


def _plain(value: Any) -> Any:
    """What can travel as JSON: numbers, text and None as they are, anything else as text."""
    if hasattr(value, "item") and getattr(value, "size", 2) in (1, ()):  # a number of numpy
        value = value.item()
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else hex(value)[:100]
    return str(value)


# ----------------------------------------------------------------------------------------------------------------------
# In a worker


def prepare(rewards: bytes) -> Callable[[bytes], dict[str, Any]]:
    """The function of a worker's items: loads the rewards (pickled specs) as the caller has loaded them.

    Raises:
        InputError: as `rlvr.scoring.registry.load_reward`.
    """
    from rlvr.scoring.registry import load_reward

    loaded = [load_reward(spec) for spec in pickle.loads(rewards)]
    _import_what_draws(loaded)

    def serve(item: bytes) -> dict[str, Any]:
        message = pickle.loads(item)
        if "place" not in message:
            from rlvr.scoring.registry import environment_info

            return {"environment_info": environment_info(loaded), "digests": [digest_of(reward) for reward in loaded]}
        reward = loaded[message["place"]]
        if "columns" in message:
            return _checked(reward, message["columns"])
        try:
            given = {name: pickle.loads(part) for name, part in message["parts"].items()}
        except Exception as error:
            said = (
                f"can't be given its columns in a worker, as they can't be unpickled ({type(error).__name__}: {error})"
            )
            return asdict(CallResult(kind="raised", said=f"{said}. Give it `where: trainer` in the recipe"))
        return _called(reward, given, message["state"], message["seed"])

    return serve


def prepare_served(rewards: bytes) -> Callable[[bytes], dict[str, Any]]:
    """As `prepare`, for a reward server.

    An item is JSON: the reward's name, its options (null: those that the server was started with), and the arguments
    of the call, or columns for the file's `validate_rows`. The server has validated names and options
    (rlvr/reward_server/served_rewards.py).

    Args:
        rewards: specs, pickled by the server itself when it was started.
    """
    from rlvr.scoring.registry import load_reward

    loaded = {spec.name: load_reward(spec) for spec in pickle.loads(rewards)}
    _import_what_draws(list(loaded.values()))

    def serve(item: bytes) -> dict[str, Any]:
        message = json.loads(item)
        reward = loaded[message["reward"]]
        if message["options"] is not None:
            reward = replace(reward, options=message["options"])
        if "columns" in message:
            return _checked(reward, message["columns"])
        given = {name: spread(*column) for name, column in message["given"].items()}
        return _called(reward, given, message["state"], tuple(message["seed"]))

    return serve


def served_item(
    reward: str,
    options: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    state: Mapping[str, Any],
    seed: Sequence[Any],
) -> bytes:
    """A call, as a server's worker is told."""
    told = {name: gathered(values) for name, values in given.items()}
    message = {"reward": reward, "options": options, "given": told, "state": state, "seed": seed}
    return json.dumps(message).encode()


def gathered(values: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
    """The objects of a column, each once, and which of them stands in which row (None: each in one, in order).

    Tests that many rows refer to are one object, and may have megabytes.
    """
    places: dict[int, int] = {}
    rows = [places.setdefault(id(value), len(places)) for value in values]
    if len(places) == len(values):
        return list(values), None
    return list({id(value): value for value in values}.values()), rows


def spread(values: list[Any], rows: list[int] | None) -> list[Any]:
    """The column that `gathered` was given."""
    return values if rows is None else [values[row] for row in rows]


def check_item(reward: str, options: Mapping[str, Any] | None, columns: Mapping[str, Any]) -> bytes:
    """Columns to be looked through, as a server's worker is told."""
    return json.dumps({"reward": reward, "options": options, "columns": columns}).encode()


def digest_of(reward: Reward) -> str:
    """Of the file that a reward is written in, by which a run sees whether a server has the same; "" without a file."""
    file = file_of(reward.function)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file is not None else ""
    except OSError:
        return ""


def _called(
    reward: Reward, given: Mapping[str, Any], state: Mapping[str, Any], seed: tuple[Any, ...]
) -> dict[str, Any]:
    _seed(seed)
    try:
        return asdict(call(reward, given, types.SimpleNamespace(**state)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()


def _checked(reward: Reward, columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the reward's own file has against rows, or against all of them."""
    from rlvr.scoring.registry import companion_function

    check = companion_function(reward.function, "validate_rows")
    try:
        faults = list(check(**{**columns, **reward.options})) if check is not None else []
    except InputError as error:
        return {"error": str(error)}
    return {"faults": [None if fault is None else str(fault) for fault in faults]}


ABOUT = pickle.dumps({})  # asks a worker what its rewards' scores depend on, and which files they are written in


def check_these(place: int, columns: Mapping[str, Any]) -> bytes:
    """Columns to be looked through, as a worker is told."""
    return pickle.dumps({"place": place, "columns": columns}, protocol=5)


def item(place: int, parts: Mapping[str, bytes], state: Mapping[str, Any], seed: tuple[Any, ...]) -> bytes:
    """A call, as a worker is told.

    Args:
        place: of the reward among those that the worker has loaded.
        parts: the arguments, each pickled by itself, so that those that several rewards see are pickled once.
        seed: what the random numbers of the call depend on.
    """
    return pickle.dumps({"place": place, "parts": parts, "state": state, "seed": seed}, protocol=5)


def _import_what_draws(rewards: Sequence[Reward]) -> None:
    """Imports what a file may import when it is called only: what is not there yet can't be seeded."""
    for file in {file_of(reward.function) for reward in rewards} - {None}:
        with contextlib.suppress(OSError, ImportError):
            source = Path(str(file)).read_bytes()
            for package in (package for package in _DRAWING if package.encode() in source):
                importlib.import_module(package)


def _seed(parts: tuple[Any, ...]) -> None:
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


# ----------------------------------------------------------------------------------------------------------------------
# What a function can see


def names_seen(function: Callable[..., Any]) -> frozenset[str] | None:
    """The keyword arguments that a function can see; None if it may see all.

    A function that never touches its `**kwargs` can't see what is in them, so that need not travel: a million
    token numbers, or tests by the megabyte for a reward that looks at the text alone.
    """
    if not isinstance(function, types.FunctionType):
        function = type(function).__call__
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = code.co_varnames[named + bool(code.co_flags & inspect.CO_VARARGS)]
        for instruction in dis.get_instructions(code):
            touched = instruction.argval
            if touched == rest or (isinstance(touched, tuple) and rest in touched):
                return None
    if _INTO_EVERYTHING.intersection(code.co_names):
        return None
    return frozenset(code.co_varnames[:named])


def plain_state(state: object) -> dict[str, Any]:
    """The attributes of a trainer's state (or a mapping) that are numbers and text: not its history of logs."""
    found = state if isinstance(state, Mapping) else vars(state) if hasattr(state, "__dict__") else {}
    return {name: value for name, value in found.items() if value is None or isinstance(value, int | float | str)}
