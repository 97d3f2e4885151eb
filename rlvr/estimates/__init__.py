"""Estimate GPU memory, hours and dollars of a run before it starts.

    machine = find_machine("ml.g6e.12xlarge")
    result = estimate(recipe, config, 4, "zero3", machine, prompt_tokens=plan.longest_prompt, steps=plan.steps)
    print("\\n".join(result.lines()))

The input is the recipe and the model's configuration. docs/benchmarks.md compares estimates with measurements.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.estimates import parameters as counting
from rlvr.estimates.advice import RecipeChange, advise
from rlvr.estimates.machines import Machine, find_machine, this_machine
from rlvr.estimates.memory import GIB, MOMENTS, USABLE, GpuMemory, memory
from rlvr.estimates.run_setup import RunSetup, read_setup
from rlvr.estimates.run_time import RunTime, run_time

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["Estimate", "Machine", "estimate", "find_machine", "this_machine"]

_PARTS = 7  # of the memory, in the output


@dataclass(frozen=True)
class Estimate:
    """Memory, time and cost of a run."""

    setup: RunSetup
    memory: GpuMemory  # of one GPU
    machine: Machine  # the target machine
    steps: int  # updates of the run
    hours: RunTime | None  # None if the GPU's speed is unknown
    changes: tuple[RecipeChange, ...]  # that make the run fit
    needed_after: float  # peak bytes with all of them
    dense: bool  # False for a mixture of experts, whose estimate is rough

    @property
    def fits(self) -> bool:
        """Whether the peak fits into a GPU, and offloaded memory into the machine."""
        return self.memory.peak <= self.machine.gpu.memory * GIB and self.host_fits

    @property
    def is_far_over(self) -> bool:
        """Whether it doesn't fit, and by more than an estimate may be off."""
        return not self.host_fits or self.memory.peak > 1.1 * self.machine.gpu.memory * GIB

    @property
    def host_fits(self) -> bool:
        """Whether offloaded memory fits into the machine; True if its memory is unknown."""
        return self.machine.host is None or self.host_bytes <= self.machine.host * GIB

    @property
    def host_bytes(self) -> float:
        """Bytes that offloading takes of one machine's memory."""
        return self.memory.offloaded * min(self.setup.processes, self.machine.gpus or 10**6)

    @property
    def vllm_share_problem(self) -> str:
        """Why vLLM could not start in its share; empty if it can."""
        needs = self.memory.vllm_needs / GIB
        if self.setup.vllm_share * self.machine.gpu.memory >= needs:
            return ""
        room, share = self.machine.gpu.memory, self.setup.vllm_share
        enough = math.ceil(100 * needs / room) / 100
        fix = f"set {enough:g} or more" if enough < 1 else "take a larger GPU"
        return f"vllm_gpu_memory_utilization: {share:g} is {share * room:.1f} GiB, and vLLM needs {needs:.1f}: {fix}"

    def lines(self) -> list[str]:
        """Format the estimate for the terminal: the table of memory, and the summary."""
        return [*self.table(), *self.summary()]

    def summary(self) -> list[str]:
        """Say whether the run fits the machine, what would help, and how long it takes."""
        share = [f"warning: {self.vllm_share_problem}"] if self.vllm_share_problem else []
        rounds = []
        if self.fits and self.setup.rounds > 1 and not self.setup.vllm:
            rounds = [
                f"transformers makes a generation in {self.setup.rounds} rounds of at most {self.setup.at_once} "
                "completions per GPU, as many as fit"
            ]
        limits = (
            (not self.dense, "a mixture of experts is estimated as if it were dense: a rough estimate"),
            (self.setup.optimizer.startswith("paged"), "a paged optimizer counts as GPU memory, and may leave it"),
            (bool(self.setup.settings.get("lora_target_parameters")), "lora_target_parameters are not counted"),
        )
        notes = [f"note: {note}" for applies, note in limits if applies]
        return [*self._verdict(), *self._advice(), *share, *rounds, *self._duration(), *notes]

    def table(self) -> list[str]:
        """Return a line per part of the memory, with its GiB at each moment."""
        rows: dict[str, list[float]] = {}
        for part in self.memory.parts:
            name = part.name.partition(" (")[0]  # without the moment
            row = rows.setdefault(name, [0.0] * len(MOMENTS))
            for number, moment in enumerate(MOMENTS):
                row[number] += part.bytes if moment in part.moments else 0
        large = sorted(rows, key=lambda name: max(rows[name]), reverse=True)[:_PARTS]
        rest = [sum(row[number] for name, row in rows.items() if name not in large) for number in range(len(MOMENTS))]
        shown = [(name, row) for name, row in rows.items() if name in large]
        shown += [("other", rest), ("total", [self.memory.at(moment) for moment in MOMENTS])]
        head = "GiB on one GPU, estimated"
        width = max(len(head), *(len(name) for name, _ in shown))
        return [
            f"{head:<{width}}" + "".join(f"{moment:>12}" for moment in MOMENTS),
            *(
                f"{name:<{width}}" + "".join(f"{f'{number / GIB:.2f}' if number else '-':>12}" for number in row)
                for name, row in shown
            ),
        ]

    def _verdict(self) -> list[str]:
        peak, room = self.memory.peak / GIB, self.machine.gpu.memory
        machines = self.machine.needed(self.setup.processes)
        several = f"{machines} x " if machines > 1 else ""
        where = f"{several}{self.machine.name} ({room:.3g} GiB{' per GPU' if self.machine.gpus else ''})"
        if peak > room:
            return [f"warning: does NOT fit on {where}: {peak:.1f} GiB when {self.memory.fullest}"]
        if not self.host_fits:
            return [
                f"warning: does NOT fit on {where}: offloading takes {self.host_bytes / GIB:.0f} of "
                f"{self.machine.host:.4g} GiB"
            ]
        offloaded = f", and {self.host_bytes / GIB:.0f} GiB of the machine's memory" if self.host_bytes else ""
        close = ": barely, since an estimate may be off by 10 %" if peak > USABLE * room else ""
        return [f"fits on {where}: {peak:.1f} GiB when {self.memory.fullest}{offloaded}{close}"]

    def _advice(self) -> list[str]:
        if self.memory.peak <= self.machine.gpu.memory * GIB:
            return []
        lines = [f"{change.words} (saves {change.saves / GIB:.1f} GiB)" for change in self.changes]
        if not lines:
            return ["  no known change reduces it: take a larger GPU"]
        after = self.needed_after / GIB
        fits = after <= self.machine.gpu.memory
        then = f"then {after:.1f} GiB, which fits" if fits else f"then still {after:.1f} GiB: take a larger GPU"
        return [*(f"  change {line}" for line in lines), f"  {then}"]

    def _duration(self) -> list[str]:
        if self.hours is None or not self.fits:
            return []
        low, high = self.hours.total
        dollars = self.hours.dollars(self.machine, self.setup.processes)
        cost = f", {_dollars(*dollars)}" if dollars is not None else ""
        share = self.hours.generating[1] / high if high else 0
        return [f"estimate: {_times(low, high)} for {self.steps:,} updates{cost}, {share:.0%} generating"]


