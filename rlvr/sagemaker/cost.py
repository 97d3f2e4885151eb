"""Price per hour and maximum cost of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.estimates.machines import INSTANCES, PRICES_READ

if TYPE_CHECKING:
    from rlvr.estimates import Estimate

# Dollars per hour of hosts without GPUs, on demand in us-east-1, like those of rlvr/estimates/machines.py. Read in
# 2026-11 from the tables of several public projects, which agree to the cent. No two tables of ml.c7i.* were found.
_CPU_PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.230,
    "ml.m5.2xlarge": 0.461,
    "ml.m5.4xlarge": 0.922,
    "ml.m5.12xlarge": 2.765,
    "ml.m5.24xlarge": 5.530,
}


def cost_lines(settings: SageMakerSettings, estimate: Estimate | None) -> list[str]:
    """Price per hour, maximum cost of the job, and a warning if max_runtime_s may be too short."""
    hours = settings.max_runtime_s / 3600
    prices = {group: _price(group) for group in settings.groups}
    rate = sum(price for price in prices.values() if price is not None)
    unknown = sorted({group.instance_type for group, price in prices.items() if price is None})
    lines = []
    if unknown:
        lines.append(f"no price known for {', '.join(unknown)} (prices: rlvr/estimates/machines.py)")
    if len(unknown) < len({group.instance_type for group in settings.groups}):
        rest = "other hosts: " if unknown else ""
        lines.append(
            f"{rest}{rate:,.2f} dollars an hour, at most {rate * hours:,.0f} in {hours:.3g} h "
            f"(on demand in us-east-1, prices of {PRICES_READ})"
        )
        if settings.keep_alive_s:
            warm = rate * settings.keep_alive_s / 3600
            lines.append(f"{warm:,.2f} dollars more to keep the hosts warm for {settings.keep_alive_s} s")
    if estimate is not None and estimate.hours is not None and estimate.hours.total[1] > hours:
        fastest, slowest = estimate.hours.total
        lines.append(
            f"{'warning: ' if fastest > hours else ''}training may take {fastest:.1f} to {slowest:.1f} hours, but "
            f"max_runtime_s ends the job after {hours:.3g}: it would save a checkpoint, and `resume` would continue"
        )
    return lines


def _price(group: InstanceGroup) -> float | None:
    """Dollars per hour of all hosts of a group; None if unknown."""
    machine = INSTANCES.get(group.instance_type)
    price = machine.price if machine is not None else _CPU_PRICES.get(group.instance_type)
    return price * group.instance_count if price is not None else None
