"""Call rewards on this machine: in worker processes (`where: local`, the default), or in the trainer itself.

Both ends of a call are here: `LocalBackend` in the trainer's process, and `prepare` in a worker's (rlvr/workers). The
nodes of a Ray cluster run such workers, too.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call_conditions import call_conditions
from rlvr.scoring.call_result import CallResult, Note
from rlvr.scoring.registry import environment_info, load_reward
from rlvr.scoring.reward import WHY, Reward, as_values, await_value, file_of, own_traceback
from rlvr.scoring.source_files import digest_of
from rlvr.workers.pool import OUT_OF_TIME, StartError, WorkerError, WorkerPool

MAX_WORKERS = 4  # for calls with one row
MAX_TRACE = 4000  # characters
_PACKAGES_WITH_RANDOM_STATE = ("numpy", "torch")


class LocalBackend(RewardBackend):
    """Worker processes that can be killed: a call that hangs or crashes does not reach the trainer.

    A batch goes to one worker, always the same while it lives, so that functions keep what they have in memory.
    """

    encoding: Encoding = "pickle"
    per_worker_group = True

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        cores = len(os.sched_getaffinity(0)) // max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), 1)
        self._pool = WorkerPool(
            "rlvr.scoring.backends.local:prepare",
            processes=max(2, min(MAX_WORKERS, cores)),
            init_payload=pickle.dumps([reward.spec for reward in rewards]),
            inherit_env=True,
            start_s=start_timeout_s,
        )

    def launch(self) -> None:
        self._pool.launch()

    def start(self) -> None:
        try:
            self._pool.start(1)
        except StartError as error:  # the imports fail, and would fail again
            if error.kind != "start-timeout":
                raise
            raise StartError(
                f"its file is not imported after {self.start_timeout_s:g} s. Do slow work (downloads, models) in the "
                "function, at its first call.",
                error.kind,
            ) from error
        except WorkerError:
            self._pool.start(1)  # the fork server was killed

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        whole_batch = all(call.row is None for call in calls)
        results = self._pool.map(
            [call_item(call, call.reward, None if call.row is None else [call.row]) for call in calls],
            timeout_s=timeout_s,
            batch_timeout_s=max(end - time.monotonic(), 0.0),
            max_workers=1 if whole_batch else None,
        )
        return [CallResult.of_worker(result) for result in results]

    def close(self) -> None:
        self._pool.close()


class TrainerBackend(RewardBackend):
    """Calls in the training process (`where: trainer`), which nothing can stop.

    For rewards that need the trainer's GPU or memory, and for functions that no other process can import.
    """

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        self.start_timeout_s = start_timeout_s
        self.rewards = list(rewards)

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        results = []
        for call in calls:
            if call.row is not None and time.monotonic() >= end:
                results.append(CallResult(status="unavailable", why=OUT_OF_TIME))
                continue
            arguments = call.batch.columns if call.row is None else call.batch.row(call.row)
            # A reward that edits messages must change neither what others score nor what the run keeps.
            copies = {name: copy.deepcopy(arguments[name]) for name in ("prompts", "completions")}
            results.append(call_reward(self.rewards[call.reward], {**arguments, **copies}, call.batch.state))
        return results


# An item that asks a worker for its `environment_info` and the hashes of its rewards' files.
DESCRIBE = pickle.dumps(None)


def call_item(
    call: RewardCall, reward: int, rows: Sequence[int] | None = None, pickled: dict[str, bytes] | None = None
) -> bytes:
    """The item of a call. Each column is pickled by itself, so that one of several rewards is pickled once.

    Args:
        reward: index among the worker's rewards.
        rows: of the batch; None for all. Another part than the first draws other random numbers.
        pickled: filled with the columns of these rows, for the next call of the batch with the same ones.
    """
    pickled = {} if pickled is None else pickled
    pickled.update({name: call.batch.pickled(name, rows) for name in call.names if name not in pickled})
    columns = {name: pickled[name] for name in call.names}
    seed = (*call.seed, rows[0]) if rows and (rows[0] or call.row is not None) else call.seed
    return pickle.dumps({"reward": reward, "columns": columns, "state": call.batch.state, "seed": seed}, protocol=5)


# ----------------------------------------------------------------------------------------------------------------------
# In a worker


def prepare(specs: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Load rewards from their pickled specs, once in a fork server, and return the function of its workers' items.

    Raises:
        InputError: as `rlvr.scoring.registry.load_reward`.
    """
    rewards = load_with_imports(specs)

    def serve(data: bytes) -> dict[str, Any]:
        message = pickle.loads(data)
        if message is None:  # DESCRIBE
            return {"environment_info": environment_info(rewards), "digests": [digest_of(reward) for reward in rewards]}
        reward = rewards[message["reward"]]
        try:
            columns = {name: pickle.loads(column) for name, column in message["columns"].items()}
        except Exception as error:
            cause = f"can't get its columns in a worker: they can't be unpickled ({type(error).__name__}: {error})"
            return vars(CallResult(status="raised", why=f"{cause}. Set `where: trainer` in the recipe"))
        with call_conditions(message["seed"], message["state"], len(columns["completions"])):
            return vars(call_reward(reward, columns, message["state"]))

    return serve