def estimate(
    recipe: Recipe,
    config: PretrainedConfig,
    processes: int,
    launcher: str,
    machine: Machine,
    *,
    prompt_tokens: int,
    steps: int,
) -> Estimate:
    """Estimate memory, time and cost of a recipe.

    Args:
        config: of the model; no weights are read.
        processes: number of GPUs that train together.
        launcher: as returned by `rlvr.training.launch.launcher`.
        machine: see `find_machine` and `this_machine`.
        prompt_tokens: of the longest prompt.
        steps: updates of the run.

    Raises:
        InputError: of kind "unknown-architecture".
    """
    whole = counting.count(config)
    shape = counting.shape(config, whole)
    room = machine.gpu.memory * GIB

    def estimate_with(keys: Mapping[str, Any], kind: str) -> tuple[RunSetup, GpuMemory]:
        changed = replace(recipe, settings={**recipe.settings, **keys})
        setup = read_setup(changed, config, processes, kind, prompt_tokens)
        added = counting.adapter(whole, config, changed.settings) if setup.peft else None
        if not setup.vllm and not changed.settings.get("per_device_generation_batch_size"):

            def overflows(rows: int) -> bool:  # a tenth of the GPU stays free
                used = memory(whole, added, shape, replace(setup, at_once=rows), gpu_memory=room)
                return used.at("generating") > USABLE * room

            largest = max(bisect.bisect_left(range(1, setup.generated + 1), True, key=overflows), 1)
            rounds = -(-setup.generated // largest)
            setup = replace(setup, at_once=-(-setup.generated // rounds))
        return setup, memory(whole, added, shape, setup, gpu_memory=room)

    setup, needed_memory = estimate_with({}, launcher)
    changes: tuple[RecipeChange, ...] = ()
    needed = needed_memory.peak
    if needed_memory.peak > room:
        changes, needed = advise(setup, room, lambda keys, kind: estimate_with(keys, kind)[1].peak)
    added = counting.adapter(whole, config, recipe.settings) if setup.peft else None
    return Estimate(
        setup=setup,
        memory=needed_memory,
        machine=machine,
        steps=steps,
        hours=run_time(whole, added, shape, setup, machine.gpu, steps=steps),
        changes=changes,
        needed_after=needed,
        dense=shape.dense,
    )


def _times(low: float, high: float) -> str:
    """Format a range of hours: "3.7 to 14 hours"."""
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
