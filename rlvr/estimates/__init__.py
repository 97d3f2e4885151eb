"""What a run will take before it is started: memory of a GPU, hours and dollars.

    machine = find_machine("ml.g6e.12xlarge")
    found = estimate(recipe, config, 4, "zero3", machine, prompt_tokens=plan.longest_prompt, steps=plan.steps)
    print("\\n".join(found.lines()))

From the recipe and the model's configuration alone. docs/estimates.md says what was compared with what really happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr.config.batch_plan import reward_batch_timeout
from rlvr.config.recipe import Recipe
from rlvr.estimates import parameters as counting
from rlvr.estimates.advice import Change, advise
from rlvr.estimates.machines import PRICES_READ, Machine, find_machine, this_machine
from rlvr.estimates.memory import GIB, MOMENTS, Memory, memory
from rlvr.estimates.rollouts import Rollouts, rollouts
from rlvr.estimates.run_time import Hours, hours
from rlvr.estimates.setup import Setup, set_up

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["Estimate", "Machine", "estimate", "find_machine", "this_machine"]

# Lines of the whole, of which so many parts have one for themselves, and so many changes.
_LINES, _SHOWN, _ADVICE = 15, 7, 7


@dataclass(frozen=True)
class Estimate:
    """What a run will take.

    Attributes:
        setup, memory: one GPU.
        machine: what it is meant to run on; None if nothing was named.
        hours: None without a machine whose speed is known, or without steps.
        rollouts: None without steps.
        changes: what to change where it doesn't fit, and `needed_then` the bytes at the fullest moment after all that.
        notes: where the estimate is weak.
    """

    setup: Setup
    memory: Memory
    machine: Machine | None
    hours: Hours | None
    rollouts: Rollouts | None
    changes: tuple[Change, ...]
    needed_then: float
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool | None:
        """Whether the fullest moment fits into a GPU, and what is offloaded into the machine; None if none is named."""
        if self.machine is None:
            return None
        return self.memory.peak <= self.machine.gpu.memory * GIB and self.host_fits

    @property
    def host_fits(self) -> bool:
        """Whether what is offloaded fits into the machine's own memory, as far as that is known."""
        if self.machine is None or self.machine.host is None:
            return True
        return self.host <= self.machine.host * GIB

    @property
    def host(self) -> float:
        """Bytes of one machine's own memory that offloading takes."""
        here = min(self.setup.processes, self.machine.gpus if self.machine and self.machine.gpus else 10**6)
        return self.memory.offloaded * here

    def lines(self) -> list[str]:
        """The estimate as a table for the terminal: at most 15 lines, whatever the recipe."""
        below = [*self._verdict(), *self._advice(), *self._duration(), *self.notes[:1]]
        return [*self._table(_LINES - len(below)), *below]

    def _table(self, lines: int) -> list[str]:
        rows: dict[str, list[float]] = {}
        for part in self.memory.parts:
            name = "gaps between blocks" if part.name.startswith("gaps") else part.name.removesuffix(" (training)")
            row = rows.setdefault(name, [0.0] * len(MOMENTS))
            for number, moment in enumerate(MOMENTS):
                row[number] += part.bytes if moment in part.moments else 0
        # A head, what is too small for a line of its own, and the sums take three of the lines.
        large = sorted(rows, key=lambda name: max(rows[name]), reverse=True)[: min(_SHOWN, lines - 3)]
        rest = [sum(row[number] for name, row in rows.items() if name not in large) for number in range(len(MOMENTS))]
        shown = [(name, row) for name, row in rows.items() if name in large]
        shown += [("the rest", rest), ("together", [self.memory.at(moment) for moment in MOMENTS])]
        head = "GiB on one GPU, estimated"
        width = max(len(head), *(len(name) for name, _ in shown))
        return [
            f"{head:<{width}}" + "".join(f"{moment:>12}" for moment in MOMENTS),
            *(f"{name:<{width}}" + "".join(f"{_gib(number):>12}" for number in row) for name, row in shown),
        ]

    def _verdict(self) -> list[str]:
        if self.machine is None:
            return []
        peak, room = self.memory.peak / GIB, self.machine.gpu.memory
        where = f"{self.machine.name} ({room:g} GiB{' a GPU' if self.machine.gpus else ''})"
        if peak > room:
            return [f"warning: does NOT fit on {where}: {peak:.1f} GiB when {self.memory.fullest}"]
        if not self.host_fits:
            return [
                f"warning: does NOT fit on {where}: offloading takes {self.host / GIB:.0f} of {self.machine.host:g} GiB"
            ]
        offloaded = f", and {self.host / GIB:.0f} GiB of the machine's own memory" if self.host else ""
        close = ": barely, since an estimate can be some 10 % off" if peak > 0.9 * room else ""
        return [f"fits on {where}: {peak:.1f} GiB when {self.memory.fullest}{offloaded}{close}"]

    def _advice(self) -> list[str]:
        if self.machine is None or self.memory.peak <= self.machine.gpu.memory * GIB:
            return []
        told = [f"{change.words} (saves {change.saves / GIB:.1f} GiB)" for change in self.changes]
        if len(told) > _ADVICE:
            told = [*told[: _ADVICE - 1], "; ".join(told[_ADVICE - 1 :])]
        end = self.needed_then / GIB
        if not told:
            return ["  nothing that we know of makes it smaller: take a larger GPU"]
        fits = self.needed_then <= self.machine.gpu.memory * GIB
        then = f"then {end:.1f} GiB, which fits" if fits else f"then still {end:.1f} GiB: take a larger GPU"
        return [f"  change {one}" for one in told] + [f"  {then}"]

    def _duration(self) -> list[str]:
        if self.machine is None or self.hours is None or self.rollouts is None or not self.fits:
            return []
        low, high = self.hours.total
        dollars = self.hours.dollars(self.machine, self.setup.processes)
        cost = ""
        if dollars is not None:
            cost = f", {_dollars(*dollars)} (prices of {PRICES_READ})"
        share = self.hours.generating[1] / high if high else 0
        return [
            f"{_times(low, high)} for {self.rollouts.steps:,} updates{cost}, {share:.0%} of it generating; "
            "not measured, and without rewards"
        ]


