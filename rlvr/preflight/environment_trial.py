"""Try environments before anything is trained: reset them, call their tools, play their reference solutions.

An environment that fails on its own rows, or pays for doing nothing, costs a run; here it costs seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.dataset_columns import column_values
from rlvr.environments.loading import COLUMN, Environment
from rlvr.environments.proxies import Environments
from rlvr.environments.rollouts import Rollout
from rlvr.errors import Problem
from rlvr.formatting import one_line

TRIED_ROWS = 8  # the first of each environment
STEP = -1  # training begins at 0
FULL_REWARD = 1.0
SHOWN_CHARACTERS = 120  # of a tool's result
_SAMPLES: dict[Any, Any] = {int: 1, float: 1.0, str: "1", bool: False, list: [], dict: {}}


def try_environments(task: Task, loaded: Sequence[Environment], environments: Environments) -> Iterator[Problem]:
    """Try each environment on the first rows that have it."""
    by_column = COLUMN in task.train.column_names
    labels = list(column_values(task.train, COLUMN)) if by_column else [loaded[0].label] * len(task.train)
    for index, environment in enumerate(loaded):
        if not environment.tools:
            continue  # `check_tools` refuses it
        numbers = [row for row, label in enumerate(labels) if label == environment.label][:TRIED_ROWS]
        if numbers:
            with SlowStep(f"Trying the environment {environment.name}: reset, tools, reference solution, reward"):
                yield from list(_Trial(index, environment, numbers, task, environments).run())
            environments.end()
        else:
            message = f"No training row has the environment {environment.label}. Remove it, or add rows."
            yield Problem(message, "unused-environment", environment.name, level="warning")


class _Trial:
    """Rollouts of one environment. A failure ends the trial, since the following ones would have the same cause."""

    def __init__(
        self, index: int, environment: Environment, numbers: Sequence[int], task: Task, environments: Environments
    ) -> None:
        self.index = index
        self.environment = environment
        self.numbers = numbers
        self.rows = [{name: value for name, value in task.train[row].items() if name != COLUMN} for row in numbers]
        self.environments = environments

    def run(self) -> Iterator[Problem]:
        idle = self._begin()
        played = self._begin()
        known = [bool(played[0].play_reference(self.rows[0]).result())]
        if not played[0].failed:  # else the others might hang as well
            pairs = zip(played[1:], self.rows[1:], strict=True)
            references = [rollout.play_reference(row) for rollout, row in pairs]
            known += [bool(reference.result()) for reference in references]
        earned: list[list[float | None]] = [[], []]
        if self.environment.has_reward:
            timeout_s = self.environments.reward_timeout_s
            pending = [[rollout.reward(timeout_s) for rollout in rollouts] for rollouts in (idle, played)]
            earned = [[reward.result() for reward in rewards] for rewards in pending]
        added = 0  # characters of the longest observation
        for row, *rollouts in zip(self.numbers, idle, played, strict=True):
            for rollout in rollouts:
                added = max(added, len(rollout.observation() or ""))
                if rollout.failed:
                    columns = f", which has the columns {', '.join(self.rows[0])}"
                    yield self._problem(
                        f"failed in row {row}: {rollout.failed.rstrip('.')}. Correct it, or the row"
                        f"{columns if rollout.failed.startswith('reset') else ''}",
                        row,
                        "environment-failed",
                    )
                    return
        reported: dict[str, Problem] = {}  # the first of each kind
        for row, nothing, reference, is_known in zip(self.numbers, *earned, known, strict=False):
            if (nothing or 0.0) >= FULL_REWARD:
                message = f"scores {nothing:g} for a rollout without a call (row {row}). Score only the solution"
                reported.setdefault("accepted-noise", self._problem(message, row, "accepted-noise"))
            if is_known and (reference or 0.0) < FULL_REWARD:
                message = f"scores {reference or 0.0:g} for the reference solution of row {row}, not {FULL_REWARD:g}"
                message += ". Correct get_reward, play_reference or the row"
                reported.setdefault("refused-gold", self._problem(message, row, "refused-gold"))
        yield from reported.values()
        yield from self._tools()
        if not reported:
            yield self._summary(added, earned[0], sum(known))

    def _begin(self) -> list[Rollout]:
        workers = self.environments.workers
        numbered = zip(self.numbers, self.rows, strict=True)
        rollouts = [workers.begin(self.index, row, (0, STEP, number)) for number, row in numbered]
        self.environments.rollouts += rollouts
        return rollouts

    def _tools(self) -> Iterator[Problem]:
        for tool in self.environment.tools:
            rollout = self._begin()[0]
            arguments = _sample_arguments(getattr(self.environment.cls, tool))
            text = rollout.call(tool, arguments).text()
            called = f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
            if rollout.killed or rollout.failed:
                yield self._problem(
                    f"failed in {called}: {rollout.failed or text}. Correct the tool", None, "environment-failed"
                )
                continue
            message = f"environment {self.environment.label}: {called} returned: {one_line(text, SHOWN_CHARACTERS)}"
            yield Problem(message, "environment-trial", level="note")

    def _summary(self, added: int, nothing: Sequence[float | None], references: int) -> Problem:
        parts = [f"environment {self.environment.label}: reset on {len(self.numbers)} rows"]
        if added:
            parts.append(f"it adds up to {added:,} characters to a prompt")
        if nothing:
            parts.append(f"a rollout without a call earns at most {max(value or 0.0 for value in nothing):g}")
        parts.append(
            f"the reference solution earns the full reward in {references} of them"
            if references and nothing
            else "no reference solution was scored"
        )
        return Problem("; ".join(parts), "environment-trial", level="note")

    def _problem(self, message: str, row: int | None, kind: str) -> Problem:
        return Problem(f"The environment {self.environment.name} {message}.", kind, self.environment.name, row=row)


def _sample_arguments(method: Any) -> dict[str, Any]:
    """A value for each argument without a default, by its type hint."""
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())[1:]
    return {
        parameter.name: _SAMPLES.get(getattr(parameter.annotation, "__origin__", parameter.annotation))
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
