"""The reward function's side of a worker process (rlvr/workers/pool.py), and the items that a worker reads.

`prepare` runs once in a fork server and returns the function that its workers call with an item. Workers beside a
trainer get pickled items. A reward server's workers (`prepare_served`) get items that come from the network: these are
JSON, and never unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import pickle
import random
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rlvr.errors import InputError
from rlvr.scoring.call import call_reward, digest_of
from rlvr.scoring.registry import environment_info, load_reward, validate_rows
from rlvr.scoring.results import CallResult
from rlvr.scoring.reward import Reward, file_of, label_of
from rlvr.workers.pool import Status

# `TaskResult.status` in the reward server's protocol.
WIRE_STATUS: Mapping[Status, str] = {
    "done": "done",
    "timeout": "late",
    "crashed": "crashed",
    "failed": "failed",
    "unavailable": "unserved",
}
MAX_OUTPUT = 1000  # characters of each stream that a call may print for each completion
MAX_KEPT = 64 << 20  # of the rest
TRIAL_STEP = -1  # `trainer_state.global_step` outside of training (rlvr/scoring/prober.py)
MAX_TRIAL_LINES = 20  # that a worker prints in the trial, each once: it makes a call for each answer
_PACKAGES_WITH_RANDOM_STATE = ("numpy", "torch")
_trial_lines: set[str] = set()  # printed so far


def item(action: Literal["call", "validate", "describe"], **fields: Any) -> bytes:
    """An item for `prepare`.

    Args:
        action: "call" a reward; "validate" rows by the `validate_rows` of its file; "describe" the worker: its
            `environment_info` and the hashes of its rewards' files.
        fields: `reward`, the index among the rewards that the worker has loaded, and `columns`. For a call, each column
            is pickled by itself, so that one of several rewards is pickled once; and `state` and `seed` are needed.
    """
    return pickle.dumps({"action": action, **fields}, protocol=5)


def prepare(specs: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Load rewards from their pickled specs, and return the function of a worker's items.

    Raises:
        InputError: as `rlvr.scoring.registry.load_reward`.
    """
    rewards = _load(specs)

    def serve(data: bytes) -> dict[str, Any]:
        message = pickle.loads(data)
        if message["action"] == "describe":
            return {"environment_info": environment_info(rewards), "digests": [digest_of(reward) for reward in rewards]}
        reward = rewards[message["reward"]]
        if message["action"] == "validate":
            return _validate(reward, message["columns"])
        try:
            columns = {name: pickle.loads(column) for name, column in message["columns"].items()}
        except Exception as error:
            cause = f"can't get its columns in a worker: they can't be unpickled ({type(error).__name__}: {error})"
            return CallResult(kind="raised", message=f"{cause}. Set `where: trainer` in the recipe").as_dict()
        return _call(reward, columns, message["state"], message["seed"])

    return serve


def served_item(columns: Mapping[str, Sequence[Any]], **message: Any) -> bytes:
    """A reward server's message to a worker, as JSON; `read_served_item` reads it.

    An object that several rows refer to is sent once: tests can be megabytes. Each object is encoded by itself, because
    a single call for all of them would hold Python's lock, and stop every request, for seconds.
    """
    encoded = []
    for name, values in columns.items():
        index: dict[int, int] = {}
        rows = [index.setdefault(id(value), len(index)) for value in values]
        distinct = {id(value): value for value in values}.values()
        encoded.append(f"{json.dumps(name)}: [[{', '.join(map(json.dumps, distinct))}], {json.dumps(rows)}]")
    return f'{{"message": {json.dumps(message)}, "columns": {{{", ".join(encoded)}}}}}'.encode()