def estimate(
    recipe: Recipe,
    config: PretrainedConfig,
    processes: int,
    launcher: str,
    machine: Machine | None,
    *,
    prompt_tokens: int,
    steps: int | None = None,
) -> Estimate:
    """Estimates what a recipe takes.

    Args:
        config: of the model; no weights are read.
        processes: how many GPUs train together.
        launcher: as `rlvr.training.launch.launcher` says.
        machine: see `find_machine` and `this_machine`; None to reckon memory without a verdict.
        prompt_tokens: of the longest prompt.
        steps: updates of the run; None leaves out hours, dollars and the rollout plan.

    Raises:
        InputError: the model's architecture isn't known to transformers.
    """
    whole = counting.count(config)
    shape = counting.shape(config, whole)
    room = machine.gpu.memory * GIB if machine else None

    def weigh(keys: Mapping[str, Any], kind: str) -> tuple[Setup, Memory]:
        changed = replace(recipe, settings={**recipe.settings, **keys})
        setup = set_up(changed, config, processes, kind, prompt_tokens)
        added = counting.adapter(whole, config, changed.settings) if setup.peft else None
        return setup, memory(whole, added, shape, setup, gpu_memory=room)

    setup, found = weigh({}, launcher)
    changes: tuple[Change, ...] = ()
    needed = found.peak
    if room is not None and found.peak > room:
        changes, needed = advise(setup, room, lambda keys, kind: weigh(keys, kind)[1].peak)
    added = counting.adapter(whole, config, recipe.settings) if setup.peft else None
    return Estimate(
        setup=setup,
        memory=found,
        machine=machine,
        hours=hours(whole, added, shape, setup, machine.gpu, steps=steps) if machine and steps else None,
        rollouts=rollouts(setup, steps=steps, budget_s=reward_batch_timeout(recipe)) if steps else None,
        changes=changes,
        needed_then=needed,
        notes=_notes(setup, shape),
    )


def _notes(setup: Setup, shape: counting.Shape) -> tuple[str, ...]:
    """Where the estimate is weaker than elsewhere, the weightiest first."""
    found = []
    if not shape.dense:
        found.append(
            "a mixture of experts: its activations and hours are estimated as if it were dense, which is rough"
        )
    if setup.optimizer.startswith("paged"):
        found.append("a paged optimizer may move to the machine's memory when the GPU is full; it is counted here")
    if setup.settings.get("lora_target_parameters"):
        found.append("lora_target_parameters are not counted")
    return tuple(f"note: {note}" for note in found)


def _gib(number: float) -> str:
    return f"{number / GIB:.2f}" if number else "-"


def _times(low: float, high: float) -> str:
    """A range of hours: "3.7 to 14 hours"."""
    if high < 1 / 60:
        return "less than a minute"
    (few, unit), (many, other) = _time(low), _time(high)
    return f"{few} to {many} {unit}" if unit == other else f"{few} {unit} to {many} {other}"


def _time(hours_: float) -> tuple[str, str]:
    if hours_ < 1.5:
        return f"{hours_ * 60:.0f}", "minutes"
    return f"{hours_:.1f}" if hours_ < 10 else f"{hours_:.0f}", "hours"


def _dollars(low: float, high: float) -> str:
    return "less than a dollar" if high < 1 else f"{low:,.0f} to {high:,.0f} dollars"
