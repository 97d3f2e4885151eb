"""A reward function with its options; gates and row masking.

`None` means that a row can't be scored through a failure of ours. The whole row then leaves the update, whatever other
rewards return (TRL alone would count `None` as 0, a wrong answer). A gated reward counts only where its gate is
positive. A reward with `applies_to` counts only for rows of those tasks; it is not called with others.

`Reward` calls the function in this process; rlvr/scoring/scorer.py calls it wherever the recipe says.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import FailedRun

if TYPE_CHECKING:
    from rlvr.config.specs import RewardSpec


class RewardError(FailedRun):
    """A reward function raised, or returned no list of rewards. The message names it and, if known, the row."""


@dataclass
class Reward:
    """A reward function with its options bound: callable as TRL calls it, and by name in its metrics.

    Attributes:
        name: as the recipe writes it.
        function: the TRL reward function itself.
        options: keyword arguments added to every call.
        defaults: of options that no column of the data replaces.
        columns: the columns of the data that the function asks for.
        weight, gate, where, applies_to: see `rlvr.config.specs.RewardSpec`.
        spec: from which another process loads the same reward; None for a function that only this process has (a
            lambda, a closure).
    """

    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    weight: float = 1.0
    gate: str | None = None
    where: str | None = None
    applies_to: tuple[str, ...] | None = None
    spec: RewardSpec | None = None

    def __post_init__(self) -> None:
        self.__name__ = self.label  # GRPOTrainer names its metrics after it: rewards/<label>/mean

    @property
    def label(self) -> str:
        """Short name for tables and metrics."""
        return label_of(self.name)

    def applies(self, task: str | None) -> bool:
        """Whether it counts for rows of the task with this label."""
        return self.applies_to is None or task in self.applies_to

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float | None]:
        """Score a batch, for audits; training and evaluation call the function in `rlvr.scoring.backends.local`.

        Args:
            prompts, completions: one per row; strings, or lists of chat messages.
            kwargs: the columns of the data (one list each, as long as `completions`) and what GRPOTrainer adds.

        Returns:
            One finite number per row, or None where the row can't be scored.

        Raises:
            RewardError: with the reward's name.
        """
        try:
            # An option holds for all rows, whatever a column of its name says.
            named = {**kwargs, **self.defaults, **self.options}
            returned = await_value(self.function(prompts=prompts, completions=completions, **named))
        except Exception as error:
            raise RewardError(f"The reward {self.name} raised {type(error).__name__}: {error}") from error
        values = as_values(returned, len(completions))
        if isinstance(values, str):
            raise RewardError(f"The reward {self.name} {values}.")
        numbers = [value for value in values if not isinstance(value, str)]
        if len(numbers) < len(values):
            row, shown = next((row, value) for row, value in enumerate(values) if isinstance(value, str))
            raise RewardError(f"The reward {self.name} returned {shown} for row {row} of the batch; {A_REWARD_IS}.")
        return numbers


# The reward that decides whether an answer is right, by the label of its task. The label of a recipe's only task is "".
Metrics = Mapping[str, Reward]


def metrics_of(metrics: Metrics) -> list[Reward]:
    """The rewards that decide, each once."""
    each = list(metrics.values())
    return [reward for place, reward in enumerate(each) if reward not in each[:place]]


def label_of(name: str) -> str:
    """The function's part of a path or of a dotted name: the same on machines with the file in another folder."""
    path, _, function = name.partition(":")
    is_file = path.endswith(".py")
    return function or (path.removesuffix(".py").rpartition("/")[2] if is_file else path.rpartition(".")[2])


MODULE_FIX = (
    "If it is a package, install it. If it is a file of yours, put its folder on PYTHONPATH, or write "
    "`sys.path.append(str(Path(__file__).parent))` above the import for a file in the same folder."
)
WHY = "/why"  # ends a column that explains scores: rlvr/reward_audit/reward_call.py asks for it, a run drops it
A_REWARD_IS = "a reward is a finite number, or None where the row can't be scored"