def load_with_imports(specs: bytes) -> list[Reward]:
    """Load rewards, and import what their files may import only during a call: else it can't be seeded."""
    rewards = [load_reward(spec) for spec in pickle.loads(specs)]
    for file in {file_of(reward.function) for reward in rewards} - {None}:
        with contextlib.suppress(OSError, ImportError):
            source = Path(str(file)).read_bytes()
            for package in _PACKAGES_WITH_RANDOM_STATE:
                if package.encode() in source:
                    importlib.import_module(package)
    return rewards


def call_reward(reward: Reward, arguments: Mapping[str, Any], state: Mapping[str, Any]) -> CallResult:
    """Call a reward function as GRPOTrainer does: the same in a worker and in the trainer.

    Args:
        arguments: prompts, completions and columns.
        state: what the function sees as `trainer_state`.
    """
    notes: list[Note] = []
    extras: dict[str, list[Any]] = {}

    def log_extra(column: str, values: list[Any]) -> None:
        if str(column).endswith(WHY):
            return
        if column not in extras:
            extras[column] = []
            notes.append(("extra", str(column), extras[column]))
        extras[column] += [_plain(value) for value in values]  # as GRPOTrainer does

    def log_metric(name: str, value: float) -> None:
        notes.append(("metric", str(name), float(value)))

    try:
        returned = reward.function(
            **{
                **arguments,
                "trainer_state": SimpleNamespace(**state),
                "log_extra": log_extra,
                "log_metric": log_metric,
                **reward.defaults,
                **reward.options,  # for all rows, whatever a column of such a name says
            }
        )
        values = as_values(await_value(returned), len(arguments["completions"]))
    except (Exception, SystemExit) as error:
        trace = own_traceback(error, file_of(reward.function), chain=True)
        if isinstance(error, InputError) or not trace.startswith("Traceback"):
            trace = ""  # the message is enough, or the call never came to the user's code
        if len(trace) > MAX_TRACE:
            trace = f"{trace[: MAX_TRACE // 2]}\n…\n{trace[-MAX_TRACE // 2 :]}"
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return CallResult(status="raised", why=f"raised {text}"[:1000], trace=trace)
    if isinstance(values, str):
        return CallResult(status="wrong length", why=values)
    return CallResult(values, notes=notes)


def _plain(value: Any) -> Any:
    """Keep numbers, text and None, which JSON can represent; anything else becomes text."""
    if hasattr(value, "item") and getattr(value, "size", 2) in (1, ()):  # a number of numpy
        value = value.item()
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else hex(value)[:100]
    return str(value)
