"""The rewards that a server was started with, in worker processes.

A request names rewards and may set options. It cannot add a file or code. One worker calls all rewards of a
`WORKER_GROUP`, one after the other, so that a program which two of them judge runs once.
"""

from __future__ import annotations

import inspect
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, NamedTuple

from rlvr.config.specs import RewardSpec
from rlvr.data.task import ENDED, FROM_TRAINER
from rlvr.reward_server.request_limits import RequestError, ServerLimits
from rlvr.reward_server.schemas import RequestedReward, ScoreRequest
from rlvr.reward_server.server_worker import served_item
from rlvr.scoring.call_result import CallResult
from rlvr.scoring.registry import check_options, load_rewards, worker_group
from rlvr.scoring.reward import Reward, label_of
from rlvr.scoring.signature import named_parameters, parameters
from rlvr.scoring.source_files import digest_of
from rlvr.workers.pool import WorkerPool

START_S = 300.0  # timeout of a worker's imports, which may include torch
DEFAULT_WORKERS = 4  # at most, for each group; each judges on all processors


class _ServedReward(NamedTuple):
    reward: Reward
    group: str
    digest: str  # of the file that the server has loaded
    options: Mapping[str, Any]  # also those of a factory


class ServedRewards:
    """Workers around the rewards of a server, by label. Usable from any thread.

    Args:
        specs: the rewards; their `where` is ignored.
        workers: processes for each group; None: 2 to 4.

    Raises:
        InputError: as `rlvr.scoring.registry.load_rewards`.
    """

    def __init__(self, specs: Sequence[RewardSpec], limits: ServerLimits, workers: int | None = None) -> None:
        self.limits = limits
        local = [replace(spec, where=None) for spec in specs]
        self.rewards = load_rewards(local) if local else []
        self._served: dict[str, _ServedReward] = {}
        groups: dict[str, list[RewardSpec]] = {}
        for reward, spec in zip(self.rewards, local, strict=True):
            group = worker_group(reward.function) or f"only {spec.name}"
            groups.setdefault(group, []).append(spec)
            self._served[reward.label] = _ServedReward(reward, group, digest_of(reward), spec.options)
        self.workers = workers or max(2, min(DEFAULT_WORKERS, len(os.sched_getaffinity(0))))
        self.pools = {
            group: WorkerPool(
                "rlvr.reward_server.server_worker:prepare_served",
                processes=self.workers,
                init_payload=pickle.dumps(members),
                inherit_env=True,
                start_s=START_S,
            )
            for group, members in groups.items()
        }

    def describe(self) -> list[dict[str, Any]]:
        names = ("name", "label", "columns", "options", "digest")
        return [
            dict(zip(names, (reward.name, label, reward.columns, dict(options), digest), strict=True))
            for label, (reward, _, digest, options) in self._served.items()
        ]

    def check(self, selection: Sequence[RequestedReward], columns: Mapping[str, Any]) -> None:
        """Check that this server serves the rewards, with these options and columns.

        Raises:
            RequestError, InputError: it does not, or an option is invalid.
        """
        reserved = sorted((FROM_TRAINER - {"completion_ids", ENDED}) & columns.keys())
        if reserved:
            message = f"{reserved[0]} is not a column: give it next to `columns`, not in it."
            raise RequestError(422, message, kind="reserved-column")
        for selected in selection:
            served = self._served.get(label_of(selected.name))
            if served is None:
                names = ", ".join(reward.name for reward in self.rewards) or "none"
                message = f"This server has no reward {selected.name!r:.200}. It was started with: {names}."
                raise RequestError(404, message, kind="unknown-reward")
            own = dict(served.options)
            options = own if selected.options is None else selected.options
            values = {name: columns[name] for name in columns.keys() & parameters(served.reward.function).keys()}
            if options != own:
                function = served.reward.function
                if not inspect.isfunction(function) or function.__name__ != served.reward.label:
                    # A factory made it: for each client another one would be made, and kept.
                    message = f"The reward {selected.name} was made with other options at the server's start: {own}."
                    raise RequestError(422, message, kind="fixed-options")
                known = named_parameters(function, required=False)
                check_options("reward", selected.name, served.reward.label, options, known)
                values |= options
            elif "time_s" in values and "time_factor" in own:
                values.setdefault("time_factor", own["time_factor"])
            self.limits.check_options(f"The reward {selected.name}", values)

    def score(
        self, request: ScoreRequest, numbers: Sequence[int], state: Mapping[str, Any], cancelled: Event
    ) -> list[list[CallResult]]:
        """Call the rewards: one result for each, or with `one_by_one` one result for each row.

        Args:
            numbers: the rows' numbers in the batch.
            state: what rewards get as trainer_state.
            cancelled: set when the client hangs up.
        """
        limit_s = self.limits.max_deadline_s
        end = time.monotonic() + min(request.budget_s or limit_s, limit_s)
        arguments = {"prompts": request.prompts, "completions": request.completions, **request.columns}
        groups: dict[str, list[int]] = {}
        for index, selected in enumerate(request.rewards):
            served = self._served[label_of(selected.name)]
            for column in served.reward.columns:
                if column not in request.columns:
                    message = f"The reward {selected.name} needs the column {column}: give it in `columns`."
                    raise RequestError(422, message, kind="missing-column")
            groups.setdefault(served.group, []).append(index)
        results: list[list[CallResult]] = [[] for _ in request.rewards]

        def call_group(group: str, indices: Sequence[int]) -> None:
            rewards = [request.rewards[index] for index in indices]
            items = _WorkerItems(rewards, arguments, numbers, state, request.one_by_one)
            left_s = max(end - time.monotonic(), 0.0)
            group_results = self.pools[group].map(
                items,
                timeout_s=min(request.deadline_s or limit_s, left_s),
                batch_timeout_s=left_s,
                max_workers=None if request.one_by_one else 1,
                count_waiting=True,
                cancelled=cancelled,
            )
            for number, index in enumerate(indices):
                own = group_results[number * items.calls : (number + 1) * items.calls]
                results[index] = [CallResult.of_worker(result) for result in own]

        with ThreadPoolExecutor(len(groups)) as threads:
            list(threads.map(call_group, groups, groups.values()))
        return results


@dataclass(frozen=True)
class _WorkerItems(Sequence[bytes]):
    """The workers' items, reward after reward. Each is built when it is sent: all together are many times the body."""

    rewards: Sequence[RequestedReward]
    arguments: Mapping[str, Sequence[Any]]
    numbers: Sequence[int]
    state: Mapping[str, Any]
    one_by_one: bool

    @property
    def calls(self) -> int:
        """Calls of each reward."""
        return len(self.numbers) if self.one_by_one else 1

    def __len__(self) -> int:
        return len(self.rewards) * self.calls

    def __getitem__(self, index: Any) -> Any:
        number, row = divmod(index, self.calls)
        reward = self.rewards[number]
        names = {"prompts", "completions", *reward.reads} if reward.reads is not None else self.arguments
        columns = {name: values for name, values in self.arguments.items() if name in names}
        seed = reward.seed or []
        if self.one_by_one:
            columns = {name: [values[row]] for name, values in columns.items()}
            seed = [*seed, self.numbers[row]]
        return served_item(columns, reward=reward.name, options=reward.options, state=self.state, seed=seed)