def read_served_item(item: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The message and the columns of a `served_item`."""
    content = json.loads(item)
    columns = content["columns"].items()
    return content["message"], {name: [distinct[row] for row in rows] for name, (distinct, rows) in columns}


def prepare_served(specs: bytes) -> Callable[[bytes], dict[str, Any]]:
    """As `prepare`, for a reward server, which has validated names and options (rlvr/reward_server/served_rewards.py).

    Options of an item that are null are those that the server was started with.

    Args:
        specs: pickled by the server itself when it was started.
    """
    rewards = {reward.label: reward for reward in _load(specs)}

    def serve(item: bytes) -> dict[str, Any]:
        message, columns = read_served_item(item)
        reward = rewards[label_of(message["reward"])]
        if message["options"] is not None:
            reward = replace(reward, options=message["options"])
        if message["action"] == "validate":
            return _validate(reward, columns)
        return _call(reward, columns, message["state"], tuple(message["seed"]))

    return serve


def _load(specs: bytes) -> list[Reward]:
    """Load rewards, and import what their files may import only during a call: else it can't be seeded."""
    rewards = [load_reward(spec) for spec in pickle.loads(specs)]
    for file in {file_of(reward.function) for reward in rewards} - {None}:
        with contextlib.suppress(OSError, ImportError):
            source = Path(str(file)).read_bytes()
            for package in _PACKAGES_WITH_RANDOM_STATE:
                if package.encode() in source:
                    importlib.import_module(package)
    return rewards


def _call(
    reward: Reward, columns: Mapping[str, Any], state: Mapping[str, Any], seed: tuple[Any, ...]
) -> dict[str, Any]:
    seed_random_numbers(seed)
    limit = MAX_OUTPUT * len(columns["completions"])
    stream = _TrialStream if state.get("global_step") == TRIAL_STEP else _ShortenedStream
    with stream("stdout", limit), stream("stderr", limit):
        return call_reward(reward, columns, types.SimpleNamespace(**state)).as_dict()


class _ShortenedStream:
    """Print the start of what a call prints. The rest goes to a file, which the next such call replaces.

    Whatever does not write text gets the stream itself.
    """

    def __init__(self, name: Literal["stdout", "stderr"], limit: int) -> None:
        self._name = name
        self._stream: Any = getattr(sys, name)
        self._left = limit
        self._rest = io.StringIO()

    def __enter__(self) -> None:
        if self._stream is not None:
            setattr(sys, self._name, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(text[: self._left])
        self._rest.write(text[self._left :][: max(MAX_KEPT - self._rest.tell(), 0)])
        self._left = max(self._left - len(text), 0)
        return len(text)

    def __exit__(self, *_: object) -> None:
        setattr(sys, self._name, self._stream)
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the function
            if rest := self._rest.getvalue():
                file = f"{tempfile.gettempdir()}/grpo-recipes-{os.getuid()}-reward-{os.getpid()}.{self._name}"
                Path(file).unlink(missing_ok=True)
                with open(file, "x", encoding="utf-8", errors="replace") as rest_file:
                    rest_file.write(rest)
                self._stream.write(f"\n[{len(rest):,} more characters of this call are in {file}]\n")
            self._stream.flush()


class _TrialStream(_ShortenedStream):
    """Print each line once, and the first `MAX_TRIAL_LINES` of them, whatever the number of calls."""

    _line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (line[:MAX_OUTPUT] for line in f"{self._line}{text}".split("\n"))
        for line in lines:
            if line not in _trial_lines and len(_trial_lines) <= MAX_TRIAL_LINES:
                is_last = len(_trial_lines) == MAX_TRIAL_LINES
                super().write("[more lines before training are not shown]\n" if is_last else f"{line}\n")
                _trial_lines.add(line)
        return len(text)

    def __exit__(self, *details: object) -> None:
        if self._line:
            self.write("\n")
        super().__exit__(*details)


def _validate(reward: Reward, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The problem of each row, or an error of all rows."""
    try:
        return {"faults": validate_rows(reward, columns)}
    except InputError as error:
        return {"error": str(error)}


def seed_random_numbers(parts: tuple[Any, ...]) -> None:
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)