def as_values(returned: Any, rows: int) -> list[float | str | None] | str:
    """What a reward function returned, as numbers and None; text for what is neither. Or why it is no list of rewards.

    Args:
        rows: the number of rewards to expect.
    """
    if isinstance(returned, str | bytes | Mapping) or not hasattr(returned, "__iter__"):
        return f"returned {type(returned).__name__}, but should return a list"
    values = list(returned)
    if len(values) != rows:
        return f"returned {len(values)} values for {rows} completions"
    return [_number_or_text(value) for value in values]


def _number_or_text(value: Any) -> float | str | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return number if math.isfinite(number) else repr(value)[:200]


def await_value(value: Any) -> Any:
    """What a function returned; of an async one, wait for its result."""
    if not inspect.isawaitable(value):
        return value
    import asyncio  # takes 50 ms, and most workers call no async reward

    async def result() -> Any:
        return await value

    return asyncio.run(result())


def file_of(function: Callable[..., Any]) -> str | None:
    """The file that defines a function or a callable object."""
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return None if code is None else code.co_filename


def own_traceback(error: BaseException, file: str | Path | None, *, chain: bool = False) -> str:
    """The traceback from the user's file on, without our own frames and the import system's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, chain=chain)).rstrip()


def excerpt(completion: Any) -> str:
    """The start of a completion, for a message."""
    is_chat = isinstance(completion, list) and len(completion) > 0 and isinstance(completion[-1], dict)
    text = repr(completion[-1].get("content", "") if is_chat else completion)
    return text if len(text) <= 120 else f"{text[:117]}..."


def apply_gates(
    values: Sequence[Sequence[float | None]], rewards: Sequence[Reward], tasks: Sequence[str | None] | None = None
) -> list[list[float | None]]:
    """Apply gates to raw rewards.

    Args:
        values: one row per completion, one entry per reward in the order of `rewards`; None or NaN if not scored.
        tasks: the label of each row's task, where rewards have `applies_to`.

    Returns:
        The same shape. A gated reward is 0 where its gate is not positive. None is a reward that does not apply, that
        gave no score, or whose gate gave none.
    """
    names = [reward.name for reward in rewards]
    gates = [names.index(reward.gate) if reward.gate is not None else index for index, reward in enumerate(rewards)]
    settled: list[list[float | None]] = []
    for row, applying in zip(values, _applying(rewards, tasks, len(values)), strict=True):
        numbers = {index: value for index, value in enumerate(row) if value is not None and not math.isnan(value)}
        known = [index in applying and index in numbers and gate in numbers for index, gate in enumerate(gates)]
        settled.append(
            [
                None if not known[index] else numbers[index] if gate == index or numbers[gate] > 0 else 0.0
                for index, gate in enumerate(gates)
            ]
        )
    return settled


def apply_gates_and_mask(
    values: Sequence[Sequence[float | None]], rewards: Sequence[Reward], tasks: Sequence[str | None] | None = None
) -> list[list[float | None]]:
    """Apply gates as `apply_gates`, and mask: a row that any reward has not scored is None throughout."""
    rows = apply_gates(values, rewards, tasks)
    return [
        row if all(row[index] is not None for index in applying) else [None] * len(row)
        for row, applying in zip(rows, _applying(rewards, tasks, len(rows)), strict=True)
    ]


def _applying(rewards: Sequence[Reward], tasks: Sequence[str | None] | None, rows: int) -> Iterator[set[int]]:
    """The rewards that apply to each row, by their index."""
    by_task = {
        task: {index for index, reward in enumerate(rewards) if reward.applies(task)} for task in set(tasks or [None])
    }
    return (by_task[task] for task in tasks or [None] * rows)


def total(row: Sequence[float | None], rewards: Sequence[Reward]) -> float | None:
    """The weighted sum of a row after gates and masks, or None if the row is masked."""
    products = [value * reward.weight for value, reward in zip(row, rewards, strict=True) if value is not None]
    return sum(products) if products else None
