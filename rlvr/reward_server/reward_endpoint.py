"""The rewards that a server was started with, in workers of its own; nothing else can be asked for.

A request names rewards. It can give them options, but neither a file nor code: what is imported is what the server's
own recipe or command line says. One worker calls all rewards with the same `WORKER_GROUP` in their files, one after
the other, so that a program which two of them judge runs once.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rlvr.config.recipe import RewardSpec
from rlvr.errors import InputError
from rlvr.reward_server.limits import Refused, ServerLimits
from rlvr.scoring.call import check_item, digest_of, served_item
from rlvr.scoring.registry import (
    FROM_TRAINER,
    companion_function,
    environment_info,
    load_reward,
    load_rewards,
    worker_group,
)
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import OUT_OF_TIME, TaskResult, WorkerPool

START_S = 300.0  # for a worker's imports, which may be torch on a busy file system
MOST_WORKERS = 4  # a group, unless told otherwise; each judges on all processors
_MOST_OPTIONS = 256  # sets of options that are known to be right


@dataclass(frozen=True)
class Asked:
    """A reward that a request asks for.

    Attributes:
        name: as the server's recipe writes it.
        options: of the function; None: those that the server was started with.
        reads: the columns that the function is to see; None: all of them.
        seed: what random numbers in the call depend on.
    """

    name: str
    options: Mapping[str, Any] | None = None
    reads: Sequence[str] | None = None
    seed: Sequence[Any] = ()


@dataclass(frozen=True)
class Rows:
    """What is to be scored: one entry a row in each, and the rows' numbers in the batch that they are part of."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]
    numbers: Sequence[int]
    state: Mapping[str, Any]


@dataclass(frozen=True)
class _Served:
    reward: Reward
    group: str
    digest: str
    seen: frozenset[str]  # names that the function has for what it is given


