"""The quotas that a job counts against: on-demand, spot and warm-pool hosts have one each, for every instance type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.sagemaker.settings import SageMakerSettings


@dataclass(frozen=True)
class Quota:
    """A quota by its name in Service Quotas, and how many hosts of it a job takes."""

    name: str
    needed: int


def quotas_of(settings: SageMakerSettings) -> list[Quota]:
    """The quotas of a job, each once."""
    needed: dict[str, int] = {}
    for group in settings.groups:
        kind = "spot training job usage" if settings.spot else "training job usage"
        names = [f"{group.instance_type} for {kind}"]
        if settings.keep_alive_s:
            names.append(f"{group.instance_type} for training warm pool usage")
        for name in names:
            needed[name] = needed.get(name, 0) + group.instance_count
    return [Quota(name, count) for name, count in needed.items()]


def console_link(region: str | None) -> str:
    region = region or "us-east-1"
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"


def quota_faults(wanted: Iterable[Quota], found: Iterable[Mapping[str, Any]], region: str | None) -> list[str]:
    """What the account's quotas, as Service Quotas lists them, are too small for; one that isn't listed is left out."""
    values = {str(one["QuotaName"]): float(one["Value"]) for one in found}
    return [
        f"The quota {quota.name} is {values[quota.name]:g} in {region}, but the job takes {quota.needed}. Ask for more "
        f"(it takes hours to days): {console_link(region)}, look for its name; or take another instance type or region."
        for quota in wanted
        if values.get(quota.name, quota.needed) < quota.needed
    ]