class ServedRewards:
    """Workers around the rewards of a server; usable from any thread.

    Args:
        specs: what is served, wherever they themselves say that they run.
        workers: processes a group of rewards.

    Raises:
        InputError: as `rlvr.scoring.registry.load_rewards`.
    """

    def __init__(self, specs: Sequence[RewardSpec], allowance: ServerLimits, workers: int | None = None) -> None:
        self.allowance = allowance
        self.specs = [replace(spec, where=None) for spec in specs]
        self.rewards = load_rewards(self.specs) if specs else []
        self._lock = threading.Lock()
        self._right: OrderedDict[str, None] = OrderedDict()
        self._served: dict[str, _Served] = {}
        by_group: dict[str, list[RewardSpec]] = {}
        for reward, spec in zip(self.rewards, self.specs, strict=True):
            group = worker_group(reward.function) or f"only {spec.name}"
            by_group.setdefault(group, []).append(spec)
            self._served[spec.name] = _Served(reward, group, digest_of(reward), _names(reward.function))
        cores = len(os.sched_getaffinity(0))
        self.workers = workers or max(2, min(MOST_WORKERS, cores))
        self._pools = {
            group: WorkerPool(
                "rlvr.scoring.call:prepare_served",
                processes=self.workers,
                memory_mb=None,  # compilers and programs run below a worker
                init_payload=pickle.dumps(members),
                inherit_env=True,
                folder=os.getcwd(),
                start_s=START_S,
            )
            for group, members in by_group.items()
        }
        self.conditions: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(max_workers=max(1, len(self._pools)) * allowance.requests)

    def start(self) -> None:
        """Starts all workers, and waits until they have made their imports.

        Raises:
            WorkerError: they do not start.
        """
        for pool in self._pools.values():
            pool.launch()
        self.conditions = environment_info(self.rewards)
        for pool in self._pools.values():
            pool.start()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._threads.shutdown(wait=False)

    @property
    def pools(self) -> list[WorkerPool]:
        return list(self._pools.values())

    def described(self) -> list[dict[str, Any]]:
        """What a client is told of each reward, by which it sees whether it has the same one."""
        return [
            {
                "name": name,
                "label": served.reward.label,
                "columns": list(served.reward.columns),
                "options": dict(served.reward.spec.options) if served.reward.spec is not None else {},
                "shares": worker_group(served.reward.function),
                "digest": served.digest,
            }
            for name, served in self._served.items()
        ]

    def check(self, asked: Sequence[Asked], columns: Mapping[str, Any]) -> None:
        """Whether this server serves what is asked for.

        Raises:
            Refused: a reward that it was not started with, an option that is wrong or loosens its limits, a name of
                a column that means something else.
        """
        reserved = sorted((FROM_TRAINER - {"completion_ids"}) & columns.keys())
        if reserved:
            raise Refused(422, f"{reserved[0]} is no column: give it beside `columns`, not in it.")
        for one in asked:
            served = self._served.get(one.name)
            if served is None:
                there = ", ".join(self._served) or "none"
                raise Refused(
                    404, f"This server has no reward {one.name!r}; it was started with: {there}. A server is told "
                    "what to serve when it is started (--config or --rewards)."
                )  # fmt: skip
            own = served.reward.spec.options if served.reward.spec is not None else {}
            options = own if one.options is None else one.options
            given = {name: values for name, values in columns.items() if name in served.seen}
            if dict(options) != dict(own):
                self._check_options(served, options)
                given = {**given, **options}
            elif "time_s" in given and "time_factor" in own:
                given = {"time_factor": own["time_factor"], **given}
            self.allowance.refuse_options(f"The reward {one.name}", given)

    def _check_options(self, served: _Served, options: Mapping[str, Any]) -> None:
        """Options that differ from those that the server was started with."""
        reward = served.reward
        assert reward.spec is not None
        key = json.dumps([reward.name, options], sort_keys=True)
        with self._lock:
            if key in self._right:
                return
        if not inspect.isfunction(reward.function) or reward.function.__name__ != reward.label:
            # It was made by a factory: another one would be made, and kept, for each client.
            raise Refused(
                422, f"The reward {reward.name} was made with {dict(reward.spec.options)} when this server was "
                f"started, so {dict(options)} can't be asked of it."
            )  # fmt: skip
        try:
            load_reward(RewardSpec(reward.name, options=options))
        except InputError as error:
            raise Refused(422, str(error)) from error
        with self._lock:
            self._right[key] = None
            while len(self._right) > _MOST_OPTIONS:
                self._right.popitem(last=False)

    def check_rows(self, asked: Asked, columns: Mapping[str, Any], deadline_s: float) -> list[str | None]:
        """What the reward's own file has against rows of the data, before training; see
        `rlvr.scoring.registry.companion_function`.

        Raises:
            Refused: what it has against all of them, such as a compiler that is missing here; or it came to no end.
        """
        served = self._served[asked.name]
        check = companion_function(served.reward.function, "validate_rows")
        if check is None:
            return [None] * max((len(values) for values in columns.values()), default=0)
        seen = _names(check)
        known = {name: values for name, values in columns.items() if name in seen}
        items = [check_item(asked.name, asked.options, known)]
        (outcome,) = self._pools[served.group].map(
            items, timeout_s=deadline_s, batch_timeout_s=deadline_s, max_workers=1, count_waiting=True
        )
        if outcome.status != "done":
            raise Refused(503, f"The reward {asked.name} could not look through the rows: {outcome.why}.")
        if "error" in outcome.value:
            raise Refused(422, outcome.value["error"])
        return list(outcome.value["faults"])

    def score(
        self, asked: Sequence[Asked], rows: Rows, *, one_by_one: bool, deadline_s: float, budget_s: float
    ) -> list[list[TaskResult]]:
        """What became of the calls: for each reward one outcome for all rows, or with `one_by_one` one a row.

        An outcome that is done holds the fields of `rlvr.scoring.call.CallResult`.
        """
        end = time.monotonic() + budget_s
        by_group: dict[str, list[int]] = {}
        for place, one in enumerate(asked):
            by_group.setdefault(self._served[one.name].group, []).append(place)
        found: list[list[TaskResult]] = [[] for _ in asked]

        def work(group: str, places: Sequence[int]) -> None:
            items = _Calls([asked[place] for place in places], rows, one_by_one)
            left_s = end - time.monotonic()
            if left_s <= 0:
                outcomes = [TaskResult("unavailable", why=OUT_OF_TIME)] * len(items)
            else:
                outcomes = self._pools[group].map(
                    items,
                    timeout_s=min(deadline_s, left_s),
                    batch_timeout_s=left_s,
                    max_workers=None if one_by_one else 1,
                    count_waiting=True,
                )
            each = len(items) // len(places)
            for number, place in enumerate(places):
                found[place] = outcomes[number * each : (number + 1) * each]

        first, *others = by_group.items()
        waiting = [self._threads.submit(work, *other) for other in others]
        work(*first)
        for other in waiting:
            other.result()
        return found


def _names(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


class _Calls(Sequence[bytes]):
    """What workers are told, reward after reward; made when it is told: all at once would be many times the request."""

    def __init__(self, asked: Sequence[Asked], rows: Rows, one_by_one: bool) -> None:
        self.asked, self.rows, self.one_by_one = asked, rows, one_by_one
        self.each = len(rows.numbers) if one_by_one else 1

    def __len__(self) -> int:
        return len(self.asked) * self.each

    def __getitem__(self, place: Any) -> Any:
        number, row = divmod(place, self.each)
        asked, rows = self.asked[number], self.rows
        given: dict[str, Sequence[Any]] = {"prompts": rows.prompts, "completions": rows.completions}
        given |= {name: values for name, values in rows.columns.items() if asked.reads is None or name in asked.reads}
        seed = asked.seed
        if self.one_by_one:
            given = {name: [values[row]] for name, values in given.items()}
            seed = [*seed, rows.numbers[row]]
        return served_item(asked.name, asked.options, given, rows.state, seed)
